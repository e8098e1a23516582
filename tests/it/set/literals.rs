//! Every literal of the example, and of the published Konfig: set to another value exactly its line differs, and set
//! back the file has its bytes again. What cannot be set is counted.

use std::{collections::BTreeMap, path::Path};

use konverge_base::model::{RepoPath, stack::Stack};
use konverge_code_change::{CodeEditor, EditPlace};
use konverge_kcl::{AssignedValue, Assignment, Formatting, Pool, literal};
use konverge_repo::git;
use konverge_run::{ComparedRevisions, RevisionSpec, compiler::Compilers};
use serde_json::{Value, json};

use super::context;
use crate::support::{git::Repository, process::binary};

/// How many literals were set, and why others were not.
#[derive(Debug, Default)]
struct Count {
    set: usize,
    /// Set back in the core's format, which the file did not have.
    formatted: usize,
    refused: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

/// Another value of the same type, as KCL.
pub(super) fn other(value: &AssignedValue, text: &str) -> String {
    match value {
        AssignedValue::Literal(Some(Value::String(known))) if !known.contains('\n') => {
            literal(&json!(format!("{known}-other"))).unwrap()
        }
        AssignedValue::Literal(Some(Value::Bool(known))) => literal(&json!(!known)).unwrap(),
        AssignedValue::Literal(Some(Value::Number(known))) => match known.as_i64() {
            Some(known) => (known + 1).to_string(),
            None => "2.5".to_owned(),
        },
        _ if text.starts_with('[') => "[\"other\"]".to_owned(),
        _ if text.starts_with('{') => "{other = \"other\"}".to_owned(),
        _ => "\"other\"".to_owned(),
    }
}

/// The lines of `after` instead of which `before` has others, as two numbers.
fn differing_lines(before: &str, after: &str) -> (usize, usize) {
    let (before, after): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let start = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let end = before[start..]
        .iter()
        .rev()
        .zip(after[start..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    (before.len() - start - end, after.len() - start - end)
}

async fn sweep(repository: &Repository) -> Count {
    let run = context(repository);
    let git = git::Repository::discover(repository.path()).unwrap();
    let revisions = ComparedRevisions::open(&run, &git, &RevisionSpec::Worktree, None).unwrap();
    let compilers = Compilers::new(&run, &revisions.head.config).with_executable(binary());
    let pool = compilers.pool(revisions.head.analysis.core()).await.unwrap();
    let mut count = Count::default();
    let mut seen = std::collections::BTreeSet::new();
    for (stack, place, path) in program_files(repository, &revisions) {
        if !seen.insert(path) {
            continue;
        }
        let text = repository.read(path.as_str());
        let parsed = pool.parse(path, &text).await.unwrap();
        for at in &parsed.assignments {
            if at.value == AssignedValue::Block {
                continue;
            }
            let file = (path, text.as_str());
            let value = parsed.value_text(at);
            let editor = CodeEditor::new(&run, &revisions, &compilers);
            turn((editor, &pool), (stack, place), file, (at, value), &mut count).await;
        }
    }
    count
}

/// Each stack with each file of its program that it or its project has.
pub(super) fn program_files<'r>(
    repository: &Repository,
    revisions: &'r ComparedRevisions,
) -> Vec<(&'r Stack, EditPlace, &'r RepoPath)> {
    let mut found = Vec::new();
    for stack in &revisions.head.layout.stacks {
        let entries = stack.compile.iter().flat_map(|setup| &setup.entries);
        for path in entries.map(|entry| &entry.path) {
            let place = if path.is_within(&stack.folder) {
                EditPlace::Stack
            } else if path.is_within(&stack.project_folder) {
                EditPlace::Base
            } else {
                continue;
            };
            if repository.path().join(path.as_str()).is_file() {
                found.push((stack, place, path));
            }
        }
    }
    found
}

/// Sets one attribute and sets it back.
async fn turn(
    (mut editor, pool): (CodeEditor<'_>, &Pool),
    (stack, place): (&Stack, EditPlace),
    (path, text): (&RepoPath, &str),
    (at, value): (&Assignment, &str),
    count: &mut Count,
) {
    let name = format!("{path}:{} {}", at.line, at.path);
    let new = other(&at.value, value);
    if let Err(refused) = editor.set_attribute(stack, &at.path, &new, place).await {
        let reason = match &at.value {
            AssignedValue::Computed => "computed",
            AssignedValue::Conditional => "conditional",
            _ if refused.message.contains("places") => "set in several places",
            _ => "other",
        };
        *count.refused.entry(reason.to_owned()).or_default() += 1;
        if reason == "other" {
            count.wrong.push(format!("{name}: {refused}"));
        }
        return;
    }
    let edited = String::from_utf8(editor.edited(path).unwrap().to_vec()).unwrap();
    let lines = value.lines().count();
    let (removed, added) = differing_lines(text, &edited);
    if removed > lines || removed == 0 || added == 0 || lines == 1 && added != 1 {
        count
            .wrong
            .push(format!("{name}: {removed} lines became {added}"));
    }
    match editor.set_attribute(stack, &at.path, value, place).await {
        Ok(_) => {
            let back = editor.edited(path);
            // The other value may leave a file in the core's format, which then keeps it.
            let formatted = match pool.formatting(path, text).await {
                Ok(Formatting::Unformatted(formatted)) => Some(formatted),
                _ => None,
            };
            match back.as_deref() {
                Some(back) if back == text.as_bytes() => count.set += 1,
                Some(back) if formatted.as_deref().map(str::as_bytes) == Some(back) => count.formatted += 1,
                _ => count
                    .wrong
                    .push(format!("{name}: other bytes after it was set back")),
            }
        }
        Err(refused) => count.wrong.push(format!("{name}: back: {refused}")),
    }
}

fn numbers(count: &Count) -> String {
    let refused = count.refused.iter();
    let mut all = vec![format!("{} set", count.set)];
    if count.formatted > 0 {
        all.push(format!("{} set and formatted", count.formatted));
    }
    all.extend(refused.map(|(reason, number)| format!("{number} {reason}")));
    all.join(", ")
}

/// Nothing went wrong, and the guide has the numbers.
fn check_guide(count: &Count) {
    assert!(count.wrong.is_empty(), "{}", count.wrong.join("\n"));
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guides/code-changes.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let numbers = format!(": {}\n", numbers(count));
    assert!(guide.contains(&numbers), "the guide should say{numbers}");
}

#[tokio::test]
async fn each_literal_of_the_example_changes_its_line_and_goes_back() {
    check_guide(&sweep(&Repository::konfig_example()).await);
}

/// `KONFIG=DIR cargo test … -- --ignored published`, with a clone of github.com/KusionStack/konfig. `KONFIG_REVISION`
/// names another commit than its HEAD: the guide has the numbers of two.
#[tokio::test]
#[ignore = "needs a clone of the published Konfig in KONFIG"]
async fn each_literal_of_the_published_konfig_changes_its_line_and_goes_back() {
    let source = std::env::var("KONFIG").expect("KONFIG names a clone");
    let revision = std::env::var("KONFIG_REVISION").unwrap_or_else(|_| "refs/konfig/HEAD".to_owned());
    let repository = Repository::init();
    repository.git([
        "fetch",
        "--quiet",
        &source,
        "+HEAD:refs/konfig/HEAD",
        "+refs/*:refs/konfig/*",
    ]);
    repository.git(["reset", "--quiet", "--hard", &revision]);
    check_guide(&sweep(&repository).await);
}
