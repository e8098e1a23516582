//! The claims of other stacks on objects of this stack. Finds the stack that claims or shares an object which this
//! stack deletes: the CRDs of `<project>/crd` and a generated Namespace belong to every stack of a project. Also finds
//! whether the owner of an object that this stack claims has released the object.
//!
//! Only a stack whose inputs differ from the recorded ones can claim an object that it does not record yet. So only
//! such stacks are compiled, once per run, and only when an object leaves a stack.

use std::collections::{BTreeSet, HashMap};

use crate::{
    OpenRevision, Planner,
    logins::LoginUse,
    spec_source::SpecSource,
    stack_claims::{Inhabitants, SpecClaims, object_of_import},
};
use konverge_base::{
    error::UserError,
    model::{
        ClusterName, GroupKind, StackId,
        claim::Claim as Outside,
        container::Container,
        spec::{ObjectKeyRef, RuntimeKind, Spec, object_key},
        stack::Stack,
        state::Recorded,
    },
};
use konverge_engine::{ClaimQuestion, ClaimedObject, HeldObjects, OwnerClaim, runtime::Item};

/// Returns true for an object that its owner released.
type ReleasedObjects = Box<dyn Fn(&Item) -> Result<bool, UserError> + Send + Sync>;

/// The purpose of a plan. It decides which of the stacks that share a Namespace deletes it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PlanPurpose<'a> {
    /// The plan is only shown. The stacks in `leaving` are destroyed together, in the order of their names.
    Show { leaving: &'a BTreeSet<StackId> },
    /// The plan is a drift check, which is never applied. As for `Apply`, the records of the other stacks count.
    Drift,
    /// The plan is applied under the lease of its stack. The present records of the other stacks count.
    Apply,
}

impl PlanPurpose<'_> {
    /// Returns the purpose of the login that the plan needs.
    pub(crate) fn login_use(self) -> LoginUse {
        match self {
            Self::Show { .. } | Self::Drift => LoginUse::Preview,
            Self::Apply => LoginUse::Apply,
        }
    }
}

/// Finds the owners of objects for one plan. Each owner is read once, however many objects it has.
pub(crate) struct OwnershipLookup<'a> {
    planner: &'a Planner,
    purpose: PlanPurpose<'a>,
    owners: HashMap<StackId, ReleasedObjects>,
    /// The stacks that record objects in a Namespace or CRD which this plan deletes. They must be applied before it.
    pub(crate) awaited: BTreeSet<StackId>,
}

impl<'a> OwnershipLookup<'a> {
    pub(crate) fn new(planner: &'a Planner, purpose: PlanPurpose<'a>) -> Self {
        Self {
            planner,
            purpose,
            owners: HashMap::new(),
            awaited: BTreeSet::new(),
        }
    }

    /// Returns the claim of another stack for each question of a plan, in the same order.
    pub(crate) async fn claims(
        &mut self,
        stack: &StackId,
        questions: Vec<ClaimQuestion<'_>>,
    ) -> Vec<Result<OwnerClaim, UserError>> {
        let mut claims = Vec::with_capacity(questions.len());
        for ClaimQuestion { item, about } in questions {
            claims.push(match about {
                ClaimedObject::Deleted => self.deleted(stack, item).await,
                ClaimedObject::Emptied => {
                    let held = self.held_in(stack, item).await;
                    held.map(|held| held.map_or(OwnerClaim::Nobody, OwnerClaim::Holds))
                }
                ClaimedObject::Created => self.recorded_by(stack, item).await,
                ClaimedObject::TakenFrom(owner)
                    if item.is_generated() && stack.is_sibling_of(owner.as_str()) =>
                {
                    self.shared_by(owner, item).await
                }
                ClaimedObject::TakenFrom(owner) => self.kept_by(&owner, item).await,
            });
        }
        claims
    }

