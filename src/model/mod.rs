//! The plain data that flows from room to room: no I/O, no async, serialisable, versioned where it leaves the process.
//!
//! Read in the order of a change: [`source`] (files of a revision) → [`stack`] → [`affected`] → [`spec`] → [`plan`] →
//! [`review`] → [`state`] → [`outcome`].

pub mod affected;
pub mod apply_record;
pub mod apply_result;
pub mod check_run;
pub mod claim;
pub mod comment_marker;
pub mod diff;
pub mod digest;
pub mod event;
pub mod file_source;
pub mod health;
pub mod ids;
pub mod lint;
pub mod masked_value;
pub mod notify_event;
pub mod path;
pub mod plan;
pub mod policy_finding;
pub mod power;
pub mod reference;
pub mod review;
pub mod shard;
pub mod spec;
pub mod stack;
pub mod state;
pub mod status;
pub mod text;

pub use digest::Digest;
pub use ids::{ClusterName, CommitId, InvalidId, ResourceId, StackId};
pub use notify_event::NotifyEvent;
pub use path::RepoPath;
pub use shard::Shard;
