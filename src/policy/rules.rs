//! The rules of one stack, and the facts they are held against.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::codeowners::CodeOwners;

/// What is allowed for one stack: the repository's rules narrowed by the stack's own.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EffectivePolicy {
    /// How many people must have approved the last head.
    pub approvals: u32,
    /// Users, teams (`org/team`, a leading `@` does not matter) or `CODEOWNERS`; one of them must have approved.
    pub reviewers: Vec<String>,
    /// Users or teams who may apply; empty: whoever GitHub lets.
    pub actors: Vec<String>,
    /// When nothing is applied.
    pub freeze: Vec<Freeze>,
    /// Resources that one apply may delete or replace; `None` is [`EffectivePolicy::MAX_DELETE`].
    pub max_delete: Option<u32>,
}

impl EffectivePolicy {
    /// Resources that one apply may delete or replace where nothing is configured.
    pub const MAX_DELETE: u32 = 10;
}

/// A time in which nothing is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freeze {
    /// From this moment,
    pub from: Timestamp,
    /// until before this one.
    pub until: Timestamp,
    /// Why.
    pub reason: String,
}

/// Whether the answer is shown or obeyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A preview: who merges and when is not known yet, so it is said what a merge would need.
    Preview,
    /// An apply.
    Apply,
}

/// What somebody may do in the repository by GitHub's permission API (never by association).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Nothing.
    None,
    /// Look.
    Read,
    /// Push.
    Write,
    /// Everything.
    Admin,
}

/// Somebody's approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Who.
    pub reviewer: String,
    /// Whether it was given for the last head; an older one does not count.
    pub on_last_head: bool,
    /// What they may do: whoever sees a repository can approve in it, so as for GitHub itself an approval counts only
    /// of somebody who may push.
    pub role: Role,
    /// They wrote or pushed what they approve: then it does not count.
    pub own: bool,
}

/// What is known when the rules are asked.
#[derive(Debug, Clone)]
pub struct PolicyFacts<'a> {
    /// Shown or obeyed.
    pub stage: Stage,
    /// Now.
    pub now: Timestamp,
    /// Who merged or dispatched; who opened the pull request in a preview.
    pub actor: &'a str,
    /// What they may do here.
    pub role: Role,
    /// The approvals of the pull request (or of all whose changes are applied).
    pub approvals: &'a [Approval],
    /// Members of the teams that the rules name, as far as they could be looked up.
    pub teams: &'a BTreeMap<String, BTreeSet<String>>,
    /// Whether GitHub protects the branch that is applied. What could not be asked is not so.
    pub protected_branch: bool,
    /// The protected branch's CODEOWNERS.
    pub codeowners: Option<&'a CodeOwners>,
    /// Whether somebody who may has agreed to exactly this plan by its digest: it may be of any size then.
    pub consented: bool,
}