    /// Returns the other stack that records an object which this stack is about to create or adopt, unless that stack
    /// released the object. A Terraform object is never released automatically.
    async fn recorded_by(&mut self, stack: &StackId, item: &Item) -> Result<OwnerClaim, UserError> {
        let desired = item.desired.as_ref();
        let is_object = desired.is_some_and(|desired| desired.runtime == RuntimeKind::Kubernetes);
        match self.recorder(stack, item).await? {
            OwnerClaim::By(other) if is_object => self.kept_by(&other, item).await,
            claim => Ok(claim),
        }
    }

    /// Returns the owner of an object, or nobody if the owner released the object.
    async fn kept_by(&mut self, owner: &StackId, item: &Item) -> Result<OwnerClaim, UserError> {
        if !self.owners.contains_key(owner) {
            let released = self.released_by(owner).await?;
            self.owners.insert(owner.clone(), released);
        }
        let is_released = self.owners.get(owner).map_or(Ok(false), |tells| tells(item))?;
        Ok(if is_released {
            OwnerClaim::Nobody
        } else {
            OwnerClaim::By(owner.clone())
        })
    }

    /// Returns the other stack that wants an object which this stack is about to delete. If no stack wants it, returns
    /// the objects of other stacks that are inside the object.
    async fn deleted(&mut self, stack: &StackId, item: &Item) -> Result<OwnerClaim, UserError> {
        let claim = self.wanted_by(stack, item).await?;
        if matches!(claim, OwnerClaim::By(_) | OwnerClaim::SharedWith(_)) {
            return Ok(claim);
        }
        match self.held_in(stack, item).await? {
            Some(held) if claim == OwnerClaim::Nobody || held.iter().any(|held| !held.may_go) => {
                Ok(OwnerClaim::Holds(held))
            }
            _ => Ok(claim),
        }
    }

    /// Returns the objects of other stacks inside a Namespace, or of the kind of a CRD. `None` if there are none, or if
    /// the item is neither of both.
    ///
    /// A plan that is only shown may delete objects that their stack gives up in the same change. Under the lease, the
    /// records of the other stacks count, so that the guards of these stacks decide before the objects are deleted.
    async fn held_in(&mut self, stack: &StackId, item: &Item) -> Result<Option<Vec<HeldObjects>>, UserError> {
        let prior = item
            .prior
            .as_ref()
            .filter(|prior| prior.runtime == RuntimeKind::Kubernetes);
        let container = prior.and_then(|prior| Container::from_attributes(&prior.attributes));
        let (Some(container), Some(backend)) = (container, &self.planner.backend) else {
            return Ok(None);
        };
        let inhabitants = self.planner.claims.inhabitants.get_or_try_init(|| async {
            let known = backend.states.known().await?;
            Ok::<_, UserError>(Inhabitants::from_index(known))
        });
        let inhabitants = inhabitants.await?;
        // An imported record may have no cluster, so its objects may be in this Namespace.
        let cluster = item.cluster.as_ref();
        let marks = [container.mark(cluster), container.mark(None)];
        let hits = marks.iter().filter_map(|mark| inhabitants.by_container.get(mark));
        let hits: BTreeSet<_> = hits.flatten().chain(&inhabitants.unknown).collect();
        let mut held = Vec::new();
        for other in hits.into_iter().filter(|other| *other != stack) {
            let Some(prior) = backend.states.load(other).await? else {
                continue;
            };
            let inside = prior.state.resources.iter();
            let inside: Vec<_> = inside
                .filter(|recorded| container.holds(recorded, cluster))
                .collect();
            if inside.is_empty() {
                continue;
            }
            let (leaving, staying): (Vec<_>, Vec<_>) = match self.given_up(other).await {
                Some(wants) => inside
                    .into_iter()
                    .partition(|recorded| !wants.holds(cluster, object_key(&recorded.attributes))),
                None => (Vec::new(), inside),
            };
            // If this run also applies the other stack, that stack must be applied first.
            self.awaited.insert(other.clone());
            let may_go = matches!(self.purpose, PlanPurpose::Show { .. });
            for (objects, is_leaving) in [(leaving, true), (staying, false)] {
                if objects.is_empty() {
                    continue;
                }
                held.push(HeldObjects {
                    stack: other.clone(),
                    ids: objects.into_iter().map(|recorded| recorded.id.clone()).collect(),
                    may_go: is_leaving && may_go,
                    is_leaving,
                });
            }
        }
        Ok((!held.is_empty()).then_some(held))
    }

