//! The errors of Terraform, with hints.

use std::path::PathBuf;

use konverge_base::{
    checkout::Untrusted,
    error::{ErrorKind, SharedError, UserError, chain},
    model::{FieldPath, ResourceId, StackId},
};
use konverge_engine::runtime::PlanFailure;

/// An error of the Terraform runtime. Texts from Terraform or a provider are already masked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum TerraformError {
    #[error("neither `terraform` nor `tofu` is on the PATH")]
    NoBinary,
    #[error("the Terraform executable `{0}` does not exist")]
    NoSuchBinary(PathBuf),
    #[error(transparent)]
    Untrusted(Untrusted),
    #[error("`{path}` is {found}, but {needed} is required")]
    Version {
        path: PathBuf,
        found: String,
        needed: &'static str,
    },
    #[error("Terraform could not be run")]
    Process(#[source] SharedError),
    #[error("`terraform {step}` did not end within {seconds} s and was stopped")]
    Deadline { step: &'static str, seconds: u64 },
    #[error("failed to parse the output of `terraform {step}`")]
    Answer {
        step: &'static str,
        #[source]
        why: SharedError,
    },
    #[error("a file for Terraform could not be written")]
    Files(#[source] SharedError),

    #[error(transparent)]
    Login(UserError),
    #[error(
        "`{id}` has no resource type: neither `extensions.resourceType` nor the third part of its id is a valid type"
    )]
    NoType { id: ResourceId },
    #[error("`{id}` names no provider: {why}")]
    NoProvider { id: ResourceId, why: String },
    #[error("`{id}` needs the provider {source_address} {version}, which is not allowed here")]
    NotAllowed {
        id: ResourceId,
        source_address: String,
        version: String,
        allowed: Vec<String>,
    },
    #[error(
        "`{id}` configures {provider} with `{path}`, whose value a Spec may not choose; a Spec chooses no identity of a provider, and no address, file or command, because it could use the job's credentials for another team or send them elsewhere",
        path = path.as_str().escape_debug()
    )]
    ProviderSetting {
        id: ResourceId,
        path: FieldPath,
        setting: String,
        provider: String,
        /// The settings that a Spec may choose, for the hint.
        free: &'static str,
    },
    #[error("`{id}` needs {source_address} {version}, but another resource of the stack needs {other}")]
    TwoVersions {
        id: ResourceId,
        source_address: String,
        version: String,
        other: String,
    },
    #[error("the type of `{id}` would change from `{from}` to `{to}`")]
    TypeChanged {
        id: ResourceId,
        from: String,
        to: String,
    },
    #[error("`{id}` sets `{key}`, which is a Terraform meta-argument, not an attribute")]
    Reserved { id: ResourceId, key: String },
    #[error("`{id}` refers to a resource that does not exist: `{text}`")]
    NoTarget { id: ResourceId, text: String },
    #[error("`{id}` holds a masked value where a real one is needed")]
    MaskedValue { id: ResourceId },
    #[error("`{id}` depends on `{needs}`, which cannot be planned")]
    Needs { id: ResourceId, needs: ResourceId },

    #[error("the provider {source_address} {version} was not found: {why}")]
    ProviderNotFound {
        source_address: String,
        version: String,
        why: String,
    },
    #[error("the package of the provider {source_address} {version} is not the one that is allowed: {why}")]
    ProviderHash {
        source_address: String,
        version: String,
        why: String,
    },
    #[error("Terraform could not be initialized: {0}")]
    Init(String),
    #[error("`{id}`: {text}")]
    Provider {
        id: ResourceId,
        class: Class,
        text: String,
    },
    #[error("`{id}`: {text}")]
    Exists {
        id: ResourceId,
        text: String,
        /// The resources of the same type that the plan deletes.
        deleted: Vec<ResourceId>,
    },
    #[error("`{id}` would be replaced, but `lifecycle.prevent_destroy` is set on it")]
    ReplaceProtected { id: ResourceId },
    #[error("{error}; the credentials of its login expired before Terraform ended")]
    LoginExpired {
        error: Box<TerraformError>,
        hints: Vec<String>,
    },
    #[error("Terraform failed: {0}")]
    Failed(String),
    #[error("`{id}` was not applied: {why}")]
    NotTried { id: ResourceId, why: String },
    #[error("`{id}` was being {action} when Terraform was stopped: the object may exist, but be incomplete")]
    InFlight {
        id: ResourceId,
        address: String,
        action: &'static str,
    },
    #[error("`{id}` was not started: the run was interrupted")]
    Interrupted { id: ResourceId },
    #[error("`{id}` would be destroyed, but `lifecycle.prevent_destroy` is set on it")]
    Protected { id: ResourceId, stack: StackId },
    #[error("`{id}` has a reference at `{path}` of its extensions, where references are not resolved")]
    ReferenceInExtensions { id: ResourceId, path: FieldPath },
    #[error(
        "`{id}`: a reference to a secret is not allowed at `{path}`: Terraform would store the value in its state"
    )]
    SecretPlace {
        id: ResourceId,
        path: FieldPath,
        /// The write-only variant of the attribute, whose value Terraform does not store.
        write_only: Option<String>,
    },
    #[error("`{id}`: the text at `{path}` refers to a secret and to another resource")]
    MixedReferences { id: ResourceId, path: FieldPath },
    #[error(
        "`{id}` was not refreshed: the configuration of its provider refers to a secret, and only an apply reads secrets"
    )]
    ProviderNeedsSecret { id: ResourceId },
    #[error(transparent)]
    Secret(UserError),
    #[error("the saved plan is gone or was made by another run")]
    PlanGone,
    #[error("`{id}` was created with the id `{made}`, but the id could not be stored")]
    NotStored {
        id: ResourceId,
        /// The id of the object at the provider.
        made: String,
        #[source]
        why: Box<UserError>,
    },

    #[error(
        "`{id}` has sensitive values, but this run has no key to encrypt Terraform's state",
        id = id.as_ref().map_or("this stack", ResourceId::as_str)
    )]
    Unencrypted { id: Option<ResourceId> },
    #[error("Terraform's state is encrypted, but this run has no key to decrypt it")]
    KeyMissing,
    #[error("Terraform's state cannot be opened")]
    Sealer(#[source] UserError),
    #[error("a document of Terraform's state {0}")]
    Damaged(String),
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

impl Class {
    /// Classifies the text of a diagnostic by words, because providers report no error codes.
    pub(super) fn classify(words: &str, in_configuration: bool) -> Self {
        let words = words.to_lowercase();
        let any = |list: &[&str]| list.iter().any(|word| words.contains(word));
        if any(&[
            "quota",
            "limitexceeded",
            "limit exceeded",
            "throttl",
            "rate exceeded",
            "too many requests",
            "resource_exhausted",
            "statuscode: 429",
        ]) {
            Self::Quota
        } else if any(&[
            "expiredtoken",
            "token has expired",
            "expired token",
            "credentials have expired",
            "credential",
            "invalidclienttokenid",
            "invalidaccesskeyid",
            "signaturedoesnotmatch",
            "unauthorized",
            "unauthenticated",
            "accessdenied",
            "access denied",
            "permission denied",
            "forbidden",
            "invalid_grant",
            "authenticat",
        ]) {
            Self::Credentials
        } else if any(&["timeout", "timed out", "deadline exceeded"]) {
            Self::Timeout
        } else if any(&[
            "no such host",
            "connection refused",
            "connection reset",
            "network is unreachable",
            "tls handshake",
        ]) {
            Self::Network
        } else if any(&["already exists", "alreadyexists", "already owned"]) {
            Self::Exists
        } else if in_configuration {
            Self::Configuration
        } else {
            Self::Other
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
        match self {
            Self::Provider { .. } | Self::Failed(_) if !hints.is_empty() => Self::LoginExpired {
                error: Box::new(self),
                hints: hints.to_vec(),
            },
            other => other,
        }
    }

    /// Returns the id of the resource that the message names.
    fn resource(&self) -> Option<&str> {
        match self {
            Self::NoType { id }
            | Self::NoProvider { id, .. }
            | Self::NotAllowed { id, .. }
            | Self::ProviderSetting { id, .. }
            | Self::TwoVersions { id, .. }
            | Self::TypeChanged { id, .. }
            | Self::Reserved { id, .. }
            | Self::NoTarget { id, .. }
            | Self::MaskedValue { id }
            | Self::Needs { id, .. }
            | Self::Provider { id, .. }
            | Self::Exists { id, .. }
            | Self::ReplaceProtected { id }
            | Self::NotTried { id, .. }
            | Self::InFlight { id, .. }
            | Self::Interrupted { id }
            | Self::Protected { id, .. }
            | Self::ReferenceInExtensions { id, .. }
            | Self::SecretPlace { id, .. }
            | Self::MixedReferences { id, .. }
            | Self::ProviderNeedsSecret { id }
            | Self::NotStored { id, .. } => Some(id.as_str()),
            Self::Unencrypted { id } => id.as_ref().map(ResourceId::as_str),
            Self::LoginExpired { error, .. } => error.resource(),
            Self::Login(failure) | Self::Secret(failure) => failure.resource(),
            _ => None,
        }
    }

    fn remedies(&self) -> Vec<String> {
        match self {
            Self::NoBinary | Self::NoSuchBinary(_) => vec![
                "install Terraform 1.5 or newer, or OpenTofu, or set `terraform.binary` in konverge.yaml to where it is"
                    .to_owned(),
            ],
            Self::Untrusted(error) => UserError::from(error.clone()).hints,
            Self::Version { .. } => {
                vec!["install a newer version, or set `terraform.binary` in konverge.yaml to a newer one".to_owned()]
            }
            Self::NoProvider { .. } => vec![
                "set `extensions.provider` to `host/namespace/name/version`, as in `registry.terraform.io/hashicorp/aws/5.0.1`"
                    .to_owned(),
            ],
            Self::NotAllowed { source_address, version, allowed, .. } => vec![
                format!(
                    "to allow it, add `{{source: {source_address}, version: {version}, hashes: […]}}` to `terraform.providers` in the default branch's konverge.yaml"
                ),
                if allowed.is_empty() {
                    "no version of this provider is allowed now".to_owned()
                } else {
                    format!("allowed now: {}", allowed.join(", "))
                },
            ],
            Self::ProviderSetting { setting, provider, free, .. } => vec![
                format!(
                    "remove the setting from `extensions.providerMeta`: the platform team sets it in the job's environment; a Spec may choose {}, but no address in them",
                    free.replace(' ', ", ")
                ),
                format!(
                    "to let Specs choose it, the platform team adds the allowed values (for a switch: `NAME=VALUE`) to the default branch's konverge.yaml, as `provider_identities: {{{provider}: [VALUE]}}` of a rule for this stack or of `terraform`, or, for an address, in the same way under `terraform.provider_addresses`; any value but an address: `terraform.credential_settings: [{}]`",
                    setting.escape_debug()
                ),
                "a credential may be a reference to a secret that this stack may read, such as `ref+STORE://PATH#/KEY`"
                    .to_owned(),
            ],
            Self::TwoVersions { .. } => vec!["give all resources of the stack the same version of it".to_owned()],
            Self::TypeChanged { .. } => {
                vec!["give the new resource another id; the old resource is then deleted".to_owned()]
            }
            Self::Reserved { .. } => {
                vec!["remove the key from the attributes; order is set with `dependsOn`".to_owned()]
            }
            Self::ProviderNotFound { .. } => vec![
                "check the provider's name and version, that the mirror (`terraform.mirror`) holds it, or that the registry can be reached"
                    .to_owned(),
            ],
            Self::ProviderHash { .. } => vec![
                "if the new package is the right one, put its hash into `terraform.providers` in the default branch's konverge.yaml; `terraform providers lock` prints it"
                    .to_owned(),
            ],
            Self::Provider { class, .. } => vec![class.remedy().to_owned()],
            Self::Exists { id, deleted, .. } => {
                let renamed = deleted.iter().map(|old| {
                    format!(
                        "if the resource was called `{old}` before, write `konverge/moved-from: {old}` into the `extensions` of `{id}`, \
                         and its state moves"
                    )
                });
                renamed.chain([Class::Exists.remedy().to_owned()]).collect()
            }
            Self::ReplaceProtected { id } => vec![
                "to replace the object, set `lifecycle.prevent_destroy: false` in the Spec; to keep the object, undo the change \
                 that forces the replacement"
                    .to_owned(),
                format!("to keep the object and stop managing it: `konverge state forget STACK '{id}'`"),
            ],
            Self::LoginExpired { error, hints } => {
                let mut all = hints.clone();
                // An error of credentials needs only a new run, which gets new ones. Any other cause keeps
                // its hints.
                if !matches!(**error, Self::Provider { class: Class::Credentials, .. }) {
                    all.extend(error.remedies());
                }
                all
            }
            Self::NotTried { .. } | Self::Needs { .. } => {
                vec!["fix what failed and run the same command again".to_owned()]
            }
            Self::InFlight { address, .. } => vec![
                "if the object exists at the provider, set `kusionstack.io/import-id` in its extensions to its id there and run `konverge apply` again"
                    .to_owned(),
                format!("the equivalent Terraform command: `terraform import {address} ID`"),
            ],
            Self::Interrupted { .. } => vec!["run the same command again".to_owned()],
            Self::Protected { id, stack } => vec![
                "to destroy it, apply its Spec with `lifecycle.prevent_destroy: false` first".to_owned(),
                format!("to keep the object and stop managing it: `konverge state forget {stack} '{id}'`"),
            ],
            Self::ReferenceInExtensions { .. } => vec![
                "references are resolved in attributes alone: write the value itself, or give it to the provider in the \
                 environment of this run"
                    .to_owned(),
            ],
            Self::SecretPlace { write_only: Some(name), .. } => vec![format!(
                "write the reference to `{name}`, which is write-only; `{name}_version` with `?as=version` updates it when \
                 the secret moves"
            )],
            Self::SecretPlace { write_only: None, .. } => vec![
                "a reference stands in a write-only attribute or in `extensions.providerMeta`; `?as=version` gives the \
                 version, which may stand in any attribute"
                    .to_owned(),
            ],
            Self::MixedReferences { .. } => {
                vec!["write the reference to the secret alone, or with plain text around it".to_owned()]
            }
            Self::Secret(failure) => failure.hints.clone(),
            Self::PlanGone => vec!["plan again: run `konverge apply`".to_owned()],
            Self::Unencrypted { .. } => vec![
                "create a key with `age-keygen`, store it as a secret of the job, and pass it in `KONVERGE_AGE_IDENTITY`".to_owned(),
            ],
            Self::KeyMissing => vec![
                "set `KONVERGE_AGE_IDENTITY` to the key with which the state was encrypted".to_owned(),
            ],
            Self::Sealer(failure) | Self::Login(failure) => failure.hints.clone(),
            Self::NotStored { why, .. } => why.hints.clone(),
            Self::Deadline { .. } => {
                vec!["check that the provider's service answers, then run the same command again".to_owned()]
            }
            _ => Vec::new(),
        }
    }

    /// Returns the kind of an error that concerns the whole stack; `None` if only Terraform, a provider or
    /// its service failed, so that other runtimes can go on.
    fn kind_of_stack(&self) -> Option<ErrorKind> {
        Some(match self {
            Self::NoTarget { .. }
            | Self::NoType { .. }
            | Self::NoProvider { .. }
            | Self::ReferenceInExtensions { .. } => ErrorKind::Spec,
            Self::NotAllowed { .. } | Self::ProviderSetting { .. } | Self::Protected { .. } => {
                ErrorKind::Policy
            }
            Self::Unencrypted { .. }
            | Self::KeyMissing
            | Self::SecretPlace { .. }
            | Self::MixedReferences { .. } => ErrorKind::Secret,
            Self::Secret(failure) => failure.kind,
            Self::Sealer(failure) | Self::Login(failure) => failure.kind,
            Self::NotStored { why, .. } => why.kind,
            Self::Damaged(_) => ErrorKind::State,
            Self::Interrupted { .. } | Self::InFlight { .. } => ErrorKind::Interrupted,
            Self::MaskedValue { .. } => ErrorKind::Internal,
            _ => return None,
        })
    }
}

impl From<TerraformError> for UserError {
    fn from(error: TerraformError) -> Self {
        let kind = error.kind_of_stack().unwrap_or(ErrorKind::Terraform);
        let mut failure = UserError::new(kind, chain(&error));
        failure.hints = error.remedies();
        error
            .resource()
            .into_iter()
            .fold(failure, UserError::with_resource)
    }
}

impl From<TerraformError> for PlanFailure {
    fn from(error: TerraformError) -> Self {
        Self {
            stops_stack: error.kind_of_stack().is_some(),
            error: Box::new(error.into()),
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
        assert!(tool(TerraformError::NoBinary));
        assert!(tool(TerraformError::Init("no registry".to_owned())));
        assert!(!tool(TerraformError::KeyMissing));
        assert!(!tool(TerraformError::NoType { id }));
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
        let stopped = TerraformError::Interrupted { id: id.clone() };
        assert_eq!(stopped.clone().after_expiry(&hints), stopped);
    }

    #[test]
    fn every_refusal_has_a_remedy() {
        let id: ResourceId = "a:b:c_d:e".parse().unwrap();
        for error in [
            TerraformError::NoBinary,
            TerraformError::Unencrypted { id: None },
            TerraformError::KeyMissing,
            TerraformError::Reserved {
                id: id.clone(),
                key: "provisioner".to_owned(),
            },
            TerraformError::InFlight {
                id,
                address: "c_d.e".to_owned(),
                action: "created",
            },
        ] {
            let failure = UserError::from(error);
            assert!(!failure.hints.is_empty(), "{}", failure.message);
        }
    }
}
