//! GitHub check runs: the result of one stack at a commit, with annotations at lines of files.

use serde::{Deserialize, Serialize};

/// A check run as GitHub shows it beside a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRun {
    /// The name, equal in every run, so that a newer check run replaces the older one.
    pub name: String,
    /// The result that the forge shows.
    pub conclusion: Conclusion,
    /// A title of one line.
    pub title: String,
    /// A short summary, in Markdown.
    pub summary: String,
    /// The full text, in Markdown.
    pub text: String,
    /// Annotations at lines of files.
    pub annotations: Vec<Annotation>,
}

/// The result that GitHub shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// The change may be merged.
    Success,
    /// An error blocks the merge.
    Failure,
    /// Something deserves attention, but nothing is blocked.
    Neutral,
    /// A person must decide.
    ActionRequired,
}

/// An annotation at a line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotation {
    /// The severity that the forge shows.
    pub level: Level,
    /// The file, relative to the root of the repository.
    pub file: String,
    /// The line, from 1; `None` for the whole file.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
    /// A short title.
    pub title: String,
    /// The full message.
    pub message: String,
}

/// The severity of an annotation, the most severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The problem blocks something.
    Error,
    /// The problem may block something.
    Warning,
    /// The annotation is for information.
    Notice,
}
