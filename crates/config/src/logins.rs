//! The logins of `konverge.yaml`: the cloud identities of a stack's providers and of its cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config_problem::{Problem, problem};

/// An identity at one or more clouds, for the stacks whose rule names it. The job trades its own short-lived token for
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Login")]
pub struct LoginConfig {
    /// The identity at AWS.
    pub aws: Option<AwsLoginConfig>,
    /// The identity at Google Cloud.
    pub google: Option<GoogleLoginConfig>,
    /// The identity at Azure.
    pub azure: Option<AzureLoginConfig>,
    /// The identity at Alibaba Cloud.
    pub alibaba: Option<AlibabaLoginConfig>,
}

/// The roles at AWS.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AwsLogin")]
pub struct AwsLoginConfig {
    /// The role of applies, as an ARN. It trusts the token of the job that applies.
    pub role: String,
    /// The role of previews and drift checks, which should only read. Without it previews compare Specs.
    #[serde(default)]
    pub preview_role: Option<String>,
    /// The region of providers whose Spec names none (`AWS_REGION`). Default: none.
    #[serde(default)]
    pub region: Option<String>,
}

/// The service accounts at Google Cloud.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "GoogleLogin")]
pub struct GoogleLoginConfig {
    /// The service account of applies: `apply@my-project.iam.gserviceaccount.com`.
    pub service_account: String,
    /// The service account of previews and drift checks. Without it previews compare Specs.
    #[serde(default)]
    pub preview_service_account: Option<String>,
    /// The workload identity provider that trusts the job: `projects/…/providers/…`. Default: the variable
    /// `GOOGLE_WORKLOAD_IDENTITY_PROVIDER` of the job.
    #[serde(default)]
    pub provider: Option<String>,
}

/// The applications at Azure.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AzureLogin")]
pub struct AzureLoginConfig {
    /// The id of the application of applies.
    pub client_id: String,
    /// The id of the application of previews and drift checks. Without it previews compare Specs.
    #[serde(default)]
    pub preview_client_id: Option<String>,
    /// The id of the tenant. Default: the variable `AZURE_TENANT_ID` of the job.
    #[serde(default)]
    pub tenant_id: Option<String>,
}

/// The roles at Alibaba Cloud.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AlibabaLogin")]
pub struct AlibabaLoginConfig {
    /// The role of applies, as an ARN: `acs:ram::1234567890123456:role/apply`.
    pub role: String,
    /// The role of previews and drift checks. Without it previews compare Specs.
    #[serde(default)]
    pub preview_role: Option<String>,
    /// The OIDC provider of the role's account, as an ARN. Default: the variable `ALIBABA_CLOUD_OIDC_PROVIDER_ARN` of
    /// the job.
    #[serde(default)]
    pub oidc_provider: Option<String>,
}

/// One identity of a login: its key, the identity for applies, the identity for previews, and a check of their format.
type Identity<'a> = (&'static str, &'a str, Option<&'a str>, fn(&str) -> bool);

impl LoginConfig {
    fn identities(&self) -> Vec<Identity<'_>> {
        let mut all: Vec<Identity<'_>> = Vec::new();
        if let Some(aws) = &self.aws {
            all.push(("aws.role", &aws.role, aws.preview_role.as_deref(), is_aws_role));
        }
        if let Some(google) = &self.google {
            let preview = google.preview_service_account.as_deref();
            all.push((
                "google.service_account",
                &google.service_account,
                preview,
                is_service_account,
            ));
        }
        if let Some(azure) = &self.azure {
            let preview = azure.preview_client_id.as_deref();
            all.push(("azure.client_id", &azure.client_id, preview, is_application));
        }
        if let Some(alibaba) = &self.alibaba {
            let preview = alibaba.preview_role.as_deref();
            all.push(("alibaba.role", &alibaba.role, preview, is_alibaba_role));
        }
        all
    }

    /// Returns true if a preview has an identity of its own at each of the clouds.
    pub fn has_preview(&self) -> bool {
        self.identities()
            .iter()
            .all(|(_, _, preview, _)| preview.is_some())
    }

    /// Returns the missing keys that would give previews an identity of their own.
    pub fn missing_preview_keys(&self) -> Vec<String> {
        let missing = self
            .identities()
            .into_iter()
            .filter(|(_, _, preview, _)| preview.is_none());
        missing.map(|(key, ..)| preview_key(key)).collect()
    }
}

/// Returns the key of the preview identity, such as `aws.preview_role` for `aws.role`.
fn preview_key(key: &str) -> String {
    key.replacen('.', ".preview_", 1)
}

