//! [`Note`]: a message of a run in addition to its result.

use std::fmt::{self, Display};

use super::StackId;

/// A message of a run in addition to its result, in one or more lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The importance of the note.
    pub level: NoteLevel,
    /// The stack that the note is about.
    pub stack: Option<StackId>,
    /// The text. It may contain text of a pull request.
    pub text: String,
}

/// The importance of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoteLevel {
    /// The run did something.
    Info,
    /// The reader should know something.
    Note,
    /// Something may be wrong.
    Warning,
}

impl Note {
    /// Creates a note about something that the run did.
    pub fn info(text: impl Display) -> Self {
        Self::new(NoteLevel::Info, text)
    }

    /// Creates a note that the reader should know.
    pub fn remark(text: impl Display) -> Self {
        Self::new(NoteLevel::Note, text)
    }

    /// Creates a warning that something may be wrong.
    pub fn warning(text: impl Display) -> Self {
        Self::new(NoteLevel::Warning, text)
    }

    fn new(level: NoteLevel, text: impl Display) -> Self {
        Self {
            level,
            stack: None,
            text: text.to_string(),
        }
    }

    /// Sets the stack that the note is about.
    #[must_use]
    pub fn of(self, stack: &StackId) -> Self {
        Self {
            stack: Some(stack.clone()),
            ..self
        }
    }
}

/// Formats the note as `warning: shop/dev: the text`.
impl Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            NoteLevel::Info => "",
            NoteLevel::Note => "note: ",
            NoteLevel::Warning => "warning: ",
        })?;
        if let Some(stack) = &self.stack {
            write!(f, "{stack}: ")?;
        }
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_begins_with_its_level_and_its_stack() {
        let stack: StackId = "shop/dev".parse().unwrap();
        for (note, expected) in [
            (Note::info("done"), "done"),
            (Note::remark("done").of(&stack), "note: shop/dev: done"),
            (Note::warning("done"), "warning: done"),
        ] {
            assert_eq!(note.to_string(), expected);
        }
    }
}
