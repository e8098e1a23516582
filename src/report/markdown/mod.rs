//! GitHub's Markdown: the pull request's comment, the job summary, the texts of check runs and issues.
//!
//! The comment's layout, top to bottom: verdict, alerts and changes of power (never folded, never dropped), table, equal changes shown once,
//! a fold per stack, what was already different, guardrails, what merging does. When it does not fit its budget it
//! gives way in fixed steps ([`detail`]), whole resources only.

mod alerts;
mod apply_result;
mod bounded_writer;
mod details;
mod drift;
mod failure;
mod fit;
mod footer;
mod headline;
mod power;
mod stack_details;
mod table;
mod verbosity;

pub use apply_result::{newer, outcome};
pub use drift::{DriftRound, drift_round};
pub use failure::{Failed, failure, nothing_to_do};
pub use fit::{FittedComment, OmittedDetails, comment, summary};
pub use footer::page_note;
pub use stack_details::{drift_issue, stack_text, unreviewed};
