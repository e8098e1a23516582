//! The rules of a set: parsed from its files, and evaluated on the plan document of a stack. Nothing here limits
//! the time or the memory; `crate::workers` runs the same code in a process with limits.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    admission::AdmissionPolicies,
    gatekeeper::{GatekeeperRules, gator_suites::without_suites},
    possible_reads::Mentions,
    rego::{self, RegoRules, input, value::rego_value},
    rule::{FailedTest, PolicyFile, RuleFinding, RuleOutcome},
};
use konverge_base::model::{
    FieldPath,
    plan_document::{DocumentResource, StackDocument},
    spec::RuntimeKind,
};
use konverge_config::{PolicyInput, PolicyLanguage, PolicySetConfig, StackGlob};

/// The stack size of the parser's thread in bytes. Only the used part is allocated.
const PARSER_STACK: usize = 256 * 1024 * 1024;

/// The settings and files of a set, from which its rules are parsed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SetSource {
    pub(super) config: PolicySetConfig,
    pub(super) files: Vec<PolicyFile>,
    pub(super) data: Vec<PolicyFile>,
}

/// The parsed rules of a set.
pub struct SetRules {
    input: PolicyInput,
    rules: Rules,
}

enum Rules {
    Rego(Box<RegoRules>),
    Admission(Box<AdmissionPolicies>),
    Gatekeeper(Box<GatekeeperRules>),
}

impl SetSource {
    /// Parses the rules.
    ///
    /// # Errors
    /// An invalid file of rules or data, or no rule at all.
    pub fn parse(&self) -> Result<SetRules, String> {
        Ok(SetRules {
            input: self.config.input(),
            rules: parse_apart(&self.config, &self.files, &self.data)?,
        })
    }

    /// Returns the path of the set.
    pub fn path(&self) -> &str {
        &self.config.path
    }

    /// Returns the paths of the files with rules.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file.path.as_str())
    }

    /// Returns true if the rules see the changes of resources, and not only the resources.
    pub fn sees_changes(&self) -> bool {
        self.config.language == PolicyLanguage::Rego && self.config.input() == PolicyInput::Plan
    }

    /// Returns the same settings with only one of the files.
    #[must_use]
    pub fn only(&self, path: &str) -> Self {
        let files = self.files.iter().filter(|file| file.path == path);
        Self {
            config: self.config.clone(),
            files: files.cloned().collect(),
            data: Vec::new(),
        }
    }

    /// Runs the tests of the set, and returns those that fail. `rules` are the parsed rules of this set.
    pub fn failed_tests(&self, rules: &SetRules) -> Vec<FailedTest> {
        match &rules.rules {
            Rules::Rego(_) => rego::failed_tests(&self.files, &self.data, self.config.rego),
            // The tests of these languages are run by `gator verify`.
            Rules::Admission(_) | Rules::Gatekeeper(_) => Vec::new(),
        }
    }
}

impl SetRules {
    /// Evaluates the rules on the plan of a stack.
    pub fn outcomes(&self, document: &StackDocument) -> Vec<RuleOutcome> {
        match &self.rules {
            Rules::Rego(rules) if self.input == PolicyInput::Objects => rego_objects(rules, document),
            Rules::Rego(rules) => rego_whole(rules, document, self.input),
            Rules::Admission(policies) => with_and_without_nulls(document, |of| policies.outcomes(of)),
            Rules::Gatekeeper(rules) => with_and_without_nulls(document, |of| rules.outcomes(of)),
        }
    }
}

/// Parses on a thread with a large stack, so that deeply nested code cannot overflow it.
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
        PolicyLanguage::Vap => {
            let policies = AdmissionPolicies::load(&without_suites(files)?)?;
            Ok(Rules::Admission(Box::new(policies)))
        }
        PolicyLanguage::Gatekeeper => {
            let rules = GatekeeperRules::load(&without_suites(files)?)?;
            Ok(Rules::Gatekeeper(Box::new(rules)))
        }
        PolicyLanguage::Rego => {
            let terraform = config.input() == PolicyInput::Tfplan;
            for file in files.iter().filter(|_| terraform) {
                if let Some(key) = input::missing_terraform_key(&file.text) {
                    let path = &file.path;
                    return Err(format!(
                        "{path} reads `{key}` of Terraform's plan, which `tfplan` does not have"
                    ));
                }
            }
            let packages = config.packages.iter().filter_map(|glob| StackGlob::compile(glob));
            let packages: Vec<_> = packages.collect();
            let rules = RegoRules::load(files, data, config.rego, &packages)?;
            Ok(Rules::Rego(Box::new(rules)))
        }
    }
}

