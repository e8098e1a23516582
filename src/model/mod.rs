//! The plain data that flows from room to room: no I/O, no async, serialisable, versioned where it leaves the process.
//!
//! Read in the order of a change: [`source`] (files of a revision) → [`stack`] → [`affected`] → [`spec`] → [`plan`] →
//! [`review`] → [`state`] → [`outcome`].

pub mod affected;
pub mod check;
pub mod claim;
pub mod diff;
pub mod digest;
pub mod event;
pub mod finding;
pub mod health;
pub mod ids;
pub mod inspection;
pub mod marker;
pub mod outcome;
pub mod path;
pub mod plan;
pub mod power;
pub mod receipt;
pub mod reference;
pub mod review;
pub mod share;
pub mod source;
pub mod spec;
pub mod stack;
pub mod state;
pub mod status;
pub mod text;
pub mod topic;
pub mod value;

pub use digest::Digest;
pub use ids::{ClusterName, CommitId, InvalidId, ResourceId, StackId};
pub use path::RepoPath;
pub use share::Share;
pub use topic::Topic;
