//! Exceptions: a finding about one resource that is excused until a date.

use globset::GlobMatcher;
use jiff::Timestamp;

use konverge_base::model::{
    RepoPath,
    policy_finding::{Enforcement, PassedBy, PolicyFinding},
};
use konverge_config::{PolicyExceptionConfig, StackGlob};

/// One exception.
#[derive(Debug)]
pub(super) struct Exception {
    set: String,
    rule: Option<String>,
    resource: GlobMatcher,
    stacks: Option<StackGlob>,
    until: Timestamp,
    until_text: String,
    reason: String,
}

/// The location that a finding is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct FindingLocation<'a> {
    /// The folder of the stack.
    pub folder: &'a RepoPath,
    /// The usual id of the resource's Kubernetes object, if the resource has another id. A program can choose any
    /// id, so an exception must match both.
    pub object: Option<&'a str>,
}

impl Exception {
    /// Returns `None` for an invalid exception. That cannot happen, because the configuration was validated when it
    /// was parsed.
    pub(super) fn from_config(config: &PolicyExceptionConfig) -> Option<Self> {
        let glob = |pattern: &str| {
            let glob = globset::GlobBuilder::new(pattern).build().ok()?;
            Some(glob.compile_matcher())
        };
        let stacks = match &config.stacks {
            Some(pattern) => Some(StackGlob::compile(pattern)?),
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

    /// Returns true if the exception covers a finding at this time. It matches the stack by folder, never by
    /// identity: files of the pull request choose the identity.
    pub(super) fn covers(&self, finding: &PolicyFinding, of: FindingLocation<'_>, now: Timestamp) -> bool {
        self.is_about(finding, of, now)
            && self
                .stacks
                .as_ref()
                .is_none_or(|glob| glob.is_match(of.folder.as_str()))
    }

    /// Returns true if the exception would cover a finding, but names the identity of the stack in place of its
    /// folder.
    pub(super) fn names_identity(
        &self,
        finding: &PolicyFinding,
        of: FindingLocation<'_>,
        now: Timestamp,
    ) -> bool {
        let is_named = |glob: &StackGlob| {
            finding
                .stack
                .as_ref()
                .is_some_and(|stack| glob.is_match(stack.as_str()))
        };
        self.is_about(finding, of, now) && self.stacks.as_ref().is_some_and(is_named)
    }

    fn is_about(&self, finding: &PolicyFinding, of: FindingLocation<'_>, now: Timestamp) -> bool {
        let Some(place) = &finding.place else {
            return false;
        };
        let rule = finding.rule.split_once('/').map_or("", |(_, rule)| rule);
        let is_meant = |id: &str| self.resource.is_match(id);
        now < self.until
            && place.set == self.set
            && self.rule.as_ref().is_none_or(|own| own == rule)
            && place
                .resource
                .as_ref()
                .is_some_and(|resource| is_meant(resource.as_str()))
            && of.object.is_none_or(is_meant)
    }

    /// Returns the finding marked as excused by this exception.
    pub(super) fn excuse(&self, mut finding: PolicyFinding) -> PolicyFinding {
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
