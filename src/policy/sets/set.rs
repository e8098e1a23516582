//! One policy set: its rules, its inputs, and what its findings mean.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use cel::Context;
use globset::GlobMatcher;

use super::{
    admission::{AdmissionOutcome, AdmissionPolicies},
    admission_cases,
    cel_rules::{self, CelRule, CelRules},
    finding_mask::FindingMask,
    gatekeeper::GatekeeperRules,
    input,
    possible_reads::Mentions,
    rego::{self, RegoRules},
    rule::{FailedTest, PolicyFile, RuleFinding, Severity, UNREADABLE},
};
use crate::{
    cel_expression::CostInput,
    config::{PolicyEnforcement, PolicyInput, PolicyLanguage, PolicySetConfig, RegoVersion},
    model::{
        Digest, ResourceId,
        digest::DigestBuilder,
        plan_document::{DocumentResource, OtherNames, StackDocument},
        policy_finding::{Enforcement, PolicyFinding, SetPlace},
        review::OVERRIDE_ALL_SHOWN,
        spec::RuntimeKind,
    },
    secrets::Secrets,
};

/// The stack size of the parser in bytes; only the used part is allocated.
const PARSER_STACK: usize = 256 * 1024 * 1024;
/// The maximum size of the files of a set in bytes.
const LARGEST_SET: usize = 8 * 1024 * 1024;

/// A policy set of a revision.
pub struct PolicySet {
    name: String,
    enforce: PolicyEnforcement,
    /// Who may override a denial; empty: nobody.
    overriders: Vec<String>,
    input: PolicyInput,
    stacks: Option<GlobMatcher>,
    /// The rules, or why there are none.
    rules: Result<Rules, String>,
    /// The files for its tests: in Rego, or suites.
    tests: Option<SetTests>,
    language: PolicyLanguage,
    digest: Digest,
}

/// The files of a set with tests.
struct SetTests {
    files: Vec<PolicyFile>,
    data: Vec<PolicyFile>,
    version: RegoVersion,
}

enum Rules {
    Rego(Box<RegoRules>),
    Cel(CelRules),
    Admission(Box<AdmissionPolicies>),
    Gatekeeper(Box<GatekeeperRules>),
}

impl fmt::Debug for PolicySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicySet({}, {})", self.name, self.digest.short())
    }
}

/// A finding of a rule, or that an unknown value keeps it from deciding.
enum Outcome {
    Found(RuleFinding),
    /// The rule may read these paths of the resource.
    Unknown {
        rule: String,
        severity: Severity,
        resource: ResourceId,
        paths: Vec<String>,
        /// True if they become known before the resource is written.
        later: bool,
    },
}

impl PolicySet {
    /// Reads a set from its files. A set that cannot be read denies everything, and says why.
    pub fn load(config: &PolicySetConfig, files: &[PolicyFile], data: &[PolicyFile]) -> Self {
        let mut digest = DigestBuilder::new("policy-set");
        digest.part(serde_json::to_string(config).unwrap_or_default().as_bytes());
        for file in files.iter().chain(data) {
            digest.part(file.path.as_bytes()).part(file.text.as_bytes());
        }
        let size: usize = files.iter().chain(data).map(|file| file.text.len()).sum();
        let rules = match size > LARGEST_SET {
            true => Err(format!("its files have more than {LARGEST_SET} bytes")),
            false => parse_apart(config, files, data),
        };
        Self {
            name: config.name.clone(),
            enforce: config.enforcement(),
            overriders: match (config.enforcement(), &config.overriders) {
                (PolicyEnforcement::Override, Some(overriders)) => overriders.by.clone(),
                _ => Vec::new(),
            },
            input: config.input,
            stacks: config.stacks.as_deref().and_then(stack_glob),
            rules,
            language: config.language,
            tests: (config.language != PolicyLanguage::Cel).then(|| SetTests {
                files: files.to_vec(),
                data: data.to_vec(),
                version: config.rego,
            }),
            digest: digest.finish(),
        }
    }

    /// A set whose files could not be found or read.
    pub fn broken(config: &PolicySetConfig, why: String) -> Self {
        Self {
            rules: Err(why),
            ..Self::load(config, &[], &[])
        }
    }

