//! The variants of stacks for tests with `with.options`, in rounds: each round has at most one variant of a stack.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::test_files::FoundTest;
use konverge_base::{
    error::UserError,
    model::{
        RepoPath,
        stack::Stack,
        stack_test::{StackTestFailure, StackTestResult},
    },
};
use konverge_repo::affected::option_reads;
use konverge_run::OpenRevision;

/// A stack with the options of its tests.
pub(super) struct Variant<'a> {
    pub(super) stack: Stack,
    pub(super) tests: Vec<FoundTest<'a>>,
}

/// Returns the rounds, the first with the stacks as they are, and the results of tests that are not run because no file
/// reads their options.
///
/// # Errors
/// A file cannot be read.
pub(super) fn plan<'a>(
    workspace: &OpenRevision,
    tests: Vec<FoundTest<'a>>,
) -> Result<(Vec<Vec<Variant<'a>>>, Vec<StackTestResult>), UserError> {
    let mut unread = Vec::new();
    // By the folder of the stack, and by the options as text.
    let mut stacks: BTreeMap<&RepoPath, BTreeMap<String, Variant<'a>>> = BTreeMap::new();
    for found in tests {
        let options = &found.test.options;
        if let Some(option) = unread_option(workspace, found.stack, options)? {
            let why =
                format!("no file of the stack reads the option `{option}`, so setting it changes nothing");
            unread.push(found.error(StackTestFailure::new(found.test.line, why)));
            continue;
        }
        let key = if options.is_empty() {
            String::new()
        } else {
            Value::Object(options.clone()).to_string()
        };
        let variants = stacks.entry(&found.stack.folder).or_default();
        let variant = variants.entry(key).or_insert_with(|| Variant {
            stack: with_options(found.stack, options),
            tests: Vec::new(),
        });
        variant.tests.push(found);
    }
    let mut rounds: Vec<Vec<Variant<'a>>> = vec![Vec::new()];
    for variants in stacks.into_values() {
        let mut round = 1;
        for (key, variant) in variants {
            let at = if key.is_empty() { 0 } else { round };
            round += usize::from(at > 0);
            if rounds.len() <= at {
                rounds.push(Vec::new());
            }
            rounds[at].push(variant);
        }
    }
    Ok((rounds, unread))
}

/// Returns a stack with options that replace its own.
pub(super) fn with_options(stack: &Stack, options: &Map<String, Value>) -> Stack {
    let mut stack = stack.clone();
    if let Ok(setup) = &mut stack.compile {
        setup.options.retain(|(key, _)| !options.contains_key(key));
        let added = options.iter().map(|(key, value)| (key.clone(), value.clone()));
        setup.options.extend(added);
    }
    stack
}

/// Returns an option that the stack does not set and that no file reads.
fn unread_option<'o>(
    workspace: &OpenRevision,
    stack: &Stack,
    options: &'o Map<String, Value>,
) -> Result<Option<&'o String>, UserError> {
    let Ok(setup) = &stack.compile else {
        return Ok(None);
    };
    let is_set = |name: &str| setup.options.iter().any(|(known, _)| known == name);
    let mut unset: BTreeSet<&String> = options.keys().filter(|name| !is_set(name)).collect();
    if unset.is_empty() {
        return Ok(None);
    }
    let files = workspace.analysis.closure(stack)?.files;
    for file in files.iter().filter(|file| file.path.file_name().ends_with(".k")) {
        let content = workspace.source.read(file.blob);
        let content = content?;
        for read in option_reads(&content) {
            unset.remove(&read.name);
        }
    }
    Ok(unset.into_iter().next())
}
