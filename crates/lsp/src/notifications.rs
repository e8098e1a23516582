//! What each notification changes, and what the client is told and shown.

use serde_json::{Value, json};

use super::{
    client_support::watch_registration,
    file_uri, incoming, rendering,
    server::{LanguageServer, ProblemSource},
    workspace::ShownText,
};
use konverge_base::model::{RepoPath, lint::Diagnostic};

impl LanguageServer {
    /// Handles a notification, or ignores it.
    pub(crate) fn notified(&mut self, method: &str, params: Value) {
        match method {
            "initialized" if self.client.watches_files => {
                self.ask("client/registerCapability", watch_registration());
            }
            "textDocument/didOpen" => {
                self.refresh();
                let text = |key: &str| params.pointer(key).and_then(Value::as_str);
                let opened = text("/textDocument/uri").zip(text("/textDocument/text"));
                if let Some((uri, text)) = opened
                    && let Some(file) = self.file_or_note(uri)
                {
                    self.files.open(file, uri.to_owned(), text.to_owned());
                    self.start_check();
                }
            }
            "textDocument/didChange" => {
                let changes = params.get("contentChanges").and_then(Value::as_array);
                let text = changes.and_then(|changes| changes.last()?.get("text")?.as_str());
                if let Some((file, text)) = self.file_of(&params).zip(text) {
                    self.files.edit(&file, text.to_owned());
                }
            }
            "textDocument/didSave" | "workspace/didChangeWatchedFiles" => self.saved(),
            "textDocument/didClose" => {
                if let Some(file) = self.file_of(&params) {
                    self.files.close(&file);
                    self.start_check();
                }
            }
            "$/cancelRequest" => {
                let running = params.get("id").and_then(|id| self.running.get(&id.to_string()));
                if let Some(work) = running {
                    work.cancel();
                }
            }
            // Others are of no concern here, such as changed settings.
            _ => {}
        }
    }

    /// A file was saved: what is found in it may differ.
    fn saved(&mut self) {
        if self.refresh() {
            self.start_check();
        }
    }

    /// Reads what was saved. Returns true if anything was: the lenses may differ then.
    fn refresh(&mut self) -> bool {
        let refreshed = self.workspace.refresh();
        self.tell_problem(ProblemSource::Repository, refreshed.as_ref().err());
        let is_changed = refreshed.unwrap_or(false);
        if is_changed && self.client.refreshes_lenses {
            self.ask("workspace/codeLens/refresh", Value::Null);
        }
        is_changed
    }

    /// The file that `textDocument` names.
    pub(crate) fn file_of(&self, params: &Value) -> Option<RepoPath> {
        let uri = params.pointer("/textDocument/uri")?.as_str()?;
        file_uri::file_of(uri, &self.workspace.root()?)
    }

    /// A file of the repository. One that is outside is noted in the log.
    fn file_or_note(&self, uri: &str) -> Option<RepoPath> {
        let root = self.workspace.root()?;
        let file = file_uri::file_of(uri, &root);
        if file.is_none() {
            let text = format!("{} is not a file of {}", uri.escape_debug(), root.display());
            self.send(incoming::notification(
                "window/logMessage",
                json!({"type": 3, "message": text}),
            ));
        }
        file
    }

    /// Shows findings at their files.
    pub(crate) fn publish(&mut self, found: Vec<Diagnostic>) {
        let Some(root) = self.workspace.root() else {
            return;
        };
        for file in self.files.set_found(found) {
            let uri = match self.files.get(&file) {
                Some(open) => Some(open.uri.clone()),
                None => file_uri::uri_of(&root.join(file.as_str())),
            };
            let text = self.workspace.saved_text(&file).unwrap_or_default();
            let found = self.files.findings_at(&file);
            let found: Vec<_> = found.map(|found| rendering::diagnostic(found, &text)).collect();
            if let Some(uri) = uri {
                let params = json!({"uri": uri, "diagnostics": found});
                self.send(incoming::notification("textDocument/publishDiagnostics", params));
            }
        }
    }

    /// Opens a text in the editor, or shows the first lines of it.
    pub(crate) fn show(&mut self, shown: &ShownText) {
        const MOST_LINES: usize = 40;
        match file_uri::uri_of(&shown.file) {
            Some(uri) if self.client.shows_documents => {
                self.ask("window/showDocument", json!({"uri": uri, "takeFocus": true}));
            }
            _ => {
                let mut text: Vec<_> = shown.text.lines().take(MOST_LINES).map(str::to_owned).collect();
                if shown.text.lines().count() > MOST_LINES {
                    text.push(format!("the whole text is in {}", shown.file.display()));
                }
                let params = json!({"type": 3, "message": text.join("\n")});
                self.send(incoming::notification("window/showMessage", params));
            }
        }
    }
}