    /// The tests of the set that fail. A set that cannot be read fails as a whole.
    pub fn failed_tests(&self, path: &str) -> Vec<FailedTest> {
        match (&self.rules, &self.tests) {
            (Err(why), _) => vec![FailedTest {
                file: path.to_owned(),
                name: "load".to_owned(),
                why: why.clone(),
            }],
            (Ok(Rules::Rego(_)), Some(tests)) => rego::failed_tests(&tests.files, &tests.data, tests.version),
            (Ok(Rules::Admission(_) | Rules::Gatekeeper(_)), Some(tests)) => {
                let per_test = self.language == PolicyLanguage::Gatekeeper;
                admission_cases::failed(&tests.files, per_test, |files| judge(self.language, files))
            }
            (Ok(Rules::Rego(_) | Rules::Admission(_) | Rules::Gatekeeper(_)), None) => Vec::new(),
            (Ok(Rules::Cel(rules)), _) => rules.failed_cases(self.input),
        }
    }

    /// The digest over its settings and files.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The name in `konverge.yaml`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who may override a denial of the set; empty: nobody.
    pub fn overriders(&self) -> &[String] {
        &self.overriders
    }

    /// Returns true if the set is about a stack: by its folder or identity, or by another name of it. A change that
    /// renames a stack does not leave the rules of its name.
    pub fn is_about(&self, document: &StackDocument) -> bool {
        let is_match = |name: &str| self.stacks.as_ref().is_some_and(|glob| glob.is_match(name));
        let OtherNames { ids, folders } = &document.known_as;
        self.is_about_its_place(document)
            || ids.iter().any(|id| is_match(id.as_str()))
            || folders.iter().any(|folder| is_match(folder.as_str()))
    }

    /// Returns true if the set is about a stack by its folder or identity.
    pub fn is_about_its_place(&self, document: &StackDocument) -> bool {
        let stack = &document.stack;
        let glob = self.stacks.as_ref();
        glob.is_none_or(|glob| glob.is_match(stack.folder.as_str()) || glob.is_match(stack.id.as_str()))
    }

    /// The findings for the plan of a stack.
    pub fn findings(&self, document: &StackDocument, secrets: &Secrets) -> Vec<PolicyFinding> {
        let mask = FindingMask {
            secrets,
            hidden: &document.hidden,
        };
        let outcomes = match &self.rules {
            Err(why) => vec![Outcome::Found(RuleFinding {
                message: format!("the set cannot be read, so nothing passes it: {why}"),
                ..RuleFinding::error(UNREADABLE, "")
            })],
            Ok(Rules::Rego(rules)) if self.input == PolicyInput::Objects => rego_objects(rules, document),
            Ok(Rules::Rego(rules)) => rego_whole(rules, document, self.input),
            Ok(Rules::Cel(rules)) => cel_each(rules, document, self.input),
            Ok(Rules::Admission(policies)) => admission(policies.outcomes(document)),
            Ok(Rules::Gatekeeper(rules)) => admission(rules.outcomes(document)),
        };
        let findings: BTreeSet<_> = outcomes
            .into_iter()
            .map(|outcome| self.finding(document, outcome, mask))
            .collect();
        findings.into_iter().collect()
    }

