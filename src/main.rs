//! The `konverge` binary.
fn main() {}
