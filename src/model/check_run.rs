//! A check: what is said of one stack beside a commit, with notes at lines of files.

use serde::{Deserialize, Serialize};

/// One check run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRun {
    /// Its name, the same in every run so that a newer one replaces it.
    pub name: String,
    /// How it ended.
    pub conclusion: Conclusion,
    /// One line.
    pub title: String,
    /// Markdown, short.
    pub summary: String,
    /// Markdown, the whole.
    pub text: String,
    /// Notes at lines.
    pub annotations: Vec<Annotation>,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// Fine.
    Success,
    /// Something is wrong.
    Failure,
    /// Worth a look, and stops nothing.
    Neutral,
    /// Somebody has to decide.
    ActionRequired,
}

/// A note at a line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotation {
    /// How grave it is.
    pub level: Level,
    /// The file, relative to the repository.
    pub file: String,
    /// Line from 1; `None` for the file as a whole.
    pub line: Option<u32>,
    /// Column from 1.
    pub column: Option<u32>,
    /// A few words.
    pub title: String,
    /// The whole message.
    pub message: String,
}

/// How grave a note is; the gravest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It stops something.
    Error,
    /// It may.
    Warning,
    /// It is said.
    Notice,
}
