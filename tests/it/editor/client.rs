//! A client of the language server: the real binary, its streams, and the messages on them.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{kcl, process::binary};

/// How long an answer may take on a machine that does other things besides.
const LIMIT: Duration = Duration::from_secs(120);

pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Value>,
    /// What was received and not asked for yet.
    waiting: Vec<Value>,
    errors: Option<JoinHandle<String>>,
    /// Removed at the end, with what the server left there.
    _home: tempfile::TempDir,
    ids: u64,
}

/// How a server ended.
pub struct Ended {
    pub code: Option<i32>,
    pub stderr: String,
}

/// The URI of a file.
pub fn uri(folder: &Path, file: &str) -> String {
    url::Url::from_file_path(folder.join(file)).unwrap().into()
}

impl Client {
    /// Starts the server.
    pub fn start(folder: &Path, env: &[(&str, &Path)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(binary());
        command
            .arg("lsp")
            .current_dir(folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", home.path())
            .env("TMPDIR", home.path())
            .env("KONVERGE_KCL", kcl::interpreter())
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, messages) = channel();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            while let Some(message) = read(&mut output) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut stderr = child.stderr.take().unwrap();
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        Self {
            input: child.stdin.take(),
            child,
            messages,
            waiting: Vec::new(),
            errors: Some(errors),
            _home: home,
            ids: 0,
        }
    }

    /// Starts the server and opens a folder, as an editor that shows documents.
    pub fn open(folder: &Path, env: &[(&str, &Path)]) -> Self {
        let mut client = Self::start(folder, env);
        let capabilities = json!({"window": {"showDocument": {"support": true}},
            "workspace": {"codeLens": {"refreshSupport": true}}});
        let folders = json!([{"uri": uri(folder, ""), "name": "repository"}]);
        client.ask(
            "initialize",
            json!({"processId": null, "capabilities": capabilities, "workspaceFolders": folders}),
        );
        client.tell("initialized", json!({}));
        client
    }

    /// Writes bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        // A server that has ended reads nothing.
        let _ = input.write_all(bytes).and_then(|()| input.flush());
    }

    pub fn send(&mut self, message: &Value) {
        let text = message.to_string();
        self.write(format!("Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes());
    }

    pub fn tell(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Sends a request and returns its id.
    pub fn request(&mut self, method: &str, params: Value) -> u64 {
        self.ids += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.ids, "method": method, "params": params}));
        self.ids
    }

    /// The first message that is meant.
    pub fn message(&mut self, is_meant: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.waiting.iter().position(&is_meant) {
            return self.waiting.remove(at);
        }
        let until = Instant::now() + LIMIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(message) if is_meant(&message) => return message,
                Ok(message) => self.waiting.push(message),
                Err(error) => panic!("{error}; received: {:#?}", self.waiting),
            }
        }
    }

    /// The whole answer to a request.
    pub fn answer(&mut self, id: u64) -> Value {
        self.message(|message| message["id"] == id && message.get("method").is_none())
    }

    /// The result of a request.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        let answer = self.answer(id);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The error of a request.
    pub fn refused(&mut self, method: &str, params: Value) -> (i64, String) {
        let id = self.request(method, params);
        let answer = self.answer(id);
        let error = &answer["error"];
        (
            error["code"].as_i64().unwrap_or_else(|| panic!("{answer}")),
            error["message"].as_str().unwrap().to_owned(),
        )
    }

    /// The next notification of this kind.
    pub fn notified(&mut self, method: &str) -> Value {
        self.message(|message| message["method"] == method)["params"].clone()
    }

    pub fn did_open(&mut self, folder: &Path, file: &str) {
        let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        let document = json!({"uri": uri(folder, file), "languageId": "kcl", "version": 1, "text": text});
        self.tell("textDocument/didOpen", json!({"textDocument": document}));
    }

    pub fn did_save(&mut self, folder: &Path, file: &str) {
        self.tell(
            "textDocument/didSave",
            json!({"textDocument": {"uri": uri(folder, file)}}),
        );
    }

    /// The findings of a file once they are as is meant.
    pub fn findings(&mut self, folder: &Path, file: &str, is_meant: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let wanted = uri(folder, file);
        let message = self.message(|message| {
            let params = &message["params"];
            message["method"] == "textDocument/publishDiagnostics"
                && params["uri"] == wanted.as_str()
                && is_meant(params["diagnostics"].as_array().unwrap())
        });
        message["params"]["diagnostics"].as_array().unwrap().clone()
    }

    /// The titles of the lenses of a file.
    pub fn lenses(&mut self, folder: &Path, file: &str) -> Vec<String> {
        let lenses = self.ask(
            "textDocument/codeLens",
            json!({"textDocument": {"uri": uri(folder, file)}}),
        );
        let lenses = lenses.as_array().unwrap();
        let titles = lenses
            .iter()
            .map(|lens| lens["command"]["title"].as_str().unwrap().to_owned());
        titles.collect()
    }

    pub fn execute(&mut self, command: &str, folder: &Path, file: &str) -> Value {
        self.ask(
            "workspace/executeCommand",
            json!({"command": command, "arguments": [uri(folder, file)]}),
        )
    }

    /// Closes the input and waits for the end.
    pub fn end(mut self) -> Ended {
        self.input = None;
        let started = Instant::now();
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            assert!(started.elapsed() < LIMIT, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        Ended {
            code,
            stderr: self.errors.take().unwrap().join().unwrap(),
        }
    }

    /// `shutdown`, `exit`, and the end.
    pub fn shut_down(mut self) -> Ended {
        self.ask("shutdown", Value::Null);
        self.tell("exit", Value::Null);
        self.end()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It has ended if the test went well.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// One message. stdout has nothing but messages.
fn read(output: &mut impl BufRead) -> Option<Value> {
    let mut header = String::new();
    if output.read_line(&mut header).unwrap() == 0 {
        return None;
    }
    let length = header
        .strip_prefix("Content-Length: ")
        .unwrap_or_else(|| panic!("not a message: {header:?}"));
    let mut empty = String::new();
    output.read_line(&mut empty).unwrap();
    assert_eq!(empty, "\r\n");
    let mut content = vec![0; length.trim_end().parse().unwrap()];
    output.read_exact(&mut content).ok()?;
    Some(serde_json::from_slice(&content).unwrap())
}
