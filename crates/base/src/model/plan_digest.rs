//! The digest of a resource's plan: over its units of review.

use super::{
    Digest, ResourceId, StackId,
    plan::{Action, FieldChange, PodImpact, ResourcePlan, Validation},
    review,
    spec::RuntimeKind,
};

impl ResourcePlan {
    /// Builds a plan: sorts the changes and computes the digest.
    pub fn new(
        stack: &StackId,
        id: ResourceId,
        runtime: RuntimeKind,
        action: Action,
        mut changes: Vec<FieldChange>,
    ) -> Self {
        changes.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| a.origin.cmp(&b.origin)));
        let mut plan = Self {
            id,
            runtime,
            cluster: None,
            action,
            digest: Digest::of_set([]),
            validated: Validation::None,
            replace: Vec::new(),
            immutable: Vec::new(),
            data_loss: false,
            changes,
            ownership: Vec::new(),
            pods: PodImpact::default(),
            notes: Vec::new(),
        };
        plan.digest = plan.units_digest(stack);
        plan
    }

    /// The plan with other values in its changes.
    #[must_use]
    pub fn with_changes(&self, stack: &StackId, changes: Vec<FieldChange>) -> Self {
        let changed = Self::new(stack, self.id.clone(), self.runtime, self.action, changes)
            .with_ownership(stack, self.ownership.clone());
        Self {
            digest: changed.digest,
            changes: changed.changes,
            ..self.clone()
        }
    }

    /// Adds the paths of which only the field manager changes.
    #[must_use]
    pub fn with_ownership(mut self, stack: &StackId, paths: Vec<String>) -> Self {
        if !paths.is_empty() {
            self.ownership = paths;
            self.digest = self.units_digest(stack);
        }
        self
    }

    fn units_digest(&self, stack: &StackId) -> Digest {
        let units = review::resource_units(stack, self);
        Digest::of_set(units.iter().map(review::ReviewUnit::digest))
    }
}
