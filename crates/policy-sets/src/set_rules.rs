//! The rules of a set: parsed from its files, and evaluated on the plan document of a stack. The caller spends what
//! the rules need: nothing here limits the time or the memory of parsing and evaluation. `crate::workers` does that in a
//! process of its own.

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
    plan_document::{DocumentResource, StackDocument},
    spec::RuntimeKind,
};
use konverge_config::{PolicyInput, PolicyLanguage, PolicySetConfig, StackGlob};

/// The stack size of the parser in bytes; only the used part is allocated.
const PARSER_STACK: usize = 256 * 1024 * 1024;

/// The settings and files of a set: all that its rules are made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SetSource {
    pub(super) config: PolicySetConfig,
    pub(super) files: Vec<PolicyFile>,
    pub(super) data: Vec<PolicyFile>,
}

/// Reason why the rules of a set cannot be read: the file and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnreadableSet(pub String);

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
    /// A file is not what the language or the data needs, or there is no rule.
    pub fn parse(&self) -> Result<SetRules, UnreadableSet> {
        Ok(SetRules {
            input: self.config.input(),
            rules: parse_apart(&self.config, &self.files, &self.data).map_err(UnreadableSet)?,
        })
    }

    /// The path of the set.
    pub fn path(&self) -> &str {
        &self.config.path
    }

    /// The paths of the files with rules.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file.path.as_str())
    }

    /// Returns true if its rules see the differences of resources, and not only the resources.
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

    /// The tests of the set that fail. `rules` are its own.
    pub fn failed_tests(&self, rules: &SetRules) -> Vec<FailedTest> {
        match &rules.rules {
            Rules::Rego(_) => rego::failed_tests(&self.files, &self.data, self.config.rego),
            // Gatekeeper's tests are run by `gator verify`.
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

/// The unknown paths of a resource that rules may read.
fn unknown(mentions: &Mentions, resource: &DocumentResource) -> Vec<String> {
    let paths = resource.unknown.iter();
    let read = paths.filter(|path| mentions.may_read(resource.runtime, path));
    read.cloned().collect()
}

/// The outcomes of objects as the plan has them, and as a server has them that drops what is null: which fields it drops is
/// not known here, so what one of the two denies is denied.
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

/// Each object is an input of its own.
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

/// A finding about the resource that was the input.
fn about(finding: RuleFinding, resource: &DocumentResource) -> RuleOutcome {
    RuleOutcome::Found(RuleFinding {
        resource: Some(resource.id.to_string()),
        ..finding
    })
}

/// The whole stack is one input. With unknown values in it, only those findings count that there are also
/// without the resources with these values, and those of definitions that read none of the values.
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
        // An unknown value is absent from the input, and a rule may deny because of that. Only what holds without
        // these resources too is certain.
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
