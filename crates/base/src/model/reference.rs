//! References to values of other resources: `$kusion_path.<id>.<path>`, anywhere in a text. All code that reads
//! references uses this scanner.
//!
//! Kusion splits such a text at each `.`, so it cannot refer to an id with a dot, a list item, or use a reference
//! inside a longer string. This scanner takes the longest id of the Spec that matches. `[n]`, `["key"]` and a bare
//! number are indices. A `:` after the id is read as a `.` (the syntax of early Kusion versions).

use std::{
    collections::{BTreeSet, HashSet},
    ops::Range,
};

use serde_json::{Map, Value};

use super::ResourceId;

/// The prefix of a reference.
pub const MARK: &str = "$kusion_path.";

/// The error for a reference that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// No resource of the Spec matches.
    #[error("`{text}` refers to no resource of this Spec")]
    NoTarget {
        /// The reference as written.
        text: String,
        /// The most similar id, if there is one.
        nearest: Option<ResourceId>,
    },
    /// The path has a syntax error.
    #[error("`{text}` is not a path into `{target}`: {why}")]
    Malformed {
        /// The reference as written.
        text: String,
        /// The referenced resource.
        target: ResourceId,
        /// The rule that the path breaks.
        why: &'static str,
    },
}

/// One reference in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The position in the text, in bytes.
    pub place: Range<usize>,
    /// The referenced resource.
    pub target: ResourceId,
    /// The keys and indices that lead to the value; at least one.
    pub path: Vec<String>,
}

impl Reference {
    /// Returns the byte range of the id in the text.
    pub fn id_place(&self) -> Range<usize> {
        let start = self.place.start + MARK.len();
        start..start + self.target.as_str().len()
    }
}

/// The ids that references may name.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    ids: HashSet<ResourceId>,
    /// The lengths of the ids, in bytes. The longest match is found by trying only these lengths.
    lengths: BTreeSet<usize>,
}

impl<'a> FromIterator<&'a ResourceId> for Targets {
    fn from_iter<I: IntoIterator<Item = &'a ResourceId>>(ids: I) -> Self {
        let ids: HashSet<_> = ids.into_iter().cloned().collect();
        let lengths = ids.iter().map(|id| id.as_str().len()).collect();
        Self { ids, lengths }
    }
}

