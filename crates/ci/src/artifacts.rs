//! Writes files of a run for later steps of the job: the result as JSON, the preview as a page.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::publisher::Publisher;
use konverge_base::{
    checkout::{Existing, WrittenFile, write},
    variables,
};

/// The folder in the workspace for the files of a docker action.
const FOLDER: &str = ".konverge";

impl Publisher<'_> {
    /// Writes the whole result as JSON, for later steps of the job.
    pub(super) fn result_file(&self, json: &str) {
        self.write_file("result", "json", json, "result-path");
    }

    /// Writes the preview as an HTML page, and returns its path.
    pub(crate) fn page(&self, html: &str) -> Option<String> {
        self.write_file("page", "html", html, "summary-path")
    }

    /// Writes the summary as Markdown, for readers who see neither the comment nor the job summary.
    pub(crate) fn markdown(&self, text: &str) {
        self.write_file("summary", "md", text, "markdown-path");
    }

    fn write_file(&self, what: &str, extension: &str, text: &str, output: &str) -> Option<String> {
        let run = &self.job.run;
        let name = format!("konverge-{}.{extension}", uuid::Uuid::new_v4().simple());
        // Only the docker action gets inputs as variables. Later steps see its folders at other paths, but the
        // workspace is the same for all steps.
        let workspace = self.job.runner.info().workspace.as_ref();
        let workspace = workspace.filter(|_| run.var(variables::INPUT_COMMAND).is_some());
        let written = match workspace {
            Some(workspace) => write_in_workspace(workspace, &name, &run.secrets.mask_finished(text))
                .map(|()| format!("{FOLDER}/{name}")),
            None => {
                let folder = run
                    .var(variables::RUNNER_TEMP)
                    .map_or_else(std::env::temp_dir, PathBuf::from);
                let path = folder.join(&name);
                fs::write(&path, run.secrets.mask_finished(text)).map(|()| path.display().to_string())
            }
        };
        match written {
            Ok(path) => {
                self.outputs(&[(output, path.clone())]);
                Some(path)
            }
            Err(error) => {
                run.notes
                    .warning(&format!("the {what} could not be stored: {error}"));
                None
            }
        }
    }
}

/// Writes a file into a folder of the workspace that git ignores. The pull request controls the content of the
/// workspace, so no link in it is followed.
fn write_in_workspace(workspace: &Path, name: &str, text: &str) -> io::Result<()> {
    let folder = Path::new(FOLDER);
    write(workspace, &folder.join(".gitignore"), b"*\n", Existing::Keep)?;
    match write(workspace, &folder.join(name), text.as_bytes(), Existing::Keep)? {
        WrittenFile::Created => Ok(()),
        WrittenFile::Kept => Err(io::Error::other(format!("{FOLDER}/{name} is there already"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_in_a_workspace_is_ignored_by_git_and_no_link_is_followed() {
        let workspace = tempfile::tempdir().unwrap();
        for name in ["a.json", "b.html"] {
            write_in_workspace(workspace.path(), name, "text").unwrap();
            assert_eq!(
                fs::read_to_string(workspace.path().join(FOLDER).join(name)).unwrap(),
                "text"
            );
        }
        assert_eq!(
            fs::read_to_string(workspace.path().join(".konverge/.gitignore")).unwrap(),
            "*\n"
        );
        let elsewhere = tempfile::tempdir().unwrap();
        let hostile = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), hostile.path().join(FOLDER)).unwrap();
        assert!(write_in_workspace(hostile.path(), "a.json", "text").is_err());
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
