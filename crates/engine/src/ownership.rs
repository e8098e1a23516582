//! Resolves the claims of other stacks on the objects of a plan. An object that another stack claims is not deleted,
//! and an object that another stack still records is not taken over.

use crate::runtime::{Item, PlannedResource};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ResourceId, StackId, claim::IMPORT_ID, container::Container, plan::Action, spec::RuntimeKind,
        text::first_few,
    },
};

/// A question to the caller: which other stacks claim an object that the plan is about to change?
#[derive(Debug, Clone)]
pub struct ClaimQuestion<'a> {
    /// The resource that another stack may own.
    pub item: &'a Item,
    /// The planned action on the object.
    pub about: ClaimedObject,
}

/// A planned action on an object that another stack may claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimedObject {
    /// This stack deletes the object. Does another stack desire it?
    Deleted,
    /// This stack replaces the object, which deletes the objects inside it. Do other stacks have objects there?
    Emptied,
    /// This stack creates or adopts the object. Does another stack record it, and has that stack not released it?
    Created,
    /// The live object names another stack as its owner, and this stack takes the object from that stack. Has that
    /// stack released it?
    TakenFrom(StackId),
}

/// The claim of another stack on an object, as the answer to a [`ClaimQuestion`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerClaim {
    /// No other stack claims the object, or its owner released it.
    Nobody,
    /// Other stacks have objects inside this object, which are deleted with it.
    Holds(Vec<HeldObjects>),
    /// This stack (not the planned one) claims the object.
    By(StackId),
    /// The object stays in the planned stack, and this other stack manages it too.
    SharedWith(StackId),
    /// It is unknown whether this stack claims the object, because its Spec cannot be compiled.
    Unclear(StackId),
    /// The Spec of this stack cannot be compiled either, but a person confirmed that it does not claim the object.
    Waived(StackId),
    /// An object of the same type has the same id at its Terraform provider. It may be another object, because ids are
    /// unique only within an account.
    SameId(StackId),
}

/// The objects of one stack in a Namespace of another stack, or of a kind that another stack defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldObjects {
    /// The stack that records the objects.
    pub stack: StackId,
    /// The objects that the stack holds.
    pub ids: Vec<ResourceId>,
    /// True if the objects may be deleted, because their stack removes them in the same change.
    pub may_go: bool,
    /// True if the stack has removed the objects from its Spec, and that change is not applied yet.
    pub is_leaving: bool,
}

impl HeldObjects {
    /// The maximum number of objects that a message names.
    const NAMED: usize = 20;
}

impl std::fmt::Display for HeldObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = first_few(self.ids.iter().map(|id| format!("`{id}`")), Self::NAMED);
        write!(f, "{} of stack `{}` ({named})", self.ids.len(), self.stack)
    }
}

/// Returns the question that must be answered before a resource's plan is complete; `None` if there is none.
pub(super) fn question(planned: &PlannedResource) -> Option<ClaimQuestion<'_>> {
    let about = match (&planned.foreign, planned.public.action) {
        // If the owner in the mark is not a valid stack id, no stack can release the object: there is nothing to ask.
        (Some(foreign), _) => ClaimedObject::TakenFrom(foreign.owner.parse().ok()?),
        (None, Action::Create | Action::Adopt) => ClaimedObject::Created,
        (None, Action::Run) if planned.item.prior.is_none() => ClaimedObject::Created,
        (None, Action::Delete) => ClaimedObject::Deleted,
        (None, Action::Replace) if is_container(&planned.item) => ClaimedObject::Emptied,
        (None, _) => return None,
    };
    Some(ClaimQuestion {
        item: &planned.item,
        about,
    })
}

