//! Policies: who must approve a change, who may apply it, and when. Pure functions over facts that the caller looks
//! up. The rules come from `konverge.yaml` on the default branch; rules written as code (Rego, CEL) are in the
//! crate `policy-sets`.

mod codeowners;
mod evaluate;
mod own_secret_store;
mod reference_form;
mod review_match;
mod rules;
mod secret_access;
mod secret_refusal;

pub use codeowners::CodeOwners;
pub use evaluate::{evaluate, may_apply, owned_file};
pub use review_match::{LastWrites, Objection, ReviewedUnits, Unreviewed};
pub use rules::{Approval, EffectivePolicy, Freeze, PolicyFacts, Role, Stage, Teams};
pub use secret_access::{
    AdmittedSpec, SecretReader, admit, admit_recorded, may_read_file, name_stores, secret_refusals,
};
