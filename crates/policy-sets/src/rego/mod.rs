//! Rego rules with conftest's conventions: the rules `deny`, `violation` and `warn`, each with an optional suffix
//! (`deny_latest`), are sets of messages, or of objects with `msg`. The rule `exception` holds lists of suffixes
//! whose rules are skipped for the input.

mod builtins;
mod definitions;
mod differences;
pub(crate) mod engine;
pub(crate) mod functions;
mod go_float;
mod imports;
pub(crate) mod input;
mod json_patch;
mod numbers;
mod operators;
pub(crate) mod value;

use std::collections::{BTreeMap, BTreeSet};

use regorus::{
    Value as RegoValue,
    unstable::{Rule, RuleHead},
};
use serde_json::json;

use self::{
    definitions::{Definitions, head_name},
    engine::{LentEngine, PreparedEngine, RuleEngine, too_slow, without_comments},
    functions::{items, text_field},
    value::rego_value,
};
use crate::{
    possible_reads::Mentions,
    rule::{FailedTest, MOST_DETAILS, MOST_FINDINGS, PolicyFile, RuleFinding, Severity, bound},
};
use konverge_base::model::RepoPath;
use konverge_config::{RegoVersion, StackGlob};

/// The suffix of file names that hold tests.
const TESTS: &str = "_test.rego";

/// The Rego rules of a policy set.
pub(super) struct RegoRules {
    engine: PreparedEngine,
    rules: Vec<RegoRule>,
    mentions: Mentions,
    definitions: Option<Definitions>,
}

struct RegoRule {
    /// The path to query in the engine, such as `data.main.deny_latest`.
    path: String,
    /// The name of the rule in findings, such as `main.deny_latest`.
    name: String,
    /// The suffix by which an `exception` rule refers to the rule: `latest`, or empty.
    suffix: String,
    severity: Severity,
    /// The path of the `exception` rule in the same package, if there is one.
    exception: Option<String>,
}

impl RegoRules {
    /// Parses the rules.
    ///
    /// # Errors
    /// A file that is neither Rego nor data, or no rule at all.
    pub(super) fn load(
        files: &[PolicyFile],
        data: &[PolicyFile],
        version: RegoVersion,
        packages: &[StackGlob],
    ) -> Result<Self, String> {
        let mut engine = RuleEngine::new(version, &sources(files));
        let mut mentions = Mentions::default();
        let mut loaded = Vec::new();
        let rules_files: Vec<_> = files.iter().filter(|file| is_rules(&file.path)).collect();
        for file in &rules_files {
            let package = engine.add_file(&file.path, &file.text)?;
            mentions.add(&without_comments(&file.text));
            loaded.push(package);
        }
        for file in data {
            mentions.add(&file.text);
        }
        engine.add_data(data)?;
        let names = rule_names(&mut engine);
        let mut found: BTreeMap<String, RegoRule> = BTreeMap::new();
        let mut exceptions = BTreeSet::new();
        for (package, names) in loaded.iter().zip(names) {
            if names.contains("exception") {
                exceptions.insert(package.as_str());
            }
            let short = package.strip_prefix("data.").unwrap_or(package);
            if !packages.is_empty() && !packages.iter().any(|glob| glob.is_match(short)) {
                continue;
            }
            for name in names {
                if let Some(rule) = RegoRule::parse(package, short, &name) {
                    found.insert(rule.path.clone(), rule);
                }
            }
        }
        if found.is_empty() {
            return Err("it has no rule `deny`, `violation` or `warn`".to_owned());
        }
        let mut rules: Vec<_> = found.into_values().collect();
        for rule in &mut rules {
            let package = rule.path.rsplit_once('.').map_or("", |(package, _)| package);
            rule.exception = exceptions
                .contains(package)
                .then(|| format!("{package}.exception"));
        }
        let paths = rules.iter().map(|rule| rule.path.as_str()).collect();
        let definitions = Definitions::find(&rules_files, data, version, &paths);
        // The first evaluation makes the engine order the statements of all rules. Clones made after it keep the
        // order.
        let _ = engine.evaluate(&rules[0].path);
        Ok(Self {
            engine: PreparedEngine::new(engine),
            rules,
            mentions,
            definitions,
        })
    }

    /// Returns the words in the source of all rules.
    pub(super) fn mentions(&self) -> &Mentions {
        &self.mentions
    }

    /// Returns the names and severities of the rules.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, Severity)> {
        self.rules.iter().map(|rule| (rule.name.as_str(), rule.severity))
    }

    /// Starts a session, which evaluates one input after another for a stack. As in conftest, `data.conftest.file`
    /// names the file of the input: here the path of `stack.yaml` in the repository.
    pub(super) fn session(&self, folder: &RepoPath) -> RegoSession<'_> {
        let file = json!({"conftest": {"file": {"name": "stack.yaml", "dir": format!("/{folder}")}}});
        let file = self.mentions.has_word("conftest").then(|| rego_value(&file));
        RegoSession {
            engine: lend(&self.engine, file.as_ref()),
            file,
            definitions: self.definitions.as_ref(),
            separate: None,
            rules: &self.rules,
            slow: BTreeSet::new(),
        }
    }
}

