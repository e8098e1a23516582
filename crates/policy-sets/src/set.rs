//! One policy set: its settings and files, the stacks that it applies to, and the findings of its rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use super::{
    finding_mask::FindingMask,
    rule::{ENDED, NoOutcomes, PolicyFile, RuleFinding, RuleOutcome, Severity, UNREADABLE},
    set_rules::SetSource,
};
use konverge_base::model::{
    Digest,
    digest::DigestBuilder,
    other_names::OtherNames,
    plan_document::{DocumentResource, DocumentStack, StackDocument},
    policy_finding::{Enforcement, PolicyFinding, SetPlace},
    review::OVERRIDE_ALL_SHOWN,
};
use konverge_config::{PolicyEnforcement, PolicySetConfig, StackGlob};
use konverge_secrets::Secrets;

/// The maximum size of the files of a set in bytes.
const LARGEST_SET: usize = 8 * 1024 * 1024;

/// A policy set of a revision. A worker parses and evaluates its rules.
pub struct PolicySet {
    name: String,
    enforce: PolicyEnforcement,
    /// Users and teams who may override a denial; empty if nobody may.
    overriders: Vec<String>,
    stacks: Option<StackGlob>,
    /// The settings and files, or the reason why the files could not be read.
    source: Result<Arc<SetSource>, String>,
    digest: Digest,
}

impl fmt::Debug for PolicySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicySet({}, {})", self.name, self.digest.short())
    }
}

impl PolicySet {
    /// Creates a set from its files. A set with invalid files denies everything, with the reason.
    pub fn load(config: &PolicySetConfig, files: &[PolicyFile], data: &[PolicyFile]) -> Self {
        let mut digest = DigestBuilder::new("policy-set");
        digest.part(serde_json::to_string(config).unwrap_or_default().as_bytes());
        for file in files.iter().chain(data) {
            digest.part(file.path.as_bytes()).part(file.text.as_bytes());
        }
        let size: usize = files.iter().chain(data).map(|file| file.text.len()).sum();
        let source = if size > LARGEST_SET {
            Err(format!("its files have more than {LARGEST_SET} bytes"))
        } else {
            Ok(Arc::new(SetSource {
                config: config.clone(),
                files: files.to_vec(),
                data: data.to_vec(),
            }))
        };
        Self {
            name: config.name.clone(),
            enforce: config.enforcement(),
            overriders: match (config.enforcement(), &config.overriders) {
                (PolicyEnforcement::Override, Some(overriders)) => overriders.by.clone(),
                _ => Vec::new(),
            },
            stacks: config.stacks.as_deref().and_then(StackGlob::compile),
            source,
            digest: digest.finish(),
        }
    }

    /// Creates a set whose files could not be found or read. It denies everything.
    pub fn broken(config: &PolicySetConfig, why: String) -> Self {
        Self {
            source: Err(why),
            ..Self::load(config, &[], &[])
        }
    }

    /// Returns the settings and files of the rules.
    ///
    /// # Errors
    /// The files could not be found or read.
    pub fn source(&self) -> Result<&Arc<SetSource>, &String> {
        self.source.as_ref()
    }

    /// Returns the digest of the settings and files.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the name of the set in `konverge.yaml`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the users and teams who may override a denial of the set; empty if nobody may.
    pub fn overriders(&self) -> &[String] {
        &self.overriders
    }

    /// Returns true if the set applies to a stack: by its folder, its identity, or another name of it. Earlier
    /// names count too, so that nobody can escape the rules by renaming a stack.
    pub(super) fn is_about(&self, stack: &DocumentStack, known_as: &OtherNames) -> bool {
        let present = [stack.folder.as_str(), stack.id.as_str()];
        let mut names = present.into_iter().chain(known_as.iter());
        self.stacks.is_none() || names.any(|name| self.names(name))
    }

    /// Returns true if `stacks` of the set matches this name, folder or identity.
    pub fn names(&self, name: &str) -> bool {
        self.stacks.as_ref().is_some_and(|glob| glob.is_match(name))
    }

