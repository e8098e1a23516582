//! Finds changes of the generated models of `models.sources`: properties that are added or removed, and the stacks that
//! import them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use crate::{OpenRevision, RunContext};
use konverge_base::{
    error::chain,
    model::{
        RepoPath, StackId,
        affected::{Affected, AffectedStack, InputChange},
        file_source::{Source, SourceError},
        model_change::{ModelChange, ModelPackageChange, ModelPropertyChange},
    },
};
use konverge_config::{Config, ModelSourceConfig};
use konverge_models::{HEAD, ModelDifference, PropertyChange, differences};

/// The import records of one folder, at the base and at the head.
#[derive(Default)]
struct Records {
    base: Option<ModelSourceConfig>,
    head: Option<ModelSourceConfig>,
}

/// Returns the changes by folder; empty without a base. A file that cannot be read gets a note and does not stop the
/// preview.
pub fn find(
    run: &RunContext,
    base: Option<&OpenRevision>,
    head: &OpenRevision,
    affected: &Affected,
) -> Vec<ModelChange> {
    let Some(base) = base else {
        return Vec::new();
    };
    let found = compare(base, head, affected);
    found.unwrap_or_else(|error| {
        run.notes.warning(&format!(
            "a generated model could not be read, so the preview does not say what changes in models: {}",
            chain(&error)
        ));
        Vec::new()
    })
}

/// Compares the models of two revisions by folder. A file belongs to the nearest import record above it.
fn compare(
    base: &OpenRevision,
    head: &OpenRevision,
    affected: &Affected,
) -> Result<Vec<ModelChange>, SourceError> {
    let (was, is) = (base.source.as_ref(), head.source.as_ref());
    let records = records(was, is);
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let mut packages: BTreeMap<RepoPath, BTreeMap<RepoPath, BTreeSet<RepoPath>>> = BTreeMap::new();
    for file in different_files(was, is) {
        let folder = file.ancestors().find(|above| records.contains_key(above));
        if let (Some(folder), Some(package)) = (folder, file.parent()) {
            let packages = packages.entry(folder).or_default();
            packages.entry(package).or_default().insert(file);
        }
    }
    let changed = packages.values().flat_map(BTreeMap::values).flatten().collect();
    let imported = imported_files(base, head, affected, &changed);
    let mut changes = Vec::new();
    for (folder, records) in records {
        let mut change = record_change(folder, records);
        for (package, files) in packages.get(&change.folder).into_iter().flatten() {
            let users = imported
                .iter()
                .filter(|(_, imported)| !imported.is_disjoint(files));
            let stacks = users.map(|(stack, _)| stack.clone()).collect();
            let found = package_change(was, is, package, files)?;
            change
                .packages
                .extend(found.map(|found| ModelPackageChange { stacks, ..found }));
        }
        if change.record.is_some() || !change.packages.is_empty() {
            changes.push(change);
        }
    }
    Ok(changes)
}

/// Reads the import records of both revisions, by folder. An unreadable configuration counts as one without records.
fn records(base: &dyn Source, head: &dyn Source) -> BTreeMap<RepoPath, Records> {
    let sources = |revision: &dyn Source| Config::load(revision).unwrap_or_default().models.sources;
    let mut records: BTreeMap<RepoPath, Records> = BTreeMap::new();
    for entry in sources(base) {
        if let Some(folder) = entry.folder() {
            records.entry(folder).or_default().base = Some(entry);
        }
    }
    for entry in sources(head) {
        if let Some(folder) = entry.folder() {
            records.entry(folder).or_default().head = Some(entry);
        }
    }
    records
}

/// Returns the KCL files whose content differs, or that only one revision has.
fn different_files(base: &dyn Source, head: &dyn Source) -> BTreeSet<RepoPath> {
    let (was, is) = (base.files(), head.files());
    let new = is.iter().filter(|(path, entry)| was.get(*path) != Some(*entry));
    let gone = was.iter().filter(|(path, _)| !is.contains_key(*path));
    let all = new.chain(gone).map(|(path, _)| path);
    all.filter(|path| path.as_str().ends_with(".k"))
        .cloned()
        .collect()
}

fn record_change(folder: RepoPath, records: Records) -> ModelChange {
    let (was, is) = (records.base, records.head);
    let record = match (&was, &is) {
        (None, _) => Some(InputChange::Added),
        (_, None) => Some(InputChange::Removed),
        (Some(was), Some(is)) => (was != is).then_some(InputChange::Modified),
    };
    let sources = is.as_ref().or(was.as_ref()).map(|entry| entry.from.clone());
    ModelChange {
        folder,
        sources: sources.unwrap_or_default(),
        record,
        from_version: was.and_then(|entry| entry.version),
        to_version: is.and_then(|entry| entry.version),
        packages: Vec::new(),
    }
}

