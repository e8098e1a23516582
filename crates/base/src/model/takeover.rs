//! [`Takeover`]: the effect of the first apply of a stack on resources that already exist.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Digest, RepoPath, StackId,
    plan::{Action, Plan, ResourcePlan, StackPlan, Summary},
    review::{ReviewUnit, resource_units},
};
use crate::error::ErrorBody;

/// The annotation of an object that names its stack.
const OWNER: &str = "konverge/stack";

/// The effect of the first apply of a stack on resources that already exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Takeover {
    /// Every resource exists and matches the Spec: only the owner changes.
    Unchanged,
    /// At least one resource exists, and one would change or be created.
    Changed,
    /// No resource of the stack exists.
    New,
    /// The stack could not be planned, in full or in part.
    Failed,
}

impl Takeover {
    /// Determines the effect from the plan of a stack that was never applied.
    pub fn judge(plan: &StackPlan) -> Self {
        let counts = TakeoverCounts::count(plan);
        match plan.error {
            Some(_) => Self::Failed,
            None if counts.changed + counts.new == 0 => Self::Unchanged,
            None if counts.changed + counts.unchanged == 0 => Self::New,
            None => Self::Changed,
        }
    }
}

/// The resources of a stack by the effect of the first apply on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TakeoverCounts {
    /// Resources without changes.
    pub unchanged: usize,
    /// Resources that an apply would change.
    pub changed: usize,
    /// Resources that an apply would create.
    pub new: usize,
}

impl TakeoverCounts {
    /// Counts the resources of a plan.
    pub fn count(plan: &StackPlan) -> Self {
        let mut counts = Self {
            unchanged: plan.summary.unchanged,
            ..Self::default()
        };
        for resource in &plan.resources {
            match resource.action {
                Action::Create => counts.new += 1,
                _ if stays(&plan.id, resource) => counts.unchanged += 1,
                _ => counts.changed += 1,
            }
        }
        counts
    }
}

impl Summary {
    /// Adds one resource to the counts.
    pub fn count_resource(&mut self, stack: &StackId, resource: &ResourcePlan) {
        self.count(resource.action);
        let changes = resource.action == Action::Adopt && !stays(stack, resource);
        self.adopt_changed += usize::from(changes);
    }
}

/// Returns true if a resource is adopted and keeps every value except the annotation that names its owner.
pub fn stays(stack: &StackId, resource: &ResourcePlan) -> bool {
    let units = resource_units(stack, resource);
    resource.action == Action::Adopt && units.iter().all(|unit| keeps_values(stack, unit))
}

/// Returns true for a unit without a value, and for the owner annotation of an object that had none.
fn keeps_values(stack: &StackId, unit: &ReviewUnit) -> bool {
    if unit.from.is_some() {
        return false;
    }
    let name = Value::from(stack.as_str());
    match (unit.path.as_str(), &unit.to) {
        ("", to) => to.is_none(),
        ("/metadata/annotations", Some(to)) => *to == json!({ OWNER: name }),
        ("/metadata/annotations/konverge~1stack", Some(to)) => *to == name,
        _ => false,
    }
}

/// The output of `konverge adopt --output json`. The JSON has `"version":1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TakeoverReport {
    /// Version of this format.
    pub version: u32,
    /// The stacks that were never applied, sorted by folder.
    pub stacks: Vec<StackTakeover>,
}

/// One stack that was never applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StackTakeover {
    /// Folder of the stack.
    pub stack: RepoPath,
    /// Identity of the stack.
    pub id: StackId,
    /// The effect of the first apply.
    pub takeover: Takeover,
    /// The number of resources that are adopted without changes, that change, and that are created.
    pub resources: TakeoverCounts,
    /// The digest of the plan, as in a preview.
    pub digest: Digest,
    /// The error of a stack that could not be planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

impl TakeoverReport {
    /// Creates the report for the plans.
    pub fn new(plan: &Plan) -> Self {
        let stacks = plan.stacks.iter().map(|stack| StackTakeover {
            stack: stack.stack.clone(),
            id: stack.id.clone(),
            takeover: Takeover::judge(stack),
            resources: TakeoverCounts::count(stack),
            digest: stack.digest,
            error: stack.error.clone(),
        });
        Self {
            version: 1,
            stacks: stacks.collect(),
        }
    }

    /// Returns the stacks with this effect.
    pub fn stacks_that_are(&self, takeover: Takeover) -> impl Iterator<Item = &StackTakeover> {
        self.stacks.iter().filter(move |stack| stack.takeover == takeover)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        plan::{Basis, ChangeOrigin, FieldChange},
        spec::RuntimeKind,
    };

    fn resource(name: &str, action: Action, changes: Vec<FieldChange>) -> ResourcePlan {
        let id = format!("v1:ConfigMap:shop:{name}").parse().unwrap();
        ResourcePlan::new(
            &"shop/dev".parse().unwrap(),
            id,
            RuntimeKind::Kubernetes,
            action,
            changes,
        )
    }

    fn judge(resources: Vec<ResourcePlan>) -> Takeover {
        let folder = RepoPath::normalize("shop/dev").unwrap();
        Takeover::judge(&StackPlan::new(
            folder,
            "shop/dev".parse().unwrap(),
            Basis::Live,
            resources,
        ))
    }

    #[test]
    fn a_stack_is_unchanged_only_if_every_value_stays() {
        let change = |path: &str, from: Option<&str>, to: Value| FieldChange {
            path: path.into(),
            from: from.map(Value::from),
            to: Some(to),
            origin: ChangeOrigin::Change,
        };
        let none = Vec::new;
        let stays = || resource("a", Action::Adopt, none());
        assert_eq!(judge(vec![stays(), stays()]), Takeover::Unchanged);
        let owner = "/metadata/annotations/konverge~1stack";
        for (path, from, to, takeover) in [
            (owner, None, json!("shop/dev"), Takeover::Unchanged),
            (
                "/metadata/annotations",
                None,
                json!({"konverge/stack": "shop/dev"}),
                Takeover::Unchanged,
            ),
            // Another owner, another stack, another annotation, another value.
            (owner, Some("shop/prod"), json!("shop/dev"), Takeover::Changed),
            (owner, None, json!("shop/prod"), Takeover::Changed),
            (
                "/metadata/annotations",
                None,
                json!({"konverge/stack": "shop/dev", "more": "x"}),
                Takeover::Changed,
            ),
            ("/data/a", Some("1"), json!("2"), Takeover::Changed),
        ] {
            let changes = vec![change(path, from, to)];
            let found = judge(vec![stays(), resource("b", Action::Adopt, changes)]);
            assert_eq!(found, takeover, "{path} from {from:?}");
        }
        let made = || resource("b", Action::Create, none());
        assert_eq!(judge(vec![stays(), made()]), Takeover::Changed);
        assert_eq!(judge(vec![made()]), Takeover::New);
        for action in [Action::Delete, Action::Replace, Action::Unknown, Action::Forget] {
            let found = judge(vec![stays(), resource("b", action, none())]);
            assert_eq!(found, Takeover::Changed, "{action:?}");
        }
    }
}
