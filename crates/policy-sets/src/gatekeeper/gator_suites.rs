//! Test suites of `gator verify` in the folder of a set. The suites, and the objects that their cases name, are not
//! part of the set.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::rule::PolicyFile;

const SUITES: &str = "test.gatekeeper.sh/";

/// Returns the files without suites and without the objects of their cases.
///
/// # Errors
/// A file that looks like a suite but is not YAML.
pub(crate) fn without_suites(files: &[PolicyFile]) -> Result<Vec<PolicyFile>, String> {
    let mut apart = BTreeSet::new();
    for file in files.iter().filter(|file| file.text.contains(SUITES)) {
        let documents =
            konverge_base::yaml::documents(&file.text).map_err(|error| format!("{}: {error}", file.path))?;
        for suite in &documents {
            let api_version = suite["apiVersion"].as_str().unwrap_or_default();
            if suite["kind"] == "Suite" && api_version.starts_with(SUITES) {
                apart.insert(file.path.clone());
                let cases = items(&suite["tests"]).flat_map(|test| items(&test["cases"]));
                let named =
                    cases.flat_map(|case| std::iter::once(&case["object"]).chain(items(&case["inventory"])));
                apart.extend(named.filter_map(|path| Some(beside(&file.path, path.as_str()?))));
            }
        }
    }
    let rest = files.iter().filter(|file| !apart.contains(&file.path));
    Ok(rest.cloned().collect())
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Resolves a path in a suite against the suite's folder. Returns it from the root of the repository.
fn beside(file: &str, path: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_and_what_its_cases_name_are_no_part_of_the_set() {
        let file = |path: &str, text: &str| PolicyFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let suite = "kind: Suite\napiVersion: test.gatekeeper.sh/v1alpha1\ntests:\n- name: t\n  cases:\n  - {object: ./open.yaml, inventory: [../spaces/shop.yaml]}\n  - {object: ../../b.yaml}\n";
        let files = [
            file("p/t.yaml", "kind: ConstraintTemplate"),
            file("p/tests/suite.yaml", suite),
            file("p/tests/open.yaml", "kind: Namespace"),
            file("p/spaces/shop.yaml", "kind: Namespace"),
            file("p/spaces/other.yaml", "kind: Namespace"),
            file("b.yaml", "kind: Pod"),
            // This file only mentions suites and is none.
            file(
                "p/text.yaml",
                "kind: ConfigMap\ndata: {a: test.gatekeeper.sh/v1alpha1}",
            ),
        ];
        let rest = without_suites(&files).unwrap();
        let paths: Vec<_> = rest.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["p/t.yaml", "p/spaces/other.yaml", "p/text.yaml"]);
        let broken = file("p/x.yaml", "apiVersion: test.gatekeeper.sh/v1alpha1\nkind: [");
        assert!(without_suites(&[broken]).unwrap_err().starts_with("p/x.yaml: "));
    }
}
