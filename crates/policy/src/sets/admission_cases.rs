//! The tests of policies and constraints, in the form of `gator verify`: a `Suite` names files with an object each, and
//! whether it violates something. The named objects are no part of the set.
//!
//! A test of Gatekeeper names its template and its constraint; without them, and for ValidatingAdmissionPolicies, the
//! whole set is tested. An object of kind `AdmissionReview` tests an update or a deletion.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::{
    admission::AdmissionOutcome,
    rule::{FailedTest, PolicyFile},
};
use konverge_base::model::{
    RepoPath,
    plan::{Action, Basis},
    plan_document::{DOCUMENT_VERSION, DocumentResource, DocumentStack, OtherNames, StackDocument},
    spec::RuntimeKind,
};

const SUITES: &str = "test.gatekeeper.sh/";

#[derive(Deserialize)]
struct Suite {
    #[serde(default)]
    tests: Vec<SuiteTest>,
}

#[derive(Deserialize)]
struct SuiteTest {
    name: String,
    #[serde(default)]
    template: Option<String>,
    #[serde(default)]
    constraint: Option<String>,
    #[serde(default)]
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    object: String,
    /// Other objects, such as Namespaces.
    #[serde(default)]
    inventory: Vec<String>,
    #[serde(default)]
    assertions: Vec<Assertion>,
}

#[derive(Deserialize)]
struct Assertion {
    /// `yes`, `no`, or a number.
    #[serde(default)]
    violations: Value,
    /// A regular expression for the texts that count.
    #[serde(default)]
    message: Option<String>,
}

/// A suite with its file.
pub(super) struct SuiteFile {
    path: String,
    suite: Suite,
}

/// The suites of a set, and the files that remain without them and their objects.
///
/// # Errors
/// A suite has another form.
pub(super) fn split(files: &[PolicyFile]) -> Result<(Vec<SuiteFile>, Vec<PolicyFile>), String> {
    let mut suites = Vec::new();
    let mut apart = BTreeSet::new();
    for file in files.iter().filter(|file| file.text.contains(SUITES)) {
        let documents =
            konverge_base::yaml::documents(&file.text).map_err(|error| format!("{}: {error}", file.path))?;
        for document in documents {
            let api_version = document["apiVersion"].as_str().unwrap_or_default();
            if document["kind"] != "Suite" || !api_version.starts_with(SUITES) {
                continue;
            }
            let suite: Suite =
                serde_json::from_value(document).map_err(|error| format!("{}: {error}", file.path))?;
            apart.insert(file.path.clone());
            let cases = suite.tests.iter().flat_map(|test| &test.cases);
            let named = cases.flat_map(|case| std::iter::once(&case.object).chain(&case.inventory));
            apart.extend(named.map(|path| beside(&file.path, path)));
            suites.push(SuiteFile {
                path: file.path.clone(),
                suite,
            });
        }
    }
    let rest = files.iter().filter(|file| !apart.contains(&file.path));
    Ok((suites, rest.cloned().collect()))
}

/// The outcomes of rules for a document.
pub(super) type Judge = Box<dyn for<'d> Fn(&'d StackDocument) -> Vec<AdmissionOutcome<'d>>>;

/// The cases that end otherwise than they say. `load` reads rules from files.
pub(super) fn failed(
    files: &[PolicyFile],
    per_test: bool,
    load: impl Fn(&[PolicyFile]) -> Result<Judge, String>,
) -> Vec<FailedTest> {
    let Ok((suites, rest)) = split(files) else {
        // The set could not be read either.
        return Vec::new();
    };
    let mut found = Vec::new();
    for SuiteFile { path, suite } in &suites {
        for (test, case) in suite
            .tests
            .iter()
            .flat_map(|test| test.cases.iter().map(move |case| (test, case)))
        {
            let result = rules(path, test, case, per_test, (files, &rest))
                .and_then(|rules| load(&rules))
                .and_then(|judge| holds(&judge, &object(files, path, &case.object)?, case));
            if let Err(why) = result {
                found.push(FailedTest {
                    file: path.clone(),
                    name: format!("{}, {}", test.name, case.name),
                    why,
                });
            }
        }
    }
    found
}