/// Takes a clone of an engine. With data that is slow, because the engine prepares the data again.
fn lend<'e>(engine: &'e PreparedEngine, data: Option<&RegoValue>) -> Result<LentEngine<'e>, String> {
    data.map_or_else(|| Ok(engine.lend()), |data| engine.lend_with(data.clone()))
}

fn sources(files: &[PolicyFile]) -> String {
    let texts: Vec<_> = files.iter().map(|file| file.text.as_str()).collect();
    texts.join("\n")
}

/// Runs the tests of a set (`test_…` in `*_test.rego`), and returns those that are not true.
pub(super) fn failed_tests(
    files: &[PolicyFile],
    data: &[PolicyFile],
    version: RegoVersion,
) -> Vec<FailedTest> {
    if !files.iter().any(|file| file.path.ends_with(TESTS)) {
        return Vec::new();
    }
    let mut engine = RuleEngine::new(version, &sources(files));
    let mut loaded = Vec::new();
    for file in files {
        match engine.add_file(&file.path, &file.text) {
            Ok(package) => loaded.push(package),
            Err(why) => return vec![FailedTest::new(&file.path, "parse", why)],
        }
    }
    if let Err(why) = engine.add_data(data) {
        return vec![FailedTest::new(&files[0].path, "data", why)];
    }
    let mut found = Vec::new();
    let names = rule_names(&mut engine);
    for ((file, package), names) in files.iter().zip(&loaded).zip(names) {
        let is_test = |name: &&String| file.path.ends_with(TESTS) && name.starts_with("test_");
        for name in names.iter().filter(is_test) {
            let why = match engine.evaluate(&format!("{package}.{name}")) {
                Ok(RegoValue::Bool(true)) => continue,
                Ok(_) => "it is not true".to_owned(),
                Err(why) => why,
            };
            found.push(FailedTest::new(&file.path, name, why));
        }
    }
    found
}

/// Evaluates the rules on one input after another.
pub(super) struct RegoSession<'r> {
    /// The engine, or the reason why no rule can be evaluated.
    engine: Result<LentEngine<'r>, String>,
    /// The value of `data.conftest`, with the file of the input.
    file: Option<RegoValue>,
    definitions: Option<&'r Definitions>,
    /// The engine with separate definitions. Created when an input first has an unknown value.
    separate: Option<LentEngine<'r>>,
    rules: &'r [RegoRule],
    /// The rules that exceeded the time limit on an input. They have denied, so they are not evaluated on further
    /// inputs.
    slow: BTreeSet<&'r str>,
}

impl RegoSession<'_> {
    /// Evaluates all rules on an input.
    pub(super) fn findings(&mut self, input: RegoValue) -> Vec<RuleFinding> {
        let engine = match &mut self.engine {
            Ok(engine) => engine,
            Err(why) => {
                let rules = self.rules.iter();
                return rules.map(|rule| RuleFinding::error(&rule.name, why)).collect();
            }
        };
        engine.set_input(input);
        let mut silenced: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        let mut findings = Vec::new();
        for rule in self.rules {
            if let Some(path) = &rule.exception
                && !silenced.contains_key(path.as_str())
            {
                match excepted(engine, path) {
                    Ok(names) => drop(silenced.insert(path, names)),
                    // An exception that cannot be evaluated skips no rule.
                    Err(why) => {
                        findings.push(RuleFinding::error(path, &why));
                        silenced.insert(path, BTreeSet::new());
                    }
                }
            }
            let is_silenced = rule.exception.as_deref().and_then(|path| silenced.get(path));
            if is_silenced.is_some_and(|names| names.contains(&rule.suffix)) {
                continue;
            }
            if self.slow.contains(rule.path.as_str()) {
                continue;
            }
            match engine.evaluate(&rule.path) {
                Ok(value) => read_findings(rule, &value, &mut findings),
                Err(why) => {
                    if why == too_slow() {
                        self.slow.insert(&rule.path);
                    }
                    findings.push(RuleFinding::error(&rule.name, &why));
                }
            }
        }
        findings
    }

    /// Returns the findings that hold for any value of the unknown fields: those of definitions that do not read
    /// them. `reads` returns true if a definition with these words may read an unknown value.
    pub(super) fn certain(
        &mut self,
        input: RegoValue,
        reads: impl Fn(&Mentions) -> bool,
    ) -> Vec<RuleFinding> {
        let mut findings = Vec::new();
        let Some(definitions) = self.definitions.filter(|_| self.engine.is_ok()) else {
            return findings;
        };
        let engine = match &mut self.separate {
            Some(engine) => engine,
            none => match lend(&definitions.engine, self.file.as_ref()) {
                Ok(engine) => none.insert(engine),
                Err(_) => return findings,
            },
        };
        engine.set_input(input);
        for rule in self.rules {
            let silenced = match &rule.exception {
                None => BTreeSet::new(),
                // If the exception itself may read an unknown value, it is unknown which rules it silences, so
                // nothing is certain.
                Some(path) => {
                    let is_known = definitions
                        .exceptions
                        .get(path)
                        .is_some_and(|mentions| !reads(mentions));
                    match is_known.then(|| excepted(engine, path)) {
                        Some(Ok(names)) => names,
                        _ => continue,
                    }
                }
            };
            let of_rule = definitions
                .by_rule
                .get(&rule.path)
                .into_iter()
                .flat_map(|of| of.iter());
            for definition in of_rule.filter(|_| !silenced.contains(&rule.suffix)) {
                if !reads(&definition.mentions)
                    && let Ok(value) = engine.evaluate(&definition.path)
                {
                    read_findings(rule, &value, &mut findings);
                }
            }
        }
        findings
    }
}

