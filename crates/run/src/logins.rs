//! [`Logins`]: the identities with which a stack uses its providers and its cluster, by the rule for its folder. Each
//! login requests credentials once per run. Applies and previews have different identities.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;

use crate::RunContext;
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    sync::lock,
    variables,
};
use konverge_cloud::{
    AlibabaLogin, AwsLogin, AzureLogin, CloudEnvironment, CloudError, GoogleLogin, StackIdentity, job_subject,
};
use konverge_config::{Config, EffectiveStack, LoginConfig};
use konverge_secrets::{Secrets, learn_environment};
use konverge_terraform::{ProviderCredentials, ProviderLogin};

/// The purpose of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoginUse {
    /// The login is for previews and drift checks, which only read.
    Preview,
    /// The login is for applies.
    Apply,
}

/// The identity that a stack uses.
pub enum StackLoginChoice {
    /// The identity of the job itself, because no rule names a login.
    Job,
    /// The identity of this login.
    Login(Arc<StackLogin>),
    /// No identity, because the login has none for previews; the text says why.
    NoPreview(String),
}

/// The logins of a run, by name and use.
pub struct Logins {
    run: RunContext,
    secrets: Secrets,
    configured: BTreeMap<String, LoginConfig>,
    open: Mutex<BTreeMap<(String, LoginUse), Arc<StackLogin>>>,
    noted: AtomicBool,
}

impl Logins {
    /// Creates the logins of a configuration. Their credentials are added to `secrets`. No request is sent yet.
    pub fn new(run: &RunContext, config: &Config, secrets: Secrets) -> Self {
        Self {
            run: run.clone(),
            secrets,
            configured: config.logins.clone(),
            open: Mutex::default(),
            noted: AtomicBool::new(false),
        }
    }

    /// Returns the identity for a stack with these rules.
    ///
    /// # Errors
    /// The configuration does not have the login that a rule names.
    pub fn choose(&self, rules: &EffectiveStack, usage: LoginUse) -> Result<StackLoginChoice, UserError> {
        let Some(name) = &rules.login else {
            return Ok(StackLoginChoice::Job);
        };
        if !self.run.in_ci() {
            if !self.noted.swap(true, Ordering::Relaxed) {
                self.run.notes.note(
                    "the `logins` of konverge.yaml are for jobs: outside of CI your own credentials are used",
                );
            }
            return Ok(StackLoginChoice::Job);
        }
        let login = self.configured.get(name).ok_or_else(|| {
            UserError::new(
                ErrorKind::Config,
                format!("there is no login `{}`", name.escape_debug()),
            )
            .hint("define the login under `logins` in konverge.yaml")
        })?;
        if usage == LoginUse::Preview && !login.has_preview() {
            let keys: Vec<_> = login.missing_preview_keys();
            return Ok(StackLoginChoice::NoPreview(format!(
                "the login `{name}` has no identity for previews (`{}`)",
                keys.join("`, `")
            )));
        }
        Ok(StackLoginChoice::Login(self.open(name, login, usage)))
    }

    /// Returns every login of the configuration, for both uses.
    pub fn all(&self) -> Vec<Arc<StackLogin>> {
        let uses = [LoginUse::Preview, LoginUse::Apply];
        let all = self.configured.iter();
        all.flat_map(|(name, login)| uses.map(|usage| (name, login, usage)))
            .filter(|(_, login, usage)| *usage == LoginUse::Apply || login.has_preview())
            .map(|(name, login, usage)| self.open(name, login, usage))
            .collect()
    }

    fn open(&self, name: &str, login: &LoginConfig, usage: LoginUse) -> Arc<StackLogin> {
        let mut open = lock(&self.open);
        let known = open.entry((name.to_owned(), usage)).or_insert_with(|| {
            let environment = CloudEnvironment::new(self.run.env.clone());
            Arc::new(StackLogin {
                key: (name.to_owned(), usage),
                identity: Arc::new(identity(name, login, usage, &environment)),
                environment,
                secrets: self.secrets.clone(),
            })
        });
        Arc::clone(known)
    }
}

