//! Logins at clouds, on servers that play them. One binary: a file per subject.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::disallowed_methods)]

use konverge_testkit as support;

mod logins;