/// Adjusts the plan of one resource to the claim of another stack. `claim` is `None` if there was no question.
pub(super) fn resolve_claim(
    stack: &StackId,
    planned: PlannedResource,
    claim: Option<OwnerClaim>,
) -> Result<PlannedResource, UserError> {
    match (&planned.foreign, planned.public.action) {
        (Some(_), _) => taken_over(planned, claim),
        (None, Action::Create | Action::Adopt | Action::Run) => not_recorded_elsewhere(planned, claim),
        (None, Action::Delete) => let_go(stack, planned, claim.unwrap_or(OwnerClaim::Nobody)),
        (None, Action::Replace) => match claim {
            Some(OwnerClaim::Holds(held)) => emptied(planned, &held),
            _ => Ok(planned),
        },
        (None, _) => Ok(planned),
    }
}

fn taken_over(mut planned: PlannedResource, claim: Option<OwnerClaim>) -> Result<PlannedResource, UserError> {
    let Some(foreign) = &planned.foreign else {
        return Ok(planned);
    };
    let note = match claim {
        Some(OwnerClaim::Nobody) => format!("it moves here from stack `{}`", foreign.owner),
        Some(OwnerClaim::SharedWith(other)) => {
            format!("stack `{other}` manages it too: the stacks of a project share it")
        }
        _ => return Err(foreign.refusal.clone()),
    };
    planned.public.notes.push(note);
    Ok(planned)
}

fn not_recorded_elsewhere(
    mut planned: PlannedResource,
    claim: Option<OwnerClaim>,
) -> Result<PlannedResource, UserError> {
    let other = match claim {
        None | Some(OwnerClaim::Nobody | OwnerClaim::Holds(_)) => return Ok(planned),
        Some(OwnerClaim::SameId(other)) => {
            planned.public.notes.push(format!(
                "stack `{other}` records an object of this type with the same id: if it is the same object, remove it \
                 from one of the two stacks (`konverge state forget {other}` does not change live objects)"
            ));
            return Ok(planned);
        }
        Some(
            OwnerClaim::By(other)
            | OwnerClaim::SharedWith(other)
            | OwnerClaim::Unclear(other)
            | OwnerClaim::Waived(other),
        ) => other,
    };
    let is_object = planned.public.runtime == RuntimeKind::Kubernetes;
    let what = if is_object {
        format!("stack `{other}` still manages the same object")
    } else {
        format!("stack `{other}` has taken over the same object (`{IMPORT_ID}`)")
    };
    Err(UserError::new(ErrorKind::Policy, what)
        .hint(format!("only one stack can own an object: remove the object from this stack or from `{other}`"))
        .hint(format!(
            "to make `{other}` forget it: `konverge state forget {other} '{}'` removes only the record; live objects are not changed",
            planned.item.id
        )))
}

