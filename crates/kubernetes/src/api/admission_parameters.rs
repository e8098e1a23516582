//! The parameters of MutatingAdmissionPolicies: objects that a binding passes to its policy. The mutation
//! depends on them, so their versions are part of the guard of an *unchanged* proof (`noop_guard`).

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{
    client::{Api, ApiRequest},
    discovery::{Discovery, ResourceType, items},
    error::ApiError,
};

/// The media type for a LIST that returns only the names and versions of its items.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The versions of the parameters by the name of the policy. Policies whose parameters cannot be read are
/// missing.
pub(crate) type ParameterVersions = HashMap<String, Value>;

/// Reads the versions of the parameters that bindings refer to. A policy is left out if reading its
/// parameters is not permitted.
///
/// # Errors
/// The server does not respond.
pub(crate) async fn read(
    api: &Api,
    discovery: &Discovery,
    policies: &Value,
    bindings: &Value,
) -> Result<ParameterVersions, ApiError> {
    let mut read = ParameterVersions::new();
    for policy in items(&policies["items"]) {
        let kind = &policy["spec"]["paramKind"];
        let (Some(version), Some(kind), Some(name)) = (
            kind["apiVersion"].as_str(),
            kind["kind"].as_str(),
            policy["metadata"]["name"].as_str(),
        ) else {
            continue;
        };
        let Some(of) = discovery.any_version(version, kind) else {
            continue;
        };
        let mut versions = Some(Vec::new());
        for binding in items(&bindings["items"]).filter(|binding| binding["spec"]["policyName"] == name) {
            let found = match &binding["spec"]["paramRef"] {
                Value::Null => Some(Value::Null),
                reference => referenced(api, of, reference).await?,
            };
            versions = versions.zip(found).map(|(mut versions, found)| {
                versions.push(found);
                versions
            });
        }
        read.extend(versions.map(|versions| (name.to_owned(), Value::Array(versions))));
    }
    Ok(read)
}

/// Reads the versions of a binding's parameters; `None` without permission.
async fn referenced(api: &Api, of: &ResourceType, reference: &Value) -> Result<Option<Value>, ApiError> {
    let (name, namespace) = (reference["name"].as_str(), reference["namespace"].as_str());
    let request = match name {
        Some(name) if namespace.is_some() || !of.namespaced => ApiRequest::get(of.object(namespace, name)),
        // Without a namespace, the server looks the parameter up in the namespace of each object, so all
        // objects of this name are listed.
        Some(name) => list(of, namespace).query("fieldSelector", format!("metadata.name={name}")),
        None => list(of, namespace).query("labelSelector", selector(&reference["selector"])),
    };
    match api.call(&request).await {
        Ok(answer) if answer.value["items"].is_array() => {
            let mut versions: Vec<_> = items(&answer.value["items"]).map(version).collect();
            versions.sort_by_cached_key(Value::to_string);
            Ok(Some(Value::Array(versions)))
        }
        Ok(answer) => Ok(Some(version(&answer.value))),
        Err(error) if error.is_code(404) => Ok(Some(Value::Null)),
        Err(error) if error.is_code(403) => Ok(None),
        Err(error) => Err(error),
    }
}

fn list(of: &ResourceType, namespace: Option<&str>) -> ApiRequest {
    let mut request = ApiRequest::get(of.collection(namespace));
    request.accept = METADATA_ONLY;
    request
}

fn version(object: &Value) -> Value {
    let metadata = &object["metadata"];
    json!([
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
        metadata["resourceVersion"]
    ])
}

/// Converts a label selector to the form of a query.
fn selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object();
    let equal = labels.into_iter().flatten().map(|(key, value)| {
        let value = value.as_str().unwrap_or_default();
        format!("{key}={value}")
    });
    let expressions = items(&selector["matchExpressions"]).map(|expression| {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = items(&expression["values"]).filter_map(Value::as_str);
        let values = values.collect::<Vec<_>>().join(",");
        match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        }
    });
    equal.chain(expressions).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_written_as_a_query_has_it() {
        let written = selector(&json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["d", "e"]}, {"key": "f", "operator": "NotIn", "values": ["g"]},
            {"key": "h", "operator": "Exists"}, {"key": "i", "operator": "DoesNotExist"}]}));
        assert_eq!(written, "a=b,c in (d,e),f notin (g),h,!i");
        assert_eq!(selector(&json!({})), "");
    }
}
