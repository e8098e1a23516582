//! Rules in CEL, in YAML files:
//!
//! ```yaml
//! rules:
//! - name: no-latest
//!   match: resource.kind == 'Deployment'     # optional: which inputs the rule is about
//!   expression: "!resource.after.spec.image.endsWith(':latest')"   # must be true
//!   message: the image has no fixed tag
//!   messageExpression: "'…' + resource.id"   # optional; wins over `message`
//!   severity: deny                           # or warn
//!   cases:                                   # tests, for `konverge check`
//!   - input: {kind: Deployment, after: {spec: {image: 'a:1'}}}
//!     passes: true
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cel::{Context, Env};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    admission_functions,
    cel_conjuncts::{self, Conjunct},
    possible_reads::Mentions,
    rule::{FailedTest, PolicyFile, RuleFinding, Severity, UNREADABLE, bound},
};
use konverge_base::yaml;
use konverge_cel::{
    cel_counting::add_counting,
    cel_expression::{CelExpression, CostInput},
    cel_value::to_cel,
};
use konverge_config::PolicyInput;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rules: Vec<RuleText>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RuleText {
    name: String,
    #[serde(default, rename = "match")]
    matches: Option<String>,
    expression: String,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    message_expression: Option<String>,
    #[serde(default)]
    severity: SeverityText,
    #[serde(default)]
    cases: Vec<CelCase>,
}

/// A test of a rule.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CelCase {
    /// The resource or the object.
    input: Value,
    /// Whether the rule finds nothing.
    passes: bool,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum SeverityText {
    #[default]
    Deny,
    Warn,
}

/// One rule.
#[derive(Debug)]
pub(super) struct CelRule {
    pub name: String,
    pub severity: Severity,
    pub mentions: Mentions,
    /// True if it also reads other resources.
    pub reads_plan: bool,
    matches: Option<CelExpression>,
    expression: CelExpression,
    message: String,
    message_expression: Option<CelExpression>,
    /// The parts of the expression.
    conjuncts: Vec<Conjunct>,
    /// What `match` and `messageExpression` may read.
    match_mentions: Mentions,
    message_mentions: Mentions,
    cases: Vec<CelCase>,
    file: String,
}

/// The rules of a set, with the functions that they call.
pub(super) struct CelRules {
    pub rules: Vec<CelRule>,
    root: Context<'static, 'static>,
    reads_plan: bool,
}

impl CelRules {
    /// The variables that all inputs share: `plan`, if a rule reads it.
    pub fn shared<'s>(&'s self, plan: Option<&'s Value>) -> Context<'s, 's> {
        let root: &Context<'s, 's> = &self.root;
        let mut context = root.new_inner_scope();
        if let Some(plan) = plan.filter(|_| self.reads_plan) {
            context.add_variable_as_val("plan", to_cel(plan));
        }
        context
    }

    /// The cases that end otherwise than they say.
    pub fn failed_cases(&self, view: PolicyInput) -> Vec<FailedTest> {
        let failed = self.rules.iter().flat_map(|rule| rule.failed_cases(self, view));
        failed.collect()
    }
}

/// The variables for one input.
pub(super) fn context<'s>(
    view: PolicyInput,
    input: &'s Value,
    shared: &'s Context<'s, 's>,
) -> Context<'s, 's> {
    let mut context = shared.new_inner_scope();
    let name = match view {
        PolicyInput::Objects => "object",
        PolicyInput::Plan | PolicyInput::Tfplan | PolicyInput::Admission => "resource",
    };
    context.add_variable_as_val(name, to_cel(input));
    context
}

/// Reads the rules of a set.
///
/// # Errors
/// A file has another form, an expression is not CEL, or there is no rule.
pub(super) fn load(files: &[PolicyFile]) -> Result<CelRules, String> {
    let env = admission_functions::environment();
    let mut rules = Vec::new();
    let mut names = BTreeSet::new();
    for file in files {
        let read: File = yaml::from_str(&file.text).map_err(|error| format!("{}: {error}", file.path))?;
        for text in read.rules {
            if text.name == UNREADABLE || text.name.contains('/') {
                return Err(format!(
                    "{}: `{}` is not a name of a rule: `{UNREADABLE}` and `/` have another meaning",
                    file.path, text.name
                ));
            }
            if !names.insert(text.name.clone()) {
                return Err(format!("{}: two rules are called `{}`", file.path, text.name));
            }
            let name = text.name.clone();
            rules.push(
                CelRule::compile(&file.path, text, &env)
                    .map_err(|why| format!("{}: rule `{name}`: {why}", file.path))?,
            );
        }
    }
    match rules.is_empty() {
        true => Err("it has no rule".to_owned()),
        false => {
            let mut root = Context::with_env(Arc::new(env));
            admission_functions::add(&mut root);
            add_counting(&mut root);
            Ok(CelRules {
                reads_plan: rules.iter().any(|rule| rule.reads_plan),
                rules,
                root,
            })
        }
    }
}

