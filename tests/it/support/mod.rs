//! The testkit, and beside it what wires crates of ours for the tests.
// Each subject uses some of it, and the benches others.
#![allow(dead_code, unused_imports)]

pub use konverge_testkit::*;

pub mod ci_stage;
pub mod compiler;
pub mod cores;
#[path = "../../../crates/state/tests/it/support/faulty_store.rs"]
pub mod faulty_store;
pub mod gitea_jobs;
pub mod gitea_stage;
pub mod github_output;
pub mod gitlab_stage;
pub mod hostile_plans;
pub mod plain_core;
pub mod sample_kinds;
pub mod sample_plans;
pub mod shop_monorepo;
pub mod small_stage;
pub mod spec_runs;
#[path = "../../../crates/kubernetes/tests/it/support/stack.rs"]
pub mod stack;
#[path = "../../../crates/state/tests/it/support/timeline.rs"]
pub mod timeline;
