//! Generated models in the official core, and against the API server whose schemas they are made from.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::print_stdout)]

mod core;
mod faults;
mod hostile;
mod oracle;
mod published;
mod random_objects;
mod terraform;
