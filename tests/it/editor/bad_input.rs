//! What no editor should send, and folders that are not as they should be: an answer that says why, and no crash.

use serde_json::{Value, json};

use super::client::{Client, uri};
use crate::support::{
    git::Repository,
    tiny_monorepo::{monorepo, write_stack},
};

fn one_stack() -> Repository {
    let repository = monorepo();
    write_stack(&repository, "a/dev", "a", "low");
    repository.commit("One stack");
    repository
}

#[test]
fn the_exit_code_says_whether_the_client_shut_down() {
    let repository = one_stack();
    assert_eq!(Client::open(repository.path(), &[]).shut_down().code, Some(0));
    let mut without = Client::open(repository.path(), &[]);
    without.tell("exit", Value::Null);
    assert_eq!(without.end().code, Some(1));
    let closed = Client::open(repository.path(), &[]).end();
    assert_eq!((closed.code, closed.stderr.as_str()), (Some(1), ""));
}

#[test]
fn a_stream_that_is_broken_ends_with_an_error_on_stderr() {
    let repository = one_stack();
    for (bytes, message) in [
        (
            "Content-Length: 500\r\n\r\n{\"jsonrpc\"",
            "the input ends in the middle of a message",
        ),
        ("Content-Length: 5", "malformed header"),
        ("Content-Length: many\r\n\r\n{}", "invalid digit"),
        ("GET / HTTP/1.1\r\n\r\n", "malformed header"),
        ("Content-Length: 1\r\n\r\n{", "malformed LSP payload"),
        ("Content-Length: 2\r\n\r\n[]", "malformed LSP payload"),
        (
            "Content-Length: 7\r\n\r\n\u{0}\u{1b}[2J\u{1b}c",
            "malformed LSP payload",
        ),
    ] {
        let mut client = Client::open(repository.path(), &[]);
        client.write(bytes.as_bytes());
        let ended = client.end();
        assert!(matches!(ended.code, Some(1 | 64)), "{:?}", ended.code);
        assert!(
            ended.stderr.contains(message) && ended.stderr.contains("hint"),
            "{}",
            ended.stderr
        );
        assert!(!ended.stderr.contains('\u{1b}'), "{:?}", ended.stderr);
    }
}

#[test]
fn a_message_that_is_wrong_is_refused_and_the_session_goes_on() {
    let repository = one_stack();
    let folder = repository.path();
    let mut client = Client::start(folder, &[]);
    assert_eq!(client.refused("textDocument/hover", json!({})).0, -32_002);
    client.ask(
        "initialize",
        json!({"rootUri": uri(folder, ""), "capabilities": {}}),
    );
    assert_eq!(client.refused("initialize", json!({})).0, -32_600);
    assert_eq!(client.refused("textDocument/completion", json!({})).0, -32_601);
    // Parameters of another shape.
    for method in ["didOpen", "didChange", "didSave", "didClose", "didOther"] {
        for params in [
            Value::Null,
            json!([]),
            json!({"textDocument": 1}),
            json!({"textDocument": {"uri": 1}}),
        ] {
            client.tell(&format!("textDocument/{method}"), params);
        }
    }
    for (method, params) in [
        ("textDocument/codeLens", json!(null)),
        (
            "textDocument/hover",
            json!({"textDocument": {"uri": uri(folder, "base/app.k")}, "position": {"line": -1}}),
        ),
        ("documentLink/resolve", json!({"data": 1})),
        (
            "workspace/executeCommand",
            json!({"command": "konverge.apply", "arguments": []}),
        ),
        (
            "workspace/executeCommand",
            json!({"command": "konverge.preview", "arguments": []}),
        ),
        (
            "workspace/executeCommand",
            json!({"command": "konverge.preview", "arguments": ["file:///etc/passwd"]}),
        ),
    ] {
        assert_eq!(client.refused(method, params).0, -32_602, "{method}");
    }
    assert_eq!(client.lenses(folder, "base/app.k")[0], "affects 1 stack");
    client.ask("shutdown", Value::Null);
    assert_eq!(client.refused("textDocument/hover", json!({})).0, -32_600);
    client.tell("exit", Value::Null);
    assert_eq!(client.end().code, Some(0));
}

