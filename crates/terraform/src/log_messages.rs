//! Parses the lines of Terraform's machine-readable log (`-json`), version 1 of its UI protocol
//! (<https://developer.hashicorp.com/terraform/internals/machine-readable-ui>).

use serde::Deserialize;

use super::error::{Class, TerraformError};
use konverge_base::model::ResourceId;
use konverge_secrets::Secrets;

/// Maximum number of characters of a provider's text that are passed on.
const LONGEST: usize = 2000;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct LogMessage {
    /// The type of the message.
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    /// The resource of the message.
    pub(super) hook: Option<Hook>,
    /// The diagnostic, in a message of the type `diagnostic`.
    pub(super) diagnostic: Option<TerraformDiagnostic>,
}

/// The content of `apply_start`, `apply_progress`, `apply_complete` and `apply_errored`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Hook {
    pub(super) resource: Option<HookResource>,
    #[serde(default)]
    pub(super) action: String,
    /// The id of the object at the provider, once it has one.
    pub(super) id_value: Option<String>,
    pub(super) elapsed_seconds: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct HookResource {
    #[serde(default)]
    pub(super) addr: String,
}

/// An error or a warning.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct TerraformDiagnostic {
    pub(super) severity: String,
    pub(super) summary: String,
    pub(super) detail: String,
    /// The resource, for messages of a provider.
    address: Option<String>,
    /// The position in the module, for errors of Terraform itself. Its `code` holds text of the module, which
    /// may be secret, and is never read.
    snippet: Option<Snippet>,
}

#[derive(Debug, Clone, Deserialize)]
struct Snippet {
    context: Option<String>,
}

impl LogMessage {
    /// Parses a line; `None` if it is not a log message.
    pub(super) fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    /// Returns the address of the resource that an operation concerns.
    pub(super) fn address(&self) -> Option<&str> {
        Some(&self.hook.as_ref()?.resource.as_ref()?.addr)
    }
}

impl TerraformDiagnostic {
    /// Returns true for an error, false for a warning.
    pub(super) fn is_error(&self) -> bool {
        self.severity == "error"
    }

    /// Returns the address of the resource that the diagnostic concerns.
    pub(super) fn address(&self) -> Option<&str> {
        self.address
            .as_deref()
            .or_else(|| self.position()?.strip_prefix("resource."))
    }

    fn position(&self) -> Option<&str> {
        self.snippet.as_ref()?.context.as_deref()
    }

    /// Returns true if `lifecycle.prevent_destroy` forbids the planned deletion.
    pub(super) fn forbids_destroying(&self) -> bool {
        self.is_error() && self.detail.contains("lifecycle.prevent_destroy set")
    }

    /// Returns all that the diagnostic may concern: an address, or a position in the module.
    pub(super) fn subjects(&self) -> impl Iterator<Item = &str> {
        self.address.as_deref().into_iter().chain(self.position())
    }

    /// Returns the text in one line, masked.
    pub(super) fn text(&self, secrets: &Secrets) -> String {
        plain(secrets, &format!("{}: {}", self.summary, self.detail))
    }

    /// Converts the diagnostic to an error of a resource.
    pub(super) fn to_error(&self, id: &ResourceId, secrets: &Secrets) -> TerraformError {
        let words = format!("{} {}", self.summary, self.detail);
        // Only Terraform's own errors have a position in the module and no address: they are errors of the
        // configuration.
        let in_configuration = self.address.is_none() && self.snippet.is_some();
        TerraformError::Provider {
            id: id.clone(),
            class: Class::classify(&words, in_configuration),
            text: self.text(secrets),
        }
    }
}

