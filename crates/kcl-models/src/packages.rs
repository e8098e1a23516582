//! Distributes roots to files of packages: which schemas are needed, in which file each is, and what a file
//! imports.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    checks::REGEX,
    docs,
    error::ModelError,
    intern::Interner,
    names::file_name,
    schema::{ModelObject, ModelRoot, ModelType, PackageName, SchemaName},
    writer::{TypeNames, alias, write_schema},
};

/// The options of the generator.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GenerateOptions {
    /// The selected kinds; empty for all.
    pub only: Vec<String>,
    /// The import path of the folder with the models, such as `base.pkg.argo`.
    pub import_path: String,
}

/// The files by their path below the folder of the models.
pub type ModelFiles = BTreeMap<String, String>;

/// The first line of each file.
pub const HEAD: &str = "# Written by `konverge models import`. An edit is lost at the next import.";

/// The file for schemas that several kinds of the package, or other packages, use.
const COMMON: &str = "common.k";

/// Generates the files for roots. The same roots and options give the same bytes.
///
/// # Errors
/// An unknown kind, two kinds with the same file, or packages that would import each other.
pub fn generate(roots: Vec<ModelRoot>, options: &GenerateOptions) -> Result<ModelFiles, ModelError> {
    let reached = reach(roots, &options.only)?;
    check_cycles(&reached)?;
    let mut packages: BTreeMap<PackageName, Vec<ModelRoot>> = BTreeMap::new();
    for root in reached.into_values() {
        packages.entry(root.name.package.clone()).or_default().push(root);
    }
    let mut files = ModelFiles::new();
    for (package, roots) in packages {
        for (name, text) in write_package(&package, roots, options)? {
            files.insert(format!("{}/{name}", package.0.join("/")), text);
        }
    }
    Ok(files)
}

/// Returns the selected kinds and all schemas that they use.
fn reach(roots: Vec<ModelRoot>, only: &[String]) -> Result<BTreeMap<SchemaName, ModelRoot>, ModelError> {
    let mut all: BTreeMap<SchemaName, ModelRoot> =
        roots.into_iter().map(|root| (root.name.clone(), root)).collect();
    let kinds: BTreeSet<&String> = all.values().filter_map(|root| root.kind.as_ref()).collect();
    for wanted in only {
        if !kinds.contains(wanted) {
            let lower = wanted.to_lowercase();
            let known = kinds
                .iter()
                .filter(|kind| kind.to_lowercase().contains(&lower))
                .take(5);
            return Err(ModelError::UnknownKind {
                kind: wanted.clone(),
                known: known.map(|kind| (*kind).clone()).collect(),
            });
        }
    }
    let is_wanted = |root: &ModelRoot| {
        root.kind
            .as_ref()
            .is_some_and(|kind| only.is_empty() || only.contains(kind))
    };
    let mut queue: Vec<SchemaName> = all
        .values()
        .filter(|root| is_wanted(root))
        .map(|root| root.name.clone())
        .collect();
    if queue.is_empty() {
        return Err(ModelError::Nothing("kind"));
    }
    let mut reached = BTreeMap::new();
    while let Some(name) = queue.pop() {
        let Some(mut root) = all.remove(&name) else {
            continue;
        };
        queue.extend(named(&root.object));
        // A kind that is included only because a selected one uses it is treated as a plain definition.
        if !is_wanted(&root) {
            root.kind = None;
        }
        reached.insert(name, root);
    }
    Ok(reached)
}

fn named(object: &ModelObject) -> BTreeSet<SchemaName> {
    let mut names = BTreeSet::new();
    object.visit(&mut |kind| {
        if let ModelType::Schema(name) = kind {
            names.insert(name.clone());
        }
    });
    names
}

/// Returns an error if packages would import each other, which KCL does not allow.
fn check_cycles(reached: &BTreeMap<SchemaName, ModelRoot>) -> Result<(), ModelError> {
    let mut imports: BTreeMap<PackageName, BTreeSet<PackageName>> = BTreeMap::new();
    for root in reached.values() {
        let package = &root.name.package;
        let others = named(&root.object).into_iter().map(|name| name.package);
        imports
            .entry(package.clone())
            .or_default()
            .extend(others.filter(|other| other != package));
    }
    // Removes packages without imports until none is left. The remaining packages are in or behind a cycle.
    loop {
        let free: Vec<_> = imports
            .iter()
            .filter(|(_, uses)| uses.is_empty())
            .map(|(name, _)| name.clone())
            .collect();
        if free.is_empty() {
            break;
        }
        for package in free {
            imports.remove(&package);
            imports.values_mut().for_each(|uses| {
                uses.remove(&package);
            });
        }
    }
    if imports.is_empty() {
        Ok(())
    } else {
        Err(ModelError::Cycle(
            imports.keys().map(|package| package.0.join("/")).collect(),
        ))
    }
}

/// A schema in a package.
struct PackageSchema {
    name: String,
    object: ModelObject,
    /// The file, if only one kind uses the schema.
    file: Option<String>,
    is_kind: bool,
}

impl PackageSchema {
    fn new(name: String, object: ModelObject, file: Option<String>) -> Self {
        Self {
            is_kind: file.is_some(),
            name,
            object,
            file,
        }
    }
}

