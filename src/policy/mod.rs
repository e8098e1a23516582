//! Guardrails: what may be done, and who may. Pure functions over what is known; asking GitHub is not theirs.

mod reviewed;

pub use reviewed::{Objection, Reviewed, Unreviewed};
