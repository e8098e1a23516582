//! The environment variables of a patch. Go's YAML writes the fields of Kubernetes types in lower case, and
//! unset ones too.

use serde_json::{Map, Value, json};

/// The value that removes a variable.
const REMOVE: &str = "ops://kusionstack.io/remove";

/// The keys of an environment variable that contain a capital letter.
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

/// The name of an embedded Go struct: its keys belong to the object that contains it.
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
        // Go writes an empty `value` together with `valueFrom`, which Kubernetes refuses, so it is removed.
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

/// Returns a value with Kubernetes' names for its keys; `None` for an unset value.
fn in_kubernetes_form(value: Value) -> Result<Option<Value>, String> {
    let Value::Object(fields) = value else {
        return Ok(Some(value).filter(|value| !value.is_null()));
    };
    let mut written = Map::new();
    for (key, value) in fields {
        let known = NAMES.iter().find(|name| name.eq_ignore_ascii_case(&key));
        let name = known.map_or_else(|| key.clone(), |name| (*name).to_owned());
        if name == "divisor" && value.is_object() {
            // This Go type has no public field, so its value is missing in the YAML.
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

/// Inserts variables before those of a container, so that the application's variables may refer to them. Each
/// is inserted at the front, which reverses their order, as in Kusion. `twice` is called with the name of
/// each variable that the container already has.
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
