//! The groups of options in `--help` and in the man pages.

pub const STACKS: &str = "Stacks";
pub const CHANGE: &str = "Change";
pub const INFRASTRUCTURE: &str = "Infrastructure";
pub const GLOBAL: &str = "Global options";
