//! All policy sets of a configuration, with the exceptions to their findings.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::{
    exception::{Exception, FindingLocation},
    rule::{NoOutcomes, RuleOutcome},
    set::{PolicySet, is_no_verdict},
};
use konverge_base::model::{
    Digest,
    digest::DigestBuilder,
    other_names::OtherNames,
    plan_document::StackDocument,
    policy_finding::{Enforcement, PolicyFinding},
    spec::RuntimeKind,
};
use konverge_config::{EndedNameConfig, PolicyExceptionConfig};
use konverge_secrets::Secrets;

/// The policy sets of a revision. Two values are equal if all settings and files are.
#[derive(Debug, Clone)]
pub struct PolicySets {
    sets: Arc<Vec<PolicySet>>,
    exceptions: Arc<Vec<Exception>>,
    ended: Arc<Vec<EndedNameConfig>>,
    digest: Digest,
}

impl PartialEq for PolicySets {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Default for PolicySets {
    fn default() -> Self {
        Self::new(Vec::new(), &[])
    }
}

impl PolicySets {
    /// Creates the sets with their exceptions.
    pub fn new(sets: Vec<PolicySet>, exceptions: &[PolicyExceptionConfig]) -> Self {
        let mut digest = DigestBuilder::new("policy-sets");
        for set in &sets {
            digest.part(set.digest().as_bytes());
        }
        for exception in exceptions {
            digest.part(serde_json::to_string(exception).unwrap_or_default().as_bytes());
        }
        Self {
            sets: Arc::new(sets),
            exceptions: Arc::new(exceptions.iter().filter_map(Exception::from_config).collect()),
            ended: Arc::default(),
            digest: digest.finish(),
        }
    }

    /// Ends earlier names of stacks: rules that match such a name no longer apply to the renamed stack.
    #[must_use]
    pub fn ending_names(self, lines: &[EndedNameConfig]) -> Self {
        let mut digest = DigestBuilder::new("policy-sets-ending");
        digest.part(self.digest.as_bytes());
        digest.part(serde_json::to_string(lines).unwrap_or_default().as_bytes());
        Self {
            ended: Arc::new(lines.to_vec()),
            digest: if lines.is_empty() {
                self.digest
            } else {
                digest.finish()
            },
            ..self
        }
    }

    /// Returns true if no set is configured.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Returns the sets in their order.
    pub fn iter(&self) -> impl Iterator<Item = &PolicySet> {
        self.sets.iter()
    }

    /// Returns the users and teams who may override a finding; empty if nobody may.
    pub fn overriders_of(&self, finding: &PolicyFinding) -> &[String] {
        let rule = finding.rule.split_once('/').map_or("", |(_, rule)| rule);
        let place = finding.place.as_ref();
        let place = place.filter(|_| finding.verdict == Enforcement::Deny && !is_no_verdict(rule));
        let set = place.and_then(|place| self.sets.iter().find(|set| set.name() == place.set));
        set.map_or(&[], PolicySet::overriders)
    }

    /// Returns the names of the sets that exist in both, but with different settings or files.
    pub fn different<'s>(&'s self, other: &'s Self) -> impl Iterator<Item = &'s str> {
        let both = self.sets.iter().filter(|set| {
            let theirs = other.sets.iter().find(|other| other.name() == set.name());
            theirs.is_some_and(|theirs| theirs.digest() != set.digest())
        });
        both.map(PolicySet::name)
    }

    /// Returns the sets that apply to a stack.
    pub fn about<'s>(&'s self, document: &'s StackDocument) -> impl Iterator<Item = &'s PolicySet> {
        let (stack, names) = (&document.stack, self.standing_names(document));
        let sets = self.sets.iter();
        sets.filter(move |set| set.is_about(stack, &names))
    }

    /// Returns the other names of a stack by which rules still apply.
    fn standing_names(&self, document: &StackDocument) -> OtherNames {
        konverge_config::standing_names(&self.ended, &document.stack.folder, &document.known_as)
    }

    /// Creates the findings from the outcomes of each set that applies to the stack, in the order of
    /// [`Self::about`]. Returns the strictest first.
    pub fn findings_from(
        &self,
        document: &StackDocument,
        now: Timestamp,
        secrets: &Secrets,
        outcomes: Vec<Result<Vec<RuleOutcome>, NoOutcomes>>,
    ) -> Vec<PolicyFinding> {
        // A set without outcomes must deny, not pass.
        let missing = || Err(NoOutcomes::Ended("its worker returned no result".to_owned()));
        let outcomes = outcomes.into_iter().chain(std::iter::repeat_with(missing));
        let mut findings: Vec<_> = self
            .about(document)
            .zip(outcomes)
            .flat_map(|(set, outcomes)| set.findings_from(document, secrets, outcomes))
            .map(|finding| {
                let object = object_of(&finding, document);
                let of = FindingLocation {
                    folder: &document.stack.folder,
                    object: object.as_deref(),
                };
                self.excuse(finding, of, now)
            })
            .collect();
        findings.sort();
        findings
    }
}

impl PolicySets {
    /// Marks a finding as excused if an exception covers it. If an exception does not cover it only because it
    /// names the stack's identity, the hint explains that.
    fn excuse(&self, mut finding: PolicyFinding, of: FindingLocation<'_>, now: Timestamp) -> PolicyFinding {
        let mut exceptions = self.exceptions.iter();
        if let Some(exception) = exceptions.find(|exception| exception.covers(&finding, of, now)) {
            return exception.excuse(finding);
        }
        let mut exceptions = self.exceptions.iter();
        if exceptions.any(|exception| exception.names_identity(&finding, of, now)) {
            let hint = format!(
                "an exception names this stack by its identity, which its own files choose; write its folder (`{}`) into \
                 `stacks` of the exception",
                of.folder
            );
            finding.hint = Some(match finding.hint.take() {
                Some(other) => format!("{hint}; {other}"),
                None => hint,
            });
        }
        finding
    }
}

/// Returns the usual id of a finding's Kubernetes object, if the resource has another id. An object without a
/// namespace is compared without it.
fn object_of(finding: &PolicyFinding, document: &StackDocument) -> Option<String> {
    let id = finding.place.as_ref()?.resource.as_ref()?;
    let mut resources = document.resources.iter();
    let resource =
        resources.find(|resource| resource.id == *id && resource.runtime == RuntimeKind::Kubernetes)?;
    let object = resource.after.as_ref().or(resource.before.as_ref())?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let head = format!("{}:{}", text(&object["apiVersion"]), text(&object["kind"]));
    let metadata = &object["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    let is_same = if namespace.is_empty() {
        id.as_str().starts_with(&format!("{head}:")) && id.as_str().ends_with(&format!(":{name}"))
    } else {
        id.as_str() == format!("{head}:{namespace}:{name}")
    };
    (!is_same).then(|| format!("{head}:{namespace}:{name}"))
}
