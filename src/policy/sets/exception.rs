//! Exceptions: a finding for one resource that does not count until a date.

use globset::GlobMatcher;
use jiff::Timestamp;

use super::set::stack_glob;
use crate::{
    config::PolicyExceptionConfig,
    model::{
        RepoPath, StackId,
        policy_finding::{Enforcement, PassedBy, PolicyFinding},
    },
};

/// One exception.
#[derive(Debug)]
pub(super) struct Exception {
    set: String,
    rule: Option<String>,
    resource: GlobMatcher,
    stacks: Option<GlobMatcher>,
    until: Timestamp,
    until_text: String,
    reason: String,
}

impl Exception {
    /// `None` if it is not valid; the configuration was checked when it was read.
    pub fn from_config(config: &PolicyExceptionConfig) -> Option<Self> {
        let glob = |pattern: &str| {
            let glob = globset::GlobBuilder::new(pattern).build().ok()?;
            Some(glob.compile_matcher())
        };
        let stacks = match &config.stacks {
            Some(pattern) => Some(stack_glob(pattern)?),
            None => None,
        };
        Some(Self {
            set: config.set.clone(),
            rule: config.rule.clone(),
            resource: glob(&config.resource)?,
            stacks,
            until: config.until_moment().ok()?,
            until_text: config.until.clone(),
            reason: config.reason.clone(),
        })
    }

    /// Returns true if a finding is covered at this time. `object` is what the resource of the finding is, if that is not
    /// its id: a program chooses ids, so that both have to be covered.
    pub fn covers(
        &self,
        finding: &PolicyFinding,
        (folder, object): (&RepoPath, Option<&str>),
        now: Timestamp,
    ) -> bool {
        let Some(place) = &finding.place else {
            return false;
        };
        let rule = finding.rule.split_once('/').map_or("", |(_, rule)| rule);
        let in_stack = |glob: &GlobMatcher| {
            let by_name = |stack: &StackId| glob.is_match(stack.as_str());
            glob.is_match(folder.as_str()) || finding.stack.as_ref().is_some_and(by_name)
        };
        now < self.until
            && place.set == self.set
            && self.rule.as_ref().is_none_or(|own| own == rule)
            && self.stacks.as_ref().is_none_or(in_stack)
            && place
                .resource
                .as_ref()
                .is_some_and(|resource| self.resource.is_match(resource.as_str()))
            && object.is_none_or(|object| self.resource.is_match(object))
    }

    /// The finding as it is shown: it is covered.
    pub fn excuse(&self, mut finding: PolicyFinding) -> PolicyFinding {
        finding.verdict = Enforcement::Pass;
        finding.message = format!(
            "excepted until {} ({}): {}",
            self.until_text, self.reason, finding.message
        );
        finding.hint = None;
        if let Some(place) = &mut finding.place {
            place.passed_by = Some(PassedBy::Exception {
                until: self.until_text.clone(),
                reason: self.reason.clone(),
            });
        }
        finding
    }
}
