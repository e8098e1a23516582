//! Reports: the results of a run as text for people and machines. Pure functions: data in, text out, no I/O.
//!
//! - [`markdown`]: the comment on the pull request and the job summary, fitted to a size
//! - [`terminal`]: the same for a terminal, [`json`] for programs, [`html`] as one self-contained page
//! - [`progress`]: events as lines of a log
//! - [`escape`]: the only place where text from outside is escaped

mod bounded_part;
pub mod checks;
mod danger;
pub mod diff;
pub mod drift_text;
mod equal_changes;
pub mod errors;
pub mod escape;
mod generation_notes;
pub mod html;
mod input;
pub mod json;
mod labels;
mod last_push;
pub mod lint;
mod list_diff;
pub mod markdown;
pub mod mermaid;
pub mod model_changes;
mod next_step;
pub mod outcome;
pub mod progress;
pub mod setting_changes;
pub mod stack_test_results;
pub mod status_text;
mod sums;
mod table;
pub mod takeover;
pub mod terminal;
pub mod test_check;
mod text_diff;
pub mod timeline;
mod view_model;
pub mod watch;
mod yaml_text;

pub use input::{
    CHECK_BUDGET, COMMENT_BUDGET, CommentInput, Merging, Mode, RunInfo, SUMMARY_BUDGET, StackContext,
};
pub use labels::{age, changes, compiling_stacks, counts, plural, time, took};
pub use yaml_text::lines as yaml_lines;
