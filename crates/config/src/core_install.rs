//! `kcl.install` in `konverge.yaml`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a KCL core that is missing is installed without being asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CoreInstall {
    /// The error names the command that installs it.
    #[default]
    Manual,
    /// It is installed by the first command that needs it, except in CI and with KONVERGE_OFFLINE.
    Auto,
}
