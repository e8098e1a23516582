//! `$kusion_path.<id>.<path>`: a value of another resource, in `attributes`.
//!
//! Kusion split such a text on `.` and so could name neither an id with a dot, nor a list item, nor a reference inside a
//! longer string (`reference/kusion.md` 1). Here the longest id of the Spec that fits is taken, `[n]`, `["key"]` and
//! a bare number are indices, and a reference may stand anywhere in a string. After the id a `:` is read as a `.` (the
//! form of Kusion's early slides).

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};

use crate::model::{ResourceId, value};

/// What a reference starts with.
pub(super) const MARK: &str = "$kusion_path.";

/// A reference that can not be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// No resource of the Spec fits.
    #[error("`{text}` refers to no resource of this Spec")]
    NoTarget {
        /// The reference as written.
        text: String,
        /// The id that comes nearest, if one is near.
        nearest: Option<ResourceId>,
    },
    /// The path is not written as paths are.
    #[error("`{text}` is not a path into `{target}`: {why}")]
    Malformed {
        /// The reference as written.
        text: String,
        /// The resource it names.
        target: ResourceId,
        /// The rule it breaks.
        why: &'static str,
    },
    /// The resource has no such path.
    #[error("`{target}` has nothing at `{path}`{}", known_keys(.known))]
    NoValue {
        /// The resource it names.
        target: ResourceId,
        /// The path as written.
        path: String,
        /// The keys that stand where the path ends to fit.
        known: Vec<String>,
    },
    /// A value that is not text, number or boolean inside a longer string.
    #[error("`{target}` holds a {what} at `{path}`, which can not stand inside a longer string")]
    NotText {
        /// The resource it names.
        target: ResourceId,
        /// The path as written.
        path: String,
        /// What stands there.
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

/// The ids that references of a Spec may name.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    ids: HashSet<ResourceId>,
    /// Lengths that occur, in bytes: the longest match is found by trying these alone.
    lengths: BTreeSet<usize>,
}

impl<'a> FromIterator<&'a ResourceId> for Targets {
    fn from_iter<I: IntoIterator<Item = &'a ResourceId>>(ids: I) -> Self {
        let ids: HashSet<_> = ids.into_iter().cloned().collect();
        let lengths = ids.iter().map(|id| id.as_str().len()).collect();
        Self { ids, lengths }
    }
}

/// One reference in a string.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reference {
    /// Byte offset of its `$`.
    start: usize,
    /// Byte offset after its end.
    end: usize,
    target: ResourceId,
    path: Vec<String>,
}

