//! Decides what a job may do, and reads facts about people from the forge.

pub(crate) mod approve_input;
pub(crate) mod authority;
pub(crate) mod contributors;
pub(crate) mod job_trust;
pub(crate) mod reviewers;