/// Returns the unknown paths of a resource that the rules may read.
fn unknown(mentions: &Mentions, resource: &DocumentResource) -> Vec<FieldPath> {
    let paths = resource.unknown.iter();
    let read = paths.filter(|path| mentions.may_read(resource.runtime, path));
    read.cloned().collect()
}

/// Evaluates rules on objects as planned, and on objects without their null fields. A server drops some null
/// fields, and it is unknown here which ones, so a denial in either form counts.
fn with_and_without_nulls(
    document: &StackDocument,
    outcomes: impl Fn(&StackDocument) -> Vec<RuleOutcome>,
) -> Vec<RuleOutcome> {
    let mut found = outcomes(document);
    if let Some(without) = input::without_nulls(document) {
        found.extend(outcomes(&without));
    }
    found
}

/// Evaluates the rules on each object as a separate input.
fn rego_objects(rules: &RegoRules, document: &StackDocument) -> Vec<RuleOutcome> {
    let mut session = rules.session(&document.stack.folder);
    let mut outcomes = Vec::new();
    for (resource, object) in input::objects(document) {
        let unknown = unknown(rules.mentions(), resource);
        if !unknown.is_empty() {
            let certain = session.certain(rego_value(object), |mentions| mentions.may_read_unknown(resource));
            outcomes.extend(certain.into_iter().map(|finding| about(finding, resource)));
            let names = rules.names();
            outcomes.extend(
                names.map(|(name, severity)| RuleOutcome::unknown(name, severity, resource, unknown.clone())),
            );
            continue;
        }
        let findings = session.findings(rego_value(object));
        outcomes.extend(findings.into_iter().map(|finding| about(finding, resource)));
    }
    outcomes
}

/// Attaches a finding to the resource that was the input.
fn about(finding: RuleFinding, resource: &DocumentResource) -> RuleOutcome {
    RuleOutcome::Found(RuleFinding {
        resource: Some(resource.id.to_string()),
        ..finding
    })
}

/// Evaluates the rules on the whole stack as one input. If it has unknown values, a finding counts only if it also
/// appears without the resources that have them, or if it comes from a definition that reads none of them.
fn rego_whole(rules: &RegoRules, document: &StackDocument, view: PolicyInput) -> Vec<RuleOutcome> {
    let input = |without: &[&DocumentResource]| match view {
        PolicyInput::Tfplan => rego_value(&input::terraform_plan(document, without)),
        PolicyInput::Plan | PolicyInput::Objects => input::plan(document, without),
    };
    let mut session = rules.session(&document.stack.folder);
    let whole = input(&[]);
    let mut findings = session.findings(whole.clone());
    let mut outcomes = Vec::new();
    let open: Vec<_> = document
        .resources
        .iter()
        .filter(|resource| view != PolicyInput::Tfplan || resource.runtime == RuntimeKind::Terraform)
        .map(|resource| (resource, unknown(rules.mentions(), resource)))
        .filter(|(_, unknown)| !unknown.is_empty())
        .collect();
    if !open.is_empty() {
        // An unknown value is missing in the input, and a rule may deny just because it is missing. Only a finding
        // that remains without these resources is certain.
        let without: Vec<_> = open.iter().map(|(resource, _)| *resource).collect();
        let certain: BTreeSet<_> = session.findings(input(&without)).into_iter().collect();
        findings.retain(|finding| certain.contains(finding));
        let reads = |mentions: &Mentions| open.iter().any(|(open, _)| mentions.may_read_unknown(open));
        findings.extend(session.certain(whole, reads));
        for (resource, unknown) in &open {
            let names = rules.names();
            outcomes.extend(
                names.map(|(name, severity)| RuleOutcome::unknown(name, severity, resource, unknown.clone())),
            );
        }
    }
    outcomes.extend(findings.into_iter().map(RuleOutcome::Found));
    outcomes
}
