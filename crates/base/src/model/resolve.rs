//! Resolves references: a `$kusion_path` ([`crate::model::reference`]) is replaced by the value it names.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::model::{
    ResourceId,
    json_parts::each_text_mut,
    masked_value,
    reference::{MARK, Reference, Targets, Unreadable},
};

/// The error for a reference that cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// The reference has a syntax error or names no resource.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The resource has no such path.
    #[error("`{target}` has nothing at `{path}`{}", known_keys(.known))]
    NoValue {
        /// The referenced resource.
        target: ResourceId,
        /// The path as written.
        path: String,
        /// The keys that exist where the path stops matching.
        known: Vec<String>,
    },
    /// The value is inside a longer string, but is not a text, number or boolean.
    #[error("`{target}` holds a {what} at `{path}`, which cannot be part of a longer string")]
    NotText {
        /// The referenced resource.
        target: ResourceId,
        /// The path as written.
        path: String,
        /// The type of the value.
        what: &'static str,
    },
}

fn known_keys(known: &[String]) -> String {
    if known.is_empty() {
        String::new()
    } else {
        format!(" (there are: {})", known.join(", "))
    }
}

/// The knowledge about the value of a referenced resource.
#[derive(Debug, Clone, Copy)]
pub enum KnownValue<'a> {
    /// The live value, after the resource was applied or found unchanged. A missing path is an error.
    Final(&'a Value),
    /// The live value of a resource that will not change; only its `status` may still be filled in.
    Settled(&'a Value),
    /// The expected value of a resource that changes. The server may still add values.
    Expected(&'a Value),
    /// The value is not known yet.
    Nothing,
}

impl Targets {
    /// Replaces the references in values. A string that is exactly one reference becomes the value with its
    /// type; inside a longer string, the value's text is inserted. `keep` selects the targets whose
    /// references stay as text.
    ///
    /// # Errors
    /// Errors of [`Targets::referenced`], or the target has no such value.
    pub fn resolve<'a>(
        &self,
        attributes: &Map<String, Value>,
        keep: &dyn Fn(&ResourceId) -> bool,
        lookup: &dyn Fn(&ResourceId) -> KnownValue<'a>,
    ) -> Result<Map<String, Value>, ReferenceError> {
        attributes
            .iter()
            .map(|(key, value)| Ok((key.clone(), self.resolve_value(value, keep, lookup)?)))
            .collect()
    }

    /// Rewrites the references to the keys of `names` into references to its values.
    ///
    /// # Errors
    /// Errors of [`Targets::referenced`].
    pub fn rename(
        &self,
        attributes: &Map<String, Value>,
        names: &HashMap<ResourceId, ResourceId>,
    ) -> Result<Map<String, Value>, ReferenceError> {
        let mut failed = None;
        let mut renamed = attributes.clone();
        renamed.values_mut().for_each(|value| {
            each_text_mut(value, &mut |text| match self.scan(text) {
                Ok(references) => {
                    for reference in references.into_iter().rev() {
                        if let Some(name) = names.get(&reference.target) {
                            text.replace_range(reference.id_place(), name.as_str());
                        }
                    }
                }
                Err(error) => failed = failed.take().or(Some(error)),
            });
        });
        failed.map_or(Ok(renamed), |error| Err(error.into()))
    }

    fn resolve_value<'a>(
        &self,
        value: &Value,
        keep: &dyn Fn(&ResourceId) -> bool,
        lookup: &dyn Fn(&ResourceId) -> KnownValue<'a>,
    ) -> Result<Value, ReferenceError> {
        match value {
            Value::String(text) if text.contains(MARK) => self.resolve_text(text, keep, lookup),
            Value::Object(map) => Ok(Value::Object(self.resolve(map, keep, lookup)?)),
            Value::Array(items) => items
                .iter()
                .map(|item| self.resolve_value(item, keep, lookup))
                .collect(),
            other => Ok(other.clone()),
        }
    }

    fn resolve_text<'a>(
        &self,
        text: &str,
        keep: &dyn Fn(&ResourceId) -> bool,
        lookup: &dyn Fn(&ResourceId) -> KnownValue<'a>,
    ) -> Result<Value, ReferenceError> {
        let references = self.scan(text)?;
        if let [only] = references.as_slice()
            && only.place == (0..text.len())
        {
            if keep(&only.target) {
                return Ok(Value::String(text.to_owned()));
            }
            return value_at(only, lookup(&only.target));
        }
        let mut result = String::with_capacity(text.len());
        let mut at = 0;
        for reference in &references {
            result.push_str(&text[at..reference.place.start]);
            at = reference.place.end;
            if keep(&reference.target) {
                result.push_str(&text[reference.place.clone()]);
                continue;
            }
            match value_at(reference, lookup(&reference.target))? {
                unknown if masked_value::is_unknown(&unknown) => return Ok(unknown),
                Value::String(part) => result.push_str(&part),
                part @ (Value::Number(_) | Value::Bool(_)) => result.push_str(&part.to_string()),
                other => {
                    return Err(ReferenceError::NotText {
                        target: reference.target.clone(),
                        path: reference.path.join("."),
                        what: match other {
                            Value::Array(_) => "list",
                            Value::Null => "null",
                            _ => "map",
                        },
                    });
                }
            }
        }
        result.push_str(&text[at..]);
        Ok(Value::String(result))
    }
}