/// What a referenced resource is known to be.
#[derive(Debug, Clone, Copy)]
pub enum Known<'a> {
    /// As it is, or as it was made: what it lacks is an error.
    Final(&'a Value),
    /// As it is, and nothing will be done to it; only its `status` may still be filled in.
    Settled(&'a Value),
    /// As it is expected to become: what it lacks may still be filled in by the other side.
    Expected(&'a Value),
    /// Nothing is known yet.
    Nothing,
}

impl Targets {
    /// The resources that the values refer to, sorted.
    ///
    /// # Errors
    /// A reference that names no resource, or whose path is malformed.
    pub fn referenced(
        &self,
        attributes: &Map<String, Value>,
    ) -> Result<BTreeSet<ResourceId>, ReferenceError> {
        let mut found = BTreeSet::new();
        let mut failed = None;
        for_each_string(attributes, &mut |text| match self.scan(text) {
            Ok(references) => found.extend(references.into_iter().map(|reference| reference.target)),
            Err(error) => failed = failed.take().or(Some(error)),
        });
        failed.map_or(Ok(found), Err)
    }

    /// The values with references replaced. A string that is one reference becomes the value with its type; inside a
    /// longer string, the value's text. `keep` says which targets are left as text.
    ///
    /// # Errors
    /// As [`Targets::referenced`], or the target has no such value.
    pub fn resolve<'a>(
        &self,
        attributes: &Map<String, Value>,
        keep: &dyn Fn(&ResourceId) -> bool,
        lookup: &dyn Fn(&ResourceId) -> Known<'a>,
    ) -> Result<Map<String, Value>, ReferenceError> {
        attributes
            .iter()
            .map(|(key, value)| Ok((key.clone(), self.resolve_value(value, keep, lookup)?)))
            .collect()
    }

    /// The values with references to `names`' keys rewritten to its values.
    ///
    /// # Errors
    /// As [`Targets::referenced`].
    pub fn rename(
        &self,
        attributes: &Map<String, Value>,
        names: &HashMap<ResourceId, ResourceId>,
    ) -> Result<Map<String, Value>, ReferenceError> {
        let mut failed = None;
        let mut renamed = attributes.clone();
        renamed.values_mut().for_each(|value| {
            for_each_string_mut(value, &mut |text| match self.scan(text) {
                Ok(references) => {
                    for reference in references.into_iter().rev() {
                        if let Some(name) = names.get(&reference.target) {
                            let from = reference.start + MARK.len();
                            text.replace_range(from..from + reference.target.as_str().len(), name.as_str());
                        }
                    }
                }
                Err(error) => failed = failed.take().or(Some(error)),
            });
        });
        failed.map_or(Ok(renamed), Err)
    }

    fn resolve_value<'a>(
        &self,
        value: &Value,
        keep: &dyn Fn(&ResourceId) -> bool,
        lookup: &dyn Fn(&ResourceId) -> Known<'a>,
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
        lookup: &dyn Fn(&ResourceId) -> Known<'a>,
    ) -> Result<Value, ReferenceError> {
        let references = self.scan(text)?;
        if let [only] = references.as_slice()
            && only.start == 0
            && only.end == text.len()
        {
            if keep(&only.target) {
                return Ok(Value::String(text.to_owned()));
            }
            return only.follow(lookup(&only.target));
        }
        let mut result = String::with_capacity(text.len());
        let mut at = 0;
        for reference in &references {
            result.push_str(&text[at..reference.start]);
            at = reference.end;
            if keep(&reference.target) {
                result.push_str(&text[reference.start..reference.end]);
                continue;
            }
            match reference.follow(lookup(&reference.target))? {
                unknown if value::is_unknown(&unknown) => return Ok(unknown),
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

    fn scan(&self, text: &str) -> Result<Vec<Reference>, ReferenceError> {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(offset) = text[at..].find(MARK) {
            let start = at + offset;
            let reference = self.read(text, start)?;
            at = reference.end;
            found.push(reference);
        }
        Ok(found)
    }

    fn read(&self, text: &str, start: usize) -> Result<Reference, ReferenceError> {
        let rest = &text[start + MARK.len()..];
        let target = self
            .lengths
            .iter()
            .rev()
            .filter_map(|&length| rest.get(..length).map(|id| (id, rest[length..].chars().next())))
            .filter(|(_, next)| next.is_none_or(|c| !is_name(c)))
            .find_map(|(id, _)| self.ids.get(id));
        let Some(target) = target else {
            return Err(ReferenceError::NoTarget {
                text: excerpt(&text[start..]),
                nearest: self.nearest(rest),
            });
        };
        let mut end = start + MARK.len() + target.as_str().len();
        let malformed = |why| ReferenceError::Malformed {
            text: excerpt(&text[start..]),
            target: target.clone(),
            why,
        };
        let path = read_path(text, &mut end).map_err(malformed)?;
        if path.is_empty() {
            return Err(malformed("after the id stands `.` and a key"));
        }
        Ok(Reference {
            start,
            end,
            target: target.clone(),
            path,
        })
    }

    fn nearest(&self, text: &str) -> Option<ResourceId> {
        self.ids
            .iter()
            .map(|id| {
                let head: String = text.chars().take(id.as_str().chars().count()).collect();
                (strsim::normalized_levenshtein(&head, id.as_str()), id)
            })
            .filter(|(likeness, _)| *likeness > 0.6)
            .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)))
            .map(|(_, id)| id.clone())
    }
}

impl Reference {
    fn follow(&self, known: Known<'_>) -> Result<Value, ReferenceError> {
        let (mut at, partial) = match known {
            Known::Nothing => return Ok(value::unknown()),
            Known::Final(value) => (value, false),
            Known::Settled(value) => (value, self.path.first().is_some_and(|key| key == "status")),
            Known::Expected(value) => (value, true),
        };
        for component in &self.path {
            if value::is_unknown(at) {
                return Ok(value::unknown());
            }
            let next = match at {
                Value::Object(map) => map.get(component),
                Value::Array(items) => component.parse().ok().and_then(|index: usize| items.get(index)),
                _ => None,
            };
            at = match next {
                Some(next) => next,
                None if partial => return Ok(value::unknown()),
                None => {
                    return Err(ReferenceError::NoValue {
                        target: self.target.clone(),
                        path: self.path.join("."),
                        known: at
                            .as_object()
                            .map(|map| map.keys().take(12).cloned().collect())
                            .unwrap_or_default(),
                    });
                }
            };
        }
        Ok(if value::holds_unknown(at) {
            value::unknown()
        } else {
            at.clone()
        })
    }
}