impl RegoRule {
    fn parse(package: &str, short: &str, name: &str) -> Option<Self> {
        let (word, suffix) = name.split_once('_').unwrap_or((name, ""));
        let severity = match word {
            "deny" | "violation" => Severity::Deny,
            "warn" => Severity::Warn,
            _ => return None,
        };
        Some(Self {
            path: format!("{package}.{name}"),
            name: format!("{short}.{name}"),
            suffix: suffix.to_owned(),
            severity,
            exception: None,
        })
    }
}

/// Returns true for a file with rules. Like conftest, rules in test files are not evaluated.
fn is_rules(path: &str) -> bool {
    path.ends_with(".rego") && !path.ends_with(TESTS)
}

/// Returns the names of the rules of each file, in the order in which the files were added.
fn rule_names(engine: &mut RuleEngine) -> Vec<BTreeSet<String>> {
    let modules = engine.modules().iter();
    let names = modules.map(|module| module.policy.iter().filter_map(|rule| rule_name(rule)).collect());
    names.collect()
}

/// Returns the name of a rule; `None` for a function.
fn rule_name(rule: &Rule) -> Option<String> {
    let is_function = matches!(
        rule,
        Rule::Spec {
            head: RuleHead::Func { .. },
            ..
        }
    );
    head_name(rule).filter(|_| !is_function).map(|(name, ..)| name)
}

/// Returns the suffixes whose rules are skipped for this input.
fn excepted(engine: &mut LentEngine<'_>, path: &str) -> Result<BTreeSet<String>, String> {
    let value = engine.evaluate(path)?;
    let lists = items(&value).ok_or_else(|| "`exception` is not a set of lists".to_owned());
    if value == RegoValue::Undefined {
        return Ok(BTreeSet::new());
    }
    let mut names = BTreeSet::new();
    for list in lists? {
        let list = items(list).ok_or_else(|| "`exception` is not a set of lists".to_owned())?;
        names.extend(list.filter_map(|name| Some(name.as_string().ok()?.to_string())));
    }
    Ok(names)
}

fn read_findings(rule: &RegoRule, value: &RegoValue, findings: &mut Vec<RuleFinding>) {
    if *value == RegoValue::Undefined {
        return;
    }
    let Some(entries) = items(value) else {
        let why = "it is not a set of messages: write `deny contains msg if …`";
        findings.push(RuleFinding::error(&rule.name, why));
        return;
    };
    for (count, entry) in entries.enumerate() {
        if count == MOST_FINDINGS {
            let why = format!("it has more than {MOST_FINDINGS} findings for one input");
            findings.push(RuleFinding::error(&rule.name, &why));
            return;
        }
        findings.push(read_finding(rule, entry));
    }
}

fn read_finding(rule: &RegoRule, entry: &RegoValue) -> RuleFinding {
    let message = match entry {
        RegoValue::String(message) => Some(message.to_string()),
        entry => text_field(entry, "msg"),
    };
    let Some(message) = message else {
        let why = "a finding is neither a text nor an object with the text `msg`";
        return RuleFinding::error(&rule.name, why);
    };
    RuleFinding {
        rule: rule.name.clone(),
        severity: rule.severity,
        message: bound(&message),
        resource: text_field(entry, "resource"),
        path: text_field(entry, "path"),
        details: details(entry),
    }
}

/// Returns the additional fields of a finding, which conftest calls metadata. A value that is not a string is
/// written as JSON.
fn details(entry: &RegoValue) -> BTreeMap<String, String> {
    let RegoValue::Object(fields) = entry else {
        return BTreeMap::new();
    };
    let others = fields.iter().filter_map(|(name, value)| {
        let name = name.as_string().ok()?;
        let is_read = matches!(&**name, "msg" | "resource" | "path");
        let text = || match value {
            RegoValue::String(text) => text.to_string(),
            other => other.to_string(),
        };
        (!is_read).then(|| (bound(name), bound(&text())))
    });
    others.take(MOST_DETAILS).collect()
}