/// The files of the rules that a case is about.
fn rules(
    suite: &str,
    test: &SuiteTest,
    case: &Case,
    per_test: bool,
    (files, rest): (&[PolicyFile], &[PolicyFile]),
) -> Result<Vec<PolicyFile>, String> {
    let find = |path: &String| file(files, suite, path).cloned();
    let mut rules = match (&test.template, &test.constraint) {
        (Some(template), Some(constraint)) if per_test => vec![find(template)?, find(constraint)?],
        _ => rest.to_vec(),
    };
    for path in &case.inventory {
        rules.push(find(path)?);
    }
    Ok(rules)
}

fn file<'f>(files: &'f [PolicyFile], suite: &str, path: &str) -> Result<&'f PolicyFile, String> {
    let path = beside(suite, path);
    let found = files.iter().find(|file| file.path == path);
    found.ok_or_else(|| format!("the set has no file {path}"))
}

fn object(files: &[PolicyFile], suite: &str, path: &str) -> Result<StackDocument, String> {
    let file = file(files, suite, path)?;
    let documents =
        konverge_base::yaml::documents(&file.text).map_err(|error| format!("{}: {error}", file.path))?;
    match <[Value; 1]>::try_from(documents) {
        Ok([object]) => Ok(document(object)),
        Err(_) => Err(format!("{}: a case has one object", file.path)),
    }
}

/// Whether the assertions of a case hold.
fn holds(judge: &Judge, document: &StackDocument, case: &Case) -> Result<(), String> {
    if case.assertions.is_empty() {
        return Err("it has no `assertions`".to_owned());
    }
    let outcomes = judge(document).into_iter();
    let texts: Vec<String> = outcomes
        .map(|outcome| match outcome {
            AdmissionOutcome::Found(finding) => finding.message,
            AdmissionOutcome::Undecided(..) => "undecided".to_owned(),
        })
        .collect();
    for assertion in &case.assertions {
        let expression = assertion.message.as_deref().map(regex::Regex::new);
        let expression = expression
            .transpose()
            .map_err(|error| format!("`message`: {error}"))?;
        let counts = |text: &&String| {
            expression
                .as_ref()
                .is_none_or(|expression| expression.is_match(text))
        };
        let count = texts.iter().filter(counts).count();
        let is_meant = match &assertion.violations {
            Value::Null | Value::Bool(true) => count > 0,
            Value::Bool(false) => count == 0,
            Value::String(word) if word == "yes" => count > 0,
            Value::String(word) if word == "no" => count == 0,
            Value::Number(number) => number.as_u64() == Some(count as u64),
            other => return Err(format!("`violations: {other}` is not `yes`, `no` or a number")),
        };
        if !is_meant {
            let all = if texts.is_empty() {
                "none".to_owned()
            } else {
                texts.join("; ")
            };
            return Err(format!("it has {count} such violations; all are: {all}"));
        }
    }
    Ok(())
}

/// A stack with one object, or with the change that an `AdmissionReview` asks for.
fn document(object: Value) -> StackDocument {
    let (action, before, after) = match object["kind"] == "AdmissionReview" {
        false => (Action::Create, None, Some(object)),
        true => {
            let request = &object["request"];
            let some = |key: &str| request.get(key).filter(|value| !value.is_null()).cloned();
            match request["operation"].as_str() {
                Some("DELETE") => (Action::Delete, some("oldObject"), None),
                Some("UPDATE") => (Action::Update, some("oldObject"), some("object")),
                _ => (Action::Create, None, some("object")),
            }
        }
    };
    let any = after.as_ref().or(before.as_ref()).unwrap_or(&Value::Null);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &any["metadata"];
    let mut parts = vec![text(&any["apiVersion"]), text(&any["kind"])];
    parts.extend([&metadata["namespace"], &metadata["name"]].map(text));
    parts.retain(|part| !part.is_empty());
    let kind = text(&any["kind"]);
    let id = parts.join(":").parse().ok();
    let resources = id.map(|id| DocumentResource {
        id,
        runtime: RuntimeKind::Kubernetes,
        kind,
        cluster: None,
        action,
        replace: Vec::new(),
        data_loss: false,
        before,
        after,
        changes: Vec::new(),
        unknown: Vec::new(),
        secret: Vec::new(),
        known_before_write: false,
    });
    StackDocument {
        version: DOCUMENT_VERSION,
        stack: DocumentStack {
            id: "suite/case".parse().expect("it is an identity"),
            folder: RepoPath::root(),
        },
        basis: Basis::Spec,
        known_as: OtherNames::default(),
        hidden: std::collections::BTreeSet::new(),
        resources: resources.into_iter().collect(),
    }
}

/// A path that is written in a file, from the root of the repository.
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
#[path = "admission_cases_tests.rs"]
mod tests;
