//! The main loop of the server: handles one message after the other, and slow work on other threads.

use std::{
    collections::HashMap,
    io::{BufReader, ErrorKind as IoErrorKind, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use lsp_server::{ErrorCode, Message, Notification, Request, RequestId, Response};
use lsp_types::{
    MessageType, ShowMessageParams,
    notification::{Exit, Notification as _, ShowMessage},
    request::{Initialize, Request as _, Shutdown},
};
use serde_json::Value;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio_util::sync::CancellationToken;

use super::{
    client_support::{ClientSupport, capabilities, folder},
    open_files::OpenFiles,
    rendering::{self, RequestResult, refusal},
    workspace::{EditorWorkspace, ShownText},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::lint::Diagnostic,
};

/// The maximum number of received messages that wait to be handled.
const WAITING: usize = 64;

/// Reasons why the server stops before the client asks for it.
#[derive(Debug, thiserror::Error)]
pub enum LspError {
    /// The input ended inside a message.
    #[error("the input ends in the middle of a message")]
    Half(#[source] std::io::Error),
    /// The input is not a valid stream of messages.
    #[error("the input is not a stream of messages: {}", excerpt(.0))]
    Input(#[source] std::io::Error),
    /// The output is closed.
    #[error("the output cannot be written: {0}")]
    Write(std::io::Error),
}

/// Shortens an error, which may quote a whole message.
fn excerpt(error: &std::io::Error) -> String {
    error.to_string().escape_debug().take(300).collect()
}

impl From<std::io::Error> for LspError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            IoErrorKind::UnexpectedEof => Self::Half(error),
            _ => Self::Input(error),
        }
    }
}

impl From<LspError> for UserError {
    fn from(error: LspError) -> Self {
        Self::new(ErrorKind::Usage, error.to_string())
            .hint("an editor starts `konverge lsp`; the guide `editor` has the lines for its configuration")
    }
}

/// The way in which a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// The client sent `shutdown`, then `exit`.
    Orderly,
    /// The client sent `exit` without `shutdown`, or the input ended.
    WithoutShutdown,
}

/// The phase of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionPhase {
    /// The client has not sent `initialize` yet.
    New,
    /// The client has sent `initialize`.
    Running,
    /// The client has sent `shutdown`.
    ShutDown,
}

/// The source of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ProblemSource {
    /// The repository cannot be read.
    Repository,
    /// The check cannot run.
    Check,
}

/// The result of slow work.
pub(crate) enum FinishedWork {
    /// The response to a request, and optionally a text to show.
    Answer {
        id: RequestId,
        result: RequestResult,
        shown: Option<ShownText>,
    },
    /// The findings of the check with this number.
    Check {
        number: u64,
        found: Result<Vec<Diagnostic>, UserError>,
    },
}

/// A session with an editor.
pub(crate) struct LanguageServer {
    pub(crate) workspace: Arc<dyn EditorWorkspace>,
    /// The folder to open if the editor names none.
    default_folder: PathBuf,
    phase: SessionPhase,
    pub(crate) client: ClientSupport,
    pub(crate) files: OpenFiles,
    outbox: UnboundedSender<Message>,
    pub(crate) finished: UnboundedSender<FinishedWork>,
    /// The running requests, with the tokens that cancel them.
    pub(crate) running: HashMap<RequestId, CancellationToken>,
    /// The number of the last check, with the token that cancels it.
    pub(crate) check: (u64, CancellationToken),
    /// The problems that are shown now, so that each is shown only once.
    problems: HashMap<ProblemSource, String>,
    requests: u64,
}

