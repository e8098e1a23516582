//! The stores, whole and faulty.

pub mod backends;
