//! A text that refuses to grow past its budget.

/// The text would not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BudgetExceeded;

/// A text with a budget in bytes. What does not fit is not written at all, so the text never ends in the middle of a
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

    /// Adds a whole block.
    pub(super) fn push(&mut self, block: &str) -> Result<(), BudgetExceeded> {
        if self.text.len() + block.len() > self.budget {
            return Err(BudgetExceeded);
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
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        if bytes > self.room() {
            return Err(BudgetExceeded);
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
