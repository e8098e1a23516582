//! The folder of models: formatted, checked, and replaced in one step.

use std::{collections::BTreeSet, fs, io, path::Path};

use futures::{StreamExt as _, TryStreamExt as _, stream};

use konverge_base::{
    checkout::{self, Existing},
    error::{ErrorKind, UserError},
    model::{
        RepoPath,
        stack::{CompileSetup, Entry},
    },
};
use konverge_kcl::{CompileRequest, Formatting, KclError, Pool};
use konverge_models::{HEAD, ModelFiles};

/// The number of files that are formatted at once; the pool has fewer workers.
const AT_ONCE: usize = 8;

/// Returns the files as the core formats them.
pub(super) async fn format(pool: &Pool, files: &ModelFiles) -> Result<ModelFiles, UserError> {
    let formats = files.iter().map(|(path, text)| async move {
        let file = RepoPath::root().join(path).unwrap_or_default();
        let text = match pool.formatting(&file, text).await.map_err(UserError::from)? {
            Formatting::Unformatted(formatted) => formatted,
            Formatting::Formatted | Formatting::Untrusted(_) => text.clone(),
        };
        Ok::<_, UserError>((path.clone(), text))
    });
    stream::iter(formats).buffered(AT_ONCE).try_collect().await
}

/// Compiles a program that imports every package of the files. `import_path` is that of their folder.
///
/// # Errors
/// The core refuses the files, or a worker is lost.
pub(super) async fn compile(pool: &Pool, files: &ModelFiles, import_path: &str) -> Result<(), UserError> {
    let root = RepoPath::root();
    let folder = root.join(&import_path.replace('.', "/")).unwrap_or_default();
    let packages: BTreeSet<String> = files
        .keys()
        .filter_map(|path| Some(path.rsplit_once('/')?.0.replace('/', ".")))
        .collect();
    let imports = packages.iter().enumerate();
    let program: String = imports
        .map(|(number, package)| format!("import {import_path}.{package} as package_{number}\n"))
        .collect();
    let main = root.child("konverge_models_main.k");
    let files = files
        .iter()
        .filter_map(|(path, text)| Some((folder.join(path)?, text.as_bytes().into())));
    let own = [
        (root.child("kcl.mod"), b"".as_slice().into()),
        (main.clone(), program.as_bytes().into()),
    ];
    let request = CompileRequest {
        label: "the generated models".to_owned(),
        setup: CompileSetup {
            module_root: Some(root),
            entries: vec![Entry::main(main)],
            ..CompileSetup::default()
        },
        files: files.chain(own).collect(),
        ..CompileRequest::default()
    };
    match pool.compile(&request).await {
        Ok(_) => Ok(()),
        Err(error @ KclError::Code(_)) => Err(UserError::from(error)
            .context("the generated models do not compile, so nothing was written")
            .hint("import the other kinds with `--only KIND`, and report the source of this one as a fault of Konverge")),
        Err(other) => Err(other.into()),
    }
}

/// Refuses a folder with a file that no import wrote.
///
/// # Errors
/// There is a file of another kind, or a link.
pub(super) fn check(root: &Path, folder: &RepoPath) -> Result<(), UserError> {
    let refuse = |place: &Path, what: &str| {
        UserError::new(
            ErrorKind::Usage,
            format!("{what}, and the import would delete it"),
        )
        .at(place.display().to_string(), None, None)
        .hint("choose another folder with `--into`, or move the file")
    };
    let failed = |place: &Path, error: io::Error| {
        UserError::new(ErrorKind::Layout, error.to_string()).at(place.display().to_string(), None, None)
    };
    let mut queue = vec![root.join(folder)];
    while let Some(place) = queue.pop() {
        let about = match fs::symlink_metadata(&place) {
            Ok(about) => about,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(&place, error)),
        };
        if about.is_dir() {
            for entry in fs::read_dir(&place).map_err(|error| failed(&place, error))? {
                queue.push(entry.map_err(|error| failed(&place, error))?.path());
            }
            continue;
        }
        if !about.is_file() {
            return Err(refuse(&place, "this is a link or a special file"));
        }
        let text = fs::read(&place).map_err(|error| failed(&place, error))?;
        if !text.starts_with(HEAD.as_bytes()) {
            return Err(refuse(&place, "no import wrote this file"));
        }
    }
    Ok(())
}

/// Writes the files into a new folder beside the old one, then renames it: a killed run leaves the earlier models.
///
/// # Errors
/// A link is on the path, or the system refuses.
pub(super) fn replace(root: &Path, folder: &RepoPath, files: &ModelFiles) -> Result<(), UserError> {
    let fresh_name = format!(".konverge-{}", uuid::Uuid::new_v4().simple());
    let fresh = folder.parent().unwrap_or_default().child(&fresh_name);
    let (place, beside) = (root.join(folder), root.join(&fresh));
    // `checkout::write` opens every folder on the path without following links, so a link cannot lead out of the
    // repository.
    let written = files.iter().try_for_each(|(path, text)| {
        let path = format!("{fresh}/{path}");
        checkout::write(root, Path::new(&path), text.as_bytes(), Existing::Keep).map(drop)
    });
    let replaced = written.and_then(|()| match fs::symlink_metadata(&place) {
        Ok(_) => {
            let old = beside.with_extension("old");
            fs::rename(&place, &old)?;
            fs::rename(&beside, &place)?;
            fs::remove_dir_all(&old)
        }
        Err(_) => fs::rename(&beside, &place),
    });
    replaced.map_err(|error| {
        // Ignore an error: the folder may not have been created.
        let _ = fs::remove_dir_all(&beside);
        UserError::from_error(ErrorKind::Layout, error)
            .context("the models cannot be written")
            .at(folder.to_string(), None, None)
            .hint("choose another folder with `--into`")
    })
}
