//! A ConstraintTemplate of Gatekeeper: its code in Rego or CEL, and the defaults of its parameters.

use std::collections::BTreeMap;

use cel::Env;
use regorus::Value as RegoValue;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    admission::{
        code::{AdmissionCode, FailurePolicy, NamedText, PolicySpec, ValidationText},
        request::Operation,
    },
    possible_reads::Mentions,
    rego::{
        engine::{LentEngine, PreparedEngine, RuleEngine, without_comments},
        functions::{items, text_field},
    },
    rule::{MOST_FINDINGS, Severity},
};
use konverge_config::RegoVersion;

const TARGET: &str = "admission.k8s.gatekeeper.sh";

#[derive(Deserialize)]
struct TemplateSpec {
    crd: Value,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    target: String,
    rego: Option<String>,
    #[serde(default)]
    libs: Vec<String>,
    #[serde(default)]
    code: Vec<Code>,
    #[serde(default)]
    operations: Vec<String>,
}

#[derive(Deserialize)]
#[serde(tag = "engine", content = "source")]
enum Code {
    Rego(RegoSource),
    K8sNativeValidation(CelSource),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegoSource {
    rego: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    libs: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CelSource {
    #[serde(default)]
    validations: Vec<ValidationText>,
    #[serde(default)]
    failure_policy: FailurePolicy,
    #[serde(default)]
    match_condition: Vec<NamedText>,
    #[serde(default)]
    variables: Vec<NamedText>,
    #[serde(default, rename = "generateVAP")]
    _generate: Option<bool>,
}

/// A parsed ConstraintTemplate.
pub(super) struct Template {
    /// The kind of the constraints of this template.
    pub kind: String,
    pub mentions: Mentions,
    pub code: TemplateCode,
    schema: Value,
    /// True if a parameter that the schema does not declare is an error.
    closed: bool,
    operations: Vec<String>,
}

/// The code of a template.
pub(super) enum TemplateCode {
    Rego {
        engine: Box<PreparedEngine>,
        rule: String,
    },
    Cel(Box<AdmissionCode>),
}

impl Template {
    /// Parses a template and compiles its code.
    ///
    /// # Errors
    /// Another form than that of a template, or code that cannot be compiled.
    pub(super) fn load(template: &Value, env: &Env) -> Result<Self, String> {
        let spec = &template["spec"];
        let read: TemplateSpec = serde_json::from_value(spec.clone()).map_err(|error| error.to_string())?;
        let kind = read.crd["spec"]["names"]["kind"].as_str().unwrap_or_default();
        if kind.is_empty() {
            return Err("it has no `spec.crd.spec.names.kind`".to_owned());
        }
        let Ok([target]) = <[Target; 1]>::try_from(read.targets) else {
            return Err("a template has one target".to_owned());
        };
        if target.target != TARGET {
            return Err(format!("`{}` is not the target `{TARGET}`", target.target));
        }
        let mut mentions = Mentions::default();
        let code = match (target.rego, native_first(target.code)) {
            // As in a cluster, the CEL code is used if a template has both.
            (_, Some(Code::K8sNativeValidation(source))) => {
                mentions.add_texts(&spec["targets"]);
                TemplateCode::Cel(Box::new(compile_cel(source, env)?))
            }
            (Some(rego), None) => {
                let source = RegoSource {
                    rego,
                    version: String::new(),
                    libs: target.libs,
                };
                compile_rego(&source, &mut mentions)?
            }
            (None, Some(Code::Rego(source))) => compile_rego(&source, &mut mentions)?,
            (Some(_), Some(Code::Rego(_))) => return Err("it has Rego in two places".to_owned()),
            (None, None) => return Err("it has no code".to_owned()),
        };
        Ok(Self {
            kind: kind.to_owned(),
            mentions,
            code,
            closed: match read.crd["spec"]["validation"]["legacySchema"].as_bool() {
                Some(legacy) => !legacy,
                None => template["apiVersion"] == "templates.gatekeeper.sh/v1",
            },
            schema: read.crd["spec"]["validation"]["openAPIV3Schema"].clone(),
            operations: target.operations,
        })
    }

    /// Returns true if the template checks an operation. Without a list of operations, Gatekeeper's webhook does
    /// not check deletions.
    pub(super) fn judges(&self, operation: Operation) -> bool {
        if self.operations.is_empty() {
            operation != Operation::Delete
        } else {
            self.operations
                .iter()
                .any(|word| word == "*" || word == operation.word())
        }
    }

    /// Returns the parameters of a constraint, completed with the defaults of the schema.
    ///
    /// # Errors
    /// A parameter that the schema does not declare: a cluster would reject the constraint.
    pub(super) fn parameters(&self, given: &Value) -> Result<Value, String> {
        let mut parameters = match given {
            Value::Null => Value::Object(Map::new()),
            given => given.clone(),
        };
        add_defaults(&self.schema, &mut parameters);
        let closed = self.closed.then_some(&self.schema);
        match closed.and_then(|schema| unknown_field(schema, &parameters, "parameters")) {
            Some(path) => Err(format!("the schema of the template has no `{path}`")),
            None => Ok(parameters),
        }
    }
}

fn native_first(code: Vec<Code>) -> Option<Code> {
    let mut rego = None;
    for one in code {
        match one {
            Code::K8sNativeValidation(_) => return Some(one),
            Code::Rego(_) => rego = rego.or(Some(one)),
        }
    }
    rego
}

fn compile_rego(source: &RegoSource, mentions: &mut Mentions) -> Result<TemplateCode, String> {
    let version = match source.version.as_str() {
        "" | "v0" => RegoVersion::V0,
        "v1" => RegoVersion::V1,
        other => return Err(format!("`{other}` is not a version of Rego: `v0` or `v1`")),
    };
    let texts: Vec<&str> = std::iter::once(&source.rego)
        .chain(&source.libs)
        .map(String::as_str)
        .collect();
    let mut engine = RuleEngine::new(version, &texts.join("\n"));
    let names = (0..texts.len()).map(|at| match at {
        0 => "rego".to_owned(),
        at => format!("libs[{}]", at - 1),
    });
    let mut package = None;
    for (name, text) in names.zip(texts) {
        mentions.add(&without_comments(text));
        let found = engine.add_file(&name, text)?;
        package.get_or_insert(found);
    }
    let rule = format!("{}.violation", package.unwrap_or_default());
    // This first evaluation finds undefined names once, not again for each object. It also makes the engine order
    // its statements, and clones of the engine keep that order.
    engine.set_input(RegoValue::from(json!({"review": {}, "parameters": {}})));
    let names = ["not a valid rule path", "could not find function", "undefined"];
    if let Err(why) = engine.evaluate(&rule)
        && names.iter().any(|words| why.contains(words))
    {
        return Err(why);
    }
    Ok(TemplateCode::Rego {
        engine: Box::new(PreparedEngine::new(engine)),
        rule,
    })
}

fn compile_cel(source: CelSource, env: &Env) -> Result<AdmissionCode, String> {
    let own = |name: &str, expression: &str| NamedText {
        name: name.to_owned(),
        expression: expression.to_owned(),
    };
    let mut variables = vec![
        own(
            "anyObject",
            "has(request.operation) && request.operation == 'DELETE' && object == null ? oldObject : object",
        ),
        own(
            "params",
            "!has(params.spec) ? null : !has(params.spec.parameters) ? null : params.spec.parameters",
        ),
    ];
    variables.extend(source.variables);
    let spec = PolicySpec {
        failure_policy: source.failure_policy,
        match_conditions: source.match_condition,
        variables,
        validations: source.validations,
        ..PolicySpec::default()
    };
    AdmissionCode::compile(spec, env)
}

/// The violations that a template found: each has a message, or the reason why the template could not be evaluated.
pub(super) type Violations = Vec<Result<(Severity, String), String>>;

/// Evaluates a template in Rego on an input.
pub(super) fn rego_violations(
    engine: &mut LentEngine<'_>,
    rule: &str,
    review: &RegoValue,
    parameters: &RegoValue,
    severity: Severity,
) -> Violations {
    let key = |name: &str| RegoValue::from(name);
    engine.set_input(RegoValue::from(BTreeMap::from([
        (key("review"), review.clone()),
        (key("parameters"), parameters.clone()),
    ])));
    let value = match engine.evaluate(rule) {
        Ok(RegoValue::Undefined) => return Vec::new(),
        Ok(value) => value,
        Err(why) => return vec![Err(why)],
    };
    let Some(entries) = items(&value) else {
        return vec![Err("`violation` is not a set".to_owned())];
    };
    let mut found = Vec::new();
    for (count, entry) in entries.enumerate() {
        if count == MOST_FINDINGS {
            found.push(Err(format!(
                "it has more than {MOST_FINDINGS} findings for one input"
            )));
            break;
        }
        let message = text_field(entry, "msg").map(|message| (severity, message));
        found.push(message.ok_or_else(|| "a violation has no text `msg`".to_owned()));
    }
    found
}

/// Adds missing fields that have a default in the schema, as an API server does for a custom resource.
fn add_defaults(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let properties = schema["properties"].as_object();
            for (name, of) in properties.into_iter().flatten() {
                if let Some(default) = of.get("default").filter(|_| !fields.contains_key(name)) {
                    fields.insert(name.clone(), default.clone());
                }
                if let Some(field) = fields.get_mut(name) {
                    add_defaults(of, field);
                }
            }
            if let Some(of) = schema.get("additionalProperties").filter(|of| of.is_object()) {
                let others = fields.iter_mut();
                let others =
                    others.filter(|(name, _)| properties.is_none_or(|known| !known.contains_key(*name)));
                others.for_each(|(_, field)| add_defaults(of, field));
            }
        }
        Value::Array(list) => list
            .iter_mut()
            .for_each(|item| add_defaults(&schema["items"], item)),
        _ => {}
    }
}

/// Returns the path of the first field that the schema does not declare.
fn unknown_field(schema: &Value, value: &Value, path: &str) -> Option<String> {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return None;
    }
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, field)| {
            let path = format!("{path}.{name}");
            let of = schema["properties"]
                .get(name)
                .or(schema.get("additionalProperties"));
            match of {
                Some(Value::Bool(true)) => None,
                Some(of) => unknown_field(of, field, &path),
                None => Some(path),
            }
        }),
        Value::Array(list) => list
            .iter()
            .find_map(|item| unknown_field(&schema["items"], item, path)),
        _ => None,
    }
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
