//! The digest of a resource's plan, over its review units.

use super::{
    Digest, FieldPath, ResourceId, StackId,
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

    /// Returns the plan with other values in its changes.
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

    /// Adds the paths whose field manager changes while their values stay.
    #[must_use]
    pub fn with_ownership(mut self, stack: &StackId, paths: Vec<FieldPath>) -> Self {
        if !paths.is_empty() {
            self.ownership = paths;
            self.digest = self.units_digest(stack);
        }
        self
    }

    fn units_digest(&self, stack: &StackId) -> Digest {
        let units = review::resource_units(stack, self);
        Digest::of_set(units.iter().map(review::ReviewUnit::plan_digest))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::plan::ChangeOrigin;

    #[test]
    fn the_digest_of_a_takeover_stands_for_the_live_value() {
        let digest = |action, from: Option<&str>| {
            let change = FieldChange {
                path: "/data/a".into(),
                from: from.map(|from| json!(from)),
                to: Some(json!("new")),
                origin: ChangeOrigin::Change,
            };
            let id = "v1:ConfigMap:shop:a".parse().unwrap();
            let stack = "shop/dev".parse().unwrap();
            ResourcePlan::new(&stack, id, RuntimeKind::Kubernetes, action, vec![change]).digest
        };
        let read = digest(Action::Adopt, Some("by hand"));
        assert_eq!(read, digest(Action::Adopt, Some("by hand")));
        assert_ne!(read, digest(Action::Adopt, Some("by another hand")));
        assert_ne!(read, digest(Action::Adopt, None));
        // A recorded resource has its last write, with which the live value is compared.
        assert_eq!(
            digest(Action::Update, Some("by hand")),
            digest(Action::Update, Some("by another hand"))
        );
    }
}
