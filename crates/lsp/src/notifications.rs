//! Handles notifications about files, and sends updated findings to the editor.

use lsp_server::{Notification, RequestId};
use lsp_types::{
    LogMessageParams, MessageType, NumberOrString, PublishDiagnosticsParams, ShowDocumentParams,
    ShowMessageParams, TextDocumentItem, Url,
    notification::{
        Cancel, DidChangeTextDocument, DidChangeWatchedFiles, DidCloseTextDocument, DidOpenTextDocument,
        DidSaveTextDocument, Initialized, LogMessage, Notification as Kind, PublishDiagnostics, ShowMessage,
    },
    request::{CodeLensRefresh, RegisterCapability, ShowDocument},
};
use serde_json::Value;

use super::{
    client_support::watch_registration,
    file_uri,
    open_files::OpenFile,
    rendering,
    server::{LanguageServer, ProblemSource},
    workspace::ShownText,
};
use konverge_base::model::{RepoPath, lint::Diagnostic};

impl LanguageServer {
    /// Handles a notification. Unknown ones, such as changed settings, are ignored.
    pub(crate) fn notified(&mut self, Notification { method, params }: Notification) {
        match method.as_str() {
            Initialized::METHOD if self.client.watches_files => {
                self.ask::<RegisterCapability>(watch_registration());
            }
            DidOpenTextDocument::METHOD => {
                self.refresh();
                if let Some(opened) = read::<DidOpenTextDocument>(params)
                    && let Some(file) = self.file_or_note(&opened.text_document.uri)
                {
                    let TextDocumentItem { uri, text, .. } = opened.text_document;
                    self.files.open.insert(file, OpenFile { uri, text });
                    self.start_check();
                }
            }
            DidChangeTextDocument::METHOD => {
                if let Some(mut changed) = read::<DidChangeTextDocument>(params)
                    && let Some(file) = self.file_of(&changed.text_document.uri)
                    && let Some(last) = changed.content_changes.pop()
                    && let Some(open) = self.files.open.get_mut(&file)
                {
                    open.text = last.text;
                }
            }
            DidSaveTextDocument::METHOD | DidChangeWatchedFiles::METHOD => self.saved(),
            DidCloseTextDocument::METHOD => {
                if let Some(closed) = read::<DidCloseTextDocument>(params)
                    && let Some(file) = self.file_of(&closed.text_document.uri)
                {
                    self.files.open.remove(&file);
                    self.start_check();
                }
            }
            Cancel::METHOD => {
                let id = read::<Cancel>(params).map(|cancelled| match cancelled.id {
                    NumberOrString::Number(id) => RequestId::from(id),
                    NumberOrString::String(id) => RequestId::from(id),
                });
                if let Some(work) = id.and_then(|id| self.running.get(&id)) {
                    work.cancel();
                }
            }
            _ => {}
        }
    }

    /// Handles a saved file: findings may have changed.
    fn saved(&mut self) {
        if self.refresh() {
            self.start_check();
        }
    }

    /// Reads saved files again. Returns true if there were any, because code lenses may have changed then.
    fn refresh(&mut self) -> bool {
        let refreshed = self.workspace.refresh();
        self.tell_problem(ProblemSource::Repository, refreshed.as_ref().err());
        let is_changed = refreshed.unwrap_or(false);
        if is_changed && self.client.refreshes_lenses {
            self.ask::<CodeLensRefresh>(());
        }
        is_changed
    }

    /// Returns the repository file of a URI.
    pub(crate) fn file_of(&self, uri: &Url) -> Option<RepoPath> {
        file_uri::file_of(uri, &self.workspace.root()?)
    }

    /// Returns the repository file of a URI. Logs a file outside the repository.
    fn file_or_note(&self, uri: &Url) -> Option<RepoPath> {
        let file = self.file_of(uri);
        if file.is_none()
            && let Some(root) = self.workspace.root()
        {
            let message = format!("{uri} is not a file of {}", root.display());
            self.tell::<LogMessage>(LogMessageParams {
                typ: MessageType::INFO,
                message,
            });
        }
        file
    }

    /// Sends findings to the editor.
    pub(crate) fn publish(&mut self, found: Vec<Diagnostic>) {
        let Some(root) = self.workspace.root() else {
            return;
        };
        for file in self.files.set_found(found) {
            let uri = match self.files.open.get(&file) {
                Some(open) => Some(open.uri.clone()),
                None => file_uri::uri_of(&root.join(file.as_str())),
            };
            let text = self.workspace.saved_text(&file).unwrap_or_default();
            let found = self.files.findings_at(&file);
            let found = found.map(|found| rendering::diagnostic(found, &text)).collect();
            if let Some(uri) = uri {
                self.tell::<PublishDiagnostics>(PublishDiagnosticsParams::new(uri, found, None));
            }
        }
    }

    /// Opens a text in the editor. If the editor cannot, shows the first lines as a message.
    pub(crate) fn show(&mut self, shown: &ShownText) {
        const MOST_LINES: usize = 40;
        match file_uri::uri_of(&shown.file) {
            Some(uri) if self.client.shows_documents => {
                self.ask::<ShowDocument>(ShowDocumentParams {
                    uri,
                    external: None,
                    take_focus: Some(true),
                    selection: None,
                });
            }
            _ => {
                let mut text: Vec<_> = shown.text.lines().take(MOST_LINES).map(str::to_owned).collect();
                if shown.text.lines().count() > MOST_LINES {
                    text.push(format!("the whole text is in {}", shown.file.display()));
                }
                self.tell::<ShowMessage>(ShowMessageParams {
                    typ: MessageType::INFO,
                    message: text.join("\n"),
                });
            }
        }
    }
}

/// Parses the parameters of a notification; `None` if they are malformed.
fn read<N: Kind>(params: Value) -> Option<N::Params> {
    serde_json::from_value(params).ok()
}
