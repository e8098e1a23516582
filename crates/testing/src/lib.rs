//! Stack tests: the format of a test file, the matching of partial objects, and the assertions on a Spec. Pure
//! functions: no I/O, no process.
//!
//! A test file lies in `<stack>/test/` and ends in `.test.yaml`. [`StackTest::parse`] reads one,
//! [`failures`](assertion::failures) says which of its assertions do not hold for a [`TestedSpec`].

pub mod assertion;
mod object_match;
mod test_file;

pub use assertion::{TestedSpec, TestedStack};
pub use test_file::{Assertion, ExpectedFailure, ObjectSelector, PlacedAssertion, StackTest};
