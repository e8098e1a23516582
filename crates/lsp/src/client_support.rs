//! What a client says of itself in `initialize`.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::file_uri::path_of;

/// What the client can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ClientSupport {
    /// It opens a file on request.
    pub(crate) shows_documents: bool,
    /// It asks again for lenses on request.
    pub(crate) refreshes_lenses: bool,
    /// It reports files that change outside of its buffers.
    pub(crate) watches_files: bool,
}

impl ClientSupport {
    /// Reads the parameters of `initialize`. What is not said is not supported.
    pub(crate) fn read(params: &Value) -> Self {
        let is_true = |pointer: &str| params.pointer(pointer).and_then(Value::as_bool) == Some(true);
        Self {
            shows_documents: is_true("/capabilities/window/showDocument/support"),
            refreshes_lenses: is_true("/capabilities/workspace/codeLens/refreshSupport"),
            watches_files: is_true("/capabilities/workspace/didChangeWatchedFiles/dynamicRegistration"),
        }
    }
}

/// The folder that the client opened: the first of its workspace, or else its root.
pub(crate) fn folder(params: &Value) -> Option<PathBuf> {
    let uri = |pointer: &str| params.pointer(pointer).and_then(Value::as_str).and_then(path_of);
    let path = || params.get("rootPath").and_then(Value::as_str).map(PathBuf::from);
    uri("/workspaceFolders/0/uri")
        .or_else(|| uri("/rootUri"))
        .or_else(path)
        .filter(|folder| folder.is_absolute())
}

/// The commands that a client may execute.
pub(crate) const COMMANDS: [&str; 3] = ["konverge.showChain", "konverge.showSpec", "konverge.preview"];

/// The answer to `initialize`.
pub(crate) fn capabilities() -> Value {
    json!({
        "capabilities": {
            // The server reads saved files; a buffer's text only says where something stands in it.
            "textDocumentSync": {"openClose": true, "change": 1, "save": {"includeText": false}},
            "codeLensProvider": {"resolveProvider": false},
            "hoverProvider": true,
            "documentLinkProvider": {"resolveProvider": true},
            "executeCommandProvider": {"commands": COMMANDS},
        },
        "serverInfo": {"name": "konverge", "version": env!("CARGO_PKG_VERSION")},
    })
}

/// The request that makes the client report files that change outside of its buffers.
pub(crate) fn watch_registration() -> Value {
    let files = ["**/*.k", "**/*.yaml", "**/kcl.mod", "**/kcl.mod.lock"];
    let watchers: Vec<_> = files.iter().map(|glob| json!({"globPattern": glob})).collect();
    json!({"registrations": [{
        "id": "konverge-files",
        "method": "workspace/didChangeWatchedFiles",
        "registerOptions": {"watchers": watchers},
    }]})
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
