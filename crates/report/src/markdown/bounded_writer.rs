//! A writer of text with a maximum size.

/// The error for a text that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BudgetExceeded;

/// A text with a limit in bytes. A block that does not fit is left out completely, so the text never ends inside a
/// block.
#[derive(Debug, Clone)]
pub(super) struct BoundedWriter {
    text: String,
    budget: usize,
}

impl BoundedWriter {
    pub(super) fn new(budget: usize) -> Self {
        Self {
            text: String::new(),
            budget,
        }
    }

    pub(super) fn push(&mut self, block: &str) -> Result<(), BudgetExceeded> {
        if self.text.len() + block.len() > self.budget {
            return Err(BudgetExceeded);
        }
        self.text.push_str(block);
        Ok(())
    }

    /// Adds a block if it fits. Returns true if it was added.
    pub(super) fn try_push(&mut self, block: &str) -> bool {
        self.push(block).is_ok()
    }

    /// Returns the number of bytes that are left.
    pub(super) fn room(&self) -> usize {
        self.budget - self.text.len()
    }

    /// Reserves bytes for the end of the text.
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        if bytes > self.room() {
            return Err(BudgetExceeded);
        }
        self.budget -= bytes;
        Ok(())
    }

    /// Releases reserved bytes.
    pub(super) fn release(&mut self, bytes: usize) {
        self.budget += bytes;
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}
