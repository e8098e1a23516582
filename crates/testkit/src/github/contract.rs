//! Requests against GitHub's own description of its API: the route, the query's parameters, the body's schema.

use std::{
    collections::BTreeMap,
    sync::{LazyLock, Mutex},
};

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::octokit;

struct Contract {
    description: Value,
    bodies: Mutex<BTreeMap<String, std::sync::Arc<Validator>>>,
}

static CONTRACT: LazyLock<Contract> = LazyLock::new(|| {
    let mut description = octokit::openapi();
    json_schema(&mut description);
    Contract {
        description,
        bodies: Mutex::default(),
    }
});

/// Says why GitHub's description does not allow a request.
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

impl Contract {
    fn find(&self, method: &str, route: &str) -> Option<(&str, &Value)> {
        let paths = self.description["paths"].as_object()?;
        let mut fitting: Vec<_> = paths
            .iter()
            .filter(|(template, path)| path.get(method.to_lowercase()).is_some() && fits(template, route))
            .collect();
        // `/issues/comments/{id}` before `/issues/{number}/{…}`: the one with fewer variables.
        fitting.sort_by_key(|(template, _)| template.matches('{').count());
        fitting.first().map(|(template, path)| (template.as_str(), *path))
    }

    fn resolve<'a>(&'a self, node: &'a Value) -> &'a Value {
        match node["$ref"].as_str() {
            Some(reference) => self
                .description
                .pointer(reference.trim_start_matches('#'))
                .expect("a known reference"),
            None => node,
        }
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
            let made = std::sync::Arc::new(
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

fn fits(template: &str, route: &str) -> bool {
    let (template, route): (Vec<_>, Vec<_>) = (template.split('/').collect(), route.split('/').collect());
    template.len() == route.len()
        && template
            .iter()
            .zip(&route)
            .all(|(t, r)| t == r || (t.starts_with('{') && !r.is_empty()))
}

/// OpenAPI's `nullable` in JSON Schema's words.
fn json_schema(node: &mut Value) {
    match node {
        Value::Object(map) => {
            if map.remove("nullable") == Some(json!(true)) {
                if let Some(kind) = map.get("type").cloned() {
                    map.insert("type".into(), json!([kind, "null"]));
                }
                if let Some(words) = map.get_mut("enum").and_then(Value::as_array_mut) {
                    words.push(Value::Null);
                }
            }
            map.values_mut().for_each(json_schema);
        }
        Value::Array(items) => items.iter_mut().for_each(json_schema),
        _ => {}
    }
}