    /// Creates findings from outcomes, with secrets masked.
    pub fn findings_from(
        &self,
        document: &StackDocument,
        secrets: &Secrets,
        outcomes: Result<Vec<RuleOutcome>, NoOutcomes>,
    ) -> Vec<PolicyFinding> {
        let mask = FindingMask {
            secrets,
            hidden: &document.hidden,
        };
        let none = |rule: &str, what: &str, why: String| {
            vec![RuleOutcome::Found(RuleFinding {
                message: format!("{what}, so it denies everything: {why}"),
                ..RuleFinding::error(rule, "")
            })]
        };
        let outcomes = outcomes.unwrap_or_else(|why| match why {
            NoOutcomes::Unreadable(why) => none(UNREADABLE, "the set cannot be read", why),
            NoOutcomes::Ended(why) => none(ENDED, "the evaluation of the set was stopped", why),
        });
        // Objects are evaluated with and without their null fields, so most findings occur twice; the set removes
        // duplicates.
        let findings: BTreeSet<_> = outcomes
            .into_iter()
            .map(|outcome| self.finding(document, outcome, mask))
            .collect();
        findings.into_iter().collect()
    }

    fn finding(
        &self,
        document: &StackDocument,
        outcome: RuleOutcome,
        mask: FindingMask<'_>,
    ) -> PolicyFinding {
        let advises = self.enforce == PolicyEnforcement::Advise;
        let enforced = |severity| match severity {
            Severity::Deny if !advises => Enforcement::Deny,
            Severity::Deny | Severity::Warn => Enforcement::Warn,
        };
        let (verdict, found, hint) = match outcome {
            RuleOutcome::Found(found) => (enforced(found.severity), found, None),
            RuleOutcome::Unknown {
                rule,
                severity,
                resource,
                paths,
                later,
            } => {
                let paths = paths.join(", ");
                // An undecided rule must not pass. If its values become known before the write, the apply evaluates
                // the rule again. Otherwise the rule counts as violated now.
                let (verdict, message, hint) = if later {
                    (
                        Enforcement::Undecided,
                        format!("undecided: it reads {paths}, known only after apply"),
                        "the apply evaluates the rule again when the value is known, before it writes this resource",
                    )
                } else {
                    (
                        enforced(severity),
                        format!("undecided: it reads {paths}, which is known only after the write"),
                        "set the value in the Spec, or add an exception for this resource",
                    )
                };
                let found = RuleFinding {
                    rule,
                    severity,
                    message,
                    resource: Some(resource.to_string()),
                    path: None,
                    details: BTreeMap::new(),
                };
                (verdict, found, Some(hint.to_owned()))
            }
        };
        let stack = &document.stack.id;
        // Ids of resources are not masked, because they are shown everywhere. But a rule may put any text there, so
        // only the text of a known id stays unmasked.
        let is_named = |resource: &&DocumentResource| found.resource.as_deref() == Some(resource.id.as_str());
        let named = document.resources.iter().find(is_named);
        let (found, said) = mask.finding(&found);
        let resource = match named {
            Some(resource) => Some(resource.id.clone()),
            None => found.resource.as_deref().and_then(|id| id.parse().ok()),
        };
        let mut digest = DigestBuilder::new("policy-finding");
        for part in [self.name.as_str(), &found.rule, stack.as_str(), &said] {
            digest.part(part.as_bytes());
        }
        let digest = digest.finish();
        // No hint to override the finding: nobody may override that a set was not evaluated.
        let hint = if verdict == Enforcement::Deny
            && !self.overriders.is_empty()
            && !is_no_verdict(&found.rule)
        {
            Some(format!(
                "one of {} may override exactly this finding: name {digest} in the text of an approving review of the last head (`{OVERRIDE_ALL_SHOWN}` means all that the comment shows), or run the workflow by hand with `approve: {digest}`",
                self.overriders.join(", ")
            ))
        } else {
            hint
        };
        PolicyFinding {
            verdict,
            rule: format!("{}/{}", self.name, found.rule),
            stack: Some(stack.clone()),
            message: found.message,
            hint,
            place: Some(SetPlace {
                set: self.name.clone(),
                resource,
                path: found.path,
                details: found.details,
                digest,
                passed_by: None,
            }),
        }
    }
}

/// Returns true if the rule name belongs to a finding about a set that was not evaluated.
pub(super) fn is_no_verdict(rule: &str) -> bool {
    rule == UNREADABLE || rule == ENDED
}