/// Serves one editor until it sends `exit` or the input ends.
///
/// # Errors
/// The input is not a valid stream of messages, or the output cannot be written.
pub async fn serve(
    workspace: Arc<dyn EditorWorkspace>,
    default_folder: &Path,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
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
    let writer = tokio::task::spawn_blocking(|| write_all(outgoing, output));
    let (sender, mut messages) = mpsc::channel(WAITING);
    // A plain thread and not a blocking task of the runtime: at its shutdown the runtime would wait for a task that
    // still reads an open input.
    std::thread::spawn(move || {
        let mut input = BufReader::new(input);
        loop {
            let message = Message::read(&mut input);
            let is_last = !matches!(message, Ok(Some(_)));
            if sender.blocking_send(message).is_err() || is_last {
                return;
            }
        }
    });
    let result = loop {
        tokio::select! {
            biased;
            Some(work) = ended.recv() => server.finish(work),
            message = messages.recv() => match message.unwrap_or(Ok(None)) {
                Ok(Some(message)) => if let Some(end) = server.take(message) {
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
    // Dropping the server closes the channel, so the writer ends after it has written all pending responses.
    drop(server);
    match writer.await {
        Ok(Err(error)) => Err(LspError::Write(error)),
        _ => result,
    }
}

fn write_all(mut outgoing: UnboundedReceiver<Message>, mut output: impl Write) -> std::io::Result<()> {
    while let Some(message) = outgoing.blocking_recv() {
        message.write(&mut output)?;
    }
    Ok(())
}

impl LanguageServer {
    /// Handles one message. Returns the end of the session, if the message ends it.
    fn take(&mut self, message: Message) -> Option<SessionEnd> {
        match message {
            Message::Response(_) => {}
            Message::Notification(notification) if notification.method == Exit::METHOD => {
                return Some(match self.phase {
                    SessionPhase::ShutDown => SessionEnd::Orderly,
                    _ => SessionEnd::WithoutShutdown,
                });
            }
            Message::Notification(notification) => {
                if self.phase == SessionPhase::Running {
                    self.notified(notification);
                }
            }
            Message::Request(request) => self.requested(request),
        }
        None
    }

    fn requested(&mut self, Request { id, method, params }: Request) {
        let invalid = |what: &str| Err(refusal(ErrorCode::InvalidRequest, what));
        let result = match (self.phase, method.as_str()) {
            (SessionPhase::New, Initialize::METHOD) => return self.initialize(id, &params),
            (SessionPhase::New, _) => Err(refusal(
                ErrorCode::ServerNotInitialized,
                "the first request must be `initialize`",
            )),
            (SessionPhase::ShutDown, _) => invalid("the server is shut down; only `exit` may follow"),
            (SessionPhase::Running, Initialize::METHOD) => invalid("`initialize` was sent before"),
            (SessionPhase::Running, Shutdown::METHOD) => {
                self.phase = SessionPhase::ShutDown;
                self.stop_work();
                Ok(Value::Null)
            }
            (SessionPhase::Running, method) => match self.answer(&id, method, params) {
                Some(result) => result,
                // The response is sent when the work is done.
                None => return,
            },
        };
        self.respond(id, result);
    }

    fn initialize(&mut self, id: RequestId, params: &Value) {
        self.phase = SessionPhase::Running;
        self.client = ClientSupport::read(params);
        let folder = folder(params).unwrap_or_else(|| self.default_folder.clone());
        let opened = self.workspace.open(&folder);
        self.send(Response::new_ok(id, capabilities()));
        self.tell_problem(ProblemSource::Repository, opened.err().as_ref());
    }

    fn finish(&mut self, work: FinishedWork) {
        match work {
            FinishedWork::Answer { id, result, shown } => {
                self.running.remove(&id);
                if let Some(shown) = shown {
                    self.show(&shown);
                }
                self.respond(id, result);
            }
            FinishedWork::Check { number, found } if number == self.check.0 => match found {
                Ok(found) => {
                    self.publish(found);
                    self.tell_problem(ProblemSource::Check, None);
                }
                Err(failure) => self.tell_problem(ProblemSource::Check, Some(&failure)),
            },
            // The result of an old check is dropped, because a newer check is running.
            FinishedWork::Check { .. } => {}
        }
    }

    /// Shows a problem, unless it is shown already. `None` means that the problem is solved.
    pub(crate) fn tell_problem(&mut self, source: ProblemSource, problem: Option<&UserError>) {
        let Some(text) = problem.map(rendering::failure) else {
            self.problems.remove(&source);
            return;
        };
        if self.problems.get(&source) != Some(&text) {
            self.tell::<ShowMessage>(ShowMessageParams {
                typ: MessageType::WARNING,
                message: format!("Konverge: {text}"),
            });
            self.problems.insert(source, text);
        }
    }

    /// Cancels all running work.
    fn stop_work(&mut self) {
        self.running.values().for_each(CancellationToken::cancel);
        self.check.1.cancel();
    }

    fn respond(&self, id: RequestId, result: RequestResult) {
        self.send(Response {
            id,
            response_result: result,
        });
    }

    /// Sends a request to the editor. Its response is ignored.
    pub(crate) fn ask<R: lsp_types::request::Request>(&mut self, params: R::Params) {
        self.requests += 1;
        let id = RequestId::from(format!("konverge-{}", self.requests));
        self.send(Request::new(id, R::METHOD.to_owned(), params));
    }

    /// Sends a notification to the editor.
    pub(crate) fn tell<N: lsp_types::notification::Notification>(&self, params: N::Params) {
        self.send(Notification::new(N::METHOD.to_owned(), params));
    }

    fn send(&self, message: impl Into<Message>) {
        // If the writer has ended, this fails and the main loop stops at the next message.
        let _ = self.outbox.send(message.into());
    }
}
