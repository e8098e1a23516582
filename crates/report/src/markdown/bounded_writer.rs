//! A writer of text with a maximum size.

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

    /// Adds a block if it fits. Returns true if it was added.
    pub(super) fn try_push(&mut self, block: &str) -> bool {
        let fits = block.len() <= self.room();
        if fits {
            self.text.push_str(block);
        }
        fits
    }

    /// Adds the blocks that fit. Returns the number of the others.
    pub(super) fn push_each(&mut self, blocks: impl IntoIterator<Item = String>) -> usize {
        blocks.into_iter().filter(|block| !self.try_push(block)).count()
    }

    /// Returns the number of bytes that are left.
    pub(super) fn room(&self) -> usize {
        self.budget - self.text.len()
    }

    /// Reserves bytes for the end of the text. Returns false if they are not left.
    pub(super) fn reserve(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.room();
        if fits {
            self.budget -= bytes;
        }
        fits
    }

    /// Releases reserved bytes.
    pub(super) fn release(&mut self, bytes: usize) {
        self.budget += bytes;
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}
