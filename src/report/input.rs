//! What every report needs to know besides the plan.

use std::{collections::BTreeMap, time::Duration};

use crate::model::{
    CommitId, StackId, affected::Affected, comment_marker::CommentMarker, plan::Plan,
    policy_finding::PolicyFinding, power::PowerChange,
};

/// The run that a report is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunInfo {
    /// `owner/name`; empty outside GitHub.
    pub repository: String,
    /// The web address of the server, such as `https://github.com`; empty outside GitHub.
    pub server_url: String,
    /// The pull request.
    pub pr: Option<u64>,
    /// The commit that holds the change.
    pub head: Option<CommitId>,
    /// The commit it was compared with.
    pub base: Option<CommitId>,
    /// The run's page.
    pub run_url: Option<String>,
    /// GitHub's id of the run; 0 outside.
    pub run: u64,
    /// Which try of it, from 1.
    pub attempt: u32,
    /// How long the stages took, in their order.
    pub timings: Vec<(&'static str, Duration)>,
    /// Specs compiled in this run.
    pub compiled: usize,
    /// Specs taken from the cache.
    pub cached: usize,
    /// All stacks of the repository.
    pub stacks_in_repository: usize,
    /// Konverge's own version.
    pub version: String,
}

/// Everything that a preview's comment is made of.
#[derive(Debug, Clone)]
pub struct CommentInput<'a> {
    /// The run.
    pub run: &'a RunInfo,
    /// Which stacks are affected and why.
    pub affected: &'a Affected,
    /// What would happen to them.
    pub plan: &'a Plan,
    /// What the guardrails say.
    pub findings: &'a [PolicyFinding],
    /// What merging would change of the settings that grant power.
    pub power: &'a [PowerChange],
    /// The wave in which a stack is applied, where `after` orders stacks; absent is wave 0.
    pub waves: &'a BTreeMap<StackId, usize>,
    /// A page with a stack's whole diff, such as its check run.
    pub links: &'a BTreeMap<StackId, String>,
    /// The marker; also tells legs of a matrix apart.
    pub marker: &'a CommentMarker,
    /// What merging does, and how this preview came about.
    pub mode: Mode,
    /// The most UTF-8 bytes that the text may have.
    pub budget: usize,
}

/// What merging does, and how this preview came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mode {
    /// What merging does.
    pub merging: Merging,
    /// A later push has replaced the head that this is about.
    pub superseded: bool,
}

/// What merging does with what is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Merging {
    /// It is applied.
    Applies,
    /// Nothing: the repository has no store configured.
    #[default]
    NoStore,
    /// What it changes needs an approval: nothing was recorded as reviewed.
    Unreviewed,
    /// Nothing: it targets a branch that is not deployed.
    OtherBranch,
    /// It is planned again and applied; this was compiled only, without any credential, since it comes from outside.
    Outside,
    /// It is planned again and applied; this was compiled only, since a merge queue asks whether it goes together.
    Queued,
}

/// The size that a GitHub comment is packed to: below the documented 65,536 characters, counted in bytes.
pub const COMMENT_BUDGET: usize = 60_000;

/// The size that a job summary is packed to: GitHub drops a summary above 1 MiB as a whole.
pub const SUMMARY_BUDGET: usize = 900 * 1024;

/// The size of a check run's text: the documented 65,535 characters are counted in bytes.
pub const CHECK_BUDGET: usize = 60_000;
