//! Guardrails: what may be applied, when, by whom. Pure functions over facts that others have looked up; the rules
//! come from the protected branch's `konverge.yaml`.

mod codeowners;
mod evaluate;
mod rules;

pub use codeowners::CodeOwners;
pub use evaluate::{evaluate, may_apply};
pub use rules::{Approval, Facts, Freeze, Role, Rules, Stage};
