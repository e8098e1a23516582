//! The claims of other stacks on a plan's objects. Nothing is deleted that another stack claims, and nothing
//! is taken over that its owner still records.

use std::collections::HashMap;

use async_trait::async_trait;

use crate::{
    error::{ErrorKind, UserError},
    model::{StackId, claim::IMPORT_ID, plan::Action, spec::RuntimeKind},
    runtime::{Item, PlannedResource},
};

/// Answers questions about the other stacks.
#[async_trait]
pub trait OtherStacks: Send + Sync {
    /// Which other stack wants what this stack is about to delete.
    async fn claim(&self, stack: &StackId, item: &Item) -> Result<OwnerClaim, UserError>;

    /// Which other stack records what this stack is about to create or to adopt.
    async fn recorded_by(&self, stack: &StackId, item: &Item) -> Result<Option<RecordedBy>, UserError> {
        let _ = (stack, item);
        Ok(None)
    }

    /// The objects that their owner no longer manages.
    async fn released_by(&self, owner: &StackId) -> Result<ReleasedObjects, UserError>;
}

/// Another stack records the object that this stack is about to create or to adopt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedBy {
    /// It certainly is the same object.
    Owner(StackId),
    /// An object of the same type has the same id at its Terraform provider. In another account that is another
    /// object.
    SameId(StackId),
}

/// Says for each object of an owner whether the owner released it.
pub struct ReleasedObjects(Box<Told>);

type Told = dyn Fn(&Item) -> Result<bool, UserError> + Send + Sync;

impl ReleasedObjects {
    /// Nothing is released.
    pub fn none() -> Self {
        Self::from_fn(|_| Ok(false))
    }

    /// Uses a function that returns true for a released object.
    pub fn from_fn(tells: impl Fn(&Item) -> Result<bool, UserError> + Send + Sync + 'static) -> Self {
        Self(Box::new(tells))
    }
}

/// The claim of another stack on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerClaim {
    /// No other stack claims the object.
    Nobody,
    /// This stack claims the object.
    By(StackId),
    /// This stack has the object too, and keeps it.
    SharedWith(StackId),
    /// Unknown: the Spec of this stack cannot be compiled.
    Unclear(StackId),
    /// Unknown as well, but a person confirmed that this stack does not claim the object.
    Waived(StackId),
}

/// For a stack without other stacks: nobody claims or releases anything.
pub struct NoOtherStacks;

#[async_trait]
impl OtherStacks for NoOtherStacks {
    async fn claim(&self, _: &StackId, _: &Item) -> Result<OwnerClaim, UserError> {
        Ok(OwnerClaim::Nobody)
    }

    async fn released_by(&self, _: &StackId) -> Result<ReleasedObjects, UserError> {
        Ok(ReleasedObjects::none())
    }
}

/// The questions of one plan to the other stacks: each owner is asked once, however many objects it had.
pub(super) struct OwnershipLookup<'a> {
    stack: &'a StackId,
    neighbours: &'a dyn OtherStacks,
    owners: HashMap<StackId, ReleasedObjects>,
}

impl<'a> OwnershipLookup<'a> {
    pub fn of(stack: &'a StackId, neighbours: &'a dyn OtherStacks) -> Self {
        Self {
            stack,
            neighbours,
            owners: HashMap::new(),
        }
    }

    /// Adjusts the plan of one resource to the claims of the other stacks.
    pub async fn resolve_claims(&mut self, planned: PlannedResource) -> Result<PlannedResource, UserError> {
        match (&planned.foreign, planned.public.action) {
            (Some(_), _) => self.taken_over(planned).await,
            (None, Action::Create | Action::Adopt) => self.not_recorded_elsewhere(planned).await,
            (None, Action::Delete) => let_go(self.neighbours, self.stack, planned).await,
            (None, _) => Ok(planned),
        }
    }

    async fn taken_over(&mut self, mut planned: PlannedResource) -> Result<PlannedResource, UserError> {
        let Some(foreign) = &planned.foreign else {
            return Ok(planned);
        };
        let released = match foreign.owner.parse::<StackId>() {
            Ok(owner) => self.is_released(owner, &planned.item).await?,
            Err(_) => false,
        };
        if !released {
            return Err(foreign.refusal.clone());
        }
        let note = format!("it moves here from stack `{}`", foreign.owner);
        planned.public.notes.push(note);
        Ok(planned)
    }

