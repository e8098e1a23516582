//! Checks the format of KCL files by the core's own formatter. A file that the formatter would break is not changed.

use std::{collections::BTreeMap, path::Path};

use super::{
    CheckedFiles,
    checked_files::{is_kcl, replace},
};
use konverge_base::{
    error::UserError,
    model::{
        Digest, RepoPath,
        digest::DigestBuilder,
        lint::{Diagnostic, LintRule},
        text::first_few,
    },
    variables,
};
use konverge_kcl::{Cache, CacheAccess, FormatFault, FormatVerdict, Formatting, Pool};
use konverge_run::{RunContext, caches, compiler::FileContents};

/// The most files that a note names.
const MOST_NAMED: usize = 3;

/// Files that are not formatted, and those that the formatter would break.
#[derive(Default)]
struct Found<'a> {
    /// The files that the formatter would change, with their texts.
    unformatted: Vec<(&'a RepoPath, &'a str)>,
    /// The files that the formatter would break.
    left: BTreeMap<FormatFault, Vec<&'a RepoPath>>,
}

async fn find<'a>(
    run: &RunContext,
    pool: &Pool,
    files: &'a FileContents,
    checked: &CheckedFiles<'_>,
) -> Found<'a> {
    let cache = verdicts(run);
    let mut found = Found::default();
    for (path, content) in files
        .iter()
        .filter(|(path, _)| is_kcl(path) && checked.is_edited(path))
    {
        // A file that is not UTF-8 is reported where it is compiled.
        let Ok(text) = std::str::from_utf8(content) else {
            continue;
        };
        let key = key(pool, content);
        let verdict = match cache.get_format(&key).await {
            Some(verdict) => verdict,
            None => {
                let Ok(formatting) = pool.formatting(path, text).await else {
                    continue;
                };
                let verdict = formatting.verdict();
                cache.put_format(&key, verdict).await;
                verdict
            }
        };
        match verdict {
            FormatVerdict::Formatted => {}
            FormatVerdict::Unformatted => found.unformatted.push((path, text)),
            FormatVerdict::Untrusted(fault) => found.left.entry(fault).or_default().push(path),
        }
    }
    for (fault, files) in &found.left {
        let named = first_few(files.iter().map(|path| format!("`{path}`")), MOST_NAMED);
        run.notes.note(&format!(
            "not formatted, and left as written, because {fault}: {named}"
        ));
    }
    found
}

/// Opens the cache of format verdicts on this machine. It stores no formatted text, so no text of another person can
/// come from it.
fn verdicts(run: &RunContext) -> Cache {
    let folder = caches::trusted_folder(run).filter(|_| run.var(variables::KONVERGE_CACHE) != Some("off"));
    let folder = folder.map(|folder| folder.join("compile"));
    Cache::new(folder, None, CacheAccess::ReadWrite)
}

/// Returns the key of a verdict, which depends on the content of the file and on the core.
fn key(pool: &Pool, content: &[u8]) -> Digest {
    let mut key = DigestBuilder::new("konverge format 1");
    key.part(pool.core().version.as_bytes()).part(content);
    key.finish()
}

/// Returns one error for each file that is not formatted.
pub(super) async fn check(
    run: &RunContext,
    pool: &Pool,
    files: &FileContents,
    checked: &CheckedFiles<'_>,
) -> Vec<Diagnostic> {
    let found = find(run, pool, files, checked).await.unformatted.into_iter();
    found
        .map(|(path, _)| {
            Diagnostic::new(path, LintRule::Format, "is not formatted")
                .hint("`konverge check --fix` formats the file")
        })
        .collect()
}

/// Formats the files in the checkout, and returns the changed ones.
pub(super) async fn fix(
    run: &RunContext,
    pool: &Pool,
    files: &FileContents,
    checked: &CheckedFiles<'_>,
    root: &Path,
) -> Result<Vec<RepoPath>, UserError> {
    let mut fixed = Vec::new();
    for (path, text) in find(run, pool, files, checked).await.unformatted {
        let Formatting::Unformatted(formatted) = pool.formatting(path, text).await? else {
            continue;
        };
        replace(root, path, &formatted).map_err(|error| error.context("the file is not formatted"))?;
        fixed.push(path.clone());
    }
    Ok(fixed)
}
