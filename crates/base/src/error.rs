//! The top-level error: the error of each crate becomes a [`UserError`] when it reaches a caller.
//!
//! A [`UserError`] says what failed, where (if it has a location), why (its causes) and what to do next (hints).

use std::{error::Error, fmt, ops::Deref, sync::Arc};

use serde::{Deserialize, Serialize};

/// The kind of an error, which scripts can match on. It decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The command line is wrong (exit code 64).
    Usage,
    /// `konverge.yaml` or the environment is wrong.
    Config,
    /// The git repository, a revision or an object in it.
    Git,
    /// The monorepo's layout: `kcl.mod`, `project.yaml`, `stack.yaml`, settings.
    Layout,
    /// KCL rejected the code, or the core could not be run.
    Kcl,
    /// The compiled Spec is malformed, refers to something that does not exist, or has a cycle.
    Spec,
    /// A cluster could not be reached or refused a request.
    Kubernetes,
    /// Terraform or one of its providers failed.
    Terraform,
    /// The object store could not be reached or refused a request.
    Store,
    /// A state document is damaged, belongs to another repository or has an unknown version.
    State,
    /// Another run holds the stack's lease (exit code 4).
    LeaseHeld,
    /// The plan contains a change that was not reviewed (exit code 3).
    Unreviewed,
    /// A policy forbids the operation (exit code 3).
    Policy,
    /// The person who was asked did not confirm.
    Declined,
    /// GitHub's API or the runner's environment failed.
    Github,
    /// A secret could not be resolved, or would have been exposed.
    Secret,
    /// Interrupted by a signal (exit code 130).
    Interrupted,
    /// A bug in Konverge itself.
    Internal,
}

impl ErrorKind {
    /// Returns the exit code of the process.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Usage => 64,
            Self::Unreviewed | Self::Policy => 3,
            Self::LeaseHeld => 4,
            Self::Interrupted => 130,
            _ => 1,
        }
    }

    /// Returns true if nothing failed, but a person must decide or another run must finish first (exit codes 3 and 4).
    /// The result of a stack is then *stopped*, not *failed*.
    pub fn is_stop(self) -> bool {
        matches!(self, Self::Unreviewed | Self::Policy | Self::LeaseHeld)
    }
}

/// A position in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// The file, as a path from the root of the checkout.
    pub file: String,
    /// The line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
            if let Some(column) = self.column {
                write!(f, ":{column}")?;
            }
        }
        Ok(())
    }
}

/// An error as it is shown to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserError {
    /// The kind of failure, which decides the exit code.
    pub kind: ErrorKind,
    /// The message, one sentence: what failed and why.
    pub message: String,
    /// The location of the failure, if there is one.
    pub location: Option<Location>,
    /// The next steps. Commands are in backticks.
    pub hints: Vec<String>,
    /// The single errors, if the message combines several.
    pub causes: Box<[Cause]>,
    /// The resource that the message names.
    pub resource: NamedResource,
}

/// An error as the `#[source]` of another one. It can be cloned, and two of them are equal if their texts are equal.
/// It is one pointer wide, so that results stay small.
#[derive(Clone, derive_more::Debug)]
#[debug("{:?}", chain(&**self))]
pub struct SharedError(Arc<Box<dyn Error + Send + Sync>>);

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for SharedError {
    fn from(error: E) -> Self {
        Self(Arc::new(error.into()))
    }
}

impl SharedError {
    /// Adds a description of what failed before the cause: `context: cause`.
    #[must_use]
    pub fn context(self, context: impl Into<String>) -> Self {
        let (context, cause) = (context.into(), self);
        Context { context, cause }.into()
    }
}

/// The description of what failed, with the cause as its source.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
struct Context {
    context: String,
    #[source]
    cause: SharedError,
}

impl Deref for SharedError {
    type Target = dyn Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &**self.0
    }
}

impl PartialEq for SharedError {
    fn eq(&self, other: &Self) -> bool {
        chain(&**self) == chain(&**other)
    }
}

impl Eq for SharedError {}

/// The resource that the message of a [`UserError`] names, if it names one. Comparisons of errors ignore it. It is one
/// pointer wide, so that results stay small.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("..")]
pub struct NamedResource(Option<Arc<String>>);

impl PartialEq for NamedResource {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for NamedResource {}

/// One of several errors that a message combines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The location, if there is one.
    pub location: Option<Location>,
    /// The message that describes the problem.
    pub message: String,
}

