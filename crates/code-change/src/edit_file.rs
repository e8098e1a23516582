//! The file of `konverge set --from`: many edits at once.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    code_editor::EditPlace,
    prepared_edits::{EditTarget, WantedEdit},
};
use konverge_base::{
    error::{ErrorKind, SharedError, UserError},
    yaml,
};
use konverge_kcl::{AttributePath, literal};
use konverge_run::StackSelector;

/// One entry of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EditEntry {
    stacks: Vec<String>,
    /// Attributes with plain values.
    #[serde(default)]
    set: BTreeMap<String, Value>,
    /// Images by name.
    #[serde(default)]
    images: BTreeMap<String, String>,
    #[serde(default, rename = "in")]
    place: EditPlace,
}

/// Reads the edits of a file.
///
/// # Errors
/// The file cannot be read, or an entry is wrong.
pub fn read_edits(file: &Path) -> Result<Vec<WantedEdit>, UserError> {
    let name = file.display().to_string();
    let wrong = |why: SharedError| {
        UserError::from_error(ErrorKind::Usage, why).at(name.clone(), None, None).hint(
            "a list of entries such as `{stacks: [storefront/dev], set: {server.image: nginx:1.27}, images: {nginx: nginx:1.27}}`",
        )
    };
    let text = std::fs::read_to_string(file)
        .map_err(|error| wrong(SharedError::from(error).context("the edits cannot be read")))?;
    let entries: Vec<EditEntry> = yaml::from_str(&text).map_err(|error| wrong(error.into()))?;
    let mut edits = Vec::new();
    for entry in entries {
        let stacks = entry.stacks.iter().map(|stack| stack.parse::<StackSelector>());
        let stacks = stacks
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| wrong(error.into()))?;
        if stacks.is_empty() || entry.set.is_empty() && entry.images.is_empty() {
            return Err(wrong("an entry needs `stacks`, and `set` or `images`".into()));
        }
        let mut targets = Vec::new();
        for (path, value) in entry.set {
            let path: AttributePath = path
                .parse()
                .map_err(|error: konverge_kcl::InvalidAttributePath| wrong(error.into()))?;
            let value = literal(&value).ok_or_else(|| {
                wrong(format!("the value for `{path}` cannot be written as a literal of KCL").into())
            })?;
            targets.push(EditTarget::Attribute(path, value));
        }
        let images = entry.images.into_iter();
        targets.extend(images.map(|(name, reference)| EditTarget::Image(name, reference)));
        edits.extend(targets.into_iter().map(|target| WantedEdit {
            stacks: stacks.clone(),
            target,
            place: entry.place,
        }));
    }
    if edits.is_empty() {
        Err(wrong("the file has no edits".into()))
    } else {
        Ok(edits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<WantedEdit>, UserError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("edits.yaml");
        std::fs::write(&file, text).unwrap();
        read_edits(&file)
    }

    #[test]
    fn values_are_plain() {
        let edits =
            read("- stacks: [a/b]\n  set: {s.a: x, s.b: 3}\n  images: {nginx: 'nginx:2'}\n  in: base\n")
                .unwrap();
        let targets: Vec<_> = edits.iter().map(|edit| edit.target.clone()).collect();
        assert_eq!(
            targets,
            [
                EditTarget::Attribute("s.a".parse().unwrap(), "\"x\"".to_owned()),
                EditTarget::Attribute("s.b".parse().unwrap(), "3".to_owned()),
                EditTarget::Image("nginx".to_owned(), "nginx:2".to_owned()),
            ]
        );
        assert!(edits.iter().all(|edit| edit.place == EditPlace::Base));
    }

    #[test]
    fn wrong_files_say_what_is_wrong() {
        for (text, said) in [
            ("[]", "no edits"),
            ("- stacks: []\n  set: {a.b: 1}\n", "needs `stacks`"),
            ("- stacks: [a/b]\n", "`set` or `images`"),
            ("- stacks: [a/b]\n  set: {'a[0]': 1}\n", "item of a list"),
            ("- stacks: [a/b]\n  sets: {a.b: 1}\n", "sets"),
            ("x", "must be a list"),
        ] {
            let failure = read(text).unwrap_err();
            assert!(failure.message.contains(said), "{text}: {}", failure.message);
            assert!(failure.location.is_some());
        }
    }
}
