//! Guardrails: what may be applied, when, by whom; and whether somebody reviewed it. Pure functions over facts that
//! others have looked up; the rules come from the protected branch's `konverge.yaml`.

mod codeowners;
mod evaluate;
mod review_match;
mod rules;

pub use codeowners::CodeOwners;
pub use evaluate::{evaluate, may_apply, owned_file};
pub use review_match::{LastWrites, Objection, ReviewedUnits, Unreviewed};
pub use rules::{Approval, EffectivePolicy, Freeze, PolicyFacts, Role, Stage};
