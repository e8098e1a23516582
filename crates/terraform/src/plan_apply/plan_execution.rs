//! [`Application`]: the apply of one saved plan.

use std::{
    collections::{BTreeMap, HashSet},
    time::Instant,
};

use crate::{
    context::Terraform, memfd::Stamp, prepared_plan::PreparedPlan, progress::ApplyProgress,
    state_document::InFlight,
};
use konverge_base::{error::UserError, model::ResourceId};
use konverge_engine::runtime::{ApplySink, StackScope};

/// The apply of one saved plan.
pub(super) struct Application<'a> {
    pub(super) runtime: &'a Terraform,
    pub(super) scope: &'a StackScope,
    pub(super) sink: &'a dyn ApplySink,
    pub(super) prepared: PreparedPlan,
    pub(super) progress: ApplyProgress,
    /// The resources whose results the sink expects.
    pub(super) asked: HashSet<ResourceId>,
    pub(super) ended: HashSet<usize>,
    /// The time of the last write of the state to the store.
    pub(super) written: Instant,
    /// The stamp of Terraform's state file at that write.
    pub(super) stamp: Option<Stamp>,
    /// Operations that an earlier run left in flight, of resources that this apply creates.
    pub(super) earlier: BTreeMap<ResourceId, InFlight>,
    /// True if the state is written after each resource (Terraform), false if periodically (OpenTofu).
    pub(super) writes_each_time: bool,
    /// Time when Terraform was asked to stop.
    pub(super) interrupted: Option<Instant>,
    /// The reason why results can no longer be recorded.
    pub(super) lost: Option<UserError>,
    /// The reason why Terraform's last results could not be stored.
    pub(super) unstored: Option<UserError>,
    /// Hints about the login, if the credentials expired while Terraform ran.
    pub(super) expiry_hints: Vec<String>,
}

impl<'a> Application<'a> {
    pub(super) fn new(
        runtime: &'a Terraform,
        scope: &'a StackScope,
        sink: &'a dyn ApplySink,
        prepared: PreparedPlan,
        ids: &[ResourceId],
    ) -> Self {
        Self {
            progress: ApplyProgress::new(&prepared.ready),
            asked: ids.iter().cloned().collect(),
            runtime,
            scope,
            sink,
            prepared,
            ended: HashSet::new(),
            written: Instant::now(),
            stamp: None,
            earlier: BTreeMap::new(),
            writes_each_time: false,
            interrupted: None,
            lost: None,
            unstored: None,
            expiry_hints: Vec::new(),
        }
    }
}