/// Returns a text of another program as one line: masked, without control characters, and shortened.
pub(super) fn plain(secrets: &Secrets, text: &str) -> String {
    let masked = secrets.mask(text);
    let words = masked.split(|c: char| c.is_whitespace() || c.is_control());
    let mut line = String::new();
    for word in words.filter(|word| !word.is_empty()) {
        if line.chars().count() + word.chars().count() > LONGEST {
            line.push_str(" …");
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line.trim_end_matches(':').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_secrets::HashKey;
    use serde_json::json;

    #[test]
    fn hooks_and_diagnostics_name_their_resource() {
        let complete = json!({"type": "apply_complete", "hook": {"resource": {"addr": "local_file.a"}, "action": "create", "elapsed_seconds": 2}});
        let complete = LogMessage::read(&complete.to_string()).unwrap();
        assert_eq!(complete.address(), Some("local_file.a"));
        let provider =
            json!({"severity": "error", "summary": "Bad", "detail": "x", "address": "local_file.b"});
        let module = json!({"severity": "error", "summary": "Bad", "detail": "x", "snippet": {"context": "resource.local_file.c", "code": "password"}});
        let about = |d: &serde_json::Value| {
            let d: TerraformDiagnostic = serde_json::from_value(d.clone()).unwrap();
            d.address().map(str::to_owned)
        };
        assert_eq!(about(&provider).as_deref(), Some("local_file.b"));
        assert_eq!(about(&module).as_deref(), Some("local_file.c"));
        assert!(LogMessage::read("panic: runtime error").is_none());
    }

    #[test]
    fn text_of_providers_is_masked_and_tamed() {
        let secrets = Secrets::new(HashKey::derive("k"));
        secrets.learn("hunter2222");
        let text = plain(&secrets, "bad\u{1b}[31m password\n\n  hunter2222\r\nnow:");
        assert_eq!(text, "bad [31m password *** now");
        assert!(plain(&secrets, &"word ".repeat(5000)).chars().count() < LONGEST + 10);
    }

    /// With messages of the providers of AWS, Google Cloud and Azure.
    #[test]
    fn what_providers_refuse_names_the_resource_and_the_remedy() {
        let id: ResourceId = "hashicorp:aws:aws_db_instance:orders".parse().unwrap();
        let secrets = Secrets::new(HashKey::derive("k"));
        for (summary, detail, remedy) in [
            (
                "validating provider credentials",
                "retrieving caller identity from STS: operation error STS: GetCallerIdentity, https response error StatusCode: 403, api error ExpiredToken: The security token included in the request is expired",
                "give Terraform valid credentials",
            ),
            (
                "creating RDS DB Instance (orders)",
                "operation error RDS: CreateDBInstance, StatusCode: 400, api error InstanceQuotaExceeded: Instance quota exceeded",
                "raise the quota",
            ),
            (
                "Error creating instance: googleapi: Error 403: Quota 'CPUS' exceeded.  Limit: 24.0 in region europe-west1., quotaExceeded",
                "",
                "raise the quota",
            ),
            (
                "waiting for RDS DB Instance (orders) create",
                "timeout while waiting for state to become 'available' (last state: 'creating', timeout: 40m0s)",
                "`timeouts` attribute",
            ),
            (
                "A resource with the ID \"/subscriptions/x\" already exists - to be managed via Terraform this resource needs to be imported",
                "",
                "kusionstack.io/import-id",
            ),
            (
                "Post \"https://rds.eu-west-1.amazonaws.com/\": dial tcp: lookup rds.eu-west-1.amazonaws.com: no such host",
                "",
                "reaches the service",
            ),
        ] {
            let diagnostic = json!({"severity": "error", "summary": summary, "detail": detail, "address": "aws_db_instance.orders"});
            let diagnostic: TerraformDiagnostic = serde_json::from_value(diagnostic).unwrap();
            let failure = konverge_base::error::UserError::from(diagnostic.to_error(&id, &secrets));
            assert!(failure.message.contains("aws_db_instance:orders"), "{failure}");
            assert!(
                failure.hints[0].contains(remedy),
                "{summary}: {:?}",
                failure.hints
            );
        }
    }
}