/// Returns the first problem of a login, with a hint.
pub(super) fn login_problem(name: &str, login: &LoginConfig) -> Option<Problem> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || !name.chars().all(is_word) {
        return problem(format!(
            "logins: `{}` is not the name of a login",
            name.escape_debug()
        ))
        .hint("write letters, digits, `-`, `_` and `.`, such as `prod`");
    }
    let identities = login.identities();
    if identities.is_empty() {
        let hint =
            "write `aws: {role: \"arn:aws:iam::ACCOUNT:role/NAME\"}`, or `google`, `azure` or `alibaba`";
        return problem(format!("logins.{name} names no cloud")).hint(hint);
    }
    identities.into_iter().find_map(|(key, apply, preview, has_form)| {
        let preview_key = preview_key(key);
        let mut all = [(key, Some(apply)), (&preview_key, preview)].into_iter();
        if let Some((key, Some(text))) = all.find(|(_, text)| text.is_some_and(|text| !has_form(text))) {
            let shown = text.escape_debug();
            let what = format!("logins.{name}.{key}: `{shown}` does not name an identity of that cloud");
            return problem(what).hint(
                "write the ARN of a role (`arn:aws:iam::111122223333:role/apply`), the address of a service account, \
                 or the id of an application",
            );
        }
        (preview == Some(apply)).then_some(())?;
        problem(format!(
            "logins.{name}.{preview_key} is the identity of applies, which a preview never gets"
        ))
        .hint(format!(
            "name an identity that only reads, or remove `{preview_key}`: previews then compare Specs"
        ))
    })
}

fn is_aws_role(text: &str) -> bool {
    let parts: Vec<_> = text.splitn(6, ':').collect();
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/+=,.@_-".contains(c);
    match parts.as_slice() {
        ["arn", partition, "iam", "", account, role] => {
            partition.starts_with("aws")
                && partition.chars().all(|c| c.is_ascii_lowercase() || c == '-')
                && account.len() == 12
                && account.chars().all(|c| c.is_ascii_digit())
                && role
                    .strip_prefix("role/")
                    .is_some_and(|name| !name.is_empty() && name.chars().all(is_path))
        }
        _ => false,
    }
}

fn is_alibaba_role(text: &str) -> bool {
    let rest = text
        .strip_prefix("acs:ram::")
        .and_then(|rest| rest.split_once(":role/"));
    let is_name = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
    rest.is_some_and(|(account, name)| {
        !account.is_empty()
            && account.chars().all(|c| c.is_ascii_digit())
            && !name.is_empty()
            && name.chars().all(is_name)
    })
}

fn is_service_account(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
    text.split_once('@').is_some_and(|(name, host)| {
        !name.is_empty()
            && name.chars().all(is_name)
            && host.ends_with(".gserviceaccount.com")
            && host.chars().all(is_name)
    })
}

fn is_application(text: &str) -> bool {
    text.len() == 36 && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn refusal(text: &str) -> String {
        Config::parse(text).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn a_login_names_identities_of_its_clouds() {
        let good = "logins:\n  prod:\n    aws: {role: 'arn:aws:iam::111122223333:role/a/apply', preview_role: 'arn:aws:iam::111122223333:role/plan'}\n    google: {service_account: apply@prod.iam.gserviceaccount.com}\n  cn: {aws: {role: 'arn:aws-cn:iam::111122223333:role/x'}, azure: {client_id: 99999999-8888-7777-6666-555555555555}, alibaba: {role: 'acs:ram::1234:role/apply'}}\nstacks: [{match: 'a/*', login: prod, environment: production}]\n";
        let config = Config::parse(good).unwrap();
        assert!(!config.logins["prod"].has_preview());
        assert_eq!(
            config.logins["prod"].missing_preview_keys(),
            ["google.preview_service_account"]
        );
        assert_eq!(config.environments(), ["production"]);
        for (text, says) in [
            ("logins: {p: {}}", "names no cloud"),
            ("logins: {'a b': {}}", "not the name of a login"),
            ("logins: {p: {aws: {role: admin}}}", "does not name an identity"),
            (
                "logins: {p: {aws: {role: 'arn:aws:iam::1:role/x'}}}",
                "does not name an identity",
            ),
            (
                "logins: {p: {aws: {role: 'arn:aws:iam::111122223333:user/x'}}}",
                "does not name an identity",
            ),
            (
                "logins: {p: {aws: {role: 'arn:aws:iam::111122223333:role/x y'}}}",
                "does not name an identity",
            ),
            (
                "logins: {p: {google: {service_account: 'a/../b'}}}",
                "does not name an identity",
            ),
            (
                "logins: {p: {azure: {client_id: me}}}",
                "does not name an identity",
            ),
            (
                "logins: {p: {alibaba: {role: 'acs:ram::x:role/a'}}}",
                "does not name an identity",
            ),
            (
                "logins: {p: {aws: {role: 'arn:aws:iam::111122223333:role/x', preview_role: 'arn:aws:iam::111122223333:role/x'}}}",
                "which a preview never gets",
            ),
            ("logins: {p: {aws: {}}}", "role"),
            ("stacks: [{match: 'a/*', login: prod}]", "names login `prod`"),
        ] {
            let refusal = refusal(text);
            assert!(refusal.contains(says), "{text}: {refusal}");
        }
    }
}
