//! Compares two generated files: properties that were added, removed or changed.

use std::collections::BTreeMap;

/// A property that differs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelDifference {
    /// The name of the schema.
    pub schema: String,
    /// The attribute in KCL, with a prefix `check` for a check.
    pub property: String,
    /// The kind of the change.
    pub change: PropertyChange,
}

/// The kind of a change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PropertyChange {
    /// The property is new.
    Added {
        /// The new declaration.
        to: String,
    },
    /// The property was removed.
    Removed {
        /// The old declaration.
        from: String,
    },
    /// The type changed, or the property became required or optional.
    Changed {
        /// The old declaration.
        from: String,
        /// The new declaration.
        to: String,
    },
}

type Properties = BTreeMap<(String, String), String>;

/// Returns the differences between two files of models, as they were generated or as somebody edited them.
/// Documentation is ignored.
pub fn differences(old: &str, new: &str) -> Vec<ModelDifference> {
    let (old, new) = (properties(old), properties(new));
    let entry = |(schema, property): &(String, String), change| ModelDifference {
        schema: schema.clone(),
        property: property.clone(),
        change,
    };
    let mut all: Vec<_> = old
        .iter()
        .filter(|(key, _)| !new.contains_key(*key))
        .map(|(key, from)| entry(key, PropertyChange::Removed { from: from.clone() }))
        .collect();
    for (key, to) in &new {
        let to = to.clone();
        match old.get(key).cloned() {
            None => all.push(entry(key, PropertyChange::Added { to })),
            Some(from) if from != to => all.push(entry(key, PropertyChange::Changed { from, to })),
            Some(_) => {}
        }
    }
    all.sort();
    all
}

/// Returns each attribute and each check in the schemas of a file, with its declaration.
fn properties(text: &str) -> Properties {
    let mut found = Properties::new();
    let mut schema = String::new();
    let mut in_docs = false;
    for line in text.lines() {
        if in_docs {
            in_docs = line.trim() != "\"\"\"";
            continue;
        }
        if let Some(name) = line.strip_prefix("schema ") {
            schema = name.trim_end_matches(':').to_owned();
            found.insert((schema.clone(), String::new()), String::new());
        } else if line == "    r\"\"\"" {
            in_docs = true;
        } else if let Some(check) = line.strip_prefix("        ") {
            let (condition, message) = check.rsplit_once(", \"").unwrap_or((check, check));
            let name = format!("check {}", message.trim_end_matches('"'));
            found.insert((schema.clone(), name), condition.to_owned());
        } else if let Some(attribute) = line
            .strip_prefix("    ")
            .filter(|line| !line.starts_with("check:"))
            && let Some((name, kind)) = split(attribute)
        {
            found.insert((schema.clone(), name), kind);
        }
    }
    found
}

/// Splits an attribute from its declaration: `a?: str` gives `a` and `optional str`.
fn split(attribute: &str) -> Option<(String, String)> {
    let end = match attribute.strip_prefix('"') {
        Some(quoted) => quoted.find("\"?: ").or_else(|| quoted.find("\": "))? + 2,
        None => attribute
            .find(": ")
            .map(|end| end - usize::from(attribute[..end].ends_with('?')))?,
    };
    let declaration = match attribute[end..].strip_prefix("?: ") {
        Some(kind) => format!("optional {kind}"),
        None => attribute[end..].trim_start_matches(": ").to_owned(),
    };
    Some((attribute[..end].to_owned(), declaration))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_that_come_go_and_change_are_named() {
        let old = "schema A:\n    r\"\"\"\n    schema X:\n        a: b\n    \"\"\"\n    a?: str\n    b: int\n    \"c-d\"?: str\n\n    check:\n        len(a) <= 2 if a not in [None, Undefined], \"a must have at most 2 items\"\n";
        let new = "schema A:\n    a: str\n    \"c-d\"?: str\n    e?: {str:any}\n\n    check:\n        len(a) <= 3 if a not in [None, Undefined], \"a must have at most 3 items\"\n\nschema B:\n    a: str\n";
        let said: Vec<_> = differences(old, new)
            .iter()
            .map(|found| {
                format!(
                    "{} {} {}",
                    found.schema,
                    found.property,
                    match &found.change {
                        PropertyChange::Added { .. } => "added".to_owned(),
                        PropertyChange::Removed { .. } => "removed".to_owned(),
                        PropertyChange::Changed { from, to } => format!("{from} -> {to}"),
                    }
                )
            })
            .collect();
        assert_eq!(
            said,
            [
                "A a optional str -> str",
                "A b removed",
                "A check a must have at most 2 items removed",
                "A check a must have at most 3 items added",
                "A e added",
                "B  added",
                "B a added",
            ]
        );
        assert_eq!(differences(old, old), []);
    }
}
