//! The errors of Terraform, with hints.

use konverge_base::{
    error::{ErrorKind, SharedError, UserError, chain},
    model::ResourceId,
};
use konverge_engine::runtime::PlanFailure;

/// An error of the Terraform runtime. Texts from Terraform or a provider are already masked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum TerraformError {
    #[error("`{id}`: {text}")]
    Provider {
        id: ResourceId,
        class: Class,
        text: String,
    },
    #[error("Terraform failed: {0}")]
    Failed(String),
    /// The package of a provider was not found, or is not the one that is allowed.
    #[error("{error}")]
    Package {
        source_address: String,
        error: Box<UserError>,
    },
    /// Any other error, as it is shown. Its kind is [`ErrorKind::Terraform`] if only Terraform, a provider or its
    /// service failed.
    #[error(transparent)]
    Other(Box<UserError>),
}

/// The cause of a provider's refusal, derived from its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The configuration is invalid.
    Configuration,
    /// Credentials are missing, expired or insufficient.
    Credentials,
    /// A quota or a rate limit is exceeded.
    Quota,
    /// The service did not answer in time.
    Timeout,
    /// The service could not be reached.
    Network,
    /// The object already exists.
    Exists,
    /// Any other error.
    Other,
}

/// The words by which a cause is recognized in lower case, separated by bars. The first cause that has one of its words
/// in a message counts.
const WORDS: [(Class, &str); 5] = [
    (
        Class::Quota,
        "quota|limitexceeded|limit exceeded|throttl|rate exceeded|too many requests|resource_exhausted|statuscode: 429",
    ),
    (
        Class::Credentials,
        "expiredtoken|token has expired|expired token|credentials have expired|credential|invalidclienttokenid|\
         invalidaccesskeyid|signaturedoesnotmatch|unauthorized|unauthenticated|accessdenied|access denied|\
         permission denied|forbidden|invalid_grant|authenticat",
    ),
    (Class::Timeout, "timeout|timed out|deadline exceeded"),
    (
        Class::Network,
        "no such host|connection refused|connection reset|network is unreachable|tls handshake",
    ),
    (Class::Exists, "already exists|alreadyexists|already owned"),
];

impl Class {
    /// Classifies the text of a diagnostic by words, because providers report no error codes.
    pub(super) fn classify(words: &str, in_configuration: bool) -> Self {
        let words = words.to_lowercase();
        let known = WORDS
            .iter()
            .find(|(_, known)| known.split('|').any(|word| words.contains(word)));
        match known {
            Some((class, _)) => *class,
            None if in_configuration => Self::Configuration,
            None => Self::Other,
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Configuration => {
                "correct the resource's attributes; the provider's documentation lists them"
            }
            Self::Credentials => {
                "give Terraform valid credentials of the provider in the environment of this run and run the same command again; those of a login are requested again by each run"
            }
            Self::Quota => "raise the quota or wait for the limit to pass, then run the same command again",
            Self::Timeout => {
                "run the same command again; if the provider is only slow, raise the resource's `timeouts` attribute"
            }
            Self::Network => {
                "check that this machine reaches the service (proxy, DNS), then run the same command again"
            }
            Self::Exists => {
                "to import the existing object, set `kusionstack.io/import-id` in the resource's extensions to the object's id at the provider"
            }
            Self::Other => "correct what the message of the provider says, then run the same command again",
        }
    }
}

impl TerraformError {
    /// Returns the error with hints about expired credentials; unchanged without hints, or if the error has
    /// another cause.
    pub(super) fn after_expiry(self, hints: &[String]) -> Self {
        if hints.is_empty() || !matches!(self, Self::Provider { .. } | Self::Failed(_)) {
            return self;
        }
        // An error of credentials needs only a new run, which gets new ones. Any other cause keeps its hints.
        let is_of_credentials = matches!(
            self,
            Self::Provider {
                class: Class::Credentials,
                ..
            }
        );
        let mut failure = UserError::from(self);
        failure
            .message
            .push_str("; the credentials of its login expired before Terraform ended");
        let own = std::mem::replace(&mut failure.hints, hints.to_vec());
        failure
            .hints
            .extend(own.into_iter().filter(|_| !is_of_credentials));
        failure.into()
    }

    /// Returns the error of a created object that another resource of the same type may be: one of `deleted`, which
    /// the plan deletes.
    pub(super) fn exists(id: &ResourceId, text: &str, deleted: Vec<ResourceId>) -> Self {
        let failure = of_resource(ErrorKind::Terraform, id, format!("`{id}`: {text}"));
        let renamed = deleted.iter().map(|old| {
            format!(
                "if the resource was called `{old}` before, write `konverge/moved-from: {old}` into the `extensions` of `{id}`, \
                 and its state moves"
            )
        });
        let hints = renamed.chain([Class::Exists.remedy().to_owned()]);
        hints.fold(failure, UserError::hint).into()
    }
}

