//! [`PermissionsDocument`]: who may do what, according to `konverge.yaml` on the default branch.

use konverge_base::model::CommitId;
use serde::Serialize;

/// The permissions of all people. The JSON has `"version":1`.
#[derive(Debug, Clone, Serialize)]
pub struct PermissionsDocument {
    /// Version of this format.
    pub version: u32,
    /// The commit of the default branch; `None` if the configuration was read from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// The permissions by area, within an area in the order of the file.
    pub permissions: Vec<Permission>,
}

/// A line of the configuration that allows or forbids something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Permission {
    /// The area of the permission.
    pub subject: PermissionSubject,
    /// People, teams, groups, workflows or identities. Empty if the line names nobody.
    pub who: Vec<String>,
    /// The permission, or a rule for everybody.
    pub may: String,
    /// Globs of the stacks to which the permission applies.
    pub stacks: Vec<String>,
    /// The key in `konverge.yaml`.
    pub key: String,
}

/// The area of a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PermissionSubject {
    /// The people who may approve changes.
    Approvals,
    /// The people who may start applies, and the times when applies are frozen.
    Applies,
    /// The people who may override findings of policies.
    Overrides,
    /// The people who may let a rollout continue.
    Rollouts,
    /// The people who may see the portal and request operations there.
    Portal,
    /// The secrets that stacks may read.
    Secrets,
    /// The recipients who can decrypt states.
    States,
    /// The identities of stacks at clouds and providers.
    Identities,
    /// The automation that may change files, and the hooks that run around an apply.
    Automation,
}

impl PermissionSubject {
    /// All areas, in the order of the page.
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

    /// Returns the title of the area.
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
