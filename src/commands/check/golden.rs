//! Golden files: `ci-test/stdout.golden.yaml` has the Spec of a stack. It is compared by meaning with the output of
//! `konverge build`.

use std::{borrow::Cow, collections::BTreeSet, path::Path};

use serde_json::Value;

use super::{
    super::selected_stacks::SelectedStacks,
    checked_files::replace,
    golden_text,
    spec_equality::{comparable, is_same, is_same_resource},
};
use konverge_base::{
    error::UserError,
    model::{
        RepoPath, diff,
        lint::{Diagnostic, LintRule},
        masked_value,
        spec::{Resource, Spec},
        stack::Stack,
    },
};
use konverge_engine::spec;
use konverge_report as report;
use konverge_run::OpenRevision;
use konverge_secrets::{Secrets, mask_resource};

const FILE: &str = "stdout.golden.yaml";

/// The maximum number of resources that a message names.
const RESOURCES: usize = 5;

/// The maximum number of fields that a message names of one resource.
const FIELDS: usize = 3;

/// The maximum number of characters of a value in a message.
const VALUE: usize = 60;

/// Returns the path of the golden file of a stack.
pub(super) fn path_of(stack: &Stack) -> RepoPath {
    stack.folder.child("ci-test").child(FILE)
}

/// The golden files of a revision.
pub(super) struct GoldenFiles<'a> {
    workspace: &'a OpenRevision,
    root: &'a Path,
    secrets: &'a Secrets,
}

impl<'a> GoldenFiles<'a> {
    /// Creates the golden files of a revision whose files are below `root`.
    pub(super) fn new(workspace: &'a OpenRevision, root: &'a Path, secrets: &'a Secrets) -> Self {
        Self {
            workspace,
            root,
            secrets,
        }
    }

