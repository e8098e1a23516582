//! [`YamlError`]: the error for invalid YAML.

/// The error for a text that is not the expected YAML.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct YamlError {
    /// The line, from 1, if known.
    pub line: Option<u32>,
    /// The column, from 1, if known.
    pub column: Option<u32>,
    /// The problem, in one line.
    pub message: String,
}
