//! Builds the compiler setup of one stack: settings are merged as Kusion merges them, paths are resolved in the
//! repository.

use serde_json::Value;

use super::{
    FileTreeView, SettingsOrder, dependencies,
    entry::{self, EntryText},
    outside_paths,
    parsed_files::ParsedFiles,
    path_variables::{package_folder, variable},
    setup_failure::SetupFailure,
};
use konverge_base::model::{
    RepoPath,
    file_source::SourceError,
    stack::{CompileSetup, SetupError},
};

/// The setup of a stack.
pub(super) struct StackSetup {
    /// The setup, or the error if there is none.
    pub(super) compile: Result<CompileSetup, SetupError>,
    /// True if an entry of the stack is a glob.
    pub(super) globs: bool,
}

/// Builds the setup of a stack.
pub(super) fn build_setup(
    reader: &ParsedFiles,
    tree: &FileTreeView,
    order: SettingsOrder,
    folder: &RepoPath,
    project: &RepoPath,
) -> Result<StackSetup, SourceError> {
    let mut globs = false;
    let compile = match merge_setup(reader, tree, order, folder, project, &mut globs) {
        Ok(setup) => Ok(setup),
        Err(SetupFailure::Setup(error)) => Err(error),
        Err(SetupFailure::Source(error)) => return Err(error),
    };
    Ok(StackSetup { compile, globs })
}

fn merge_setup(
    reader: &ParsedFiles,
    tree: &FileTreeView,
    order: SettingsOrder,
    folder: &RepoPath,
    project: &RepoPath,
    globs: &mut bool,
) -> Result<CompileSetup, SetupFailure> {
    let mut setup = CompileSetup {
        work_dir: folder.clone(),
        module_root: tree.module_root(folder),
        ..CompileSetup::default()
    };
    if order == SettingsOrder::V091 {
        setup.disable_none = true;
    }
    dependencies::add(reader, tree, &mut setup)?;
    // Since v0.9, a stack with a `kcl.mod` in its own folder is a package of its own, and Kusion ignores the settings
    // files.
    let own_package = setup.module_root.as_ref() == Some(folder) && order != SettingsOrder::V07;
    let mut entries: Vec<EntryText> = Vec::new();
    if !own_package {
        read_settings(reader, tree, order, folder, &mut setup, &mut entries)?;
    }
    if entries.is_empty() {
        let root = setup
            .module_root
            .clone()
            .filter(|root| root.is_within(project) && folder.is_within(root));
        if let Some(root) = root {
            read_profile(reader, tree, &root, &mut setup, &mut entries)?;
        }
    }
    if entries.is_empty() {
        entries.push(EntryText {
            file: folder.child("stack.yaml"),
            text: ".".to_owned(),
        });
    }
    *globs = entries.iter().any(EntryText::is_glob);
    setup.entries = entry::resolve(tree, &setup, &entries)?;
    Ok(setup)
}

fn read_settings(
    reader: &ParsedFiles,
    tree: &FileTreeView,
    order: SettingsOrder,
    folder: &RepoPath,
    setup: &mut CompileSetup,
    entries: &mut Vec<EntryText>,
) -> Result<(), SetupFailure> {
    for (name, required) in order.files() {
        let file = folder.join(name).expect("a fixed name inside the stack's folder");
        let settings = match reader.settings.get(tree, &file)? {
            Some(Ok(settings)) => settings,
            Some(Err(error)) => {
                let (line, column) = (error.line, error.column);
                return Err(SetupFailure::Setup(SetupError {
                    file,
                    line,
                    column,
                    message: error.message,
                }));
            }
            None if *required => {
                let message = format!(
                    "`{name}` is missing: Kusion v0.7 needs it in every stack (`kcl.settings` in konverge.yaml)"
                );
                return Err(SetupError::new(file, message).into());
            }
            None => continue,
        };
        let base = file.parent().unwrap_or_default();
        for (package, path) in &settings.package_maps {
            let path = place(tree, setup, &base, path).map_err(|message| {
                SetupError::new(file.clone(), format!("package_maps: {package}: {message}"))
            })?;
            setup.packages.retain(|(known, _)| known != package);
            setup.packages.push((package.clone(), path));
        }
        entries.extend(settings.files.iter().map(|text| EntryText {
            file: file.clone(),
            text: text.clone(),
        }));
        setup.options.extend(settings.options.iter().cloned());
        setup.overrides.extend(settings.overrides.iter().cloned());
        setup.path_selector.extend(settings.path_selector.iter().cloned());
        setup.disable_none |= settings.disable_none;
        setup.strict_range_check |= settings.strict_range_check;
        setup.settings_files.push(file);
    }
    Ok(())
}

fn read_profile(
    reader: &ParsedFiles,
    tree: &FileTreeView,
    root: &RepoPath,
    setup: &mut CompileSetup,
    entries: &mut Vec<EntryText>,
) -> Result<(), SetupFailure> {
    let file = root.child("kcl.mod");
    let module = match reader.modules.get(tree, &file)? {
        Some(Ok(module)) => module,
        Some(Err(message)) => return Err(SetupError::new(file, message).into()),
        None => return Ok(()),
    };
    entries.extend(module.entries.iter().map(|text| EntryText {
        file: file.clone(),
        text: text.clone(),
    }));
    setup.disable_none |= module.disable_none;
    setup.overrides.extend(module.overrides.iter().cloned());
    setup.path_selector.extend(module.selectors.iter().cloned());
    for argument in &module.arguments {
        let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        setup.options.push((key.to_owned(), value));
    }
    Ok(())
}

/// Resolves a path in a settings file or `kcl.mod` to a path in the repository. At the start of the path, `${PWD}` is
/// the folder of the file, `${KCL_MOD}` the nearest folder with a `kcl.mod`, and `${name:KCL_MOD}` the folder of a
/// dependency.
fn place(tree: &FileTreeView, setup: &CompileSetup, base: &RepoPath, text: &str) -> Result<RepoPath, String> {
    let Some((variable, rest)) = variable(text) else {
        return base
            .join(text)
            .ok_or_else(|| outside_paths::describe_refusal(tree, base, text));
    };
    let start = match variable {
        "PWD" => base.clone(),
        "KCL_MOD" => tree.module_root(base).unwrap_or_else(|| setup.work_dir.clone()),
        other => package_folder(setup, other, text)?.1,
    };
    start
        .join(rest)
        .ok_or_else(|| outside_paths::describe_refusal(tree, &start, rest))
}
