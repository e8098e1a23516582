//! The groups of options in `--help` and in the man pages.

pub(super) const STACKS: &str = "Stacks";
pub(super) const CHANGE: &str = "Change";
pub(super) const INFRASTRUCTURE: &str = "Infrastructure";
pub(super) const GLOBAL: &str = "Global options";
