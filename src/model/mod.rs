//! The plain data that flows from room to room: no I/O, no async, serialisable, versioned where it leaves the process.
//!
//! Read in the order of a change: [`source`] (files of a revision) → [`stack`] → [`affected`] → [`spec`] → [`plan`] →
//! [`review`] → [`state`] → [`outcome`].

pub mod affected;
pub mod check_run;
pub mod claim;
pub mod diff;
pub mod digest;
pub mod event;
pub mod policy_finding;
pub mod health;
pub mod ids;
pub mod lint;
pub mod comment_marker;
pub mod apply_result;
pub mod path;
pub mod plan;
pub mod power;
pub mod apply_record;
pub mod reference;
pub mod review;
pub mod shard;
pub mod file_source;
pub mod spec;
pub mod stack;
pub mod state;
pub mod status;
pub mod text;
pub mod notify_event;
pub mod masked_value;

pub use digest::Digest;
pub use ids::{ClusterName, CommitId, InvalidId, ResourceId, StackId};
pub use path::RepoPath;
pub use shard::Share;
pub use notify_event::Topic;
