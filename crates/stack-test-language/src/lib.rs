//! The language of stack tests as pure functions, without I/O and processes. The crate `konverge-stack-tests` finds and
//! runs the tests.
//!
//! A test file is in `<stack>/test/` and its name ends in `.test.yaml`. [`StackTest::parse`] parses a test file,
//! and [`failures`](assertion::failures) evaluates its assertions on a [`TestedSpec`]. A live test has steps on a
//! cluster ([`LiveStep`]); [`moving`] moves its Spec into temporary namespaces.

pub mod assertion;
mod assertion_form;
mod live_steps;
pub mod moving;
mod object_match;
mod test_file;

pub use assertion::{TestedSpec, TestedStack};
pub use assertion_form::{Assertion, ExpectedFailure, ObjectSelector};
pub use live_steps::LiveStep;
pub use test_file::{StackTest, TestBody};