fn write_package(
    package: &PackageName,
    roots: Vec<ModelRoot>,
    options: &GenerateOptions,
) -> Result<BTreeMap<String, String>, ModelError> {
    let mut interner = Interner::default();
    let taken: BTreeSet<String> = roots.iter().map(|root| root.name.name.clone()).collect();
    let mut titles: BTreeMap<String, String> = BTreeMap::new();
    let mut named_schemas = BTreeMap::new();
    for root in roots {
        let file = root.kind.as_deref().map(file_name);
        if let Some(file) = &file
            && titles.insert(file.clone(), root.title.clone()).is_some()
        {
            return Err(ModelError::Twice(root.title));
        }
        let name = root.name.name;
        let object = interner.take_root(&name, root.object);
        named_schemas.insert(name.clone(), PackageSchema::new(name, object, file));
    }
    // Schemas without a name can be named only now, when all roots of the package are known.
    let (shared, objects): (Vec<_>, Vec<_>) = interner.finish(taken).into_iter().unzip();
    for (name, object) in shared.iter().zip(objects) {
        named_schemas.insert(name.clone(), PackageSchema::new(name.clone(), object, None));
    }
    place(&mut named_schemas, package, &shared);
    let names = TypeNames {
        package,
        shared: &shared,
    };
    let mut by_file: BTreeMap<String, Vec<&PackageSchema>> = BTreeMap::new();
    for schema in named_schemas.values() {
        let file = schema.file.clone().unwrap_or_else(|| COMMON.to_owned());
        by_file.entry(file).or_default().push(schema);
    }
    let files = by_file.into_iter().map(|(file, mut schemas)| {
        let title = titles.get(&file);
        schemas.sort_by_key(|schema| (!schema.is_kind, &schema.name));
        let text = write_file(&schemas, title.map(String::as_str), &names, options);
        (file, text)
    });
    Ok(files.collect())
}

/// Assigns each schema that only one kind uses to the file of that kind.
fn place(schemas: &mut BTreeMap<String, PackageSchema>, package: &PackageName, shared: &[String]) {
    let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let kinds: Vec<_> = schemas
        .values()
        .filter_map(|schema| Some((schema.name.clone(), schema.file.clone()?)))
        .collect();
    // Walks from each kind to all schemas that it uses, directly or through others.
    for (kind, file) in &kinds {
        let mut seen = BTreeSet::from([kind.clone()]);
        let mut queue = vec![kind.clone()];
        while let Some(name) = queue.pop() {
            let Some(schema) = schemas.get(&name) else {
                continue;
            };
            schema.object.visit(&mut |kind| {
                let used = match kind {
                    ModelType::Shared(number) => shared[*number].clone(),
                    ModelType::Schema(name) if name.package == *package => name.name.clone(),
                    _ => return,
                };
                if seen.insert(used.clone()) {
                    users.entry(used.clone()).or_default().insert(file.clone());
                    queue.push(used);
                }
            });
        }
    }
    // A schema that files of several kinds use gets no file here, and is written to `common.k`.
    for schema in schemas.values_mut().filter(|schema| schema.file.is_none()) {
        let files = users.get(&schema.name);
        schema.file = files
            .filter(|files| files.len() == 1)
            .and_then(|files| files.first().cloned());
    }
}

fn write_file(
    schemas: &[&PackageSchema],
    title: Option<&str>,
    names: &TypeNames<'_>,
    options: &GenerateOptions,
) -> String {
    let written: Vec<_> = schemas
        .iter()
        .map(|schema| write_schema(&schema.name, &schema.object, names))
        .collect();
    let mut text = format!("{HEAD}\n");
    let title = title.map_or_else(|| format!("schemas of {}", names.package.0.join("/")), docs::line);
    text.push_str(&format!("# Source: {title}\n"));
    let mut untranslated: BTreeMap<&str, u32> = BTreeMap::new();
    for (keyword, times) in written.iter().flat_map(|schema| &schema.untranslated) {
        *untranslated.entry(keyword).or_default() += times;
    }
    if !untranslated.is_empty() {
        let counts: Vec<_> = untranslated
            .iter()
            .map(|(keyword, times)| format!("{} {times}", docs::line(keyword)))
            .collect();
        text.push_str(&format!(
            "# Not checked here, only by the server: {}\n",
            counts.join(", ")
        ));
    }
    if written.iter().any(|schema| schema.uses_regex) {
        text.push_str(&format!("import regex as {REGEX}\n"));
    }
    let packages: BTreeSet<PackageName> = schemas
        .iter()
        .flat_map(|schema| named(&schema.object))
        .map(|name| name.package)
        .filter(|package| package != names.package)
        .collect();
    for package in packages {
        let path = [options.import_path.as_str(), &package.0.join(".")].join(".");
        text.push_str(&format!(
            "import {} as {}\n",
            path.trim_start_matches('.'),
            alias(&package)
        ));
    }
    // KCL's formatter removes an empty line between the comment at the top and a schema.
    let has_imports = text.lines().any(|line| line.starts_with("import "));
    for (index, schema) in written.iter().enumerate() {
        if index > 0 || has_imports {
            text.push('\n');
        }
        text.push_str(&schema.text);
    }
    text
}
