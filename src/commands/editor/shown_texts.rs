//! The texts that commands of an editor show, each in a file that only this user can read.

use std::sync::Mutex;

use konverge_base::{
    atomic_file,
    error::{ErrorKind, UserError},
    model::RepoPath,
};
use konverge_lsp::{EditorView, ShownText};
use konverge_report::{
    escape::{self, log},
    terminal::{self, Style},
};
use konverge_run::{
    KeyUse, OpenRequest, Selection, StackSelector, cluster_selection::Live, compiler, preview as previews,
    session,
};
use konverge_secrets::redact;
use tempfile::TempDir;

use super::{reached_stacks::ReachedStacks, saved_state::SavedState};

/// The longest name of a shown file, in bytes.
const LONGEST_NAME: usize = 80;

/// The folder of the shown texts. It is created with the first text, and removed at the end of the session.
#[derive(Default)]
pub(super) struct ShownFolder(Mutex<Option<TempDir>>);

impl ShownFolder {
    /// Writes a text.
    ///
    /// # Errors
    /// The disk is full, or the folder for temporary files cannot be written.
    pub(super) fn write(
        &self,
        view: EditorView,
        file: &RepoPath,
        text: String,
    ) -> Result<ShownText, UserError> {
        let mut folder = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let failed = |error: std::io::Error| {
            UserError::from_error(ErrorKind::Config, error)
                .context("the text cannot be written")
                .hint("make room in the folder for temporary files, or name another one in TMPDIR")
        };
        if folder.is_none() {
            let made = tempfile::Builder::new().prefix("konverge-editor-").tempdir();
            *folder = Some(made.map_err(failed)?);
        }
        let folder = folder.as_ref().expect("it was made above");
        let path = folder.path().join(file_name(view, file));
        atomic_file::write(&path, text.as_bytes()).map_err(failed)?;
        Ok(ShownText { file: path, text })
    }
}

/// Returns a file name that describes the text, with characters that every editor accepts.
fn file_name(view: EditorView, file: &RepoPath) -> String {
    let (what, extension) = match view {
        EditorView::Chain => ("affects", "txt"),
        EditorView::Spec => ("spec", "yaml"),
        EditorView::Preview => ("preview", "txt"),
    };
    let plain = file.as_str().chars();
    let plain: String = plain
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let end = plain.len().saturating_sub(LONGEST_NAME);
    format!("{what}-{}.{extension}", plain[end..].trim_start_matches('-'))
}

/// Describes the stacks that an edit of a file affects, and why.
pub(super) fn chain(file: &RepoPath, reached: &ReachedStacks) -> String {
    let affected = terminal::affected(&reached.affected, None, Style { color: false });
    format!("An edit of {} affects:\n\n{affected}", log(file.as_str()))
}

/// Renders the Specs of the nearest stacks, as `konverge build` prints them.
pub(super) async fn specs(saved: &SavedState, reached: &ReachedStacks) -> Result<String, UserError> {
    let specs = saved
        .compilers
        .for_revision(&saved.head)
        .specs(&reached.nearest)
        .await;
    saved.run.check_interrupted()?;
    let mut failures = Vec::new();
    let mut parts = Vec::new();
    for (stack, spec) in reached.nearest.iter().zip(specs) {
        let head = format!("# {} ({})\n", stack.id, log(stack.folder.as_str()));
        match spec {
            Ok(spec) => {
                for spec in redact::specs(&[spec], &saved.run.secrets) {
                    parts.push(head.clone() + &escape::yaml(&spec.to_document()));
                }
            }
            Err(error) => {
                let failure = redact::failure(&error.error, &saved.run.secrets);
                parts.push(format!("{head}# error: {}\n", log(&failure.message)));
                failures.push((&stack.id, failure));
            }
        }
    }
    if failures.len() == parts.len()
        && let Some(last) = compiler::join_failures(failures).pop()
    {
        return Err(last);
    }
    let note = reached.cut_note().map(|note| format!("# {note}\n"));
    Ok(note.unwrap_or_default() + &parts.join("---\n"))
}

/// Renders the changes that an apply of the nearest stacks would make, as `konverge preview` prints them.
pub(super) async fn preview(saved: &SavedState, reached: &ReachedStacks) -> Result<String, UserError> {
    let ids = reached.nearest.iter().map(|stack| &stack.id);
    let named = ids.map(|id| id.as_str().parse::<StackSelector>());
    let named = named.collect::<Result<Vec<_>, _>>();
    let named = named.map_err(|error| UserError::from_error(ErrorKind::Usage, error))?;
    let request = OpenRequest {
        selection: Selection::Named(named),
        live: Live::Auto,
        ..OpenRequest::default()
    };
    let session = session::open(&saved.run, &request, KeyUse::Look).await?;
    let planned = previews::run(&session.planning, &session.targets, None).await?;
    let note = reached.cut_note().map(|note| format!("{note}\n\n"));
    Ok(note.unwrap_or_default() + &terminal::plan(&planned.plan, Style { color: false }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_file_has_a_plain_short_name_and_is_for_this_user() {
        let name = |path: &str| file_name(EditorView::Spec, &RepoPath::normalize(path).unwrap());
        assert_eq!(name("shop/dev/main.k"), "spec-shop-dev-main-k.yaml");
        assert_eq!(name("ü\u{202e}/a b#?.k"), "spec-a-b---k.yaml");
        assert!(name(&"x/".repeat(300)).len() < 100);
        let shown = ShownFolder::default();
        let file = RepoPath::normalize("a.k").unwrap();
        let written = shown.write(EditorView::Chain, &file, "text".to_owned()).unwrap();
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(written.file.metadata().unwrap().permissions().mode() & 0o077, 0);
        drop(shown);
        assert!(!written.file.exists());
    }
}
