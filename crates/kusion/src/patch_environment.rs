//! The environment variables of a patcher. Go serializes Kubernetes types with lower-case names and
//! includes unset fields.

use serde_json::{Map, Value, json};

/// The value that takes a variable away.
const REMOVE: &str = "ops://kusionstack.io/remove";

/// The names of the keys of a variable that hold a capital.
const NAMES: [&str; 10] = [
    "valueFrom",
    "fieldRef",
    "fieldPath",
    "apiVersion",
    "resourceFieldRef",
    "containerName",
    "configMapKeyRef",
    "secretKeyRef",
    "fileKeyRef",
    "volumeName",
];

/// Name of a struct that Go embeds: its keys belong to the object around it.
const EMBEDDED: &str = "localobjectreference";

/// Reads a list of variables.
pub(super) fn read(value: Value) -> Result<Vec<Map<String, Value>>, String> {
    let Value::Array(items) = value else {
        return Err("it is not a list".to_owned());
    };
    let mut variables = Vec::new();
    for item in items {
        let Some(Value::Object(mut variable)) = in_kubernetes_form(item)? else {
            return Err("a variable is not a mapping".to_owned());
        };
        let name = variable
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        if name.is_empty() {
            return Err("a variable has no name".to_owned());
        }
        // Go writes an empty value beside `valueFrom`, which Kubernetes refuses.
        if variable.get("value").is_some_and(|value| *value == json!("")) {
            variable.shift_remove("value");
        }
        if variable.get("value").is_some_and(|value| !value.is_string()) {
            return Err(format!("the value of `{}` is not a string", name.escape_debug()));
        }
        variables.push(variable);
    }
    Ok(variables)
}

/// The value with Kubernetes' names; `None` for what is not set.
fn in_kubernetes_form(value: Value) -> Result<Option<Value>, String> {
    let Value::Object(fields) = value else {
        return Ok(Some(value).filter(|value| !value.is_null()));
    };
    let mut written = Map::new();
    for (key, value) in fields {
        let known = NAMES.iter().find(|name| name.eq_ignore_ascii_case(&key));
        let name = known.map_or_else(|| key.clone(), |name| (*name).to_owned());
        if name == "divisor" && value.is_object() {
            // The type has no public field, so Go cannot write its value.
            if value
                .as_object()
                .is_some_and(|fields| fields.values().all(|value| *value == json!("")))
            {
                continue;
            } else {
                return Err("the `divisor` of a variable cannot be read".to_owned());
            }
        }
        match in_kubernetes_form(value)? {
            Some(Value::Object(inner)) if key.eq_ignore_ascii_case(EMBEDDED) => written.extend(inner),
            Some(value) => {
                written.insert(name, value);
            }
            None => {}
        }
    }
    Ok(Some(Value::Object(written)))
}

/// Puts variables before those of a container, one by one, so that the last of them is the first. What the application
/// sets may then refer to them. `twice` is called with each name that is set already.
pub(super) fn add(
    variables: &[Map<String, Value>],
    container: &mut Map<String, Value>,
    twice: &mut dyn FnMut(&str, &str),
) {
    let name_of = |variable: &Value| variable["name"].as_str().unwrap_or_default().to_owned();
    let own = container
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let mut environment = match container.get("env") {
        Some(Value::Array(environment)) => environment.clone(),
        _ => Vec::new(),
    };
    let is_removal = |variable: &&Map<String, Value>| variable.get("value") == Some(&json!(REMOVE));
    for variable in variables.iter().filter(is_removal) {
        let name = variable.get("name").and_then(Value::as_str).unwrap_or_default();
        environment.retain(|present| name_of(present) != name);
    }
    for variable in variables.iter().filter(|variable| !is_removal(variable)) {
        let variable = Value::Object(variable.clone());
        let name = name_of(&variable);
        if environment.iter().any(|present| name_of(present) == name) {
            twice(&name, &own);
        }
        environment.insert(0, variable);
    }
    container.insert("env".to_owned(), Value::Array(environment));
}