    async fn not_recorded_elsewhere(
        &mut self,
        mut planned: PlannedResource,
    ) -> Result<PlannedResource, UserError> {
        let other = match self.neighbours.recorded_by(self.stack, &planned.item).await? {
            None => return Ok(planned),
            Some(RecordedBy::Owner(other)) => other,
            Some(RecordedBy::SameId(other)) => {
                planned.public.notes.push(format!(
                    "stack `{other}` records an object of this type with the same id: if it is the same object, take it \
                     out of one of the two stacks (`konverge state forget {other}` touches nothing outside)"
                ));
                return Ok(planned);
            }
        };
        let is_object = planned.public.runtime == RuntimeKind::Kubernetes;
        if is_object && self.is_released(other.clone(), &planned.item).await? {
            return Ok(planned);
        }
        let what = match is_object {
            true => format!("stack `{other}` records the same object, and has not let go of it"),
            false => format!("stack `{other}` has taken over the same object (`{IMPORT_ID}`)"),
        };
        Err(UserError::new(ErrorKind::Policy, what)
            .hint(format!("only one stack can own an object: take it out of this one or of `{other}`"))
            .hint(format!(
                "if `{other}` is to give it up: `konverge state forget {other} '{}'` forgets it there, nothing outside is touched",
                planned.item.id
            )))
    }

    async fn is_released(&mut self, owner: StackId, item: &Item) -> Result<bool, UserError> {
        if !self.owners.contains_key(&owner) {
            let released = self.neighbours.released_by(&owner).await?;
            self.owners.insert(owner.clone(), released);
        }
        self.owners
            .get(&owner)
            .map_or(Ok(false), |ReleasedObjects(tells)| tells(item))
    }
}

async fn let_go(
    neighbours: &dyn OtherStacks,
    stack: &StackId,
    mut planned: PlannedResource,
) -> Result<PlannedResource, UserError> {
    let refused = |what: String| UserError::new(ErrorKind::Policy, what);
    match (neighbours.claim(stack, &planned.item).await?, planned.protected.take()) {
        (OwnerClaim::Nobody, Some(refusal)) => Err(refusal),
        (OwnerClaim::Unclear(other), Some(refusal)) => Err(refusal.hint(format!(
            "if it is to move to stack `{other}`, fix that first: `konverge build {other}` says why its Spec cannot be compiled"
        ))),
        (OwnerClaim::Nobody, None) => Ok(planned),
        (OwnerClaim::By(other), _) if planned.public.runtime == RuntimeKind::Terraform => Err(refused(format!(
            "it would be destroyed, while stack `{other}` now wants a resource of the same id"
        ))
        .hint(format!(
            "what Terraform made does not change stacks by itself: forget it here (`konverge state forget {stack} '{}'`), \
             and let `{other}` take it over by the extension `kusionstack.io/import-id`",
            planned.item.id
        ))
        .hint(format!(
            "if the whole stack has another name now: `konverge state move {stack} {other}`"
        ))
        .hint(format!(
            "if `{other}` is to make another one, add it there in a change of its own, after this one is applied"
        ))),
        (OwnerClaim::By(other), _) => Ok(stays(
            stack,
            planned,
            format!("it moves to stack `{other}`: nothing is deleted"),
        )),
        (OwnerClaim::SharedWith(other), _) => Ok(stays(
            stack,
            planned,
            format!("it stays: stack `{other}` has it too"),
        )),
        (OwnerClaim::Waived(other), None) => {
            planned.public.notes.push(format!(
                "it is not known whether stack `{other}` wants it, whose Spec does not compile: `--without {other}` says \
                 that it does not"
            ));
            Ok(planned)
        }
        (OwnerClaim::Waived(_), Some(refusal)) => Err(refusal),
        (OwnerClaim::Unclear(other), None) if planned.public.data_loss => Err(refused(format!(
            "it would be deleted with its data, and it cannot be seen whether it moves to stack `{other}`, whose Spec can \
             not be compiled"
        ))
        .hint(format!("fix `{other}` first: `konverge build {other}` says what is wrong"))
        .hint(format!(
            "if `{other}` certainly does not want it: `konverge apply {stack} --without {other}`; in CI start the workflow \
             by hand with `approve: without={other}`"
        ))),
        (OwnerClaim::Unclear(other), None) => {
            planned.public.notes.push(format!(
                "whether stack `{other}` wants it cannot be seen: its Spec cannot be compiled"
            ));
            Ok(planned)
        }
    }
}

