//! Compares requests and responses with GitHub's own description of its API: the route, the query's parameters, the
//! schemas of both bodies.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, Mutex},
};

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::octokit;

struct Contract {
    description: Value,
    bodies: Mutex<BTreeMap<String, Arc<Validator>>>,
    /// The description without required fields, because the fake returns only fields that Konverge's client reads.
    partial: Value,
    answers: Mutex<BTreeMap<String, Arc<Validator>>>,
}

static CONTRACT: LazyLock<Contract> = LazyLock::new(|| {
    let mut description = octokit::openapi();
    json_schema(&mut description);
    let mut partial = description.clone();
    without_required(&mut partial);
    Contract {
        description,
        bodies: Mutex::default(),
        partial,
        answers: Mutex::default(),
    }
});

/// Returns an error if GitHub's description does not allow a request.
pub(super) fn check(
    method: &str,
    route: &str,
    query: &BTreeMap<String, String>,
    body: &Value,
) -> Result<(), String> {
    if route == "/graphql" {
        let query = body["query"].as_str().unwrap_or_default();
        let is_known = query == "query { viewer { login } }"
            || query.contains("on PullRequestReview")
            || query.contains("enablePullRequestAutoMerge(");
        return if method == "POST" && is_known {
            Ok(())
        } else {
            Err("GraphQL is asked for nothing but who we are, who edited a review, and to merge".to_owned())
        };
    }
    let contract = &*CONTRACT;
    let (template, path) = contract
        .find(method, route)
        .ok_or("GitHub's description has no such route")?;
    let operation = &path[method.to_lowercase()];
    let parameters: Vec<&Value> = [&path["parameters"], &operation["parameters"]]
        .into_iter()
        .filter_map(Value::as_array)
        .flatten()
        .map(|p| contract.resolve(p))
        .collect();
    for (key, text) in query {
        let parameter = parameters
            .iter()
            .find(|p| p["in"] == "query" && p["name"] == key.as_str())
            .ok_or_else(|| format!("`{key}` is not a parameter"))?;
        let schema = contract.resolve(&parameter["schema"]);
        if let Some(words) = schema["enum"].as_array() {
            if !words.iter().any(|w| w == text.as_str()) {
                return Err(format!("`{key}={text}` is none of {words:?}"));
            }
        } else if schema["type"] == "integer" && text.parse::<u64>().is_err() {
            return Err(format!("`{key}={text}` is not a number"));
        }
        if key == "per_page" && text.parse::<u64>().is_ok_and(|n| n > 100) {
            return Err("per_page is above 100".to_owned());
        }
    }
    contract.check_body(method, template, operation, body)
}

/// Returns an error if GitHub's description does not allow a response. The response may have fewer fields than
/// GitHub's.
pub(super) fn check_answer(method: &str, route: &str, status: u16, body: &Value) -> Result<(), String> {
    if route == "/graphql" || !(200..300).contains(&status) {
        return Ok(());
    }
    let contract = &*CONTRACT;
    let Some((template, _)) = contract.find(method, route) else {
        return Ok(());
    };
    let method = method.to_lowercase();
    let answers = &contract.partial["paths"][template][&method]["responses"];
    let answer = answers
        .get(status.to_string())
        .ok_or_else(|| format!("GitHub never answers {status}"))?;
    let answer = contract.part(answer);
    match answer.pointer("/content/application~1json/schema") {
        Some(schema) => contract.check_shape(format!("{method} {template} {status}"), schema, body),
        None if body.is_null() => Ok(()),
        None => Err(format!("GitHub's answer {status} has no body")),
    }
}

