//! Reasons why a module gave no response.

use std::time::Duration;

use konverge_base::error::{ErrorKind, SharedError, UserError};

/// Reasons why a module gave no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum ModuleError {
    /// The module could not be started.
    #[error("it could not be started")]
    Start(#[source] SharedError),
    /// The sandbox is incomplete.
    #[error("it is not run: {0}")]
    Sandbox(String),
    /// The module printed another line before the handshake.
    #[error("its first line of output is `{0}` instead of the handshake of go-plugin")]
    NoHandshake(String),
    /// The module exited before the handshake.
    #[error("it exited before the handshake ({status}){}", after_colon(.said))]
    EndedEarly { status: String, said: String },
    /// The handshake names a protocol or an address that Konverge does not accept.
    #[error("its handshake names {0}")]
    Handshake(String),
    /// The module ended, or closed the connection, before it responded.
    #[error("it exited without a response{}", after_colon(.0))]
    Lost(String),
    /// The module refused the request.
    #[error("it returned an error: {message} (gRPC status {code})")]
    Refused { code: u32, message: String },
    /// The module's response breaks the protocol.
    #[error("its response cannot be parsed")]
    Garbled(#[source] SharedError),
    /// The response is larger than the limit.
    #[error("its response is larger than {0} bytes")]
    TooLarge(usize),
    /// The output is larger than the limit.
    #[error("it prints more than {0} bytes")]
    TooMuchOutput(usize),
    /// The module did not respond in time.
    #[error("it did not answer within {} s", .0.as_secs())]
    Deadline(Duration),
}

fn after_colon(text: &str) -> String {
    match text {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

impl ModuleError {
    /// Returns this error for the user, with the name of the module and a hint.
    pub fn into_user_error(self, name: &str) -> UserError {
        let failure =
            UserError::from_error(ErrorKind::Spec, self.clone()).context(format_args!("the module `{name}`"));
        match self {
            Self::NoHandshake(_) => failure.hint(
                "a module must not print before the handshake: let it write to standard error",
            ),
            Self::EndedEarly { .. } | Self::Start(_) => failure.hint(format!(
                "run `konverge doctor --module {name}` with the path of the binary: it shows what the module says"
            )),
            Self::Sandbox(_) => konverge_sandbox::HINTS.into_iter().fold(failure, UserError::hint),
            Self::Deadline(_) => failure.hint(format!(
                "if the module needs longer: `modules: {{{name}: {{timeout: 5m}}}}` in konverge.yaml; if it needs the network: `network: true` beside `timeout`"
            )),
            Self::Lost(_)
            | Self::Handshake(_)
            | Self::Refused { .. }
            | Self::Garbled(_)
            | Self::TooLarge(_)
            | Self::TooMuchOutput(_) => failure,
        }
    }
}
