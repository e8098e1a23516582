//! The plans of a simulated world.

use std::collections::BTreeMap;

use konverge_base::model::{Digest, StackId};

/// The number of stacks.
pub(super) const STACKS: usize = 4;
/// The gate that asks for an approval.
pub(super) const APPROVAL: &str = "go";

/// What one digest stands for: the commit, the wave before the approved one, and its plans.
pub(super) type ApprovedPlans = (usize, usize, BTreeMap<StackId, Digest>);

/// The plans of stacks, and what people approved of them.
#[derive(Default)]
pub(super) struct SimulatedPlans {
    /// How many times something else changed what each stack finds: its plan is another one then.
    pub(super) changes: [u64; STACKS],
    pub(super) approved: BTreeMap<Digest, ApprovedPlans>,
    pub(super) given: Vec<Digest>,
    /// Of each stack, the plan that was applied last after an approval.
    pub(super) applied: BTreeMap<StackId, Digest>,
}
