//! The engine: order, ownership, concurrent runs.

pub mod concurrent_applies;
pub mod execution;
pub mod field_owners;
pub mod identities;
pub mod interruption;
pub mod moves;
pub mod object_owners;
pub mod ownership;
mod random_kills;
