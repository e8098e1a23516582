//! `konverge init`: writes `konverge.yaml` and the workflow into a repository, and never overwrites.

use std::path::Path;

pub use crate::checkout::Written;
use crate::{
    checkout::{self, Existing},
    config::{Config, FILE_NAME},
    error::{ErrorKind, Failure},
    git::Repository,
};

/// The configuration that is written; `{id}` and `{core}` are filled in.
const CONFIG: &str = include_str!("konverge.yaml");

/// The workflow that is written, with the branch whose pushes are applied filled in; the example monorepo carries the
/// same.
pub const WORKFLOW: &str = include_str!("workflow.yml");

/// What it is filled in for.
const BRANCHES: &str = "branches: [main]";

/// Where the workflow goes.
const WORKFLOW_PATH: &str = ".github/workflows/konverge.yml";

/// Writes both files into the root of the repository that a folder lies in.
///
/// # Errors
/// It lies in none, or it can not be written to.
pub fn run(dir: &Path) -> Result<Vec<(&'static str, Written)>, Failure> {
    let repository = Repository::discover(dir)?;
    let branch = repository.default_branch_name();
    write(repository.root(), branch.as_deref().unwrap_or("main"))
}

fn write(root: &Path, branch: &str) -> Result<Vec<(&'static str, Written)>, Failure> {
    let config = CONFIG
        .replace("{id}", &uuid::Uuid::new_v4().to_string())
        .replace("{core}", Config::default_core());
    let workflow = WORKFLOW.replace(BRANCHES, &format!("branches: [{}]", scalar(branch)));
    [(FILE_NAME, &config), (WORKFLOW_PATH, &workflow)]
        .into_iter()
        .map(|(path, text)| Ok((path, write_new(root, path, text)?)))
        .collect()
}

/// A branch's name in a YAML list: quoted unless it can only be read as text.
fn scalar(branch: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let keywords = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let is_plain = branch.starts_with(|c: char| c.is_ascii_alphabetic())
        && branch.chars().all(is_word)
        && !keywords.contains(&branch.to_ascii_lowercase().as_str());
    match is_plain {
        true => branch.to_owned(),
        false => serde_json::Value::from(branch).to_string(),
    }
}

fn write_new(root: &Path, path: &str, text: &str) -> Result<Written, Failure> {
    checkout::write(root, path.as_ref(), text.as_bytes(), Existing::Keep).map_err(|error| {
        Failure::new(
            ErrorKind::Config,
            format!("could not write {}: {error}", root.join(path).display()),
        )
        .hint("nothing was overwritten; make the folder writable and run `konverge init` again")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_written_is_valid_and_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let first = write(folder.path(), "main").unwrap();
        assert!(first.iter().all(|(_, written)| *written == Written::Created));
        let text = std::fs::read_to_string(folder.path().join(FILE_NAME)).unwrap();
        let config = Config::parse(&text).unwrap();
        assert!(config.state.id.is_some());
        std::fs::write(folder.path().join(FILE_NAME), "mine").unwrap();
        let second = write(folder.path(), "main").unwrap();
        assert!(second.iter().all(|(_, written)| *written == Written::Kept));
        assert_eq!(
            std::fs::read_to_string(folder.path().join(FILE_NAME)).unwrap(),
            "mine"
        );
    }

    #[test]
    fn merges_into_whichever_branch_is_the_default_are_applied() {
        for branch in ["master", "no", "1.0", "rel:ease", "feature/x"] {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), branch).unwrap();
            let text = std::fs::read_to_string(folder.path().join(WORKFLOW_PATH)).unwrap();
            let workflow: serde_json::Value = crate::yaml::from_str(&text).unwrap();
            assert_eq!(workflow["on"]["push"]["branches"], serde_json::json!([branch]));
        }
    }

    #[test]
    fn the_example_carries_the_same_workflow() {
        let example = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("konfig-example")
            .join(WORKFLOW_PATH);
        assert_eq!(std::fs::read_to_string(example).unwrap(), WORKFLOW);
    }
}
