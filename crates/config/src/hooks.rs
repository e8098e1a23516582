//! `apply.hooks`: which Jobs may run around a change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Span, StackGlob};

/// Jobs that run around a change: those of the Spec with the annotation `konverge/hook`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hooks {
    /// The tools whose annotations are understood too. Those that have no meaning here are named in the preview.
    pub read: Vec<HookTool>,
    /// The service accounts that hooks may use, as `NAME` or `NAMESPACE/NAME`; a Job that names none uses `default`.
    /// Default: none, so no hook runs.
    pub service_accounts: Vec<String>,
    /// The maximum run time of a hook. Then its Job is suspended, and the hook has failed. Default: 15 minutes.
    pub timeout: Option<Span>,
    /// Workflows of GitHub Actions that run around the apply of a stack, for stacks without a cluster too.
    pub workflows: Vec<HookWorkflow>,
}

/// A workflow that runs around the apply of a stack, once for each Spec. It is started on the default branch with the
/// inputs `stack`, `commit` and `digest`, and its conclusion counts. The apply needs `actions: write`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HookWorkflow {
    /// The time at which the workflow runs.
    pub when: WorkflowTime,
    /// A glob for the folders or identities of stacks. Write folders: a pull request chooses identities.
    pub stacks: String,
    /// The name of the file of the workflow in `.github/workflows`. Its `run-name` must have the inputs `stack` and
    /// `digest`, by which a run is found again after a kill.
    pub workflow: String,
    /// The time that an apply waits for the end of the workflow run. Default: `apply.hooks.timeout`.
    #[serde(default)]
    pub timeout: Option<Span>,
}

/// The time at which a workflow runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkflowTime {
    /// The workflow runs before the stack is changed.
    Pre,
    /// The workflow runs after everything of the stack is applied.
    Post,
}

impl HookWorkflow {
    /// Returns true if `stacks` matches a name, a folder or an identity.
    pub fn is_for(&self, name: &str) -> bool {
        StackGlob::compile(&self.stacks).is_some_and(|glob| glob.is_match(name))
    }

    /// Returns the first problem, with a hint.
    pub(super) fn problem(&self) -> Option<(String, String)> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let stem = self.workflow.strip_suffix(".yml");
        let stem = stem.or_else(|| self.workflow.strip_suffix(".yaml"));
        if !stem.is_some_and(|stem| !stem.is_empty() && stem.chars().all(is_part)) {
            let file = self.workflow.escape_debug();
            return Some((
                format!("apply.hooks.workflows: `{file}` is not the file of a workflow"),
                "write the name that it has in `.github/workflows`, such as `smoke.yml`".to_owned(),
            ));
        }
        let error = globset::Glob::new(&self.stacks).err()?;
        Some((
            format!(
                "apply.hooks.workflows: `{}` is not a glob: {error}",
                self.stacks.escape_debug()
            ),
            "write folders or identities of stacks, such as `orders/*`".to_owned(),
        ))
    }
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

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn a_workflow_that_cannot_be_meant_is_refused() {
        let parse = |entry: &str| Config::parse(&format!("apply: {{hooks: {{workflows: [{entry}]}}}}\n"));
        for (entry, words) in [
            (
                "{when: post, stacks: '**', workflow: ../smoke.yml}",
                "is not the file of a workflow",
            ),
            (
                "{when: post, stacks: '**', workflow: smoke}",
                "is not the file of a workflow",
            ),
            (
                "{when: post, stacks: '**', workflow: .yml}",
                "is not the file of a workflow",
            ),
            ("{when: post, stacks: 'a[', workflow: smoke.yml}", "is not a glob"),
            ("{when: later, stacks: '**', workflow: smoke.yml}", "later"),
            ("{when: post, workflow: smoke.yml}", "stacks"),
        ] {
            let refused = parse(entry).expect_err(entry).to_string();
            assert!(refused.contains(words), "{entry}: {refused}");
        }
        assert!(parse("{when: pre, stacks: 'a/*', workflow: smoke-test.v2.yaml, timeout: 5m}").is_ok());
    }
}
