//! The loop of the server: one message after the other, with slow work on other threads.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite, BufReader},
    sync::mpsc::{self, UnboundedSender},
};
use tokio_util::sync::CancellationToken;

use super::{
    client_support::{ClientSupport, capabilities, folder},
    frame::{self, Frame, FrameError, MOST_BYTES},
    incoming::{self, Incoming, RefusalCode, RpcRefusal},
    open_files::OpenFiles,
    rendering,
    workspace::{EditorWorkspace, ShownText},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::lint::Diagnostic,
};

/// Messages that are read and not handled yet.
const WAITING: usize = 64;

/// Why the server stops before the client says so.
#[derive(Debug, thiserror::Error)]
pub enum LspError {
    /// The input is not a stream of messages.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Nobody reads the output.
    #[error("the output cannot be written: {0}")]
    Write(std::io::Error),
}

impl From<LspError> for UserError {
    fn from(error: LspError) -> Self {
        Self::new(ErrorKind::Usage, error.to_string())
            .hint("an editor starts `konverge lsp`; the guide `editor` has the lines for its configuration")
            .caused_by(error)
    }
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// `shutdown`, then `exit`.
    Orderly,
    /// `exit` without `shutdown`, or the end of the input.
    WithoutShutdown,
}

/// Where a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionPhase {
    /// Before `initialize`.
    New,
    /// After `initialize`.
    Running,
    /// After `shutdown`.
    ShutDown,
}

/// What a problem is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ProblemSource {
    /// The repository cannot be read.
    Repository,
    /// The check cannot run.
    Check,
}

/// Slow work that ended.
pub(crate) enum FinishedWork {
    /// The answer to a request; a text is shown besides.
    Answer {
        id: Value,
        result: Result<Value, RpcRefusal>,
        shown: Option<ShownText>,
    },
    /// What the check with this number found.
    Check {
        number: u64,
        found: Result<Vec<Diagnostic>, UserError>,
    },
}

/// One session with a client.
pub(crate) struct LanguageServer {
    pub(crate) workspace: Arc<dyn EditorWorkspace>,
    /// The folder if the client names none.
    default_folder: PathBuf,
    phase: SessionPhase,
    pub(crate) client: ClientSupport,
    pub(crate) files: OpenFiles,
    outbox: UnboundedSender<Value>,
    pub(crate) finished: UnboundedSender<FinishedWork>,
    /// The requests that are worked on, by the text of their id.
    pub(crate) running: HashMap<String, CancellationToken>,
    /// The number of the last check, and how it is stopped.
    pub(crate) check: (u64, CancellationToken),
    /// The problems that are shown, so that each is shown once.
    problems: HashMap<ProblemSource, String>,
    requests: u64,
}