#[test]
fn files_outside_of_the_repository_are_noted_and_have_nothing() {
    let repository = one_stack();
    let other = one_stack();
    let folder = repository.path();
    let mut client = Client::open(folder, &[]);
    client.did_open(other.path(), "base/app.k");
    let noted = client.notified("window/logMessage");
    assert!(
        noted["message"].as_str().unwrap().contains("is not a file of"),
        "{noted}"
    );
    std::os::unix::fs::symlink(other.path().join("base/app.k"), folder.join("base/link.k")).unwrap();
    for uri in [
        uri(other.path(), "base/app.k"),
        uri(folder, ".git/config"),
        uri(folder, "base/link.k"),
        uri(folder, "base/nothing.k"),
        uri(folder, "base"),
        uri(folder, ""),
        "file:///etc/passwd".to_owned(),
        "file:///%00/%ff/%2e%2e/%2F".to_owned(),
        "file:///C:/konfig/base/app.k".to_owned(),
        "file:///c%3A/konfig/base/app.k".to_owned(),
        "C:\\konfig\\base\\app.k".to_owned(),
        "\\\\server\\share\\app.k".to_owned(),
        "untitled:Untitled-1".to_owned(),
        "vscode-remote://host/app.k".to_owned(),
        format!("file://{}/base%2F..%2F..%2F..%2Fetc%2Fpasswd", folder.display()),
        "%".to_owned(),
        "x".repeat(100_000),
        String::new(),
    ] {
        let document = json!({"uri": uri, "languageId": "kcl", "version": 1, "text": "a = 1\n"});
        client.tell("textDocument/didOpen", json!({"textDocument": document}));
        for method in ["textDocument/codeLens", "textDocument/documentLink"] {
            let params = json!({"textDocument": {"uri": uri}});
            if url::Url::parse(&uri).is_ok() {
                assert_eq!(client.ask(method, params), json!([]), "{uri}");
            } else {
                assert_eq!(client.refused(method, params).0, -32_602, "{uri}");
            }
        }
    }
    assert_eq!(client.lenses(folder, "base/app.k")[0], "affects 1 stack");
    assert_eq!(client.shut_down().code, Some(0));
}

#[test]
fn a_folder_that_is_deleted_is_a_warning_and_what_was_read_stays() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().canonicalize().unwrap().join("copy");
    one_stack().git(["clone", "--quiet", ".", copy.to_str().unwrap()]);
    let mut client = Client::open(&copy, &[]);
    client.did_open(&copy, "base/app.k");
    assert_eq!(client.lenses(&copy, "base/app.k")[0], "affects 1 stack");
    std::fs::remove_dir_all(&copy).unwrap();
    client.did_save(&copy, "base/app.k");
    let warned = client.notified("window/showMessage");
    assert_eq!(warned["type"], 2, "{warned}");
    let arguments = json!({"command": "konverge.preview", "arguments": [uri(&copy, "base/app.k")]});
    assert_eq!(client.refused("workspace/executeCommand", arguments).0, -32_803);
    client.lenses(&copy, "base/app.k");
    assert_eq!(client.shut_down().code, Some(0));
}

#[test]
fn a_folder_without_a_repository_is_a_warning_until_it_has_one() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("base")).unwrap();
    std::fs::write(root.join("base/app.k"), "a = 1\n").unwrap();
    let mut client = Client::open(&root, &[]);
    let warned = client.notified("window/showMessage");
    assert!(warned["message"].as_str().unwrap().contains("hint: "), "{warned}");
    client.did_open(&root, "base/app.k");
    assert_eq!(client.lenses(&root, "base/app.k"), [""; 0]);
    std::fs::write(root.join("kcl.mod"), "[package]\nname = \"konfig\"\n").unwrap();
    let made = std::process::Command::new("git")
        .args(["init", "--quiet"])
        .current_dir(&root)
        .status();
    assert!(made.unwrap().success());
    client.did_save(&root, "base/app.k");
    assert_eq!(client.lenses(&root, "base/app.k"), ["affects no stack"]);
    // An unreadable configuration is a warning, too, and its repair ends it.
    std::fs::write(root.join("konverge.yaml"), "version: [\n").unwrap();
    client.did_save(&root, "konverge.yaml");
    let warned = client.notified("window/showMessage");
    assert!(
        warned["message"].as_str().unwrap().contains("konverge.yaml"),
        "{warned}"
    );
    assert_eq!(client.shut_down().code, Some(0));
}

/// Editors and people may try it without an editor.
#[test]
fn started_by_hand_it_waits_for_messages_and_takes_no_stack() {
    use crate::support::process::Konverge;
    let ended = Konverge::new(["lsp"]).run();
    assert_eq!(
        (ended.stdout.as_str(), ended.code),
        ("", Some(1)),
        "{}",
        ended.stderr
    );
    Konverge::new(["lsp", "a/dev"]).run().expect(64);
}