/// What a key in a path may hold without quotes.
fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Reads `.key`, `:key`, `[0]` and `["a key"]` for as long as they follow each other. A `.` or `:` that no key follows is
/// text behind the reference.
fn read_path(text: &str, end: &mut usize) -> Result<Vec<String>, &'static str> {
    let mut path = Vec::new();
    loop {
        let rest = &text[*end..];
        if let Some(tail) = rest.strip_prefix('.').or_else(|| {
            let tail = rest.strip_prefix(':')?;
            path.is_empty().then_some(tail)
        }) {
            let length = tail.find(|c: char| !is_name(c)).unwrap_or(tail.len());
            if length == 0 {
                return Ok(path);
            }
            path.push(tail[..length].to_owned());
            *end += 1 + length;
        } else if let Some(tail) = rest.strip_prefix("[\"") {
            let length = tail.find("\"]").ok_or("`[\"` without `\"]`")?;
            path.push(tail[..length].to_owned());
            *end += length + 4;
        } else if let Some(tail) = rest.strip_prefix('[') {
            let length = tail.find(']').ok_or("`[` without `]`")?;
            if length == 0 || !tail[..length].bytes().all(|b| b.is_ascii_digit()) {
                return Err("between `[` and `]` stands a number or a key in double quotes");
            }
            path.push(tail[..length].to_owned());
            *end += length + 2;
        } else {
            return Ok(path);
        }
    }
}

fn excerpt(text: &str) -> String {
    let short: String = text.chars().take(120).flat_map(char::escape_debug).collect();
    short
}

fn for_each_string(map: &Map<String, Value>, visit: &mut dyn FnMut(&str)) {
    fn walk(value: &Value, visit: &mut dyn FnMut(&str)) {
        match value {
            Value::String(text) if text.contains(MARK) => visit(text),
            Value::Array(items) => items.iter().for_each(|item| walk(item, visit)),
            Value::Object(map) => map.values().for_each(|value| walk(value, visit)),
            _ => {}
        }
    }
    map.values().for_each(|value| walk(value, visit));
}

fn for_each_string_mut(value: &mut Value, visit: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) if text.contains(MARK) => visit(text),
        Value::Array(items) => items.iter_mut().for_each(|item| for_each_string_mut(item, visit)),
        Value::Object(map) => map
            .values_mut()
            .for_each(|value| for_each_string_mut(value, visit)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
            "rbac.authorization.k8s.io/v1:Role:ns:r" => Known::Final(&role),
            "v1:Service:ns:web" => Known::Final(&web),
            "v1:Service:ns:web.more" => Known::Expected(&web),
            _ => Known::Nothing,
        })
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
            value::unknown()
        );
        assert_eq!(
            resolve("x $kusion_path.v1:Service:ns:web-2.status.a y").unwrap(),
            value::unknown()
        );
        assert_eq!(
            resolve("$kusion_path.v1:Service:ns:web.more.status.ip").unwrap(),
            value::unknown()
        );
        assert_eq!(
            resolve("$kusion_path.v1:Service:ns:web.more.spec.clusterIP").unwrap(),
            json!("10.0.0.7")
        );
    }

    #[test]
    fn what_does_not_exist_is_said() {
        let ReferenceError::NoTarget { nearest, .. } =
            resolve("$kusion_path.v1:Service:ns:wbe.x").unwrap_err()
        else {
            panic!("a missing target")
        };
        assert_eq!(nearest.unwrap().as_str(), "v1:Service:ns:web");
        let missing = resolve("$kusion_path.v1:Service:ns:web.spec.nope").unwrap_err();
        assert_eq!(
            missing.to_string(),
            "`v1:Service:ns:web` has nothing at `spec.nope` (there are: ports, clusterIP)"
        );
        assert!(resolve("$kusion_path.v1:Service:ns:web").is_err());
        assert!(resolve("$kusion_path.v1:Service:ns:web.a[x]").is_err());
        assert!(
            resolve("$kusion_path.v1:Service:ns:webby.a").is_err(),
            "an id ends where a name ends"
        );
    }

    #[test]
    fn references_of_a_resource_are_found_and_kept_on_request() {
        let attributes = json!({"a": ["$kusion_path.v1:A:x.b", {"c": "z $kusion_path.v1:B:y.d"}]});
        let targets = targets(&["v1:A:x", "v1:B:y"]);
        let attributes = attributes.as_object().unwrap();
        let found: Vec<_> = targets
            .referenced(attributes)
            .unwrap()
            .into_iter()
            .map(String::from)
            .collect();
        assert_eq!(found, ["v1:A:x", "v1:B:y"]);
        let kept = targets
            .resolve(attributes, &|_| true, &|_| Known::Nothing)
            .unwrap();
        assert_eq!(&kept, attributes);
    }
}
