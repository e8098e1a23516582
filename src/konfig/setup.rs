//! What the compiler is given for one stack: settings merged as Kusion does, paths resolved against the repository.

use serde_json::Value;

use super::{Reader, SettingsOrder, Tree, dependencies};
use crate::model::{
    RepoPath,
    source::SourceError,
    stack::{CompileSetup, SetupError},
};

/// What makes an entry a glob.
const GLOB: [char; 3] = ['*', '?', '['];

/// A stack's setup.
pub(super) struct Setup {
    /// The setup, or what is wrong with it.
    pub(super) compile: Result<CompileSetup, SetupError>,
    /// Whether an entry is a glob.
    pub(super) globs: bool,
}

/// Puts a stack's setup together.
pub(super) fn of(
    reader: &Reader,
    tree: &Tree,
    order: SettingsOrder,
    folder: &RepoPath,
    project: &RepoPath,
) -> Result<Setup, SourceError> {
    let mut globs = false;
    let compile = put_together(reader, tree, order, (folder, project), &mut globs)?;
    Ok(Setup { compile, globs })
}

/// The outer error is a missing object, the inner one is the stack's own.
fn put_together(
    reader: &Reader,
    tree: &Tree,
    order: SettingsOrder,
    (folder, project): (&RepoPath, &RepoPath),
    globs: &mut bool,
) -> Result<Result<CompileSetup, SetupError>, SourceError> {
    let mut setup = CompileSetup {
        work_dir: folder.clone(),
        module_root: tree.module_root(folder),
        ..CompileSetup::default()
    };
    if order == SettingsOrder::V091 {
        setup.disable_none = true;
    }
    if let Err(error) = dependencies::add(reader, tree, &mut setup)? {
        return Ok(Err(error));
    }
    // From v0.9 on a `kcl.mod` in the stack's own folder makes it a package of its own, and settings are not looked at.
    let own_package = setup.module_root.as_ref() == Some(folder) && order != SettingsOrder::V07;
    let mut entries: Vec<(RepoPath, RepoPath, String)> = Vec::new();
    if !own_package && let Err(error) = read_settings(reader, tree, order, folder, &mut setup, &mut entries)?
    {
        return Ok(Err(error));
    }
    if entries.is_empty() {
        let root = setup
            .module_root
            .clone()
            .filter(|root| root.is_within(project) && folder.is_within(root));
        if let Some(root) = root
            && let Err(error) = read_profile(reader, tree, &root, &mut setup, &mut entries)?
        {
            return Ok(Err(error));
        }
    }
    if entries.is_empty() {
        entries.push((folder.child("stack.yaml"), folder.clone(), ".".to_owned()));
    }
    for (file, base, entry) in entries {
        *globs |= entry.contains(GLOB);
        match resolve_entry(tree, &setup, &base, &entry) {
            Ok(paths) => setup.entries.extend(paths),
            Err(message) => return Ok(Err(at(file, message))),
        }
    }
    Ok(Ok(setup))
}

fn read_settings(
    reader: &Reader,
    tree: &Tree,
    order: SettingsOrder,
    folder: &RepoPath,
    setup: &mut CompileSetup,
    entries: &mut Vec<(RepoPath, RepoPath, String)>,
) -> Result<Result<(), SetupError>, SourceError> {
    for (name, required) in order.files() {
        let file = folder.join(name).expect("a fixed name inside the stack's folder");
        let settings = match reader.settings(tree, &file)? {
            Some(Ok(settings)) => settings,
            Some(Err(error)) => {
                return Ok(Err(SetupError {
                    file,
                    line: error.line,
                    column: error.column,
                    message: error.message,
                }));
            }
            None if *required => {
                let message = format!(
                    "`{name}` is missing: Kusion v0.7 needs it in every stack (`kcl.settings` in konverge.yaml)"
                );
                return Ok(Err(at(file, message)));
            }
            None => continue,
        };
        let base = file.parent().unwrap_or_default();
        for (package, path) in &settings.package_maps {
            match place(tree, setup, &base, path) {
                Ok(path) => {
                    setup.packages.retain(|(known, _)| known != package);
                    setup.packages.push((package.clone(), path));
                }
                Err(message) => return Ok(Err(at(file, format!("package_maps: {package}: {message}")))),
            }
        }
        entries.extend(
            settings
                .files
                .iter()
                .map(|entry| (file.clone(), base.clone(), entry.clone())),
        );
        setup.options.extend(settings.options.iter().cloned());
        setup.overrides.extend(settings.overrides.iter().cloned());
        setup.path_selector.extend(settings.path_selector.iter().cloned());
        setup.disable_none |= settings.disable_none;
        setup.strict_range_check |= settings.strict_range_check;
        setup.settings_files.push(file);
    }
    Ok(Ok(()))
}

