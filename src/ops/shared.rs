//! What stacks of one project have in common on a cluster: the CustomResourceDefinitions of `<project>/crd`, which belong
//! to the Spec of each. One that lets go of them leaves them to the others.

use std::collections::BTreeMap;

use super::{Planning, Wanted};
use crate::{
    error::Failure,
    model::{
        ResourceId, StackId,
        spec::Spec,
        stack::Stack,
        state::{Recorded, StackState},
    },
    ops::Target,
};

/// Per definition that is recorded and no longer wanted: a stack beside this one that has it on the same cluster, by its
/// state, and wants it, by its Spec. That of one that can not be compiled may want everything.
pub(super) async fn by_others(
    planning: &Planning,
    target: &Target,
    wanted: &Spec,
    state: &StackState,
) -> Result<BTreeMap<ResourceId, StackId>, Failure> {
    let mut shared = BTreeMap::new();
    let goes = |recorded: &&Recorded| {
        recorded
            .attributes
            .get("kind")
            .is_some_and(|kind| kind == "CustomResourceDefinition")
            && !wanted.resources.iter().any(|resource| resource.id == recorded.id)
    };
    let gone: Vec<&Recorded> = state.resources.iter().filter(goes).collect();
    let (Wanted::Compiled { compiler, head, .. }, Some(memory)) = (&planning.wanted, &planning.memory) else {
        return Ok(shared);
    };
    if gone.is_empty() {
        return Ok(shared);
    }
    let beside = |stack: &&Stack| stack.id != target.id && target.id.is_beside(stack.id.as_str());
    for other in head.layout.stacks.iter().filter(beside) {
        let Some(theirs) = memory.states.load(&other.id).await? else {
            continue;
        };
        let has = |mine: &&&Recorded| {
            let found = theirs.state.resource(&mine.id);
            found.is_some_and(|found| found.cluster == mine.cluster)
        };
        let in_both: Vec<_> = gone.iter().filter(has).collect();
        if in_both.is_empty() {
            continue;
        }
        let spec = compiler.spec(head, other).await.ok();
        for mine in in_both {
            let wants = |spec: &Spec| spec.resources.iter().any(|resource| resource.id == mine.id);
            if spec.as_ref().is_none_or(wants) {
                shared.insert(mine.id.clone(), other.id.clone());
            }
        }
    }
    Ok(shared)
}