    /// Returns the objects that a stack wants at the head; the stack gives up each recorded object that is not among
    /// them. `None` if they are unknown.
    async fn given_up(&self, stack: &StackId) -> Option<SpecClaims> {
        if matches!(self.purpose, PlanPurpose::Show { leaving } if leaving.contains(stack)) {
            return Some(SpecClaims::default());
        }
        let SpecSource::Compiled { head, .. } = &self.planner.wanted else {
            return None;
        };
        if head.layout.stack(stack).is_none() {
            // A missing stack was removed only if its folder is readable and not left out. Only a removed stack claims
            // nothing.
            let is_removed = head.layout.identities_certain();
            let entry = self
                .planner
                .backend
                .as_ref()?
                .states
                .known()
                .await
                .ok()?
                .entries
                .get(stack)?;
            let left_out = head.layout.leaves_out(entry.folder.or_root());
            return (is_removed && !left_out).then(SpecClaims::default);
        }
        self.wants(head, stack).await.ok().flatten()
    }

    /// Returns the other stack that wants an object which this stack is about to delete.
    async fn wanted_by(&self, stack: &StackId, item: &Item) -> Result<OwnerClaim, UserError> {
        let Some(prior) = &item.prior else {
            return Ok(OwnerClaim::Nobody);
        };
        if let Some(other) = self.shares(stack, prior, item.cluster.as_ref()).await? {
            return Ok(OwnerClaim::SharedWith(other));
        }
        let mut unclear = OwnerClaim::Nobody;
        for (other, wants) in self
            .pending_claims()
            .await?
            .iter()
            .filter(|(other, _)| other != stack)
        {
            let Some(wants) = wants else {
                unclear = match (self.planner.claims.without.contains(other), unclear) {
                    (true, OwnerClaim::Nobody) => OwnerClaim::Waived(other.clone()),
                    (true, before) => before,
                    (false, _) => OwnerClaim::Unclear(other.clone()),
                };
                continue;
            };
            let claimed = match prior.runtime {
                RuntimeKind::Kubernetes => wants.holds(item.cluster.as_ref(), object_key(&prior.attributes)),
                // Ids of Terraform resources are local to a stack, so a resource has moved to the other stack only if
                // that stack does not record it yet.
                RuntimeKind::Terraform => {
                    wants.terraform.contains(&item.id)
                        && !self.records(other, |theirs| theirs.id == item.id).await?
                }
            };
            if claimed {
                return Ok(OwnerClaim::By(other.clone()));
            }
        }
        Ok(unclear)
    }

    /// Returns the other stack that records an object which this stack is about to create or adopt.
    async fn recorder(&self, stack: &StackId, item: &Item) -> Result<OwnerClaim, UserError> {
        let desired = item.desired.as_ref();
        let claim = desired.and_then(|desired| Outside::of_resource(desired, item.cluster.as_ref()));
        let (Some(claim), Some(backend)) = (claim, &self.planner.backend) else {
            return Ok(OwnerClaim::Nobody);
        };
        let is_it = |recorded: &Recorded| Outside::of_recorded(recorded).as_ref() == Some(&claim);
        let object = object_of_import(&claim, backend);
        let is_object = |recorded: &Recorded| object.is_some() && Outside::of_object(recorded) == object;
        let mut same_id = OwnerClaim::Nobody;
        for other in self.planner.claims.holders_of(&claim, backend).await? {
            if other == stack {
                continue;
            }
            // Before its import, Kusion created such a Namespace for the whole project, too.
            let shares = |theirs: &Recorded| theirs.is_shared() || theirs.private.is_none();
            let is_shared = item.is_shared() && stack.is_sibling_of(other.as_str());
            let state = backend.states.load(other).await?.map(|prior| prior.state);
            let resources = state.map(|state| state.resources).unwrap_or_default();
            let mut same = resources.iter().filter(|recorded| is_it(recorded));
            if same.any(|theirs| !(is_shared && shares(theirs))) {
                return Ok(OwnerClaim::By(other.clone()));
            }
            if same_id == OwnerClaim::Nobody && resources.iter().any(is_object) {
                same_id = OwnerClaim::SameId(other.clone());
            }
        }
        Ok(same_id)
    }

