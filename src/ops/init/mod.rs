//! `konverge init`: writes `konverge.yaml` and the workflow into a repository, and never overwrites.

use std::{
    io::{ErrorKind as IoKind, Write},
    path::Path,
};

use crate::{
    config::{Config, FILE_NAME},
    error::{ErrorKind, Failure},
};

/// The configuration that is written; `{id}` and `{core}` are filled in.
const CONFIG: &str = include_str!("konverge.yaml");

/// The workflow that is written; the example monorepo carries the same.
pub const WORKFLOW: &str = include_str!("workflow.yml");

/// Where the workflow goes.
const WORKFLOW_PATH: &str = ".github/workflows/konverge.yml";

/// What became of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is new.
    Created,
    /// It was there and is as it was.
    Kept,
}

/// Writes both files into the repository's root.
///
/// # Errors
/// The folder can not be written to.
pub fn run(root: &Path) -> Result<Vec<(&'static str, Written)>, Failure> {
    let config = CONFIG
        .replace("{id}", &uuid::Uuid::new_v4().to_string())
        .replace("{core}", Config::default_core());
    [(FILE_NAME, config.as_str()), (WORKFLOW_PATH, WORKFLOW)]
        .into_iter()
        .map(|(path, text)| Ok((path, write_new(&root.join(path), text)?)))
        .collect()
}

fn write_new(path: &Path, text: &str) -> Result<Written, Failure> {
    let failure = |error: std::io::Error| {
        Failure::new(
            ErrorKind::Config,
            format!("could not write {}: {error}", path.display()),
        )
        .hint("nothing was overwritten; make the folder writable and run `konverge init` again")
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failure)?;
    }
    match std::fs::File::options().write(true).create_new(true).open(path) {
        Ok(mut file) => file
            .write_all(text.as_bytes())
            .map(|()| Written::Created)
            .map_err(failure),
        Err(error) if error.kind() == IoKind::AlreadyExists => Ok(Written::Kept),
        Err(error) => Err(failure(error)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_written_is_valid_and_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let first = run(folder.path()).unwrap();
        assert!(first.iter().all(|(_, written)| *written == Written::Created));
        let text = std::fs::read_to_string(folder.path().join(FILE_NAME)).unwrap();
        let config = Config::parse(&text).unwrap();
        assert!(config.state.id.is_some());
        std::fs::write(folder.path().join(FILE_NAME), "mine").unwrap();
        let second = run(folder.path()).unwrap();
        assert!(second.iter().all(|(_, written)| *written == Written::Kept));
        assert_eq!(
            std::fs::read_to_string(folder.path().join(FILE_NAME)).unwrap(),
            "mine"
        );
    }

    #[test]
    fn the_example_carries_the_same_workflow() {
        let example = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("konfig-example")
            .join(WORKFLOW_PATH);
        assert_eq!(std::fs::read_to_string(example).unwrap(), WORKFLOW);
    }
}
