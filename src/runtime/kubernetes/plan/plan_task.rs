//! [`PlanTask`]: an item during planning.

use crate::runtime::{
    Item, PlannedResource,
    kubernetes::object::{fetch::RawObject, plan_item::PlanItem},
};

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
