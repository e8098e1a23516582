//! Konverge: the CI agent of a Konfig monorepo.
//!
//! The rooms in the order of a change; `ARCHITECTURE.md` is the map with the allowed directions.
//!
//! ```text
//! git ─► konfig ─► affected ─► kcl ─► spec ─► engine ─► runtime ─► state ─► report ─► github
//! ```

pub mod cli;
pub mod ops;

/// A plan consists of millions of small values that are freed on another core than they were allocated on.
/// glibc's allocator needs a third of its time for that (`cargo bench --bench kubernetes`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
