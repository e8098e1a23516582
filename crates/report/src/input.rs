//! The inputs of the reports besides the plan.

use std::collections::BTreeMap;

use konverge_base::model::{
    CommitId, StackId, affected::Affected, comment_marker::CommentMarker, model_change::ModelChange,
    permission_changes::PowerChange, plan::Plan, policy_finding::PolicyFinding,
    review_difference::ReviewDifference, setting_change::SettingChange, timeline::Timeline,
};

/// The run that a report describes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunInfo {
    /// The repository, as `owner/name`; empty outside a forge.
    pub repository: String,
    /// The URL of the server, such as `https://github.com`; empty outside a forge.
    pub server_url: String,
    /// The number of the pull request; `None` outside of one.
    pub pr: Option<u64>,
    /// The commit with the change.
    pub head: Option<CommitId>,
    /// The commit that the change is compared with.
    pub base: Option<CommitId>,
    /// The URL of the run.
    pub run_url: Option<String>,
    /// The URL of the preview as a page, if a later step uploads the page.
    pub page_url: Option<String>,
    /// The id of the run at the forge; 0 outside a job.
    pub run: u64,
    /// The attempt of the run, from 1.
    pub attempt: u32,
    /// The stages of the run, with the time that each took.
    pub timeline: Timeline,
    /// The number of Specs that this run compiled.
    pub compiled: usize,
    /// The number of Specs that came from the cache.
    pub cached: usize,
    /// The number of stacks in the repository.
    pub stacks_in_repository: usize,
    /// The version of Konverge.
    pub version: String,
}

/// The environment of a stack, and the people who must approve before it is applied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StackContext {
    /// The environment of the stack, or else its name in the project.
    pub environment: String,
    /// True if the environment is production.
    pub is_production: bool,
    /// The number of approvals that a merge needs.
    pub approvals: u32,
    /// The users and teams of whom one must approve.
    pub reviewers: Vec<String>,
}

/// The input for the comment of a preview.
#[derive(Debug, Clone)]
pub struct CommentInput<'a> {
    /// The run that made the plan.
    pub run: &'a RunInfo,
    /// The affected stacks, with the reasons.
    pub affected: &'a Affected,
    /// The plan of all affected stacks.
    pub plan: &'a Plan,
    /// The findings of the policies.
    pub findings: &'a [PolicyFinding],
    /// The change of the plan by the last push; `None` if there is no earlier preview.
    pub last_push: Option<&'a ReviewDifference>,
    /// The changes of permission settings that the merge would bring.
    pub power: &'a [PowerChange],
    /// The changed keys of the configuration that affect stacks.
    pub settings: &'a [SettingChange],
    /// The changes in generated models.
    pub models: &'a [ModelChange],
    /// The environment of each stack, and the people who must approve it.
    pub contexts: &'a BTreeMap<StackId, StackContext>,
    /// The wave of each stack, if `after` orders stacks. A stack that is missing here is in wave 0.
    pub waves: &'a BTreeMap<StackId, usize>,
    /// One sentence for each rollout in `konverge.yaml` that would apply the change, with its waves.
    pub rollouts: &'a [String],
    /// The URL of the page with the whole diff of each stack, such as its check run.
    pub links: &'a BTreeMap<StackId, String>,
    /// The marker that identifies the comment. The shards of a matrix have different markers.
    pub marker: &'a CommentMarker,
    /// The effect of merging, and whether this preview is outdated.
    pub mode: Mode,
    /// The maximum size of the text in UTF-8 bytes.
    pub budget: usize,
}

/// The effect of merging, and whether this preview is outdated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mode {
    /// The effect of a merge.
    pub merging: Merging,
    /// True if a later push replaced the previewed head.
    pub superseded: bool,
    /// True if the change adds `konverge.yaml`, so that every stack was compiled.
    pub introduces: bool,
    /// True if an apply stops at changes that others made, instead of reverting them.
    pub stops_at_drift: bool,
}

/// The effect of a merge on the shown plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Merging {
    /// The plan is applied.
    Applies,
    /// Nothing happens, because the repository has no store configured.
    #[default]
    NoStore,
    /// The plan must be approved by its digest, because no review was recorded.
    Unreviewed,
    /// Nothing happens, because the target branch is not deployed.
    OtherBranch,
    /// The change is planned again and applied. This preview only compiled it, without credentials, because the pull
    /// request comes from outside.
    Outside,
    /// The change is planned again and applied. This preview only compiled it, to check a merge queue group.
    Queued,
}

/// The maximum size of a comment on GitHub in bytes: below the documented limit of 65,536 characters.
pub const COMMENT_BUDGET: usize = 60_000;

/// The maximum size of a job summary in bytes: GitHub drops a summary above 1 MiB completely.
pub const SUMMARY_BUDGET: usize = 900 * 1024;

/// The maximum size of a check run's text in bytes: below the documented limit of 65,535 characters.
pub const CHECK_BUDGET: usize = 60_000;