fn value_at(reference: &Reference, known: KnownValue<'_>) -> Result<Value, ReferenceError> {
    let (mut at, partial) = match known {
        KnownValue::Nothing => return Ok(masked_value::unknown()),
        KnownValue::Final(value) => (value, false),
        KnownValue::Settled(value) => (value, reference.path.first().is_some_and(|key| key == "status")),
        KnownValue::Expected(value) => (value, true),
    };
    for component in &reference.path {
        if masked_value::is_unknown(at) {
            return Ok(masked_value::unknown());
        }
        let next = match at {
            Value::Object(map) => map.get(component),
            Value::Array(items) => component.parse().ok().and_then(|index: usize| items.get(index)),
            _ => None,
        };
        at = match next {
            Some(next) => next,
            None if partial => return Ok(masked_value::unknown()),
            None => {
                return Err(ReferenceError::NoValue {
                    target: reference.target.clone(),
                    path: reference.path.join("."),
                    known: at
                        .as_object()
                        .map(|map| map.keys().take(12).cloned().collect())
                        .unwrap_or_default(),
                });
            }
        };
    }
    Ok(if masked_value::holds_unknown(at) {
        masked_value::unknown()
    } else {
        at.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn targets(ids: &[&str]) -> Targets {
        let ids: Vec<ResourceId> = ids.iter().map(|id| id.parse().unwrap()).collect();
        ids.iter().collect()
    }

    fn resolve(text: &str) -> Result<Value, ReferenceError> {
        let role = json!({"metadata": {"name": "r", "uid": "u"}});
        let web = json!({"spec": {"ports": [{"port": 80}, {"port": 81}], "clusterIP": "10.0.0.7"},
            "data": {"a.b/c": "odd"}});
        targets(&[
            "rbac.authorization.k8s.io/v1:Role:ns:r",
            "v1:Service:ns:web",
            "v1:Service:ns:web.more",
            "v1:Service:ns:web-2",
        ])
        .resolve_text(text, &|_| false, &|id| match id.as_str() {
            "rbac.authorization.k8s.io/v1:Role:ns:r" => KnownValue::Final(&role),
            "v1:Service:ns:web" => KnownValue::Final(&web),
            "v1:Service:ns:web.more" => KnownValue::Expected(&web),
            _ => KnownValue::Nothing,
        })
    }

    #[test]
    fn what_has_no_text_is_named_by_its_type() {
        let values = json!({"none": null, "list": [], "map": {}});
        for (path, what) in [("none", "null"), ("list", "list"), ("map", "map")] {
            let text = format!("a $kusion_path.v1:Service:ns:web.{path}");
            let lookup = |_: &ResourceId| KnownValue::Final(&values);
            let refused = targets(&["v1:Service:ns:web"]).resolve_text(&text, &|_| false, &lookup);
            assert!(
                matches!(&refused, Err(ReferenceError::NotText { what: found, .. }) if *found == what),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn ids_with_dots_lists_and_types() {
        let role = "$kusion_path.rbac.authorization.k8s.io/v1:Role:ns:r.metadata.name";
        assert_eq!(resolve(role).unwrap(), json!("r"));
        assert_eq!(
            resolve("$kusion_path.v1:Service:ns:web.spec.ports[1].port").unwrap(),
            json!(81)
        );
        assert_eq!(
            resolve("$kusion_path.v1:Service:ns:web.spec.ports.0").unwrap(),
            json!({"port": 80})
        );
        assert_eq!(
            resolve("$kusion_path.v1:Service:ns:web.data[\"a.b/c\"]").unwrap(),
            json!("odd")
        );
        assert_eq!(
            resolve("$kusion_path.v1:Service:ns:web:spec.clusterIP").unwrap(),
            json!("10.0.0.7")
        );
    }

    #[test]
    fn inside_a_longer_string() {
        let text = "http://$kusion_path.v1:Service:ns:web.spec.clusterIP:$kusion_path.v1:Service:ns:web.spec.ports[0].port/x.";
        assert_eq!(resolve(text).unwrap(), json!("http://10.0.0.7:80/x."));
        assert!(matches!(
            resolve("a $kusion_path.v1:Service:ns:web.spec.ports").unwrap_err(),
            ReferenceError::NotText { what: "list", .. }
        ));
    }

    #[test]
    fn what_is_not_known_yet_is_unknown() {
        assert_eq!(
            resolve("$kusion_path.v1:Service:ns:web-2.spec.clusterIP").unwrap(),
            masked_value::unknown()
        );
        assert_eq!(
            resolve("x $kusion_path.v1:Service:ns:web-2.status.a y").unwrap(),
            masked_value::unknown()
        );
        assert_eq!(
            resolve("$kusion_path.v1:Service:ns:web.more.status.ip").unwrap(),
            masked_value::unknown()
        );
        assert_eq!(
            resolve("$kusion_path.v1:Service:ns:web.more.spec.clusterIP").unwrap(),
            json!("10.0.0.7")
        );
    }

    #[test]
    fn what_does_not_exist_is_said() {
        let nowhere = resolve("$kusion_path.v1:Service:ns:wbe.x").unwrap_err();
        assert!(matches!(nowhere, ReferenceError::Unreadable(_)), "{nowhere}");
        let missing = resolve("$kusion_path.v1:Service:ns:web.spec.nope").unwrap_err();
        assert_eq!(
            missing.to_string(),
            "`v1:Service:ns:web` has nothing at `spec.nope` (there are: ports, clusterIP)"
        );
    }

    #[test]
    fn references_are_kept_on_request() {
        let attributes = json!({"a": ["$kusion_path.v1:A:x.b", {"c": "z $kusion_path.v1:B:y.d"}]});
        let targets = targets(&["v1:A:x", "v1:B:y"]);
        let attributes = attributes.as_object().unwrap();
        let kept = targets
            .resolve(attributes, &|_| true, &|_| KnownValue::Nothing)
            .unwrap();
        assert_eq!(&kept, attributes);
    }

    #[test]
    fn a_settled_object_lacks_nothing_but_its_status() {
        let web = json!({"spec": {"ports": []}});
        let at = |path: &str| {
            let text = format!("$kusion_path.v1:Service:ns:web.{path}");
            let lookup = |_: &ResourceId| KnownValue::Settled(&web);
            targets(&["v1:Service:ns:web"]).resolve_text(&text, &|_| false, &lookup)
        };
        assert_eq!(at("spec.ports").unwrap(), json!([]));
        assert_eq!(at("status.ip").unwrap(), masked_value::unknown());
        assert!(matches!(
            at("spec.clusterIP"),
            Err(ReferenceError::NoValue { .. })
        ));
    }

    #[test]
    fn references_are_replaced_at_every_depth() {
        let attributes =
            json!({"a": ["$kusion_path.v1:A:x.b", [{"c": "z$kusion_path.v1:A:x.b"}]], "d": {"e": 1}});
        let known = json!({"b": "y"});
        let resolved = targets(&["v1:A:x"])
            .resolve(attributes.as_object().unwrap(), &|_| false, &|_| {
                KnownValue::Final(&known)
            })
            .unwrap();
        assert_eq!(
            Value::Object(resolved),
            json!({"a": ["y", [{"c": "zy"}]], "d": {"e": 1}})
        );
    }

    #[test]
    fn references_are_renamed_at_every_depth() {
        let attributes =
            json!({"a": ["$kusion_path.v1:A:x.b", {"c": ["z $kusion_path.v1:A:x.b"]}], "d": "x"});
        let targets = targets(&["v1:A:x"]);
        let names = HashMap::from([("v1:A:x".parse().unwrap(), "v1:A:y".parse().unwrap())]);
        let renamed = targets.rename(attributes.as_object().unwrap(), &names).unwrap();
        let expected = json!({"a": ["$kusion_path.v1:A:y.b", {"c": ["z $kusion_path.v1:A:y.b"]}], "d": "x"});
        assert_eq!(Value::Object(renamed), expected);
    }
}