impl CelRule {
    fn compile(file: &str, text: RuleText, env: &Env) -> Result<Self, String> {
        let mut mentions = Mentions::default();
        let mut compile = |key: &str, source: &str| {
            mentions.add(source);
            admission_functions::compile(source, env).map_err(|why| format!("`{key}`: {why}"))
        };
        let matches = text.matches.as_deref().map(|source| compile("match", source));
        let expression = compile("expression", &text.expression)?;
        let said = text.message_expression.as_deref();
        let message_expression = said.map(|source| compile("messageExpression", source));
        let of = |source: Option<&str>| {
            let mut mentions = Mentions::default();
            mentions.add(source.unwrap_or_default());
            mentions
        };
        Ok(Self {
            conjuncts: cel_conjuncts::compile(&text.expression, env),
            match_mentions: of(text.matches.as_deref()),
            message_mentions: of(said),
            severity: match text.severity {
                SeverityText::Deny => Severity::Deny,
                SeverityText::Warn => Severity::Warn,
            },
            matches: matches.transpose()?,
            expression,
            message: text
                .message
                .unwrap_or_else(|| format!("failed expression: {}", text.expression)),
            message_expression: message_expression.transpose()?,
            reads_plan: mentions.has_word("plan"),
            mentions,
            cases: text.cases,
            file: file.to_owned(),
            name: text.name,
        })
    }

    /// The cases that end otherwise than they say.
    fn failed_cases(&self, set: &CelRules, view: PolicyInput) -> Vec<FailedTest> {
        let mut found = Vec::new();
        for (at, case) in self.cases.iter().enumerate() {
            let alone = json!({"resources": [case.input]});
            let shared = set.shared(Some(&alone).filter(|_| view != PolicyInput::Objects));
            let (context, extent) = (
                context(view, &case.input, &shared),
                CostInput::measure(&case.input),
            );
            let finding = match self.is_about(&context, extent) {
                Ok(true) => self.finding(&context, extent),
                Ok(false) => None,
                Err(error) => Some(*error),
            };
            let why = match (finding, case.passes) {
                (None, false) => "it passes".to_owned(),
                (Some(finding), true) => format!("it does not pass: {}", finding.message),
                _ => continue,
            };
            found.push(FailedTest {
                file: self.file.clone(),
                name: format!("{}, case {}", self.name, at + 1),
                why,
            });
        }
        found
    }

    /// Returns true if the rule is about this input.
    ///
    /// # Errors
    /// The condition could not be evaluated.
    pub fn is_about(&self, context: &Context, extent: CostInput) -> Result<bool, Box<RuleFinding>> {
        match &self.matches {
            None => Ok(true),
            Some(matches) => matches
                .holds(context, extent)
                .map_err(|why| Box::new(RuleFinding::error(&self.name, &format!("`match`: {why}")))),
        }
    }

    /// The finding for an input: a violation or an error.
    pub fn finding(&self, context: &Context, extent: CostInput) -> Option<RuleFinding> {
        self.violation(context, extent)
            .unwrap_or_else(|error| Some(*error))
    }

    /// The violation of an input.
    ///
    /// # Errors
    /// The expression could not be evaluated.
    pub fn violation(
        &self,
        context: &Context,
        extent: CostInput,
    ) -> Result<Option<RuleFinding>, Box<RuleFinding>> {
        match self.expression.holds(context, extent) {
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some(self.violated(&self.message(context, extent)))),
            Err(why) => Err(Box::new(RuleFinding::error(
                &self.name,
                &format!("`expression`: {why}"),
            ))),
        }
    }

    /// The violation that an input has whatever its unknown values turn out to be. `reads` says whether words may read
    /// one of them.
    pub fn certain_violation(
        &self,
        context: &Context,
        extent: CostInput,
        reads: impl Fn(&Mentions) -> bool,
    ) -> Option<RuleFinding> {
        if reads(&self.match_mentions) || self.is_about(context, extent) != Ok(true) {
            return None;
        }
        let mut known = self.conjuncts.iter().filter(|part| !reads(&part.mentions));
        known.any(|part| part.is_false(context, extent)).then(|| {
            let message = match reads(&self.message_mentions) {
                true => self.message.clone(),
                false => self.message(context, extent),
            };
            self.violated(&message)
        })
    }

    fn violated(&self, message: &str) -> RuleFinding {
        RuleFinding {
            rule: self.name.clone(),
            severity: self.severity,
            message: bound(message),
            resource: None,
            path: None,
            details: BTreeMap::new(),
        }
    }

    /// The message: of the expression, unless it is empty, has several lines or is no text.
    fn message(&self, context: &Context, extent: CostInput) -> String {
        let expression = self.message_expression.as_ref();
        let text = expression.and_then(|expression| expression.text(context, extent).ok()?);
        match text {
            Some(text) if !text.trim().is_empty() && !text.contains('\n') => text,
            _ => self.message.clone(),
        }
    }
}

#[cfg(test)]
#[path = "cel_rules_tests.rs"]
mod tests;
