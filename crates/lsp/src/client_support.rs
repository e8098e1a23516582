//! The capabilities of the editor and of the server, which they exchange in `initialize`.

use std::path::PathBuf;

use lsp_types::{
    CodeLensOptions, DocumentLinkOptions, ExecuteCommandOptions, InitializeResult, Registration,
    RegistrationParams, SaveOptions, ServerCapabilities, ServerInfo, TextDocumentSyncKind,
    TextDocumentSyncOptions, Url, WorkDoneProgressOptions,
    notification::{DidChangeWatchedFiles, Notification as _},
};
use serde_json::{Value, json};

use super::file_uri::path_of;

/// The capabilities of the editor that the server uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ClientSupport {
    /// True if the editor can open a file when the server asks.
    pub(crate) shows_documents: bool,
    /// True if the editor can request code lenses again when the server asks.
    pub(crate) refreshes_lenses: bool,
    /// True if the editor reports files that change outside of it.
    pub(crate) watches_files: bool,
}

impl ClientSupport {
    /// Reads the parameters of `initialize`. A missing capability is not supported. The parameters are not
    /// deserialized into a type, because an unknown word of a newer editor would then fail the whole request.
    pub(crate) fn read(params: &Value) -> Self {
        let is_true = |pointer: &str| params.pointer(pointer).and_then(Value::as_bool) == Some(true);
        Self {
            shows_documents: is_true("/capabilities/window/showDocument/support"),
            refreshes_lenses: is_true("/capabilities/workspace/codeLens/refreshSupport"),
            watches_files: is_true("/capabilities/workspace/didChangeWatchedFiles/dynamicRegistration"),
        }
    }
}

/// Returns the folder that the editor opened: the first workspace folder, or else the root.
pub(crate) fn folder(params: &Value) -> Option<PathBuf> {
    let uri = |pointer: &str| {
        let uri = Url::parse(params.pointer(pointer)?.as_str()?).ok()?;
        path_of(&uri)
    };
    let path = || params.get("rootPath").and_then(Value::as_str).map(PathBuf::from);
    uri("/workspaceFolders/0/uri")
        .or_else(|| uri("/rootUri"))
        .or_else(path)
        .filter(|folder| folder.is_absolute())
}

/// The commands that the editor may execute.
pub(crate) const COMMANDS: [&str; 3] = ["konverge.showChain", "konverge.showSpec", "konverge.preview"];

/// Returns the response to `initialize`.
pub(crate) fn capabilities() -> InitializeResult {
    // The server analyzes saved files. It needs the text of an open file only to find positions in it.
    let sync = TextDocumentSyncOptions {
        open_close: Some(true),
        change: Some(TextDocumentSyncKind::FULL),
        save: Some(SaveOptions::default().into()),
        ..TextDocumentSyncOptions::default()
    };
    InitializeResult {
        capabilities: ServerCapabilities {
            text_document_sync: Some(sync.into()),
            code_lens_provider: Some(CodeLensOptions {
                resolve_provider: Some(false),
            }),
            hover_provider: Some(true.into()),
            document_link_provider: Some(DocumentLinkOptions {
                resolve_provider: Some(true),
                work_done_progress_options: WorkDoneProgressOptions::default(),
            }),
            execute_command_provider: Some(ExecuteCommandOptions {
                commands: COMMANDS.map(str::to_owned).to_vec(),
                ..ExecuteCommandOptions::default()
            }),
            ..ServerCapabilities::default()
        },
        server_info: Some(ServerInfo {
            name: "konverge".to_owned(),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        }),
    }
}

/// Returns the request that makes the editor report files that change outside of it.
pub(crate) fn watch_registration() -> RegistrationParams {
    let globs = ["**/*.k", "**/*.yaml", "**/kcl.mod", "**/kcl.mod.lock"];
    let watchers = globs.map(|glob| json!({"globPattern": glob}));
    RegistrationParams {
        registrations: vec![Registration {
            id: "konverge-files".to_owned(),
            method: DidChangeWatchedFiles::METHOD.to_owned(),
            register_options: Some(json!({"watchers": watchers})),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_first_that_the_client_names() {
        for (params, expected) in [
            (
                json!({"workspaceFolders": [{"uri": "file:///a%20b"}], "rootUri": "file:///c"}),
                Some("/a b"),
            ),
            (
                json!({"workspaceFolders": [], "rootUri": "file:///c"}),
                Some("/c"),
            ),
            (
                json!({"workspaceFolders": null, "rootUri": null, "rootPath": "/d"}),
                Some("/d"),
            ),
            (json!({"rootUri": "untitled:x", "rootPath": "d"}), None),
            (json!([]), None),
            (Value::Null, None),
        ] {
            assert_eq!(folder(&params), expected.map(PathBuf::from), "{params}");
        }
    }

    #[test]
    fn what_is_not_said_is_not_supported() {
        assert_eq!(ClientSupport::read(&Value::Null), ClientSupport::default());
        let odd = json!({"capabilities": {"window": {"showDocument": {"support": "yes"}}}});
        assert!(!ClientSupport::read(&odd).shows_documents);
    }
}
