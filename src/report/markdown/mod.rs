//! GitHub's Markdown: the pull request's comment, the job summary, the texts of check runs and issues.
//!
//! The comment's layout, top to bottom: verdict, alerts and changes of power (never folded, never dropped), table, equal changes shown once,
//! a fold per stack, what was already different, guardrails, what merging does. When it does not fit its budget it
//! gives way in fixed steps ([`detail`]), whole resources only.

mod alerts;
mod bodies;
mod detail;
mod drift;
mod failure;
mod outcome;
mod pack;
mod page;
mod power;
mod stack;
mod table;
mod tail;
mod verdict;

pub use drift::{DriftRound, drift_round};
pub use failure::{Failed, failure, nothing_to_do};
pub use outcome::{newer, outcome};
pub use pack::{Comment, Omitted, comment, summary};
pub use stack::{drift_issue, stack_text, unreviewed};
pub use tail::page_note;
