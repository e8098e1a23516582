//! The input of all reports besides the plan.

use std::collections::BTreeMap;

use konverge_base::model::{
    CommitId, StackId, affected::Affected, comment_marker::CommentMarker, model_change::ModelChange,
    permission_changes::PowerChange, plan::Plan, policy_finding::PolicyFinding,
    review_difference::ReviewDifference, setting_change::SettingChange, timeline::Timeline,
};

/// The run that a report describes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunInfo {
    /// `owner/name`; empty outside GitHub.
    pub repository: String,
    /// The web address of the server, such as `https://github.com`; empty outside GitHub.
    pub server_url: String,
    /// Number of the pull request; none outside one.
    pub pr: Option<u64>,
    /// The commit with the change.
    pub head: Option<CommitId>,
    /// The commit that it was compared with.
    pub base: Option<CommitId>,
    /// The URL of the run.
    pub run_url: Option<String>,
    /// The address of the preview as a page, if a later step uploads it.
    pub page_url: Option<String>,
    /// GitHub's id of the run; 0 outside GitHub.
    pub run: u64,
    /// The attempt of the run, from 1.
    pub attempt: u32,
    /// The parts of the run, and how long each took.
    pub timeline: Timeline,
    /// The number of Specs compiled in this run.
    pub compiled: usize,
    /// The number of Specs from the cache.
    pub cached: usize,
    /// The number of stacks in the repository.
    pub stacks_in_repository: usize,
    /// Version of Konverge.
    pub version: String,
}

/// The environment of a stack, and the people who are asked before it is applied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StackContext {
    /// Its environment, or else its name in the project.
    pub environment: String,
    /// True if it is production.
    pub is_production: bool,
    /// The number of approvals that a merge needs.
    pub approvals: u32,
    /// Users and teams, one of whom must approve.
    pub reviewers: Vec<String>,
}

/// The input of a preview's comment.
#[derive(Debug, Clone)]
pub struct CommentInput<'a> {
    /// The run that made the plan.
    pub run: &'a RunInfo,
    /// The affected stacks and the reasons.
    pub affected: &'a Affected,
    /// The plan of all affected stacks.
    pub plan: &'a Plan,
    /// The findings of the policies.
    pub findings: &'a [PolicyFinding],
    /// The difference that the last push made in the plan; `None` if there is no earlier preview.
    pub last_push: Option<&'a ReviewDifference>,
    /// How merging would change the settings that grant permissions.
    pub power: &'a [PowerChange],
    /// The keys of the configuration that mean something else for stacks.
    pub settings: &'a [SettingChange],
    /// The differences in generated models.
    pub models: &'a [ModelChange],
    /// The environment of each stack, and the people who are asked about it.
    pub contexts: &'a BTreeMap<StackId, StackContext>,
    /// The wave of each stack, where `after` orders stacks; a missing stack is in wave 0.
    pub waves: &'a BTreeMap<StackId, usize>,
    /// In which waves the rollouts of `konverge.yaml` would carry the change, one sentence each.
    pub rollouts: &'a [String],
    /// The page with a stack's whole diff, such as its check run.
    pub links: &'a BTreeMap<StackId, String>,
    /// The marker; it also distinguishes the shards of a matrix.
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
    /// True if the change adds `konverge.yaml`: every stack was compiled.
    pub introduces: bool,
    /// True if an apply stops where others changed something, and does not restore it.
    pub stops_at_drift: bool,
}

/// The effect of a merge on the shown plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Merging {
    /// It is applied.
    Applies,
    /// Nothing: the repository has no store configured.
    #[default]
    NoStore,
    /// It must be approved: nothing was recorded as reviewed.
    Unreviewed,
    /// Nothing: it targets a branch that is not deployed.
    OtherBranch,
    /// It is planned again and applied. This preview was compiled only, without credentials, because the pull
    /// request comes from outside.
    Outside,
    /// It is planned again and applied. This preview was compiled only, to check a merge queue group.
    Queued,
}

/// The maximum size of a GitHub comment: below the documented 65,536 characters, counted in bytes.
pub const COMMENT_BUDGET: usize = 60_000;

/// The maximum size of a job summary: GitHub drops a summary above 1 MiB completely.
pub const SUMMARY_BUDGET: usize = 900 * 1024;

/// The maximum size of a check run's text: the documented 65,535 characters are counted in bytes.
pub const CHECK_BUDGET: usize = 60_000;
