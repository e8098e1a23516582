//! [`PlanTask`]: an item during planning.

use crate::object::{fetch::RawObject, plan_item::PlanItem};
use konverge_engine::runtime::{Item, PlannedResource};

/// An item during planning.
pub(super) struct PlanTask {
    /// Its index in the call.
    pub place: usize,
    pub item: Item,
    pub subject: PlanItem,
    /// The live object.
    pub raw: Option<RawObject>,
}

/// The result of the local proof.
pub(super) enum Proof {
    /// An apply would change nothing.
    Unchanged(usize, Box<PlannedResource>),
    /// The server must decide.
    Open(Box<PlanTask>),
}