    /// Returns a function that tells whether the owner released an object.
    async fn released_by(&self, owner: &StackId) -> Result<ReleasedObjects, UserError> {
        let (SpecSource::Compiled { head, base, .. }, Some(backend)) =
            (&self.planner.wanted, &self.planner.backend)
        else {
            return Ok(nothing_released());
        };
        // An owner without a record here may be a stack of another repository, so it releases nothing.
        let Some(prior) = backend.states.load(owner).await? else {
            return Ok(nothing_released());
        };
        // If some folders cannot be read, a missing stack may still exist, so it releases nothing.
        if head.layout.stack(owner).is_none() && !head.layout.identities_certain() {
            return Ok(nothing_released());
        }
        let now = self.wants(head, owner).await?;
        let before = match base {
            Some(base) if !prior.state.resources.is_empty() => Some(self.wants(base, owner).await),
            _ => None,
        };
        Ok(Box::new(move |item: &Item| {
            let Some(desired) = &item.desired else {
                return Ok(false);
            };
            let (key, cluster) = (object_key(&desired.attributes), item.cluster.as_ref());
            let wanted =
                |wants: &Option<SpecClaims>| wants.as_ref().is_some_and(|wants| wants.holds(cluster, key));
            if wanted(&now) {
                return Ok(false);
            }
            let is_it = |recorded: &Recorded| is_object(recorded, Some(key), cluster);
            let recorded = prior.state.resources.iter().any(is_it);
            match &before {
                // An object is released by this change only if the base wanted it. Otherwise this revision may be older
                // than the record.
                Some(before) if recorded => before.as_ref().map(wanted).map_err(Clone::clone),
                _ => Ok(true),
            }
        }))
    }

    /// Returns the cluster of a stack, if it is known.
    fn cluster_of(&self, stack: &Stack) -> Option<ClusterName> {
        self.planner.cluster_of(stack).ok().flatten()
    }

    /// Returns the objects that a stack wants at a revision; `None` if the stack does not exist there.
    async fn wants(&self, revision: &OpenRevision, stack: &StackId) -> Result<Option<SpecClaims>, UserError> {
        let (SpecSource::Compiled { compilers, .. }, Some(stack)) =
            (&self.planner.wanted, revision.layout.stack(stack))
        else {
            return Ok(None);
        };
        let spec = compilers.for_revision(revision).spec(stack).await?;
        Ok(Some(SpecClaims::from_spec(
            &spec,
            self.cluster_of(stack).as_ref(),
        )))
    }

    async fn pending_claims(&self) -> Result<&[(StackId, Option<SpecClaims>)], UserError> {
        let (SpecSource::Compiled { compilers, head, .. }, Some(backend)) =
            (&self.planner.wanted, &self.planner.backend)
        else {
            return Ok(&[]);
        };
        let claims = self.planner.claims.wanted.get_or_try_init(|| async {
            let known = backend.states.known().await?;
            let stacks: Vec<_> = head.changed_stacks(known)?.into_iter().cloned().collect();
            let specs = compilers.for_revision(head).specs(&stacks).await;
            let claims = stacks.into_iter().zip(specs).map(|(stack, spec)| {
                let wants = spec
                    .ok()
                    .map(|spec| SpecClaims::from_spec(&spec, self.cluster_of(&stack).as_ref()));
                (stack.id, wants)
            });
            Ok::<_, UserError>(claims.collect())
        });
        Ok(claims.await?)
    }

