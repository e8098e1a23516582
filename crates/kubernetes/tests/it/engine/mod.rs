//! The engine: order, ownership, concurrent runs.

pub mod execution;
pub mod field_owners;
