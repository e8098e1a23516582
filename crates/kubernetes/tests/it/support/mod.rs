//! The testkit, and a stack on a cluster.
// The tests of the package use the rest.
#![allow(dead_code)]

pub use konverge_testkit::*;

pub mod stack;