impl Contract {
    /// Validates a body against a schema of the partial description.
    fn check_shape(&self, key: String, schema: &Value, body: &Value) -> Result<(), String> {
        let known = self.answers.lock().unwrap().get(&key).cloned();
        let validator = known.unwrap_or_else(|| {
            let mut whole = schema.clone();
            whole["components"] = self.partial["components"].clone();
            let made = jsonschema::options()
                .should_validate_formats(true)
                .build(&whole)
                .expect("GitHub's schema compiles");
            let made = Arc::new(made);
            self.answers.lock().unwrap().insert(key, made.clone());
            made
        });
        // The description of the REST API does not allow for a deleted fork; that of the webhooks does.
        let is_deleted_fork = |error: &jsonschema::ValidationError<'_>| {
            error.instance().is_null() && error.instance_path().as_str().ends_with("/head/repo")
        };
        let wrong = validator
            .iter_errors(body)
            .filter(|error| !is_deleted_fork(error));
        let mut wrong: Vec<_> = wrong
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect();
        self.unknown_fields(schema, body, "", &mut wrong);
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("; "))
        }
    }

    /// Returns a node of the partial description, or the node that it refers to.
    fn part<'a>(&'a self, node: &'a Value) -> &'a Value {
        at(&self.partial, node)
    }

    /// Collects the fields of a body that are not in GitHub's description.
    fn unknown_fields(&self, schema: &Value, body: &Value, at: &str, wrong: &mut Vec<String>) {
        match body {
            Value::Array(items) => {
                let mut schemas = Vec::new();
                self.alternatives(schema, &mut schemas);
                let Some(of_items) = schemas.iter().find_map(|schema| schema.get("items")) else {
                    return;
                };
                for (index, item) in items.iter().enumerate() {
                    self.unknown_fields(of_items, item, &format!("{at}/{index}"), wrong);
                }
            }
            Value::Object(fields) => {
                let mut schemas = Vec::new();
                self.alternatives(schema, &mut schemas);
                let takes_more = |schema: &&Value| {
                    schema
                        .get("additionalProperties")
                        .is_some_and(|more| *more != false)
                };
                let names_some = |schema: &&Value| schema.get("properties").is_some();
                if schemas.iter().any(takes_more) || !schemas.iter().any(names_some) {
                    return;
                }
                for (name, value) in fields {
                    let at = format!("{at}/{name}");
                    match schemas.iter().find_map(|schema| schema["properties"].get(name)) {
                        Some(schema) => self.unknown_fields(schema, value, &at, wrong),
                        None => wrong.push(format!("GitHub has no {at}")),
                    }
                }
            }
            _ => {}
        }
    }

    /// Collects a schema and the schemas that it is composed of.
    fn alternatives<'a>(&'a self, schema: &'a Value, into: &mut Vec<&'a Value>) {
        let schema = self.part(schema);
        into.push(schema);
        for word in ["allOf", "anyOf", "oneOf"] {
            for one in schema[word].as_array().into_iter().flatten() {
                self.alternatives(one, into);
            }
        }
    }

    fn find(&self, method: &str, route: &str) -> Option<(&str, &Value)> {
        let paths = self.description["paths"].as_object()?;
        let mut fitting: Vec<_> = paths
            .iter()
            .filter(|(template, path)| path.get(method.to_lowercase()).is_some() && fits(template, route))
            .collect();
        // Prefer the template with fewer variables: `/issues/comments/{id}` before `/issues/{number}/{…}`.
        fitting.sort_by_key(|(template, _)| template.matches('{').count());
        fitting.first().map(|(template, path)| (template.as_str(), *path))
    }

    fn resolve<'a>(&'a self, node: &'a Value) -> &'a Value {
        at(&self.description, node)
    }

    fn check_body(
        &self,
        method: &str,
        template: &str,
        operation: &Value,
        body: &Value,
    ) -> Result<(), String> {
        let request = self.resolve(&operation["requestBody"]);
        let schema = &request["content"]["application/json"]["schema"];
        if schema.is_null() {
            return if body.is_null() {
                Ok(())
            } else {
                Err("a body is sent where none belongs".to_owned())
            };
        }
        if body.is_null() {
            return if request["required"] == true {
                Err("the body is missing".to_owned())
            } else {
                Ok(())
            };
        }
        let key = format!("{method} {template}");
        let validator = self.bodies.lock().unwrap().get(&key).cloned();
        let validator = validator.unwrap_or_else(|| {
            let mut whole = schema.clone();
            whole["components"] = self.description["components"].clone();
            let made = Arc::new(
                jsonschema::options()
                    .build(&whole)
                    .expect("GitHub's schema compiles"),
            );
            self.bodies.lock().unwrap().insert(key, made.clone());
            made
        });
        let wrong: Vec<_> = validator
            .iter_errors(body)
            .map(|e| format!("{} at {}", e, e.instance_path()))
            .collect();
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("; "))
        }
    }
}

/// Returns a node, or the node that it refers to.
fn at<'a>(description: &'a Value, node: &'a Value) -> &'a Value {
    match node["$ref"].as_str() {
        Some(reference) => description
            .pointer(reference.trim_start_matches('#'))
            .expect("a known reference"),
        None => node,
    }
}

fn fits(template: &str, route: &str) -> bool {
    let (template, route): (Vec<_>, Vec<_>) = (template.split('/').collect(), route.split('/').collect());
    template.len() == route.len()
        && template
            .iter()
            .zip(&route)
            .all(|(t, r)| t == r || (t.starts_with('{') && !r.is_empty()))
}

/// Converts OpenAPI's `nullable` into JSON Schema.
fn json_schema(node: &mut Value) {
    match node {
        Value::Object(map) => {
            let is_nullable = map.remove("nullable") == Some(json!(true));
            if is_nullable {
                if let Some(kind) = map.get("type").cloned() {
                    map.insert("type".into(), json!([kind, "null"]));
                }
                if let Some(words) = map.get_mut("enum").and_then(Value::as_array_mut) {
                    words.push(Value::Null);
                }
                for word in ["anyOf", "oneOf"] {
                    if let Some(schemas) = map.get_mut(word).and_then(Value::as_array_mut) {
                        schemas.push(json!({"type": "null"}));
                    }
                }
            }
            map.values_mut().for_each(json_schema);
        }
        Value::Array(items) => items.iter_mut().for_each(json_schema),
        _ => {}
    }
}

/// Removes `required` from all schemas. Then several schemas of a `oneOf` may match.
fn without_required(node: &mut Value) {
    match node {
        Value::Object(map) => {
            if map.get("required").is_some_and(Value::is_array) {
                map.remove("required");
            }
            if let Some(one) = map.remove("oneOf") {
                map.insert("anyOf".into(), one);
            }
            map.values_mut().for_each(without_required);
        }
        Value::Array(items) => items.iter_mut().for_each(without_required),
        _ => {}
    }
}
