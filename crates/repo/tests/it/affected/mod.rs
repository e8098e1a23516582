//! Affected stacks: digests, imports, explanations.

pub mod core_oracle;
pub mod git_repositories;
pub mod imports;
pub mod random_edits;
pub mod random_repository;
pub mod rare_layouts;
