//! Finds the file of an error about a hook. KCL's output has no positions, so the sources of the stack are searched for
//! the name of the Job.

use crate::OpenRevision;
use konverge_base::{
    error::UserError,
    model::{RepoPath, ResourceId, file_source::Source, stack::Stack},
};

/// Adds the file and the line to an error about a hook, if they are found.
pub(super) fn locate(failure: UserError, hook: &ResourceId, head: &OpenRevision, stack: &Stack) -> UserError {
    let folders = [&stack.folder, &stack.project_folder];
    match find(head.source.as_ref(), folders, hook.name()) {
        Some((file, line)) => failure.at(file.as_str(), Some(line), None),
        None => failure,
    }
}

/// Returns the first line that has the name in quotes, in a KCL file with hook annotations. The first folder is
/// searched first.
fn find(source: &dyn Source, folders: [&RepoPath; 2], name: &str) -> Option<(RepoPath, u32)> {
    let quoted = [format!("\"{name}\""), format!("'{name}'")];
    let files = source.files();
    let within = |folder: &'_ RepoPath| {
        let is_source = |path: &&RepoPath| path.is_within(folder) && path.as_str().ends_with(".k");
        files.keys().filter(is_source).cloned().collect::<Vec<_>>()
    };
    folders.into_iter().flat_map(within).find_map(|path| {
        let text = source.read_path(&path).ok().flatten()?;
        let text = String::from_utf8_lossy(&text);
        if !text.contains("/hook") {
            return None;
        }
        let has_name = |line: &str| quoted.iter().any(|quoted| line.contains(quoted.as_str()));
        let (number, _) = (1..).zip(text.lines()).find(|(_, line)| has_name(line))?;
        Some((path, number))
    })
}