impl Targets {
    /// Returns the resources that the values refer to, sorted.
    ///
    /// # Errors
    /// A reference names no resource, or its path has a syntax error.
    pub fn referenced(&self, attributes: &Map<String, Value>) -> Result<BTreeSet<ResourceId>, Unreadable> {
        fn walk<'v>(value: &'v Value, texts: &mut Vec<&'v str>) {
            match value {
                Value::String(text) if text.contains(MARK) => texts.push(text),
                Value::Array(items) => items.iter().for_each(|item| walk(item, texts)),
                Value::Object(map) => map.values().for_each(|value| walk(value, texts)),
                _ => {}
            }
        }
        let mut texts = Vec::new();
        attributes.values().for_each(|value| walk(value, &mut texts));
        let mut found = BTreeSet::new();
        for text in texts {
            found.extend(self.scan(text)?.into_iter().map(|reference| reference.target));
        }
        Ok(found)
    }

    /// Returns the references in a text, in order.
    ///
    /// # Errors
    /// Errors of [`Targets::referenced`].
    pub fn scan(&self, text: &str) -> Result<Vec<Reference>, Unreadable> {
        let mut found: Vec<Reference> = Vec::new();
        let mut at = 0;
        while let Some(offset) = text[at..].find(MARK) {
            let reference = self.read(text, at + offset)?;
            at = reference.place.end;
            found.push(reference);
        }
        Ok(found)
    }

    fn read(&self, text: &str, start: usize) -> Result<Reference, Unreadable> {
        let rest = &text[start + MARK.len()..];
        let target = self
            .lengths
            .iter()
            .rev()
            .filter_map(|&length| rest.get(..length).map(|id| (id, rest[length..].chars().next())))
            .filter(|(_, next)| next.is_none_or(|c| !is_name(c)))
            .find_map(|(id, _)| self.ids.get(id));
        let Some(target) = target else {
            return Err(Unreadable::NoTarget {
                text: excerpt(&text[start..]),
                nearest: self.nearest(rest),
            });
        };
        let mut end = start + MARK.len() + target.as_str().len();
        let malformed = |why| Unreadable::Malformed {
            text: excerpt(&text[start..]),
            target: target.clone(),
            why,
        };
        let path = read_path(text, &mut end).map_err(malformed)?;
        if path.is_empty() {
            return Err(malformed("write `.` and a key after the id"));
        }
        Ok(Reference {
            place: start..end,
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

/// Returns true for a character that a path key may contain without quotes.
fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Parses a sequence of `.key`, `:key`, `[0]` and `["a key"]`. A `.` or `:` that no key follows belongs to the text
/// after the reference.
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
                return Err("write a number or a key in double quotes between `[` and `]`");
            }
            path.push(tail[..length].to_owned());
            *end += length + 2;
        } else {
            return Ok(path);
        }
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(120).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn targets(ids: &[&str]) -> Targets {
        let ids: Vec<ResourceId> = ids.iter().map(|id| id.parse().unwrap()).collect();
        ids.iter().collect()
    }

    fn scan(text: &str) -> Result<Vec<(String, String)>, Unreadable> {
        let found = targets(&["v1:Service:ns:web", "v1:Service:ns:web.more", "apps/v1:D:ns:d"]).scan(text)?;
        Ok(found
            .into_iter()
            .map(|reference| (text[reference.place].to_owned(), reference.path.join("|")))
            .collect())
    }

    #[test]
    fn the_longest_id_is_taken_and_a_path_ends_where_no_key_follows() {
        let one = |text: &str, whole: &str, path: &str| {
            assert_eq!(
                scan(text).unwrap(),
                [(whole.to_owned(), path.to_owned())],
                "{text}"
            );
        };
        one(
            "x $kusion_path.v1:Service:ns:web.more.a.0[1][\"b.c\"]. y",
            "$kusion_path.v1:Service:ns:web.more.a.0[1][\"b.c\"]",
            "a|0|1|b.c",
        );
        one(
            "$kusion_path.v1:Service:ns:web:spec:80",
            "$kusion_path.v1:Service:ns:web:spec",
            "spec",
        );
        let both = "$kusion_path.v1:Service:ns:web.a$kusion_path.apps/v1:D:ns:d.b";
        assert_eq!(scan(both).unwrap().len(), 2);
        assert_eq!(scan("nothing here").unwrap(), []);
    }

    #[test]
    fn what_can_not_be_read_is_said() {
        let Unreadable::NoTarget { nearest, .. } = scan("$kusion_path.v1:Service:ns:wbe.x").unwrap_err()
        else {
            panic!("a missing target")
        };
        assert_eq!(nearest.unwrap().as_str(), "v1:Service:ns:web");
        for malformed in ["", ".", ".a[x]", ".a[\"x]", "[]"] {
            let text = format!("$kusion_path.v1:Service:ns:web{malformed}");
            let error = scan(&text).unwrap_err();
            assert!(matches!(error, Unreadable::Malformed { .. }), "{text}: {error}");
        }
        let longer = scan("$kusion_path.v1:Service:ns:webby.a").unwrap_err();
        assert!(
            matches!(longer, Unreadable::NoTarget { .. }),
            "an id ends where a name ends"
        );
    }

    #[test]
    fn the_references_of_a_resource_are_found_at_any_depth() {
        let attributes = json!({"a": ["$kusion_path.v1:A:x.b", {"c": "z $kusion_path.v1:B:y.d"}]});
        let found = targets(&["v1:A:x", "v1:B:y"])
            .referenced(attributes.as_object().unwrap())
            .unwrap();
        let found: Vec<_> = found.into_iter().map(String::from).collect();
        assert_eq!(found, ["v1:A:x", "v1:B:y"]);
    }
}
