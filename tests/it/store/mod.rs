//! The stores, whole and faulty.

pub mod backends;
pub mod compile_cache;
pub mod faults;
