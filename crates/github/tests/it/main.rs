//! The client against the fake GitHub. One binary: a file per subject.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::print_stdout)]

use konverge_testkit as support;

mod github;