fn read_profile(
    reader: &Reader,
    tree: &Tree,
    root: &RepoPath,
    setup: &mut CompileSetup,
    entries: &mut Vec<(RepoPath, RepoPath, String)>,
) -> Result<Result<(), SetupError>, SourceError> {
    let file = root.child("kcl.mod");
    let module = match reader.module(tree, &file)? {
        Some(Ok(module)) => module,
        Some(Err(message)) => return Ok(Err(at(file, message))),
        None => return Ok(Ok(())),
    };
    entries.extend(
        module
            .entries
            .iter()
            .map(|entry| (file.clone(), root.clone(), entry.clone())),
    );
    setup.disable_none |= module.disable_none;
    setup.overrides.extend(module.overrides.iter().cloned());
    setup.path_selector.extend(module.selectors.iter().cloned());
    for argument in &module.arguments {
        let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        setup.options.push((key.to_owned(), value));
    }
    Ok(Ok(()))
}

/// The files or folders that an entry names, relative to the repository; a glob names its matches in order.
fn resolve_entry(
    tree: &Tree,
    setup: &CompileSetup,
    base: &RepoPath,
    entry: &str,
) -> Result<Vec<RepoPath>, String> {
    let path = place(tree, setup, base, entry)?;
    if tree.is_file(&path) || tree.is_folder(&path) {
        return Ok(vec![path]);
    }
    if entry.contains(GLOB) {
        let glob = globset::GlobBuilder::new(path.as_str())
            .literal_separator(true)
            .build()
            .map_err(|error| format!("the entry `{entry}` is not a glob: {}", error.kind()))?
            .compile_matcher();
        let fixed = path.as_str().find(GLOB).unwrap_or_default();
        let above = RepoPath::normalise(&path.as_str()[..path.as_str()[..fixed].rfind('/').unwrap_or(0)]);
        let matches: Vec<_> = tree
            .below(&above.unwrap_or_default())
            .map(|(path, _)| path)
            .filter(|path| glob.is_match(path.as_str()) && tree.is_file(path))
            .cloned()
            .collect();
        if !matches.is_empty() {
            return Ok(matches);
        }
        return Err(format!("no file matches the entry `{entry}`"));
    }
    Err(format!("there is no `{path}`, which the entry `{entry}` names"))
}

/// A path of a settings file or `kcl.mod`, relative to the repository. `${PWD}` is the file's own folder, `${KCL_MOD}`
/// the nearest folder with a `kcl.mod`, `${name:KCL_MOD}` an external package's folder; only at the start.
pub(super) fn place(
    tree: &Tree,
    setup: &CompileSetup,
    base: &RepoPath,
    text: &str,
) -> Result<RepoPath, String> {
    let outside = || format!("`{text}` leads out of the repository");
    if let Some(rest) = text.strip_prefix("${")
        && let Some((variable, rest)) = rest.split_once('}')
        && (rest.is_empty() || rest.starts_with('/'))
    {
        let start = match variable {
            "PWD" => base.clone(),
            "KCL_MOD" => tree.module_root(base).unwrap_or_else(|| setup.work_dir.clone()),
            other => {
                let package = other.strip_suffix(":KCL_MOD").ok_or_else(|| {
                    format!("`{text}`: only ${{PWD}}, ${{KCL_MOD}} and ${{<package>:KCL_MOD}} are known")
                })?;
                let known = setup.packages.iter().find(|(name, _)| name == package);
                known
                    .map(|(_, folder)| folder.clone())
                    .ok_or_else(|| format!("`{text}`: there is no package `{package}`"))?
            }
        };
        return start.join(rest.trim_start_matches('/')).ok_or_else(outside);
    }
    base.join(text).ok_or_else(outside)
}

pub(super) fn at(file: RepoPath, message: String) -> SetupError {
    SetupError {
        file,
        line: None,
        column: None,
        message,
    }
}
