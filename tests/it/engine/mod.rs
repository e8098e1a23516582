//! The engine: order, ownership, concurrent runs.

pub mod concurrent_applies;
pub mod held_objects;
pub mod identities;
pub mod interruption;
pub mod moves;
pub mod object_owners;
pub mod ownership;
