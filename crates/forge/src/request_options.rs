//! The options of the requests to a forge.

use std::time::Duration;

use konverge_base::{interrupt::Interrupt, retry::RetryPolicy};

/// The options of the requests to a forge.
#[derive(Debug, Clone)]
pub struct RequestOptions {
    /// The retries, such as few for optional comments.
    pub retries: RetryPolicy,
    /// The deadline of an attempt, without its retries.
    pub deadline: Duration,
    /// The request to stop the run. After that only seconds are left, so each call gets a short time limit.
    pub interrupt: Interrupt,
}

impl RequestOptions {
    /// Creates options without retries.
    pub fn once() -> Self {
        Self {
            retries: RetryPolicy {
                attempts: 1,
                ..RetryPolicy::default()
            },
            ..Self::default()
        }
    }
}

impl Default for RequestOptions {
    fn default() -> Self {
        Self {
            retries: RetryPolicy {
                total: Duration::from_secs(120),
                ..RetryPolicy::default()
            },
            deadline: Duration::from_secs(30),
            interrupt: Interrupt::default(),
        }
    }
}
