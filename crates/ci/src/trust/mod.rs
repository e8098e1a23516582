//! What a job may do, and the people that GitHub knows.

pub(crate) mod approve_input;
pub(crate) mod authority;
pub(crate) mod contributors;
pub(crate) mod job_trust;
pub(crate) mod reviewers;