/// Returns the identity of a login for one use.
fn identity(
    name: &str,
    login: &LoginConfig,
    usage: LoginUse,
    environment: &CloudEnvironment,
) -> StackIdentity {
    let select = |apply: &String, preview: &Option<String>| match usage {
        LoginUse::Apply => Some(apply.clone()),
        LoginUse::Preview => preview.clone(),
    };
    let mut identity = StackIdentity {
        name: match usage {
            LoginUse::Apply => name.to_owned(),
            LoginUse::Preview => format!("{name}, for previews"),
        },
        ..StackIdentity::default()
    };
    if let Some(aws) = &login.aws {
        let environment = environment
            .clone()
            .with(variables::AWS_REGION, aws.region.as_deref());
        let role = select(&aws.role, &aws.preview_role);
        identity.aws = role.map(|role| AwsLogin::of_login(role, environment));
        identity.aws_roles = [&aws.role]
            .into_iter()
            .chain(&aws.preview_role)
            .cloned()
            .collect();
        identity.aws_region.clone_from(&aws.region);
    }
    if let Some(google) = &login.google {
        let account = select(&google.service_account, &google.preview_service_account);
        let open = |account| GoogleLogin::of_login(account, google.provider.as_deref(), environment.clone());
        identity.google = account.map(open);
    }
    if let Some(azure) = &login.azure {
        let application = select(&azure.client_id, &azure.preview_client_id);
        let open = |id: String| AzureLogin::of_login(&id, azure.tenant_id.as_deref(), environment.clone());
        identity.azure = application.map(open);
    }
    if let Some(alibaba) = &login.alibaba {
        let role = select(&alibaba.role, &alibaba.preview_role);
        let open = |role: String| {
            AlibabaLogin::of_login(&role, alibaba.oidc_provider.as_deref(), environment.clone())
        };
        identity.alibaba = role.map(open);
    }
    identity
}

/// A login for one use.
pub struct StackLogin {
    /// The name and the use of the login.
    pub(crate) key: (String, LoginUse),
    pub(crate) identity: Arc<StackIdentity>,
    environment: CloudEnvironment,
    secrets: Secrets,
}

impl std::fmt::Debug for StackLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StackLogin").field(&self.key).finish()
    }
}

impl StackLogin {
    /// Returns the name of the login.
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// Describes the identities that the login contains.
    pub fn describe(&self) -> String {
        self.identity.describe()
    }

    /// Logs in at each cloud of the login. Returns the provider variables with the credentials, which are masked from
    /// now on.
    /// # Errors
    /// A cloud refuses the identity of the job. The error names the token subject that the cloud received.
    pub async fn log_in(&self) -> Result<ProviderCredentials, UserError> {
        let (given, lifetime) = match self.identity.provider_variables().await {
            Ok(given) => given,
            Err(error) => return Err(self.explain(error).await),
        };
        let variables = given.into_iter();
        let variables: BTreeMap<_, _> = variables
            .map(|(name, value)| (name.to_owned(), value.to_string()))
            .collect();
        learn_environment(&self.secrets, &variables);
        Ok(ProviderCredentials {
            variables: variables.into_iter().collect(),
            lifetime,
        })
    }

    async fn explain(&self, error: CloudError) -> UserError {
        let failure =
            UserError::from_error(ErrorKind::Config, error).context(format!("login `{}`", self.name()));
        match job_subject(&self.environment).await {
            Ok(Some(subject)) => failure
                .hint(format!(
                    "the token of this job has the subject `{}`: let {} trust it",
                    subject.escape_debug(),
                    self.describe()
                ))
                .hint("docs/guides/oidc.md has the trust policies; nothing of the stack was changed"),
            Ok(None) => failure.hint(
                "give a job of GitHub `permissions: {id-token: write}`, so that it gets a token that the cloud trusts",
            ),
            Err(unknown) => failure.hint(format!("the subject of this job is not known: {}", chain(&unknown))),
        }
    }
}

#[async_trait]
impl ProviderLogin for StackLogin {
    fn hides(&self, variable: &str) -> bool {
        self.identity.hides(variable)
    }

    async fn credentials(&self) -> Result<ProviderCredentials, UserError> {
        self.log_in().await
    }