impl UserError {
    /// Creates an error without a location or hints.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: without_error_numbers(message.into()),
            location: None,
            hints: Vec::new(),
            causes: Box::default(),
            resource: NamedResource::default(),
        }
    }

    /// Creates an error whose message is that of a typed error and its causes.
    pub fn from_error(kind: ErrorKind, error: impl Into<SharedError>) -> Self {
        Self::new(kind, chain(&*error.into()))
    }

    /// Sets the resource that the message names.
    #[must_use]
    pub fn with_resource(mut self, id: &(impl fmt::Display + ?Sized)) -> Self {
        self.resource = NamedResource(Some(Arc::new(id.to_string())));
        self
    }

    /// Returns the id of the resource that the message names, if it names one.
    pub fn resource(&self) -> Option<&str> {
        self.resource.0.as_deref().map(String::as_str)
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Sets the location.
    #[must_use]
    pub fn at(mut self, file: impl Into<String>, line: Option<u32>, column: Option<u32>) -> Self {
        self.location = Some(Location {
            file: file.into(),
            line,
            column,
        });
        self
    }

    /// Puts context before the message: `context: message`.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = without_error_numbers(format!("{context}: {}", self.message));
        self
    }

    /// Returns the JSON form: `{"kind","message","file","line","column","hints"}`.
    pub fn body(&self) -> ErrorBody {
        let location = self.location.as_ref();
        ErrorBody {
            kind: self.kind,
            message: self.message.clone(),
            file: location.map(|l| l.file.clone()),
            line: location.and_then(|l| l.line),
            column: location.and_then(|l| l.column),
            hints: self.hints.clone(),
        }
    }
}

/// Removes the number with which Rust's standard library ends the text of a system error: ` (os error 2)`. The number
/// does not help the reader.
fn without_error_numbers(text: String) -> String {
    const START: &str = " (os error ";
    let mut parts = text.split(START);
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        match rest.strip_prefix(')') {
            Some(rest) if rest.len() + 1 < part.len() => clean.push_str(rest),
            _ => {
                clean.push_str(START);
                clean.push_str(part);
            }
        }
    }
    clean
}

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(f, "{location}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl Error for UserError {}

/// The value of `error` in JSON output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The kind of the error.
    pub kind: ErrorKind,
    /// The message, one sentence.
    pub message: String,
    /// The file, if the error has a location.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// The next steps.
    pub hints: Vec<String>,
}

impl ErrorBody {
    /// Adds an error of the same stack that has another cause.
    pub fn add(&mut self, other: Self) {
        self.message = format!("{}; and {}", self.message, other.message);
        let new = other.hints.into_iter().filter(|hint| !self.hints.contains(hint));
        let new: Vec<_> = new.collect();
        self.hints.extend(new);
    }
}

/// The outermost object of the JSON output of a command that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorDocument {
    /// The error of the command.
    pub error: ErrorBody,
}

/// Returns the causes of an error, outermost first, joined by `: `. A text that an outer error already has is not
/// repeated.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = cause.source();
    }
    // A minimal container image may have no CA certificates. Then no HTTP client can be built, even for a server
    // without TLS.
    const NO_CERTIFICATES: &str =
        " (install the package `ca-certificates`, or name a bundle in SSL_CERT_FILE)";
    if text.contains("No CA certificates") && !text.contains(NO_CERTIFICATES) {
        text.push_str(NO_CERTIFICATES);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_says_each_cause_once_and_keeps_them_all() {
        let cause = "x".parse::<u8>().expect_err("no number");
        let shared = SharedError::from(cause.clone())
            .context("the serial")
            .context("`a`");
        let failure = UserError::from_error(ErrorKind::State, shared.clone()).context("the serial");
        assert_eq!(
            failure.message,
            "the serial: `a`: the serial: invalid digit found in string"
        );
        let source = shared.source().and_then(Error::source);
        assert_eq!(source.and_then(|error| error.downcast_ref()), Some(&cause));
        assert_eq!(shared, "`a`: the serial: invalid digit found in string".into());
        assert_ne!(shared, "`a`".into());
        // The cause of a text that was rendered before.
        let missing = chain(&*SharedError::from("No CA certificates were loaded"));
        assert_eq!(chain(&*SharedError::from(missing.clone())), missing);
    }

    #[test]
    fn a_result_with_an_error_stays_small() {
        assert!(size_of::<UserError>() < 128, "{}", size_of::<UserError>());
        assert_eq!(size_of::<Option<SharedError>>(), size_of::<usize>());
    }

    #[test]
    fn a_stop_is_what_the_exit_code_says() {
        for kind in [ErrorKind::Unreviewed, ErrorKind::Policy, ErrorKind::LeaseHeld] {
            assert!(kind.is_stop() && matches!(kind.exit_code(), 3 | 4), "{kind:?}");
        }
        for kind in [ErrorKind::Spec, ErrorKind::Kubernetes, ErrorKind::Interrupted] {
            assert!(!kind.is_stop(), "{kind:?}");
        }
    }

    #[test]
    fn a_system_error_has_no_number() {
        let missing = std::io::Error::from_raw_os_error(2);
        assert!(missing.to_string().ends_with("(os error 2)"), "{missing}");
        let failure = UserError::new(ErrorKind::Config, format!("a.yaml: {missing}; b.yaml: {missing}"));
        let failure = failure.context(format!("store: {missing}"));
        assert_eq!(
            failure.message,
            "store: No such file or directory: a.yaml: No such file or directory; b.yaml: No such file or directory"
        );
        let other = UserError::new(ErrorKind::Config, "a (os error x) b (os error )");
        assert_eq!(other.message, "a (os error x) b (os error )");
    }
}
