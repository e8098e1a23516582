//! The language of stack tests as pure functions: no I/O, no process. The crate `konverge-stack-tests` finds and runs them.
//!
//! A test file lies in `<stack>/test/` and ends in `.test.yaml`. [`StackTest::parse`] reads one,
//! [`failures`](assertion::failures) says which assertions do not hold for a [`TestedSpec`]. A live test has steps on a
//! cluster ([`LiveStep`]); [`moving`] puts its Spec into throw-away namespaces.

pub mod assertion;
mod assertion_form;
mod live_steps;
pub mod moving;
mod object_match;
mod test_file;

pub use assertion::{TestedSpec, TestedStack};
pub use assertion_form::{Assertion, ExpectedFailure, ObjectSelector, PlacedAssertion};
pub use live_steps::{LiveStep, PlacedStep};
pub use test_file::{StackTest, TestBody};