fn stays(stack: &StackId, planned: PlannedResource, note: String) -> PlannedResource {
    PlannedResource::forgotten(stack, planned.item, planned.public.runtime, note)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{
        model::plan::ResourcePlan,
        runtime::{Foreign, Needs},
    };

    struct Says(OwnerClaim, bool);

    #[async_trait]
    impl OtherStacks for Says {
        async fn claim(&self, _: &StackId, _: &Item) -> Result<OwnerClaim, UserError> {
            Ok(self.0.clone())
        }

        async fn released_by(&self, _: &StackId) -> Result<ReleasedObjects, UserError> {
            let released = self.1;
            Ok(ReleasedObjects::from_fn(move |_| Ok(released)))
        }
    }

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

    async fn asked(
        planned: PlannedResource,
        claim: OwnerClaim,
        released: bool,
    ) -> Result<PlannedResource, UserError> {
        let (stack, says) = ("shop/dev".parse().unwrap(), Says(claim, released));
        OwnershipLookup::of(&stack, &says).resolve_claims(planned).await
    }

    #[tokio::test]
    async fn what_another_stack_claims_is_not_deleted() {
        let other: StackId = "shop/prod".parse().unwrap();
        let delete = |kind, data_loss| planned(kind, Action::Delete, data_loss, None);
        let kubernetes = RuntimeKind::Kubernetes;
        let moved = asked(delete(kubernetes, true), OwnerClaim::By(other.clone()), false).await;
        let moved = moved.unwrap().public;
        assert_eq!((moved.action, moved.data_loss), (Action::Forget, false));
        assert!(
            moved.notes[0].contains("it moves to stack `shop/prod`"),
            "{moved:?}"
        );
        let shared = asked(
            delete(kubernetes, false),
            OwnerClaim::SharedWith(other.clone()),
            false,
        )
        .await;
        let shared = shared.unwrap().public;
        assert_eq!(
            (shared.action, shared.notes[0].as_str()),
            (Action::Forget, "it stays: stack `shop/prod` has it too")
        );
        let deleted = asked(delete(kubernetes, true), OwnerClaim::Nobody, false).await;
        assert_eq!(deleted.unwrap().public.action, Action::Delete);

        let terraform = asked(
            delete(RuntimeKind::Terraform, false),
            OwnerClaim::By(other.clone()),
            false,
        )
        .await;
        let refusal = terraform.unwrap_err();
        assert_eq!(refusal.kind, ErrorKind::Policy);
        assert!(
            refusal.hints[0].contains("konverge state forget shop/dev"),
            "{refusal:?}"
        );

        // The claims cannot be determined: what can be recreated is deleted, data is not.
        let unclear = OwnerClaim::Unclear(other);
        let small = asked(delete(kubernetes, false), unclear.clone(), false).await;
        let small = small.unwrap().public;
        assert_eq!((small.action, small.notes.len()), (Action::Delete, 1));
        let data = asked(delete(kubernetes, true), unclear, false).await;
        let refusal = data.unwrap_err();
        assert!(refusal.hints[0].contains("konverge build shop/prod"));
        assert!(refusal.hints[1].contains("konverge apply shop/dev --without shop/prod"));
        let waived = OwnerClaim::Waived("shop/prod".parse().unwrap());
        let data = asked(delete(kubernetes, true), waived, false)
            .await
            .unwrap()
            .public;
        assert_eq!((data.action, data.notes.len()), (Action::Delete, 1));
    }

    struct Counts(AtomicUsize);

    #[async_trait]
    impl OtherStacks for Counts {
        async fn claim(&self, _: &StackId, _: &Item) -> Result<OwnerClaim, UserError> {
            Ok(OwnerClaim::Nobody)
        }

        async fn released_by(&self, _: &StackId) -> Result<ReleasedObjects, UserError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(ReleasedObjects::from_fn(|_| Ok(true)))
        }
    }

    #[tokio::test]
    async fn an_owner_is_asked_once_for_all_that_it_had() {
        let (stack, counts) = ("shop/dev".parse().unwrap(), Counts(AtomicUsize::new(0)));
        let mut around = OwnershipLookup::of(&stack, &counts);
        for owner in ["shop/old", "shop/old", "shop/older", "shop/old"] {
            let adopt = planned(RuntimeKind::Kubernetes, Action::Adopt, false, Some(owner));
            around.resolve_claims(adopt).await.unwrap();
        }
        assert_eq!(counts.0.into_inner(), 2);
    }

    #[tokio::test]
    async fn what_is_protected_may_move_and_nothing_else() {
        let other: StackId = "shop/prod".parse().unwrap();
        let protected = |claim| {
            let mut delete = planned(RuntimeKind::Kubernetes, Action::Delete, true, None);
            delete.protected = Some(UserError::new(ErrorKind::Policy, "it is protected"));
            asked(delete, claim, false)
        };
        let moved = protected(OwnerClaim::By(other.clone())).await.unwrap().public;
        assert_eq!(moved.action, Action::Forget);
        let refused = protected(OwnerClaim::Nobody).await.unwrap_err();
        assert_eq!(
            (refused.message.as_str(), refused.hints.len()),
            ("it is protected", 0)
        );
        let refused = protected(OwnerClaim::Unclear(other)).await.unwrap_err();
        assert!(
            refused.message == "it is protected" && refused.hints[0].contains("konverge build shop/prod")
        );
    }

    #[tokio::test]
    async fn what_its_owner_has_not_let_go_of_is_not_taken() {
        let adopt = |owner| planned(RuntimeKind::Kubernetes, Action::Adopt, false, Some(owner));
        let taken = asked(adopt("shop/old"), OwnerClaim::Nobody, true).await;
        assert!(taken.unwrap().public.notes[0].contains("from stack `shop/old`"));
        for (owner, released) in [("shop/old", false), ("no identity", true)] {
            let refused = asked(adopt(owner), OwnerClaim::Nobody, released).await;
            assert_eq!(refused.unwrap_err().message, "it belongs to another");
        }
    }
}