fn let_go(
    stack: &StackId,
    mut planned: PlannedResource,
    claim: OwnerClaim,
) -> Result<PlannedResource, UserError> {
    let refused = |what: String| UserError::new(ErrorKind::Policy, what);
    match (claim, planned.protected.take()) {
        (OwnerClaim::Nobody | OwnerClaim::Holds(_), Some(refusal)) => Err(refusal),
        (OwnerClaim::Holds(held), None) => emptied(planned, &held),
        (OwnerClaim::Unclear(other) | OwnerClaim::SameId(other), Some(refusal)) => Err(refusal.hint(format!(
            "to move the object to stack `{other}`, fix that stack first: `konverge build {other}` says why its Spec cannot be compiled"
        ))),
        (OwnerClaim::Nobody, None) => Ok(planned),
        (OwnerClaim::By(other), _) if planned.public.runtime == RuntimeKind::Terraform => Err(refused(format!(
            "it would be destroyed, while stack `{other}` now wants a resource of the same id"
        ))
        .hint(format!(
            "Terraform resources do not move between stacks automatically: forget the resource here (`konverge state forget {stack} '{}'`), \
             and import it into `{other}` with the extension `kusionstack.io/import-id`",
            planned.item.id
        ))
        .hint(format!(
            "if the whole stack has another name now: `konverge state move {stack} {other}`"
        ))
        .hint(format!(
            "if `{other}` needs a new resource with this id: leave it out of this change, apply the change, then add the resource to `{other}` in a separate change"
        ))),
        (OwnerClaim::By(other), _) => Ok(stays(
            stack,
            planned,
            format!("it moves to stack `{other}`: nothing is deleted"),
        )),
        (OwnerClaim::SharedWith(other), _) => Ok(stays(
            stack,
            planned,
            format!("it is kept: stack `{other}` manages it too"),
        )),
        (OwnerClaim::Waived(other), None) => {
            planned.public.notes.push(format!(
                "the Spec of stack `{other}` does not compile, so it is unknown whether it needs this object; `--without {other}` declares that it does not"
            ));
            Ok(planned)
        }
        (OwnerClaim::Waived(_), Some(refusal)) => Err(refusal),
        // Nothing shows that the object moves to the other stack, and deleting it would lose what it contains. A
        // Terraform resource never moves between stacks by itself. So the deletion is refused until the other Spec
        // compiles.
        (OwnerClaim::Unclear(other) | OwnerClaim::SameId(other), None)
            if planned.public.data_loss || planned.public.runtime == RuntimeKind::Terraform => Err(refused(format!(
            "it would be deleted with the objects in it, and Konverge cannot tell whether it moves to stack `{other}`, whose Spec cannot be compiled"
        ))
        .hint(format!("fix `{other}` first: `konverge build {other}` says what is wrong"))
        .hint(format!(
            "if `{other}` certainly does not need the object: `konverge apply {stack} --without {other}`; in CI start the workflow \
             by hand with `approve: without={other}`"
        ))),
        (OwnerClaim::Unclear(other) | OwnerClaim::SameId(other), None) => {
            planned.public.notes.push(format!(
                "it is unknown whether stack `{other}` needs it: the Spec of that stack cannot be compiled"
            ));
            Ok(planned)
        }
    }
}

fn is_container(item: &Item) -> bool {
    let prior = item.prior.as_ref();
    prior.is_some_and(|prior| {
        prior.runtime == RuntimeKind::Kubernetes && Container::from_attributes(&prior.attributes).is_some()
    })
}

/// Returns the plan of an object whose deletion also deletes objects of other stacks: an error, unless those stacks
/// remove their objects in the same change.
fn emptied(mut planned: PlannedResource, held: &[HeldObjects]) -> Result<PlannedResource, UserError> {
    let (gone, kept): (Vec<_>, Vec<_>) = held.iter().partition(|held| held.may_go);
    let named = |held: &[&HeldObjects]| {
        let named: Vec<_> = held.iter().map(ToString::to_string).collect();
        named.join("; ")
    };
    if kept.is_empty() {
        let note = format!(
            "this also deletes objects that their stacks remove in the same change: {}",
            named(&gone)
        );
        planned.public.notes.push(note);
        return Ok(planned);
    }
    let count: usize = kept.iter().map(|held| held.ids.len()).sum();
    let objects = if count == 1 { "object" } else { "objects" };
    let what = format!(
        "{count} {objects} of other stacks would be deleted with it: {}",
        named(&kept)
    );
    let failure = UserError::new(ErrorKind::Policy, what);
    let failure = kept
        .iter()
        .filter(|held| held.is_leaving)
        .fold(failure, |failure, held| {
            failure.hint(format!(
                "`{}` no longer has these objects, but is not applied yet: apply the stack first",
                held.stack
            ))
        });
    Err(if kept.iter().all(|held| held.is_leaving) {
        failure
    } else {
        failure
            .hint("remove these objects from their stacks in the same change, or move them somewhere else first")
            .hint("to keep the object in the cluster without managing it, set `konverge/keep: \"true\"` on it in a change of its own")
    })
}

