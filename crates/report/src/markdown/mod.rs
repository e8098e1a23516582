//! GitHub's Markdown: the comment on the pull request, the job summary, the texts of check runs and issues.
//!
//! The layout of the comment, from top to bottom: verdict, what is left out, alerts and permission changes (never
//! folded or dropped), changes of the last push, generated models, table, equal changes, a fold per stack, reasons,
//! drift, policies, effect of the merge. Dangerous changes get room first (`fill`), and a resource is never cut.

mod alerts;
mod apply_result;
mod bounded_writer;
mod details;
mod drift_summary;
mod failure;
mod fill;
mod fit;
mod footer;
mod headline;
mod last_push;
mod permission_changes;
mod policy_findings;
mod stack_details;
mod stack_test_comment;
mod table;
mod unfinished_stacks;

pub use apply_result::{newer, outcome, result_counts};
pub use drift_summary::{DriftRound, drift_round};
pub use failure::{Failed, failure, nothing_to_do};
pub use fill::Omitted;
pub use fit::{FittedComment, comment, summary};
pub use footer::page_note;
pub use policy_findings::shown_denials;
pub use stack_details::{
    DriftKeeping, DriftSeen, ManualStart, drift_issue, restored, stack_text, unreviewed,
};
pub use stack_test_comment::{TestPage, stack_tests};
