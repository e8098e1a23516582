//! [`PermissionsDocument`]: who may do what, as konverge.yaml of the default branch says.

use konverge_base::model::CommitId;
use serde::Serialize;

/// Who may do what. The JSON has `"version":1`.
#[derive(Debug, Clone, Serialize)]
pub struct PermissionsDocument {
    /// Version of this format.
    pub version: u32,
    /// The commit of the default branch; `None` if the configuration is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// By subject, and there in the order of the file.
    pub permissions: Vec<Permission>,
}

/// One line of the configuration that lets somebody do something, or that stops it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Permission {
    /// The subject.
    pub subject: PermissionSubject,
    /// People, teams, groups, workflows or identities; empty: nobody by name.
    pub who: Vec<String>,
    /// The permission, or the rule that holds for everybody.
    pub may: String,
    /// Globs of stacks.
    pub stacks: Vec<String>,
    /// The key in konverge.yaml.
    pub key: String,
}

/// The subject of a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PermissionSubject {
    /// Who approves changes.
    Approvals,
    /// Who starts applies, and when none runs.
    Applies,
    /// Who overrides rules.
    Overrides,
    /// Who lets a rollout go on.
    Rollouts,
    /// Who sees the portal, and asks for operations there.
    Portal,
    /// Which stacks read which secrets.
    Secrets,
    /// Who decrypts states.
    States,
    /// The identities of stacks at clouds and providers.
    Identities,
    /// Who changes the code from outside, and what runs around an apply.
    Automation,
}

impl PermissionSubject {
    /// All subjects, as a page shows them.
    pub const ALL: [Self; 9] = [
        Self::Approvals,
        Self::Applies,
        Self::Overrides,
        Self::Rollouts,
        Self::Portal,
        Self::Secrets,
        Self::States,
        Self::Identities,
        Self::Automation,
    ];

    /// The words of its heading.
    pub fn words(self) -> &'static str {
        match self {
            Self::Approvals => "Approvals",
            Self::Applies => "Applies",
            Self::Overrides => "Overrides of rules",
            Self::Rollouts => "Rollouts",
            Self::Portal => "This portal",
            Self::Secrets => "Secrets",
            Self::States => "Encrypted states",
            Self::Identities => "Identities at clouds and providers",
            Self::Automation => "Workflows and other repositories",
        }
    }
}
