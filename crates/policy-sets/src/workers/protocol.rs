//! The messages between us and a worker: JSON after its length in four bytes. What they hold is true values, so that
//! nothing of them is logged.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::sent_document::SentDocument;
use crate::{FailedTest, RuleOutcome, SetSource};
use konverge_base::model::{Digest, health::HealthReport};

/// The maximum size of an answer in bytes.
pub(super) const MAX_ANSWER: usize = 64 << 20;

/// A worker on a busy machine may take so long for what is within its limits.
const PATIENCE: Duration = Duration::from_secs(120);

/// The limits of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleLimits {
    /// The address space in bytes.
    pub memory: u64,
    /// The processor time to parse a set, and to evaluate it on a stack. A busy machine does not count.
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
    /// The time on the clock after which a worker is killed, whatever it does.
    pub(super) fn deadline(self) -> Duration {
        self.time * 6 + PATIENCE
    }
}

/// What a worker is asked for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Parse a set.
    Parse { set: Digest, source: Arc<SetSource> },
    /// Evaluate a parsed set on a document; on the last one if there is none.
    Evaluate {
        set: Digest,
        document: Option<SentDocument>,
    },
    /// Run the tests of a parsed set.
    Test { set: Digest },
    /// Run a script of readiness on an object.
    Script { script: String, object: Value },
}

/// What a worker answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Parsed,
    /// The set cannot be parsed.
    Unreadable(String),
    Outcomes(Vec<RuleOutcome>),
    FailedTests(Vec<FailedTest>),
    /// The report of a script, or its error.
    Report(Result<Option<HealthReport>, String>),
    /// The request cannot be read, or names what the worker does not have.
    Refused,
}