/// Returns the change of one package; `None` if no generated file is among the files. All files of a package are
/// compared together, because a schema moves to another file when a second kind starts to use it.
fn package_change(
    base: &dyn Source,
    head: &dyn Source,
    package: &RepoPath,
    files: &BTreeSet<RepoPath>,
) -> Result<Option<ModelPackageChange>, SourceError> {
    let (was, is) = generated_texts(base, head, files)?;
    let has_any = |revision: &dyn Source| has_kcl_file(revision, package);
    let change = match (was.is_empty(), is.is_empty()) {
        (true, true) => return Ok(None),
        (true, false) if !has_any(base) => InputChange::Added,
        (false, true) if !has_any(head) => InputChange::Removed,
        _ => InputChange::Modified,
    };
    let properties = match change {
        InputChange::Modified => property_changes(&was, &is),
        InputChange::Added | InputChange::Removed => Vec::new(),
    };
    Ok(Some(ModelPackageChange {
        package: package.clone(),
        change,
        properties,
        stacks: Vec::new(),
    }))
}

fn has_kcl_file(source: &dyn Source, package: &RepoPath) -> bool {
    let below = source.files().range(package.child("")..);
    below
        .take_while(|(file, _)| file.is_within(package))
        .any(|(file, _)| file.parent().as_ref() == Some(package) && file.as_str().ends_with(".k"))
}

/// Returns the generated files at the base and at the head, each revision as one text. A file counts if an import wrote
/// it at the base or at the head.
fn generated_texts(
    base: &dyn Source,
    head: &dyn Source,
    files: &BTreeSet<RepoPath>,
) -> Result<(String, String), SourceError> {
    let (mut was, mut is) = (String::new(), String::new());
    for file in files {
        let texts = [text(base, file)?, text(head, file)?];
        if texts.iter().any(|text| text.starts_with(HEAD)) {
            let _ = writeln!(was, "{}", texts[0]);
            let _ = writeln!(is, "{}", texts[1]);
        }
    }
    Ok((was.trim_end().to_owned(), is.trim_end().to_owned()))
}

/// Returns the text of a file; empty if the file does not exist.
fn text(source: &dyn Source, file: &RepoPath) -> Result<String, SourceError> {
    let content = source.read_path(file)?;
    let text = content.map(|content| String::from_utf8_lossy(&content).into_owned());
    Ok(text.unwrap_or_default())
}

/// Returns the differences between two texts. The properties of a schema that is new or gone are not listed.
fn property_changes(was: &str, is: &str) -> Vec<ModelPropertyChange> {
    let found = differences(was, is);
    let whole: BTreeSet<&str> = found
        .iter()
        .filter(|one| one.property.is_empty())
        .map(|one| one.schema.as_str())
        .collect();
    let listed = found
        .iter()
        .filter(|one| one.property.is_empty() || !whole.contains(one.schema.as_str()));
    listed.map(property_change).collect()
}

fn property_change(found: &ModelDifference) -> ModelPropertyChange {
    let (from, to) = match &found.change {
        PropertyChange::Added { to } => (None, Some(to.clone())),
        PropertyChange::Removed { from } => (Some(from.clone()), None),
        PropertyChange::Changed { from, to } => (Some(from.clone()), Some(to.clone())),
    };
    let check = found.property.strip_prefix("check ").map(str::to_owned);
    let property = (check.is_none() && !found.property.is_empty()).then(|| found.property.clone());
    ModelPropertyChange {
        schema: found.schema.clone(),
        property,
        check,
        from,
        to,
    }
}

/// Returns the changed files that each affected stack imports. An added or removed stack has no reasons that name
/// files, so its imports are looked up.
fn imported_files(
    base: &OpenRevision,
    head: &OpenRevision,
    affected: &Affected,
    changed: &BTreeSet<&RepoPath>,
) -> Vec<(StackId, BTreeSet<RepoPath>)> {
    let imported = |revision: &OpenRevision, stack: &AffectedStack| {
        let closure = revision
            .layout
            .stack_near(&stack.stack, &stack.id)
            .map(|stack| revision.analysis.closure(stack));
        // A stack whose imports cannot be resolved fails in the plan anyway.
        let files = closure.and_then(Result::ok).unwrap_or_default().files;
        files.into_iter().map(|file| file.path).collect::<Vec<_>>()
    };
    let stacks = affected.stacks.iter().map(|stack| {
        let files = match stack.change {
            InputChange::Added => imported(head, stack),
            InputChange::Removed => imported(base, stack),
            InputChange::Modified => stack.why.iter().map(|reason| reason.path.clone()).collect(),
        };
        let files = files.into_iter().filter(|file| changed.contains(file));
        (stack.id.clone(), files.collect())
    });
    stacks.collect()
}
