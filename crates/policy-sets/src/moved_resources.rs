//! Finds resources that move from a stack of a policy set to a stack that the set does not match, where its rules
//! would no longer apply to them. The author of a pull request chooses the stack, so such a move is reported.

use std::collections::BTreeMap;

use super::{all_sets::PolicySets, set::PolicySet};
use konverge_base::model::{
    ClusterName, ResourceId,
    plan::Action,
    plan_document::StackDocument,
    policy_finding::{Enforcement, PolicyFinding},
};

type ResourceKey = (ResourceId, Option<ClusterName>);

/// The resources that leave or enter a stack, from all plans of a preview.
#[derive(Debug, Default)]
pub struct MovedResources {
    /// The stacks, without their resources.
    stacks: Vec<StackDocument>,
    /// The resources that leave, with the index of their stack in `stacks`.
    left: BTreeMap<ResourceKey, usize>,
    came: BTreeMap<ResourceKey, usize>,
}

impl MovedResources {
    /// Adds the plan of a stack.
    pub fn add(&mut self, document: &StackDocument) {
        let at = self.stacks.len();
        for resource in &document.resources {
            let side = match resource.action {
                Action::Delete | Action::Forget => &mut self.left,
                Action::Create | Action::Adopt => &mut self.came,
                _ => continue,
            };
            side.insert((resource.id.clone(), resource.cluster.clone()), at);
        }
        self.stacks.push(StackDocument {
            known_as: document.known_as.clone(),
            ..document.without_resources()
        });
    }

    /// Returns a finding for each resource that leaves the stacks of a set.
    pub fn findings(&self, sets: &PolicySets) -> Vec<PolicyFinding> {
        let moved = self.left.iter().filter_map(|(key, from)| {
            let to = self.came.get(key)?;
            Some((&key.0, &self.stacks[*from], &self.stacks[*to]))
        });
        let of_set = |(id, from, to): (&ResourceId, &StackDocument, &StackDocument)| {
            let stays = |set: &&PolicySet| sets.about(to).any(|other| other.name() == set.name());
            let leaves = sets.about(from).filter(|set| !stays(set));
            let findings = leaves.map(|set| PolicyFinding {
                verdict: Enforcement::Warn,
                rule: format!("{}/stacks", set.name()),
                stack: Some(to.stack.id.clone()),
                message: format!(
                    "{id} moves here from `{}`: the set matches that stack, but not `{}`",
                    from.stack.id, to.stack.id
                ),
                hint: Some(format!(
                    "if the rules of the set should apply to the resource, write `{}` into `stacks` of the set",
                    to.stack.folder
                )),
                place: None,
            });
            findings.collect::<Vec<_>>()
        };
        moved.flat_map(of_set).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{document, pod, rego};
    use konverge_base::model::RepoPath;
    use serde_json::json;

    #[test]
    fn a_resource_that_leaves_the_stacks_of_a_set_is_told() {
        let stack = |id: &str, folder: &str, action: Action| {
            let mut document = document(vec![pod("web", json!("a")), pod("other", json!("a"))]);
            document.stack.id = id.parse().unwrap();
            document.stack.folder = RepoPath::normalize(folder).unwrap();
            document.resources[0].action = action;
            document
        };
        let findings = |stacks: &str, from: Action, to: Action| {
            let set = rego(
                &format!("input: objects, stacks: '{stacks}'"),
                "package main\ndeny contains \"m\" if false\n",
            );
            let mut moved = MovedResources::default();
            moved.add(&stack("shop/prod", "appops/shop/prod", from));
            moved.add(&stack("play/dev", "appops/play/dev", to));
            moved.findings(&PolicySets::new(vec![set], &[]))
        };
        for (from, to) in [(Action::Forget, Action::Adopt), (Action::Delete, Action::Create)] {
            for stacks in ["appops/*/prod", "shop/prod"] {
                let found = findings(stacks, from, to);
                assert_eq!(found.len(), 1, "{stacks} {from:?}");
                assert_eq!(found[0].verdict, Enforcement::Warn);
                assert_eq!(found[0].stack.as_ref().unwrap().as_str(), "play/dev");
                let message = &found[0].message;
                assert!(message.contains("moves here from `shop/prod`"), "{message}");
            }
            assert!(findings("appops/*/*", from, to).is_empty(), "it stays in the set");
            assert!(
                findings("appops/play/*", from, to).is_empty(),
                "it comes into the set"
            );
        }
        assert!(findings("appops/*/prod", Action::Update, Action::Create).is_empty());
        assert!(findings("appops/*/prod", Action::Delete, Action::Unchanged).is_empty());
    }
}
