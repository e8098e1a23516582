//! The context of each stack in the report of a preview: where the stack runs, and who is responsible for it.

use std::collections::BTreeMap;

use konverge_base::model::{RepoPath, StackId};
use konverge_config::Config;
use konverge_report::StackContext;

/// Returns the contexts of stacks, from the configuration of the default branch.
pub fn stack_contexts<'a>(
    config: &Config,
    stacks: impl IntoIterator<Item = (&'a StackId, &'a RepoPath)>,
) -> BTreeMap<StackId, StackContext> {
    let (rules, production) = (config.rules(), config.production_folders());
    let context = |(id, folder): (&StackId, &RepoPath)| {
        let effective = rules.for_place(id, folder);
        let (approvals, reviewers) = config.policy.required_approvals(&effective.policy);
        let context = StackContext {
            environment: effective.environment.unwrap_or_else(|| id.name().to_owned()),
            is_production: production.contains(folder),
            approvals,
            reviewers,
        };
        (id.clone(), context)
    };
    stacks.into_iter().map(context).collect()
}
