//! Policies: what may be applied, when, and by whom, and whether it was reviewed. Pure functions over facts
//! that others look up. The rules come from `konverge.yaml` on the default branch.

mod codeowners;
mod evaluate;
mod review_match;
mod rules;
mod secret_access;

pub use codeowners::CodeOwners;
pub use evaluate::{evaluate, may_apply, owned_file};
pub use review_match::{LastWrites, Objection, ReviewedUnits, Unreviewed};
pub use rules::{Approval, EffectivePolicy, Freeze, PolicyFacts, Role, Stage};
pub use secret_access::{AccessRefusal, AdmittedSpec, SecretReader, admit, name_stores};