fn stays(stack: &StackId, planned: PlannedResource, note: String) -> PlannedResource {
    PlannedResource::forgotten(stack, planned.item, planned.public.runtime, note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Foreign, Needs};
    use konverge_base::model::plan::ResourcePlan;

    fn planned(kind: RuntimeKind, action: Action, data_loss: bool, owner: Option<&str>) -> PlannedResource {
        let stack = "shop/dev".parse().unwrap();
        let id = "v1:PersistentVolumeClaim:shop:data";
        let item = Item {
            id: id.parse().unwrap(),
            cluster: None,
            prior: None,
            desired: None,
            needs: Needs::default(),
        };
        let mut planned = PlannedResource::forgotten(&stack, item.clone(), kind, String::new());
        planned.public = ResourcePlan::new(&stack, item.id, kind, action, Vec::new());
        planned.public.data_loss = data_loss;
        planned.foreign = owner.map(|owner| Foreign {
            owner: owner.to_owned(),
            refusal: UserError::new(ErrorKind::Policy, "it belongs to another"),
        });
        planned
    }

    fn asked(planned: PlannedResource, claim: OwnerClaim) -> Result<PlannedResource, UserError> {
        let claim = question(&planned).map(|_| claim);
        resolve_claim(&"shop/dev".parse().unwrap(), planned, claim)
    }

    #[test]
    fn what_another_stack_claims_is_not_deleted() {
        let other: StackId = "shop/prod".parse().unwrap();
        let delete = |kind, data_loss| planned(kind, Action::Delete, data_loss, None);
        let kubernetes = RuntimeKind::Kubernetes;
        let moved = asked(delete(kubernetes, true), OwnerClaim::By(other.clone()));
        let moved = moved.unwrap().public;
        assert_eq!((moved.action, moved.data_loss), (Action::Forget, false));
        assert!(
            moved.notes[0].contains("it moves to stack `shop/prod`"),
            "{moved:?}"
        );
        let shared = asked(delete(kubernetes, false), OwnerClaim::SharedWith(other.clone()));
        let shared = shared.unwrap().public;
        assert_eq!(
            (shared.action, shared.notes[0].as_str()),
            (Action::Forget, "it is kept: stack `shop/prod` manages it too")
        );
        let deleted = asked(delete(kubernetes, true), OwnerClaim::Nobody);
        assert_eq!(deleted.unwrap().public.action, Action::Delete);

        let terraform = asked(
            delete(RuntimeKind::Terraform, false),
            OwnerClaim::By(other.clone()),
        );
        let refusal = terraform.unwrap_err();
        assert_eq!(refusal.kind, ErrorKind::Policy);
        assert!(
            refusal.hints[0].contains("konverge state forget shop/dev"),
            "{refusal:?}"
        );

        // The claims cannot be determined: what can be recreated is deleted, data is not.
        let unclear = OwnerClaim::Unclear(other);
        let small = asked(delete(kubernetes, false), unclear.clone());
        let small = small.unwrap().public;
        assert_eq!((small.action, small.notes.len()), (Action::Delete, 1));
        let cloud = asked(delete(RuntimeKind::Terraform, false), unclear.clone());
        assert!(
            cloud.is_err(),
            "a role of a cloud is not deleted on a guess either"
        );
        let data = asked(delete(kubernetes, true), unclear);
        let refusal = data.unwrap_err();
        assert!(refusal.hints[0].contains("konverge build shop/prod"));
        assert!(refusal.hints[1].contains("konverge apply shop/dev --without shop/prod"));
        let waived = OwnerClaim::Waived("shop/prod".parse().unwrap());
        let data = asked(delete(kubernetes, true), waived).unwrap().public;
        assert_eq!((data.action, data.notes.len()), (Action::Delete, 1));
    }

    #[test]
    fn what_other_stacks_have_in_it_stops_its_deletion() {
        let held = |stack: &str, count: usize, may_go, is_leaving| HeldObjects {
            stack: stack.parse().unwrap(),
            ids: (0..count)
                .map(|nth| format!("v1:ConfigMap:shop:m{nth}").parse().unwrap())
                .collect(),
            may_go,
            is_leaving,
        };
        let ask = |held| {
            let delete = planned(RuntimeKind::Kubernetes, Action::Delete, true, None);
            asked(delete, OwnerClaim::Holds(held))
        };
        let refused = ask(vec![
            held("b/prod", 22, false, false),
            held("c/prod", 1, true, true),
        ]);
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Policy);
        for words in [
            "22 of stack `b/prod` (`v1:ConfigMap:shop:m0`, ",
            "`v1:ConfigMap:shop:m19` and 2 more)",
        ] {
            assert!(refused.message.contains(words), "{words}: {refused}");
        }
        assert!(!refused.message.contains("c/prod"), "{refused}");
        let later = ask(vec![held("b/prod", 1, false, true)]).unwrap_err();
        assert_eq!(later.hints.len(), 1, "{later}");
        assert!(later.hints[0].contains("apply the stack first"), "{later}");
        let gone = ask(vec![held("b/prod", 2, true, true)]).unwrap().public;
        assert_eq!(gone.action, Action::Delete);
        assert!(
            gone.notes[0].contains("2 of stack `b/prod` (`v1:ConfigMap:shop:m0`, `v1:ConfigMap:shop:m1`)"),
            "{gone:?}"
        );
    }

    #[test]
    fn what_is_protected_may_move_and_nothing_else() {
        let other: StackId = "shop/prod".parse().unwrap();
        let protected = |claim| {
            let mut delete = planned(RuntimeKind::Kubernetes, Action::Delete, true, None);
            delete.protected = Some(UserError::new(ErrorKind::Policy, "it is protected"));
            asked(delete, claim)
        };
        let moved = protected(OwnerClaim::By(other.clone())).unwrap().public;
        assert_eq!(moved.action, Action::Forget);
        let refused = protected(OwnerClaim::Nobody).unwrap_err();
        assert_eq!(
            (refused.message.as_str(), refused.hints.len()),
            ("it is protected", 0)
        );
        let refused = protected(OwnerClaim::Unclear(other)).unwrap_err();
        assert!(
            refused.message == "it is protected" && refused.hints[0].contains("konverge build shop/prod")
        );
    }

    #[test]
    fn what_its_owner_has_not_let_go_of_is_not_taken() {
        let adopt = |owner| planned(RuntimeKind::Kubernetes, Action::Adopt, false, Some(owner));
        let taken = asked(adopt("shop/old"), OwnerClaim::Nobody);
        assert!(taken.unwrap().public.notes[0].contains("from stack `shop/old`"));
        let shared = asked(
            adopt("shop/prod"),
            OwnerClaim::SharedWith("shop/prod".parse().unwrap()),
        );
        assert!(shared.unwrap().public.notes[0].contains("share it"));
        let kept = OwnerClaim::By("shop/old".parse().unwrap());
        for (owner, claim) in [("shop/old", kept), ("no identity", OwnerClaim::Nobody)] {
            let refused = asked(adopt(owner), claim);
            assert_eq!(refused.unwrap_err().message, "it belongs to another");
        }
    }

    #[test]
    fn what_another_stack_records_is_not_created() {
        let create = |kind| planned(kind, Action::Create, false, None);
        for (kind, says) in [
            (RuntimeKind::Kubernetes, "still manages the same object"),
            (RuntimeKind::Terraform, "has taken over the same object"),
        ] {
            let refused = asked(create(kind), OwnerClaim::By("shop/prod".parse().unwrap()));
            assert!(refused.unwrap_err().message.contains(says));
            assert!(asked(create(kind), OwnerClaim::Nobody).is_ok());
        }
        let same_id = OwnerClaim::SameId("shop/prod".parse().unwrap());
        let named = asked(create(RuntimeKind::Terraform), same_id).unwrap().public;
        assert_eq!((named.action, named.notes.len()), (Action::Create, 1));
    }
}
