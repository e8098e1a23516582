//! [`IndexedSummary`]: the summary of a stack as an entry of the index carries it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The summary of a stack as the index holds it: a text that only its readers parse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IndexedSummary(Arc<str>);

impl IndexedSummary {
    pub(super) fn new(text: String) -> Self {
        Self(text.into())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}