    /// Returns the claim on a generated object of its owner, a stack of the same project. The owner shares the object
    /// if it records the object as shared, or no longer records it.
    async fn shared_by(&self, owner: StackId, item: &Item) -> Result<OwnerClaim, UserError> {
        let key = item
            .desired
            .as_ref()
            .map(|desired| object_key(&desired.attributes));
        let is_own = |theirs: &Recorded| is_object(theirs, key, item.cluster.as_ref()) && !theirs.is_shared();
        Ok(if self.records(&owner, is_own).await? {
            OwnerClaim::By(owner)
        } else {
            OwnerClaim::SharedWith(owner)
        })
    }

    /// Returns another stack of the project that needs an object which this stack is about to delete: a Namespace,
    /// because it also contains objects of the other stack, or a CRD.
    async fn shares(
        &self,
        stack: &StackId,
        mine: &Recorded,
        cluster: Option<&ClusterName>,
    ) -> Result<Option<StackId>, UserError> {
        match GroupKind::from_attributes(&mine.attributes) {
            GroupKind::NAMESPACE => self.shares_namespace(stack, mine, cluster).await,
            GroupKind::CUSTOM_RESOURCE_DEFINITION => self.shares_definition(stack, mine).await,
            _ => Ok(None),
        }
    }

    /// Returns another stack of the project that records the same Namespace. The objects of that stack are inside, even
    /// if its Spec has changed, so only the last stack deletes the Namespace. In a plan that is only shown, this is the
    /// last of the stacks that are destroyed together.
    async fn shares_namespace(
        &self,
        stack: &StackId,
        mine: &Recorded,
        cluster: Option<&ClusterName>,
    ) -> Result<Option<StackId>, UserError> {
        let Some(backend) = &self.planner.backend else {
            return Ok(None);
        };
        let known = backend.states.known().await?.entries.keys();
        let mut others: BTreeSet<_> = known.cloned().collect();
        if let SpecSource::Compiled { head, .. } = &self.planner.wanted {
            others.extend(head.layout.stacks.iter().map(|other| other.id.clone()));
        }
        others.retain(|other| other != stack && stack.is_sibling_of(other.as_str()));
        let key = Some(object_key(&mine.attributes));
        let mut keeper = None;
        for other in others {
            let is_it = |theirs: &Recorded| is_object(theirs, key, cluster);
            if !self.records(&other, is_it).await? {
                continue;
            }
            let stays = match self.purpose {
                PlanPurpose::Drift | PlanPurpose::Apply => true,
                PlanPurpose::Show { leaving } => {
                    !leaving.contains(&other) && self.may_want(&other, mine).await
                }
            };
            if stays {
                return Ok(Some(other));
            }
            // Stacks are destroyed in the order of their names, so the last of them deletes the Namespace.
            if other > *stack {
                keeper = Some(other);
            }
        }
        Ok(keeper)
    }

    /// Returns false only if it is certain that a stack does not have the object at the head.
    async fn may_want(&self, stack: &StackId, mine: &Recorded) -> bool {
        let SpecSource::Compiled { compilers, head, .. } = &self.planner.wanted else {
            return true;
        };
        let Some(stack) = head.layout.stack(stack) else {
            return !head.layout.identities_certain();
        };
        let wants = |spec: Spec| spec.resources.iter().any(|resource| resource.id == mine.id);
        compilers.for_revision(head).spec(stack).await.map_or(true, wants)
    }

    /// Returns another stack of the project that records the CRD on the same cluster and has it in its Spec. A stack
    /// that does not compile may have every CRD.
    async fn shares_definition(
        &self,
        stack: &StackId,
        mine: &Recorded,
    ) -> Result<Option<StackId>, UserError> {
        let SpecSource::Compiled { head, .. } = &self.planner.wanted else {
            return Ok(None);
        };
        let has = |theirs: &Recorded| theirs.id == mine.id && theirs.cluster == mine.cluster;
        let beside = |other: &&Stack| other.id != *stack && stack.is_sibling_of(other.id.as_str());
        for other in head.layout.stacks.iter().filter(beside) {
            if self.records(&other.id, has).await? && self.may_want(&other.id, mine).await {
                return Ok(Some(other.id.clone()));
            }
        }
        Ok(None)
    }

