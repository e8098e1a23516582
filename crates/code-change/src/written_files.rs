//! Writes edited files into the checkout.

use std::path::Path;

use crate::code_editor::EditedFile;
use konverge_base::{
    checkout::{self, Existing},
    error::{ErrorKind, SharedError, UserError},
    model::RepoPath,
};
use konverge_run::RunContext;

/// Writes edited files into the checkout: all of them, or none.
///
/// # Errors
/// A file differs from what was edited, a link is in its place, or it cannot be written.
pub fn write(run: &RunContext, root: &Path, files: &[EditedFile]) -> Result<(), UserError> {
    // Compare all files before one is written: the edit is written as a whole or not at all.
    for file in files {
        let found = checkout::read(root, place(&file.path));
        let found = found.map_err(|error| refused(&file.path, error))?;
        if found.as_deref() != Some(&*file.before) {
            return Err(refused(
                &file.path,
                "it changed on the disk meanwhile, or git filters its content",
            ));
        }
    }
    run.begin_writes()?;
    for (index, file) in files.iter().enumerate() {
        let Err(error) = checkout::write(root, place(&file.path), &file.after, Existing::Replace) else {
            continue;
        };
        let mut failure = refused(&file.path, error);
        // Restore the files that are already written, so that the edit is written as a whole or not at all.
        for written in &files[..index] {
            let restored = checkout::write(root, place(&written.path), &written.before, Existing::Replace);
            if restored.is_err() {
                failure = failure.hint(format!(
                    "`{}` was written, and could not be restored",
                    written.path
                ));
            }
        }
        return Err(failure);
    }
    Ok(())
}

fn place(path: &RepoPath) -> &Path {
    path.as_str().as_ref()
}

fn refused(path: &RepoPath, why: impl Into<SharedError>) -> UserError {
    UserError::from_error(ErrorKind::Layout, why)
        .context("the edit is not written")
        .at(path.to_string(), None, None)
        .hint("the files are as they were; put a plain file that you may write in its place, and run the command again")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use konverge_base::model::event::NoEvents;
    use konverge_run::NoNotes;
    use konverge_secrets::{HashKey, Secrets};

    use super::*;

    /// Of two files none is written if one is not what was edited any more.
    #[test]
    fn all_files_are_written_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunContext {
            dir: folder.path().to_owned(),
            env: Default::default(),
            secrets: Secrets::new(HashKey::random()),
            cancel: Default::default(),
            writes: Arc::default(),
            events: Arc::new(NoEvents),
            notes: Arc::new(NoNotes),
            recorder: Default::default(),
        };
        let [dev, prod] = ["dev.k", "prod.k"];
        let edited = |path: &str| EditedFile {
            path: RepoPath::normalize(path).unwrap(),
            before: (*b"before").into(),
            after: (*b"after").into(),
        };
        let read = |path: &str| std::fs::read_to_string(folder.path().join(path)).unwrap();
        std::fs::write(folder.path().join(dev), "before").unwrap();
        std::fs::write(folder.path().join(prod), "somebody edited it meanwhile").unwrap();
        let files = [edited(dev), edited(prod)];
        let refused = write(&run, folder.path(), &files).unwrap_err();
        assert!(refused.message.contains("changed on the disk"), "{refused}");
        assert_eq!(read(dev), "before");
        write(&run, folder.path(), &files[..1]).unwrap();
        assert_eq!(read(dev), "after");
    }
}