    async fn expiry_hints(&self) -> Vec<String> {
        let subject = match job_subject(&self.environment).await {
            Ok(Some(subject)) => format!("; this job has the subject `{}`", subject.escape_debug()),
            Ok(None) | Err(_) => String::new(),
        };
        vec![
            format!(
                "the login `{}` gave Terraform credentials of {}, which expired meanwhile{subject}",
                self.name(),
                self.describe()
            ),
            "completed changes are recorded, and the next run logs in again and continues; if the credentials expire each time, split the stack".to_owned(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{noted_run, run, secrets, stack};

    const CONFIG: &str = "version: 1\nlogins:\n  prod:\n    aws: {role: 'arn:aws:iam::111122223333:role/apply', \
        preview_role: 'arn:aws:iam::111122223333:role/plan', region: eu-central-1}\n  \
        apply-only: {google: {service_account: apply@prod.iam.gserviceaccount.com}}\n\
        stacks: [{match: 'appops/shop/prod', login: prod}, {match: 'appops/shop/dev', login: apply-only}]\n";

    fn choose(run: &RunContext, name: &str, usage: LoginUse) -> String {
        let config = Config::parse(CONFIG).unwrap();
        let logins = Logins::new(run, &config, secrets());
        match logins.choose(&config.for_stack(&stack(name)), usage).unwrap() {
            StackLoginChoice::Job => "the job".to_owned(),
            StackLoginChoice::Login(login) => login.describe(),
            StackLoginChoice::NoPreview(why) => why,
        }
    }

    /// A preview of a pull request must not get the identity of applies.
    #[test]
    fn a_preview_has_its_own_identity_or_none() {
        let job = run(&[("CI", "true")]);
        let (preview, apply) = (LoginUse::Preview, LoginUse::Apply);
        assert_eq!(
            choose(&job, "shop/prod", preview),
            "`arn:aws:iam::111122223333:role/plan`"
        );
        assert_eq!(
            choose(&job, "shop/prod", apply),
            "`arn:aws:iam::111122223333:role/apply`"
        );
        assert_eq!(
            choose(&job, "shop/dev", preview),
            "the login `apply-only` has no identity for previews (`google.preview_service_account`)"
        );
        assert_eq!(
            choose(&job, "shop/dev", apply),
            "`apply@prod.iam.gserviceaccount.com`"
        );
        assert_eq!(choose(&job, "shop/other", apply), "the job");
    }

    #[test]
    fn outside_of_a_job_logins_are_not_used_which_is_said_once() {
        let (own, notes) = noted_run(&[]);
        let config = Config::parse(CONFIG).unwrap();
        let logins = Logins::new(&own, &config, secrets());
        for _ in 0..2 {
            let chosen = logins.choose(&config.for_stack(&stack("shop/prod")), LoginUse::Apply);
            assert!(matches!(chosen, Ok(StackLoginChoice::Job)));
        }
        assert_eq!(notes.take().len(), 1);
    }

    #[test]
    fn a_login_is_opened_once_for_each_use_and_an_unknown_one_is_an_error() {
        let config = Config::parse(CONFIG).unwrap();
        let logins = Logins::new(&run(&[("CI", "true")]), &config, secrets());
        let names: Vec<_> = logins.all().iter().map(|login| login.name().to_owned()).collect();
        assert_eq!(names, ["apply-only", "prod, for previews", "prod"]);
        let (one, other) = (logins.all(), logins.all());
        assert!(one.iter().zip(&other).all(|(one, other)| Arc::ptr_eq(one, other)));
        let mut rules = config.for_stack(&stack("shop/prod"));
        rules.login = Some("gone".to_owned());
        let Err(unknown) = logins.choose(&rules, LoginUse::Apply) else {
            panic!("there is no such login")
        };
        assert!(unknown.message.contains("there is no login `gone`"), "{unknown}");
    }

    /// Both roles of a login stand for it in a kubeconfig, whichever is used.
    #[test]
    fn an_identity_has_the_region_and_all_roles_of_its_login() {
        let config = Config::parse(CONFIG).unwrap();
        let environment = CloudEnvironment::default();
        let preview = identity("prod", &config.logins["prod"], LoginUse::Preview, &environment);
        assert_eq!(preview.aws_region.as_deref(), Some("eu-central-1"));
        assert_eq!(preview.aws_roles.len(), 2);
        assert!(preview.google.is_none() && preview.azure.is_none() && preview.alibaba.is_none());
        let none = identity(
            "apply-only",
            &config.logins["apply-only"],
            LoginUse::Preview,
            &environment,
        );
        assert!(none.google.is_none(), "not that of applies");
    }
}