    async fn records(&self, stack: &StackId, is: impl Fn(&Recorded) -> bool) -> Result<bool, UserError> {
        let prior = self.planner.stored(stack).await?;
        Ok(prior.is_some_and(|prior| prior.state.resources.iter().any(is)))
    }
}

/// Returns true if a record is of this object. A record without a cluster matches every cluster.
fn is_object(recorded: &Recorded, key: Option<ObjectKeyRef<'_>>, cluster: Option<&ClusterName>) -> bool {
    recorded.runtime == RuntimeKind::Kubernetes
        && Some(object_key(&recorded.attributes)) == key
        && recorded.cluster.as_ref().or(cluster) == cluster
}

fn nothing_released() -> ReleasedObjects {
    Box::new(|_| Ok(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RunBuilder, cluster_selection::Live, test_fixture::run};
    use konverge_config::Config;
    use serde_json::json;

    #[test]
    fn an_object_is_wanted_on_one_cluster_in_one_namespace_in_any_version() {
        let spec = konverge_engine::spec::read_text(
            &json!({"resources": [
                {"id": "a", "type": "Kubernetes", "attributes": {"apiVersion": "apps/v1beta1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}}},
                {"id": "b", "type": "Kubernetes", "attributes": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}},
                {"id": "c", "type": "Kubernetes", "attributes": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "namespace": "odd"}}},
                {"id": "d", "type": "Kubernetes", "attributes": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "far", "namespace": "shop"}}, "extensions": {"cluster": "west"}}]})
            .to_string(),
            "spec.json",
        );
        let (east, west) = ("east".parse().unwrap(), "west".parse().unwrap());
        let wants = SpecClaims::from_spec(&spec.unwrap(), Some(&east));
        let holds = |cluster, (group, kind, namespace, name)| {
            let key = ObjectKeyRef {
                group,
                kind,
                namespace,
                name,
            };
            wants.holds(Some(cluster), key)
        };
        assert!(holds(&east, ("apps", "Deployment", "shop", "web")));
        assert!(!holds(&west, ("apps", "Deployment", "shop", "web")));
        assert!(!holds(&east, ("apps", "Deployment", "other", "web")));
        assert!(holds(&east, ("", "ConfigMap", "default", "c")));
        assert!(!holds(&east, ("", "ConfigMap", "shop", "c")));
        assert!(holds(&east, ("", "Namespace", "", "shop")));
        assert!(
            holds(&west, ("", "ConfigMap", "shop", "far")) && !holds(&east, ("", "ConfigMap", "shop", "far"))
        );
    }
    #[tokio::test]
    async fn an_owner_is_looked_up_once_for_all_that_it_had() {
        let run = run(&[]);
        let mut builder = RunBuilder::new(&run, Config::default());
        builder.live = Live::Never;
        let planner = builder.planner(SpecSource::File(Spec::default())).await.unwrap();
        let mut lookup = OwnershipLookup::new(&planner, PlanPurpose::Apply);
        let owner: StackId = "shop/old".parse().unwrap();
        let item = Item {
            id: "v1:ConfigMap:shop:a".parse().unwrap(),
            cluster: None,
            prior: None,
            desired: None,
            needs: konverge_engine::runtime::Needs::default(),
        };
        let kept = lookup.kept_by(&owner, &item).await.unwrap();
        assert_eq!(
            kept,
            OwnerClaim::By(owner.clone()),
            "nobody can tell that it was released"
        );
        lookup.owners.insert(owner.clone(), Box::new(|_| Ok(true)));
        assert_eq!(lookup.kept_by(&owner, &item).await.unwrap(), OwnerClaim::Nobody);
    }
}
