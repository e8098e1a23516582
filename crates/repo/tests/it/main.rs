//! Affected stacks on random repositories, compared with the KCL core. One binary: a file per subject.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::print_stdout)]

use konverge_testkit as support;

mod affected;
