//! A text that refuses to grow past its budget.

/// The text would not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

/// A text with a budget in bytes. What does not fit is not written at all, so the text never ends in the middle of a
/// block.
#[derive(Debug, Clone)]
pub(super) struct Page {
    text: String,
    budget: usize,
}

impl Page {
    pub(super) fn new(budget: usize) -> Self {
        Self {
            text: String::new(),
            budget,
        }
    }

    /// Adds a whole block.
    pub(super) fn push(&mut self, block: &str) -> Result<(), Full> {
        if self.text.len() + block.len() > self.budget {
            return Err(Full);
        }
        self.text.push_str(block);
        Ok(())
    }

    /// Adds a block and says whether it fitted.
    pub(super) fn try_push(&mut self, block: &str) -> bool {
        self.push(block).is_ok()
    }

    /// What may still be added.
    pub(super) fn room(&self) -> usize {
        self.budget - self.text.len()
    }

    /// Keeps this much for what comes last.
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<(), Full> {
        if bytes > self.room() {
            return Err(Full);
        }
        self.budget -= bytes;
        Ok(())
    }

    /// Gives back what was kept.
    pub(super) fn release(&mut self, bytes: usize) {
        self.budget += bytes;
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}