    fn finding(&self, document: &StackDocument, outcome: Outcome, mask: FindingMask<'_>) -> PolicyFinding {
        let advises = self.enforce == PolicyEnforcement::Advise;
        let enforced = |severity| match severity {
            Severity::Deny if !advises => Enforcement::Deny,
            Severity::Deny | Severity::Warn => Enforcement::Warn,
        };
        let (verdict, found, hint) = match outcome {
            Outcome::Found(found) => (enforced(found.severity), found, None),
            Outcome::Unknown {
                rule,
                severity,
                resource,
                paths,
                later,
            } => {
                let paths = paths.join(", ");
                let (verdict, message, hint) = match later {
                    true => (
                        Enforcement::Undecided,
                        format!("undecided: it reads {paths}, known only after apply"),
                        "the apply evaluates it again when the value is known, before it writes this resource",
                    ),
                    false => (
                        enforced(severity),
                        format!("undecided: it reads {paths}, which is known only after the write"),
                        "set the value in the Spec, or add an exception for this resource",
                    ),
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
        // The id of a resource is shown everywhere. A rule may name another text.
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
        // A set that cannot be read has found nothing that could be overridden.
        let hint = match verdict == Enforcement::Deny
            && !self.overriders.is_empty()
            && found.rule != UNREADABLE
        {
            true => Some(format!(
                "one of {} may override exactly this finding: name {digest} in the text of an approving review of the last head (`{OVERRIDE_ALL_SHOWN}` means all that the comment shows), or run the workflow by hand with `approve: {digest}`",
                self.overriders.join(", ")
            )),
            false => hint,
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

/// Parses on a thread with a stack that is large enough for any nesting.
fn parse_apart(config: &PolicySetConfig, files: &[PolicyFile], data: &[PolicyFile]) -> Result<Rules, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(PARSER_STACK);
        let parsing = thread
            .spawn_scoped(scope, || parse(config, files, data))
            .map_err(|error| error.to_string())?;
        parsing
            .join()
            .unwrap_or_else(|_| Err("the parser failed".to_owned()))
    })
}

fn parse(config: &PolicySetConfig, files: &[PolicyFile], data: &[PolicyFile]) -> Result<Rules, String> {
    match config.language {
        PolicyLanguage::Cel => cel_rules::load(files).map(Rules::Cel),
        PolicyLanguage::Vap => {
            let (_, files) = admission_cases::split(files)?;
            let policies = AdmissionPolicies::load(&files)?;
            Ok(Rules::Admission(Box::new(policies)))
        }
        PolicyLanguage::Gatekeeper => {
            let (_, files) = admission_cases::split(files)?;
            let rules = GatekeeperRules::load(&files)?;
            Ok(Rules::Gatekeeper(Box::new(rules)))
        }
        PolicyLanguage::Rego => {
            let terraform = config.input == PolicyInput::Tfplan;
            for file in files.iter().filter(|_| terraform) {
                if let Some(key) = input::missing_terraform_key(&file.text) {
                    let path = &file.path;
                    return Err(format!(
                        "{path} reads `{key}` of Terraform's plan, which `tfplan` does not have"
                    ));
                }
            }
            let packages = config.packages.iter().filter_map(|glob| stack_glob(glob));
            let packages: Vec<_> = packages.collect();
            let rules = RegoRules::load(files, data, config.rego, &packages)?;
            Ok(Rules::Rego(Box::new(rules)))
        }
    }
}

/// The rules of a suite's test.
fn judge(language: PolicyLanguage, files: &[PolicyFile]) -> Result<admission_cases::Judge, String> {
    Ok(match language {
        PolicyLanguage::Gatekeeper => {
            let rules = GatekeeperRules::load(files)?;
            Box::new(move |document| rules.outcomes(document))
        }
        _ => {
            let policies = AdmissionPolicies::load(files)?;
            Box::new(move |document| policies.outcomes(document))
        }
    })
}

pub(super) fn stack_glob(pattern: &str) -> Option<GlobMatcher> {
    let glob = globset::GlobBuilder::new(pattern).literal_separator(true).build();
    glob.ok().map(|glob| glob.compile_matcher())
}

/// The unknown paths of a resource that rules may read.
fn unknown(mentions: &Mentions, resource: &DocumentResource) -> Vec<String> {
    let paths = resource.unknown.iter();
    let read = paths.filter(|path| mentions.may_read(resource.runtime, path));
    read.cloned().collect()
}

/// Returns true if words may read an unknown value of a resource.
fn reads_unknown(mentions: &Mentions, resource: &DocumentResource) -> bool {
    let mut paths = resource.unknown.iter();
    paths.any(|path| mentions.may_read(resource.runtime, path))
}

fn undecided(rule: &str, severity: Severity, resource: &DocumentResource, paths: Vec<String>) -> Outcome {
    Outcome::Unknown {
        rule: rule.to_owned(),
        severity,
        resource: resource.id.clone(),
        paths,
        later: resource.known_before_write,
    }
}

/// Each request that the apply would send is an input of its own.
fn admission(outcomes: Vec<AdmissionOutcome<'_>>) -> Vec<Outcome> {
    let outcomes = outcomes.into_iter().map(|outcome| match outcome {
        AdmissionOutcome::Found(finding) => Outcome::Found(finding),
        AdmissionOutcome::Undecided(resource, rule, severity) => {
            undecided(&rule, severity, resource, resource.unknown.clone())
        }
    });
    outcomes.collect()
}

/// Each object is an input of its own.
fn rego_objects(rules: &RegoRules, document: &StackDocument) -> Vec<Outcome> {
    let mut session = rules.session(&document.stack.folder);
    let mut outcomes = Vec::new();
    for (resource, object) in input::objects(document) {
        let unknown = unknown(rules.mentions(), resource);
        if !unknown.is_empty() {
            let certain = session.certain(object, |mentions| reads_unknown(mentions, resource));
            outcomes.extend(certain.into_iter().map(|finding| about(finding, resource)));
            let names = rules.names();
            outcomes
                .extend(names.map(|(name, severity)| undecided(name, severity, resource, unknown.clone())));
            continue;
        }
        let findings = session.findings(object.clone());
        outcomes.extend(findings.into_iter().map(|finding| about(finding, resource)));
    }
    outcomes
}

/// A finding about the resource that was the input.
fn about(finding: RuleFinding, resource: &DocumentResource) -> Outcome {
    Outcome::Found(RuleFinding {
        resource: Some(resource.id.to_string()),
        ..finding
    })
}

/// The whole stack is one input. With unknown values in it, only those findings count that there are also
/// without the resources with these values, and those of definitions that read none of the values.
fn rego_whole(rules: &RegoRules, document: &StackDocument, view: PolicyInput) -> Vec<Outcome> {
    let input = |without: &[&DocumentResource]| match view {
        PolicyInput::Tfplan => input::terraform_plan(document, without),
        PolicyInput::Plan | PolicyInput::Objects | PolicyInput::Admission => input::plan(document, without),
    };
    let mut session = rules.session(&document.stack.folder);
    let mut findings = session.findings(input(&[]));
    let mut outcomes = Vec::new();
    let open: Vec<_> = document
        .resources
        .iter()
        .filter(|resource| view != PolicyInput::Tfplan || resource.runtime == RuntimeKind::Terraform)
        .map(|resource| (resource, unknown(rules.mentions(), resource)))
        .filter(|(_, unknown)| !unknown.is_empty())
        .collect();
    if !open.is_empty() {
        let without: Vec<_> = open.iter().map(|(resource, _)| *resource).collect();
        let certain: BTreeSet<_> = session.findings(input(&without)).into_iter().collect();
        findings.retain(|finding| certain.contains(finding));
        let reads = |mentions: &Mentions| open.iter().any(|(open, _)| reads_unknown(mentions, open));
        findings.extend(session.certain(&input(&[]), reads));
        for (resource, unknown) in &open {
            let names = rules.names();
            outcomes
                .extend(names.map(|(name, severity)| undecided(name, severity, resource, unknown.clone())));
        }
    }
    outcomes.extend(findings.into_iter().map(Outcome::Found));
    outcomes
}

/// Each resource, or each object, is an input of its own.
fn cel_each(set: &CelRules, document: &StackDocument, view: PolicyInput) -> Vec<Outcome> {
    let rules = set.rules.as_slice();
    let mut outcomes = Vec::new();
    match view {
        PolicyInput::Objects => {
            let shared = set.shared(None);
            for (resource, object) in input::objects(document) {
                let context = cel_rules::context(view, object, &shared);
                let extent = CostInput::measure(object);
                cel_one(rules, (resource, &[]), &context, extent, &mut outcomes);
            }
        }
        PolicyInput::Plan | PolicyInput::Tfplan | PolicyInput::Admission => {
            let whole = input::plan(document, &[]);
            let empty = Vec::new();
            let values = whole["resources"].as_array().unwrap_or(&empty);
            let (shared, extent) = (set.shared(Some(&whole)), CostInput::measure(&whole));
            for (resource, value) in document.resources.iter().zip(values) {
                let context = cel_rules::context(view, value, &shared);
                let others = document.resources.as_slice();
                cel_one(rules, (resource, others), &context, extent, &mut outcomes);
            }
        }
    }
    outcomes
}

/// Evaluates the rules for one resource. `others` are the resources that a rule can also reach.
fn cel_one(
    rules: &[CelRule],
    (resource, others): (&DocumentResource, &[DocumentResource]),
    context: &Context,
    extent: CostInput,
    outcomes: &mut Vec<Outcome>,
) {
    for rule in rules {
        let undecided = |of: &DocumentResource, paths| undecided(&rule.name, rule.severity, of, paths);
        // With an unknown value a condition is an error, or decides for another value: only a part that does not read
        // it counts.
        let own = unknown(&rule.mentions, resource);
        if !own.is_empty() {
            let reads = |mentions: &Mentions| {
                let mut reached = others.iter().filter(|_| mentions.has_word("plan"));
                reads_unknown(mentions, resource) || reached.any(|other| reads_unknown(mentions, other))
            };
            let certain = rule.certain_violation(context, extent, reads);
            outcomes.push(match certain {
                Some(finding) => about(finding, resource),
                None => undecided(resource, own),
            });
            continue;
        }
        let reached = others
            .iter()
            .filter(|other| rule.reads_plan && other.id != resource.id);
        let open = reached
            .map(|reached| (reached, unknown(&rule.mentions, reached)))
            .find(|(_, unknown)| !unknown.is_empty());
        let about_it = rule.is_about(context, extent);
        match open {
            // What is unknown elsewhere is absent here: a violation counts, and nothing else is certain.
            Some((reached, paths)) => {
                let violation = match about_it {
                    Ok(true) => rule.violation(context, extent).ok().flatten(),
                    Ok(false) | Err(_) => None,
                };
                outcomes.push(match violation {
                    Some(finding) => about(finding, resource),
                    None => undecided(reached, paths),
                });
            }
            None => {
                let finding = match about_it {
                    Ok(true) => rule.finding(context, extent),
                    Ok(false) => None,
                    Err(error) => Some(*error),
                };
                outcomes.extend(finding.map(|finding| about(finding, resource)));
            }
        }
    }
}
