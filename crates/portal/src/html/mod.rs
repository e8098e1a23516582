//! The pages. Each is complete without script; the script filters, searches and says how old a time is. Nothing is
//! loaded from elsewhere, and text from others is data only.

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

/// The styles of all pages: those of the preview's page, and what the portal adds.
pub fn style() -> String {
    format!("{}{}", konverge_report::html::STYLE, include_str!("portal.css"))
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod sample_tests;
