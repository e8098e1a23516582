//! Decides whether a plan may be applied: by reviews, policies, and overrides of findings.

pub(crate) mod active_policies;
pub(crate) mod followed_guards;
pub(crate) mod overrides;
pub(crate) mod policy_change_preview;
pub(crate) mod policy_check;
pub mod policy_config;
#[cfg(test)]
mod policy_fixture;
pub(crate) mod policy_people;
pub(crate) mod policy_refusal;
pub(crate) mod pull_head;
pub(crate) mod review_gate;
pub(crate) mod review_overrides;
pub(crate) mod reviews;
pub(crate) mod unapproved;
pub(crate) mod unreviewed;
