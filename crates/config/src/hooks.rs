//! `apply.hooks`: which Jobs may run around a change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;

/// Jobs that run around a change: those of the Spec with the annotation `konverge/hook`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hooks {
    /// The tools whose annotations are understood too. Those that have no meaning here are named in the preview.
    pub read: Vec<HookTool>,
    /// The service accounts that hooks may use, as `NAME` or `NAMESPACE/NAME`; a Job that names none uses `default`.
    /// Other hooks are refused. Default: none, so no hook runs.
    pub service_accounts: Vec<String>,
    /// How long a hook may run. Then its Job is suspended, and the hook has failed. Default: 15 minutes.
    pub timeout: Option<Span>,
}

/// A tool with hooks of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HookTool {
    /// Argo CD: `argocd.argoproj.io/hook`.
    Argocd,
    /// Helm: `helm.sh/hook`.
    Helm,
}
