//! The stores, whole and faulty.

pub mod compile_cache;
pub mod faults;
