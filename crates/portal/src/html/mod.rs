//! The HTML pages. Each is complete without the script, which only filters, searches and shows how old a time is.
//! Nothing is loaded from other hosts, and text by others is always escaped.

mod account;
mod audit;
mod difference;
mod layout;
mod operations;
mod overview;
mod parts;
mod permissions;
mod rollouts;
mod search;
mod stack;
mod stacks;
mod trends;

pub use account::{account, signed_out};
pub use audit::audit;
pub use difference::difference;
pub use layout::{PageMode, REFERRER, SECURITY, failure};
pub use operations::{answered, freeze, operations};
pub use overview::overview;
pub use permissions::permissions;
pub use rollouts::rollouts;
pub use search::{kind, search, search_data};
pub use stack::{StackPage, stack};
pub use stacks::stacks;
pub use trends::trends;

/// The script of all pages.
pub const SCRIPT: &str = include_str!("portal.js");

/// Returns the styles of all pages: those of the preview page, and the portal's own.
pub fn style() -> String {
    format!("{}{}", konverge_report::html::STYLE, include_str!("portal.css"))
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod sample_tests;
