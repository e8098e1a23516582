//! The policy that applies to one stack, and the facts on which it is evaluated.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::codeowners::CodeOwners;
use konverge_base::model::RepoPath;

/// The policy of one stack: the repository's rules, which the stack's own rules can only tighten.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EffectivePolicy {
    /// The required number of approvals of the last head of the pull request.
    pub approvals: u32,
    /// Users, teams (`org/team`, with or without a leading `@`) or `CODEOWNERS`; one of them must have
    /// approved.
    pub reviewers: Vec<String>,
    /// The folder whose code owners count for `CODEOWNERS`, if the stack moved from there. If that folder has no
    /// owners any more, nobody has to approve.
    pub owned_folder: Option<RepoPath>,
    /// Users or teams who may apply. If empty, everybody whom GitHub allows.
    pub actors: Vec<String>,
    /// The periods in which nothing is applied.
    pub freeze: Vec<Freeze>,
    /// The maximum number of resources that one apply may delete or replace; `None` means
    /// [`EffectivePolicy::MAX_DESTRUCTIVE`].
    pub max_destructive: Option<u32>,
}

impl EffectivePolicy {
    /// The default maximum of resources that one apply may delete or replace.
    pub const MAX_DESTRUCTIVE: u32 = 10;
}

/// A period in which nothing is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freeze {
    /// The start, inclusive.
    pub from: Timestamp,
    /// The end, exclusive.
    pub until: Timestamp,
    /// The reason, which is shown to the person whose apply is refused.
    pub reason: String,
}

/// The stage of the evaluation: a preview only shows its findings, an apply enforces them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A preview. The time of the merge is unknown, so findings describe what a merge would need.
    Preview,
    /// An apply, which enforces the findings.
    Apply,
}

/// The role of a user in the repository, from GitHub's permission API (never from the author association).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// No access.
    None,
    /// May read.
    Read,
    /// May push.
    Write,
    /// May administer.
    Admin,
}

/// The approval of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// The account that approved.
    pub reviewer: String,
    /// True if the approval is for the last head; an older one does not count.
    pub on_last_head: bool,
    /// The role of the user. Everybody who can read a repository can approve in it, so, as at GitHub itself, an
    /// approval counts only from a user who may push.
    pub role: Role,
    /// True if the user wrote or pushed the change; then the approval does not count.
    pub own: bool,
}

/// The teams that the rules name, as far as the run could read them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Teams {
    /// The members of each team, among the users who matter here.
    pub members: BTreeMap<String, BTreeSet<String>>,
    /// The teams whose members could not be read, with the reasons.
    pub unreadable: BTreeMap<String, String>,
}

impl Teams {
    /// Returns true if a name (a user or a team, with or without a leading `@`) includes this user.
    pub fn includes(&self, name: &str, login: &str) -> bool {
        let name = name.trim_start_matches('@');
        let is_login = |other: &str| other.eq_ignore_ascii_case(login);
        if name.contains('/') {
            let members = self.members.get(name);
            members.is_some_and(|members| members.iter().any(|member| is_login(member)))
        } else {
            is_login(name)
        }
    }

    /// Returns `membership of acme/sre could not be read: WHY` for the unreadable teams among these names.
    pub fn unreadable_among(&self, names: &[String]) -> Option<String> {
        let names = names.iter().map(|name| name.trim_start_matches('@'));
        let said = names.filter_map(|name| {
            let why = self.unreadable.get(name)?;
            Some(format!("membership of {name} could not be read: {why}"))
        });
        let said: BTreeSet<_> = said.collect();
        (!said.is_empty()).then(|| said.into_iter().collect::<Vec<_>>().join("; "))
    }

    /// Hint about the token that can read the members of teams.
    pub const READABLE: &'static str = "teams are read with the token of an App with `members: read`";
}

/// The facts for the evaluation.
#[derive(Debug, Clone)]
pub struct PolicyFacts<'a> {
    /// A preview or an apply.
    pub stage: Stage,
    /// The time of the evaluation.
    pub now: Timestamp,
    /// The user who merged or dispatched; in a preview, the author of the pull request.
    pub actor: &'a str,
    /// The role of the actor.
    pub role: Role,
    /// The approvals of the pull request, or of all pull requests that this apply contains.
    pub approvals: &'a [Approval],
    /// The members of the teams that the rules name.
    pub teams: &'a Teams,
    /// True if GitHub protects the applied branch. False also if GitHub could not be reached.
    pub protected_branch: bool,
    /// The CODEOWNERS file of the default branch.
    pub codeowners: Option<&'a CodeOwners>,
    /// True if an authorized user approved exactly this plan by its digest. The limit of deletions does not hold
    /// then.
    pub consented: bool,
}