/// The hint for a resource that waits for one that failed.
pub(super) const FIX_FIRST: &str = "fix what failed and run the same command again";

/// Returns an error of a resource. The message names the resource.
pub(super) fn of_resource(kind: ErrorKind, id: &ResourceId, what: impl Into<String>) -> UserError {
    UserError::new(kind, what).with_resource(id)
}

/// Returns an error of Terraform itself with its cause.
pub(super) fn caused_by(why: impl Into<SharedError>, what: impl Into<String>) -> UserError {
    UserError::from_error(ErrorKind::Terraform, why.into().context(what))
}

/// Returns the error of a file that Terraform would read.
pub(super) fn of_file(error: std::io::Error) -> UserError {
    caused_by(error, "a file for Terraform could not be written")
}

/// Returns the error of a step whose output is not what it should be.
pub(super) fn of_output(step: &str, why: impl Into<SharedError>) -> UserError {
    caused_by(why, format!("failed to parse the output of `terraform {step}`"))
}

impl From<UserError> for TerraformError {
    fn from(error: UserError) -> Self {
        Self::Other(Box::new(error))
    }
}

impl From<TerraformError> for UserError {
    fn from(error: TerraformError) -> Self {
        match error {
            TerraformError::Provider { ref id, class, .. } => {
                of_resource(ErrorKind::Terraform, id, chain(&error)).hint(class.remedy())
            }
            TerraformError::Failed(_) => Self::new(ErrorKind::Terraform, chain(&error)),
            TerraformError::Package { error, .. } | TerraformError::Other(error) => *error,
        }
    }
}

impl From<TerraformError> for PlanFailure {
    fn from(error: TerraformError) -> Self {
        let error = UserError::from(error);
        Self {
            // What Terraform alone refuses has its kind. A login, a secret or a key that is missing has another one, and
            // concerns more than these resources.
            stops_stack: error.kind != ErrorKind::Terraform,
            error: Box::new(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_providers_are_classed() {
        for (words, class) in [
            (
                "ExpiredToken: The security token included in the request is expired",
                Class::Credentials,
            ),
            ("no valid credential sources found", Class::Credentials),
            ("Error 403: Quota 'CPUS' exceeded. Limit: 24.0", Class::Quota),
            ("VcpuLimitExceeded: You have requested more", Class::Quota),
            (
                "timeout while waiting for state to become 'available'",
                Class::Timeout,
            ),
            ("dial tcp: lookup sts.amazonaws.com: no such host", Class::Network),
            ("BucketAlreadyExists", Class::Exists),
            ("something odd", Class::Other),
        ] {
            assert_eq!(Class::classify(words, false), class, "{words}");
        }
        assert_eq!(
            Class::classify("Unsupported argument", true),
            Class::Configuration
        );
    }

    #[test]
    fn what_terraform_alone_needs_is_told_apart() {
        let id: ResourceId = "a:b:c_d:e".parse().unwrap();
        let tool = |error: TerraformError| !PlanFailure::from(error).stops_stack;
        let init = UserError::new(ErrorKind::Terraform, "no registry");
        assert!(tool(TerraformError::Failed("no executable".to_owned())));
        assert!(tool(TerraformError::Package {
            source_address: "h/n/t".to_owned(),
            error: Box::new(init.clone()),
        }));
        assert!(tool(init.into()));
        assert!(!tool(of_resource(ErrorKind::Spec, &id, "no type").into()));
        assert!(!tool(UserError::new(ErrorKind::Secret, "no key").into()));
    }

    #[test]
    fn an_expiry_is_said_beside_the_cause() {
        let id: ResourceId = "a:b:c_d:e".parse().unwrap();
        let refused = |text: &str| TerraformError::Provider {
            id: id.clone(),
            class: Class::classify(text, false),
            text: text.to_owned(),
        };
        let hints = ["the login `prod` expired".to_owned()];
        let expired = UserError::from(refused("ExpiredToken").after_expiry(&hints));
        assert!(
            expired
                .message
                .contains("ExpiredToken; the credentials of its login expired")
        );
        assert_eq!(expired.hints, hints);
        let quota = UserError::from(refused("quota").after_expiry(&hints));
        assert_eq!(quota.hints.len(), 2, "{quota:?}");
        // Without hints nothing expired; and what has another cause says so.
        assert_eq!(refused("x").after_expiry(&[]), refused("x"));
        let stopped = TerraformError::from(of_resource(ErrorKind::Interrupted, &id, "not started"));
        assert_eq!(stopped.clone().after_expiry(&hints), stopped);
    }
}