/// Serves one client until it says `exit` or its input ends.
///
/// # Errors
/// The input is not a stream of messages, or the output cannot be written.
pub async fn serve(
    workspace: Arc<dyn EditorWorkspace>,
    default_folder: &Path,
    input: impl AsyncRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> Result<SessionEnd, LspError> {
    let (outbox, outgoing) = mpsc::unbounded_channel();
    let (finished, mut ended) = mpsc::unbounded_channel();
    let mut server = LanguageServer {
        workspace,
        default_folder: default_folder.to_owned(),
        phase: SessionPhase::New,
        client: ClientSupport::default(),
        files: OpenFiles::default(),
        outbox,
        finished,
        running: HashMap::new(),
        check: (0, CancellationToken::new()),
        problems: HashMap::new(),
        requests: 0,
    };
    let writer = tokio::spawn(write_all(outgoing, output));
    let (sender, mut frames) = mpsc::channel(WAITING);
    let reader = tokio::spawn(async move {
        let mut input = BufReader::new(input);
        loop {
            let frame = frame::read(&mut input).await;
            let is_last = !matches!(frame, Ok(Some(_)));
            if sender.send(frame).await.is_err() || is_last {
                return;
            }
        }
    });
    let result = loop {
        tokio::select! {
            biased;
            Some(work) = ended.recv() => server.finish(work),
            frame = frames.recv() => match frame.unwrap_or(Ok(None)) {
                Ok(Some(frame)) => if let Some(end) = server.take(frame) {
                    break Ok(end);
                },
                Ok(None) => break Ok(SessionEnd::WithoutShutdown),
                Err(error) => break Err(error.into()),
            },
        }
        if writer.is_finished() {
            break Ok(SessionEnd::WithoutShutdown);
        }
    };
    server.stop_work();
    reader.abort();
    // What was answered before the end is written.
    drop(server);
    match writer.await {
        Ok(Err(error)) => Err(LspError::Write(error)),
        _ => result,
    }
}

async fn write_all(
    mut outgoing: mpsc::UnboundedReceiver<Value>,
    mut output: impl AsyncWrite + Unpin,
) -> std::io::Result<()> {
    while let Some(message) = outgoing.recv().await {
        frame::write(&mut output, message.to_string().as_bytes()).await?;
    }
    Ok(())
}

impl LanguageServer {
    /// Handles one frame. Returns how the session ends, if it does.
    fn take(&mut self, frame: Frame) -> Option<SessionEnd> {
        let content = match frame {
            Frame::Content(content) => content,
            Frame::TooLarge(bytes) => {
                let message = format!("the message has {bytes} bytes; at most {MOST_BYTES} are read");
                self.refuse(
                    &Value::Null,
                    RpcRefusal::new(RefusalCode::InvalidRequest, message),
                );
                return None;
            }
        };
        match Incoming::parse(&content) {
            Err(refusal) => self.refuse(&Value::Null, refusal),
            Ok(Incoming::Response) => {}
            Ok(Incoming::Notification { method, .. }) if method == "exit" => {
                return Some(match self.phase {
                    SessionPhase::ShutDown => SessionEnd::Orderly,
                    _ => SessionEnd::WithoutShutdown,
                });
            }
            Ok(Incoming::Notification { method, params }) => {
                if self.phase == SessionPhase::Running {
                    self.notified(&method, params);
                }
            }
            Ok(Incoming::Request { id, method, params }) => self.requested(&id, &method, &params),
        }
        None
    }

    fn requested(&mut self, id: &Value, method: &str, params: &Value) {
        let invalid = |what: &str| Err(RpcRefusal::new(RefusalCode::InvalidRequest, what));
        let result = match (self.phase, method) {
            (SessionPhase::New, "initialize") => return self.initialize(id, params),
            (SessionPhase::New, _) => Err(RpcRefusal::new(
                RefusalCode::NotInitialized,
                "the first request must be `initialize`",
            )),
            (SessionPhase::ShutDown, _) => invalid("the server is shut down; only `exit` may follow"),
            (SessionPhase::Running, "initialize") => invalid("`initialize` was sent before"),
            (SessionPhase::Running, "shutdown") => {
                self.phase = SessionPhase::ShutDown;
                self.stop_work();
                Ok(Value::Null)
            }
            (SessionPhase::Running, _) => match self.answer(id, method, params) {
                Some(result) => result,
                // It is worked on.
                None => return,
            },
        };
        self.send(incoming::answer(id, result));
    }

    fn initialize(&mut self, id: &Value, params: &Value) {
        self.phase = SessionPhase::Running;
        self.client = ClientSupport::read(params);
        let folder = folder(params).unwrap_or_else(|| self.default_folder.clone());
        let opened = self.workspace.open(&folder);
        self.send(incoming::answer(id, Ok(capabilities())));
        self.tell_problem(ProblemSource::Repository, opened.err().as_ref());
    }

    fn finish(&mut self, work: FinishedWork) {
        match work {
            FinishedWork::Answer { id, result, shown } => {
                self.running.remove(&id.to_string());
                if let Some(shown) = shown {
                    self.show(&shown);
                }
                self.send(incoming::answer(&id, result));
            }
            FinishedWork::Check { number, found } if number == self.check.0 => match found {
                Ok(found) => {
                    self.publish(found);
                    self.tell_problem(ProblemSource::Check, None);
                }
                Err(failure) => self.tell_problem(ProblemSource::Check, Some(&failure)),
            },
            // A newer check is under way.
            FinishedWork::Check { .. } => {}
        }
    }

    /// Shows a problem once; with `None` it is over.
    pub(crate) fn tell_problem(&mut self, source: ProblemSource, problem: Option<&UserError>) {
        let Some(text) = problem.map(rendering::failure) else {
            self.problems.remove(&source);
            return;
        };
        if self.problems.get(&source) != Some(&text) {
            let params = json!({"type": 2, "message": format!("Konverge: {text}")});
            self.send(incoming::notification("window/showMessage", params));
            self.problems.insert(source, text);
        }
    }

    /// Stops all work.
    fn stop_work(&mut self) {
        self.running.values().for_each(CancellationToken::cancel);
        self.check.1.cancel();
    }

    fn refuse(&self, id: &Value, refusal: RpcRefusal) {
        self.send(incoming::answer(id, Err(refusal)));
    }

    /// Sends a request. Its answer changes nothing.
    pub(crate) fn ask(&mut self, method: &str, params: Value) {
        self.requests += 1;
        self.send(incoming::request(
            &format!("konverge-{}", self.requests),
            method,
            params,
        ));
    }

    /// Sends a message.
    pub(crate) fn send(&self, message: Value) {
        // If the writer has ended, the loop ends with the next message.
        let _ = self.outbox.send(message);
    }
}