    fn read(&self, path: &RepoPath) -> Result<Option<String>, UserError> {
        let content = self.workspace.source.read_path(path);
        let content = content?;
        Ok(content.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Compares the output of `build` for a stack with its golden file.
    pub(super) fn compare(&self, stack: &Stack, printed: &Spec) -> Result<Option<Diagnostic>, UserError> {
        let path = path_of(stack);
        let Some(text) = self.read(&path)? else {
            return Ok(None);
        };
        let Some(differences) = self.differences(&text, &path, printed) else {
            return Ok(None);
        };
        let message = format!("differs from the compiled Spec:\n{differences}");
        let hint = format!(
            "if the new result is right: `konverge check --update {}`",
            stack.folder
        );
        Ok(Some(
            Diagnostic::new(&path, LintRule::Golden, &message).hint(hint),
        ))
    }

    fn differences(&self, text: &str, path: &RepoPath, printed: &Spec) -> Option<String> {
        match spec::read_text(text, path.as_str()) {
            Ok(golden) if is_same(&golden, printed) => None,
            Ok(golden) => Some(describe(&golden, printed, self.secrets)),
            // The finding has the place.
            Err(error) => Some(error.error.message),
        }
    }

    /// Writes the golden file of a stack in its present layout, if it differs from the output of `build`. Returns its
    /// path if it was written.
    pub(super) fn update(&self, stack: &Stack, printed: &Spec) -> Result<Option<RepoPath>, UserError> {
        let Some((path, text)) = self.updated(stack, printed)? else {
            return Ok(None);
        };
        let written = replace(self.root, &path, &text);
        written.map_err(|error| error.context("the golden file is not written"))?;
        Ok(Some(path))
    }

    /// Returns the golden file of a stack with its new text, if it differs from the output of `build`.
    pub(super) fn updated(
        &self,
        stack: &Stack,
        printed: &Spec,
    ) -> Result<Option<(RepoPath, String)>, UserError> {
        let path = path_of(stack);
        let text = self.read(&path)?;
        if let Some(text) = &text
            && self.differences(text, &path, printed).is_none()
        {
            return Ok(None);
        }
        let like = match &text {
            Some(_) => None,
            None => self.any_golden()?,
        };
        let text = golden_text::write(text.as_deref(), like.as_deref(), printed);
        Ok(Some((path, text)))
    }

    fn any_golden(&self) -> Result<Option<String>, UserError> {
        let files = self.workspace.source.files();
        let mut stacks = self.workspace.layout.stacks.iter().map(path_of);
        let first = stacks.find(|path| files.contains_key(path));
        first.map_or(Ok(None), |path| self.read(&path))
    }
}

/// Reports stacks without a golden file: an error if the change deleted the file, a warning if most stacks have one.
pub(super) fn find_missing(selected: &SelectedStacks, stacks: &[Stack]) -> Vec<Diagnostic> {
    let head = &selected.workspace;
    let has =
        |workspace: &OpenRevision, stack: &Stack| workspace.source.files().contains_key(&path_of(stack));
    let all = &head.layout.stacks;
    let with: BTreeSet<&RepoPath> = all
        .iter()
        .filter(|stack| has(head, stack))
        .map(|stack| &stack.folder)
        .collect();
    let usual = 2 * with.len() > all.len();
    let mut found = Vec::new();
    for stack in stacks.iter().filter(|stack| !with.contains(&stack.folder)) {
        let deleted = selected.base.as_ref().is_some_and(|base| {
            let before = head.layout.predecessor_of(&base.layout, stack);
            before.is_some_and(|before| has(base, before))
        });
        let missing = |message: &str| Diagnostic::new(&path_of(stack), LintRule::Golden, message);
        let missing = if deleted {
            missing("was deleted, but the stack still exists")
        } else if usual {
            missing(&format!(
                "does not exist; {} of {} stacks {} a golden file",
                with.len(),
                all.len(),
                if with.len() == 1 { "has" } else { "have" }
            ))
            .warning()
        } else {
            continue;
        };
        found.push(missing.hint(format!(
            "`konverge check --update {}` writes the golden file",
            stack.folder
        )));
    }
    found
}

/// Lists the resources and fields that differ, a line each. Secret values are not shown.
fn describe(golden: &Spec, printed: &Spec, secrets: &Secrets) -> String {
    let find = |spec: &'_ Spec, wanted: &Resource| -> Option<Resource> {
        spec.resources.iter().find(|found| found.id == wanted.id).cloned()
    };
    let mut lines = Vec::new();
    for resource in &printed.resources {
        match find(golden, resource) {
            None => lines.push(format!("+ {}: the golden file does not have it", resource.id)),
            Some(old) if is_same_resource(&old, resource) => {}
            Some(old) => lines.push(format!("~ {}: {}", resource.id, fields(&old, resource, secrets))),
        }
    }
    for resource in golden
        .resources
        .iter()
        .filter(|gone| find(printed, gone).is_none())
    {
        lines.push(format!("- {}: only the golden file has it", resource.id));
    }
    let more = lines.len().saturating_sub(RESOURCES);
    lines.truncate(RESOURCES);
    if more > 0 {
        lines.push(format!("and {}", report::plural(more, "more resource")));
    }
    lines.join("\n")
}

fn fields(old: &Resource, new: &Resource, secrets: &Secrets) -> String {
    let masked = |resource: &Resource| secrets.mask_value(&comparable(&mask_resource(secrets, resource)));
    let all = diff::differences(&masked(old), &masked(new));
    if all.is_empty() {
        return "a secret value differs".to_owned();
    }
    let mut words: Vec<String> = all
        .iter()
        .take(FIELDS)
        .map(|found| {
            let path = report::diff::dotted(&found.path);
            // If one side has a secret at this path, both sides are hidden.
            if [&found.from, &found.to]
                .into_iter()
                .flatten()
                .any(masked_value::holds_secret)
            {
                return format!("{path}: (secret, changed)");
            }
            let side = |value: &Option<Value>| value.as_ref().map_or(Cow::Borrowed("(none)"), show);
            format!("{path}: {} → {}", side(&found.from), side(&found.to))
        })
        .collect();
    if all.len() > FIELDS {
        words.push(report::plural(all.len() - FIELDS, "more field"));
    }
    words.join("; ")
}

fn show(value: &Value) -> Cow<'static, str> {
    let text = value.to_string();
    match text.char_indices().nth(VALUE) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Owned(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_secrets::HashKey;

    fn spec(data: &str) -> Spec {
        let text = format!(
            "- id: v1:ConfigMap:ns:a\n  type: Kubernetes\n  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: a, namespace: ns}}, {data}}}\n"
        );
        spec::read_text(&text, "f").unwrap()
    }

    #[test]
    fn a_place_that_is_secret_on_one_side_shows_neither() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let resource = |data: Value| {
            let mut spec = spec("data: {}");
            spec.resources[0].attributes.insert("data".to_owned(), data);
            spec
        };
        let golden = resource(serde_json::json!({"password": {"hunter2": "1"}, "list": [{"hunter2": "1"}]}));
        let printed =
            resource(serde_json::json!({"password": "other-secret", "list": [{"password": "other-secret"}]}));
        let said = describe(&golden, &printed, &secrets);
        assert!(said.contains("data.password: (secret, changed)"), "{said}");
        assert!(
            !said.contains("hunter2") && !said.contains("other-secret"),
            "{said}"
        );
    }

    #[test]
    fn a_difference_names_the_resource_and_its_fields_and_no_secret() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let said = |old: &str, new: &str| describe(&spec(old), &spec(new), &secrets);
        assert_eq!(
            said("data: {a: '1'}", "data: {a: '2', b: x}"),
            "~ v1:ConfigMap:ns:a: data.a: \"1\" → \"2\"; data.b: (none) → \"x\""
        );
        let secret = said("password: hunter2-hunter2", "password: other-hunter2");
        assert!(
            !secret.contains("hunter2") && secret.contains("password"),
            "{secret}"
        );
        let empty = Spec::default();
        assert!(describe(&empty, &spec("data: {}"), &secrets).starts_with("+ v1:ConfigMap:ns:a"));
        assert!(describe(&spec("data: {}"), &empty, &secrets).starts_with("- v1:ConfigMap:ns:a"));
    }
}
