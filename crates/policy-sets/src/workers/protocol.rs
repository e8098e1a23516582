//! The messages between Konverge and a worker: JSON after its length in four bytes. Messages hold unmasked values,
//! so nothing of them may be logged.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::sent_document::SentDocument;
use crate::{FailedTest, RuleOutcome, SetSource};
use konverge_base::model::{Digest, health::HealthReport};

/// The maximum size of a worker's response in bytes.
pub(super) const MAX_ANSWER: usize = 64 << 20;

/// The extra wall-clock time of a worker, because on a busy machine even a request within its limits may take long.
const PATIENCE: Duration = Duration::from_secs(120);

/// The resource limits of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleLimits {
    /// The maximum size of the address space in bytes.
    pub memory: u64,
    /// The maximum processor time for parsing a set, and for evaluating it on a stack. Time that other processes
    /// use does not count.
    pub time: Duration,
}

impl Default for RuleLimits {
    fn default() -> Self {
        Self {
            memory: 1536 << 20,
            time: Duration::from_secs(5),
        }
    }
}

impl RuleLimits {
    /// Returns the wall-clock time after which a worker is killed in any case.
    pub(super) fn deadline(self) -> Duration {
        self.time * 6 + PATIENCE
    }
}

/// A request to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Parse a set.
    Parse { set: Digest, source: Arc<SetSource> },
    /// Evaluate a parsed set on a document. Without a document, the last one is used again.
    Evaluate {
        set: Digest,
        document: Option<SentDocument>,
    },
    /// Run the tests of a parsed set.
    Test { set: Digest },
    /// Run a readiness script on an object.
    Script { script: String, object: Value },
}

/// The response of a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Parsed,
    /// The set cannot be parsed.
    Unreadable(String),
    Outcomes(Vec<RuleOutcome>),
    FailedTests(Vec<FailedTest>),
    /// The report of a readiness script, or its error.
    Report(Result<Option<HealthReport>, String>),
    /// The request is invalid, or names something that the worker does not have.
    Refused,
}
