//! The testkit, and stores for tests.

pub use konverge_testkit::*;

pub mod counting_store;
pub mod faulty_store;
pub mod timeline;
