//! Konverge: the CI agent of a Konfig monorepo.
//!
//! The rooms in the order of a change; `ARCHITECTURE.md` is the map with the allowed directions.
//!
//! ```text
//! git ─► konfig ─► affected ─► kcl ─► spec ─► engine ─► runtime ─► state ─► report ─► github
//! ```

pub mod affected;
pub mod atomic_file;
pub mod cel_bounds;
pub mod cel_counting;
pub mod cel_expression;
pub mod cel_value;
pub mod checkout;
pub mod cli;
pub mod cloud;
pub mod config;
pub mod engine;
pub mod error;
pub mod git;
pub mod github;
pub mod interrupt;
pub mod kcl;
pub mod konfig;
pub mod kusion;
pub mod model;
pub mod module_host;
pub mod notify;
pub mod ops;
pub mod policy;
pub mod process;
pub mod report;
pub mod retry;
pub mod rule_host;
pub mod runtime;
pub mod sandbox;
pub mod secret_stores;
pub mod secrets;
pub mod spec;
pub mod state;
pub mod store;
pub mod yaml;

/// A plan consists of millions of small values that are freed on another core than they were allocated on.
/// glibc's allocator needs a third of its time for that (`cargo bench --bench kubernetes`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
