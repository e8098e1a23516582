//! [`DeliveredObjects`]: the runtime for Kubernetes objects that a delivery controller applies.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use serde_json::Value;

use konverge_base::{
    error::{ErrorKind, UserError},
    interrupt::Interrupt,
    model::{
        ClusterName, FieldPath, ResourceId, StackId, masked_value,
        plan::{Action, ResourcePlan},
        spec::{Resource, RuntimeKind, Sharing},
        state::Recorded,
    },
};
use konverge_cloud::RegistryLogin;
use konverge_engine::runtime::{
    ApplySink, Granularity, Item, ObservedObject, PlanFailure, PlannedResource, Preparation, Runtime,
    StackScope,
};
use konverge_kubernetes::Kubernetes;
use konverge_publish::{PublishError, RegistryClient};
use konverge_secrets::{Secrets, mask_object};

use super::{
    artifact::{DeliveredFiles, delivered_files},
    controller::{ControllerObjects, DeliveryTarget, managers_besides},
    end::{OTHER_RULE, check_released},
    progress::DeliveryProgress,
    record::DeliveryRecord,
};

/// The objects of one stack that a controller applies from an artifact, used by one plan and its apply.
pub(crate) struct DeliveredObjects {
    /// The runtime with Konverge's field manager, which deletes objects that the controller never applied.
    pub(super) ours: Kubernetes,
    /// The runtime with the field manager that applies the objects now, because a plan depends on the fields that it
    /// owns.
    pub(super) planner: Kubernetes,
    /// The runtime with the controller's field manager.
    pub(super) kubernetes: Kubernetes,
    pub(super) stack: StackId,
    pub(super) target: DeliveryTarget,
    /// The cluster of the objects.
    pub(super) cluster: Option<ClusterName>,
    /// The record of the last delivery.
    pub(super) before: Option<DeliveryRecord>,
    pub(super) login: Option<RegistryLogin>,
    pub(super) secrets: Secrets,
    pub(super) interrupt: Interrupt,
}

impl DeliveredObjects {
    /// Checks that this controller would deliver the stack, and that no other controller does. Returns the controller's
    /// message if the last delivery is no longer healthy.
    ///
    /// # Errors
    /// A problem that keeps the controller from delivering the stack, with the remedy.
    pub(crate) async fn check(&self) -> Result<Option<String>, UserError> {
        if let Some(before) = &self.before
            && !before.target.is_same_object(&self.target)
        {
            check_released(&self.kubernetes, &self.stack, before, OTHER_RULE).await?;
        }
        let objects = self.objects().await?;
        let progress = self.last_digest().map(|digest| objects.progress(digest));
        Ok(match progress {
            Some(DeliveryProgress::Waiting(why) | DeliveryProgress::Failed(why)) => {
                Some(format!("{}: {why}", self.target.title()))
            }
            Some(DeliveryProgress::Healthy) | None => None,
        })
    }

    /// Reads the objects of the controller.
    pub(super) async fn objects(&self) -> Result<ControllerObjects, UserError> {
        let cluster = self.cluster.as_ref();
        self.target.objects(&self.kubernetes, &self.stack, cluster).await
    }

    /// Returns the digest of the last delivery, if it is certain that the tag points to it and the controller was
    /// healthy with it.
    fn last_digest(&self) -> Option<&str> {
        let before = self.before.as_ref();
        before
            .filter(|before| before.target == self.target)?
            .settled_digest()
    }

    /// Returns true if the controller has delivered the stack before, so that it deletes objects that leave the
    /// artifact.
    fn has_delivered(&self) -> bool {
        self.before
            .as_ref()
            .is_some_and(|before| before.target.is_same_object(&self.target) && before.delivered.is_some())
    }

    fn files(&self, resources: Vec<Resource>) -> Result<DeliveredFiles, UserError> {
        if let Some(shared) = resources.iter().find(|one| one.sharing == Sharing::Project) {
            let id = &shared.id;
            let what =
                format!("`{id}` is shared by the stacks of its project, and one artifact cannot share it");
            return Err(UserError::new(ErrorKind::Spec, what)
                .with_resource(id)
                .hint("declare the object in one stack, or remove `deliver` from the rule of this stack"));
        }
        let files = delivered_files(&self.stack, self.target.tool, resources)?;
        match files.unprotected.first() {
            None => Ok(files),
            Some(id) => {
                let what = format!(
                    "`{id}` has an annotation of Konverge that protects it, and the controller does not obey it"
                );
                Err(UserError::new(ErrorKind::Spec, what).with_resource(id)
                    .hint("remove `konverge/protect` and `konverge/keep`, and use the annotations of the controller outside of the Spec"))
            }
        }
    }

    async fn plan_desired(
        &self,
        scope: &StackScope,
        mut items: Vec<Item>,
    ) -> Result<Vec<Result<PlannedResource, PlanFailure>>, UserError> {
        let resources = items.iter().filter_map(|item| item.desired.clone());
        let files = self.files(resources.collect())?;
        let objects = files.objects()?;
        let mut wanted = BTreeMap::new();
        for item in &mut items {
            let object = objects.get(&item.id).cloned();
            wanted.extend(item.desired.take().map(|desired| (item.id.clone(), desired)));
            item.desired = object;
        }
        let is_due = self.last_digest() != Some(files.artifact.digest().as_str());
        let planned = self.planner.plan(scope, items).await?.into_iter();
        let planned = planned.map(|result| {
            let mut planned = result?;
            let Some(object) = objects.get(&planned.item.id) else {
                return Ok(planned);
            };
            if planned.public.action == Action::Replace {
                return Err(not_replaced(&planned).into());
            }
            planned.item.desired = Some(object.clone());
            planned.preparation = Preparation::new(wanted.remove(&planned.item.id));
            without_ownership(&self.stack, &mut planned);
            planned.unready |= is_due;
            Ok(planned)
        });
        Ok(planned.collect())
    }

    async fn plan_deletions(
        &self,
        scope: &StackScope,
        items: Vec<Item>,
    ) -> Result<Vec<Result<PlannedResource, PlanFailure>>, UserError> {
        if !self.has_delivered() {
            // The controller never applied these objects, so Konverge deletes them.
            return self.ours.plan(scope, items).await;
        }
        let planned = self.planner.plan(scope, items).await?;
        let goes = |one: &Result<PlannedResource, PlanFailure>| {
            one.as_ref().is_ok_and(|one| one.public.action == Action::Delete)
        };
        let mut problem = None;
        if planned.iter().any(goes) {
            let objects = self.objects().await?;
            problem = (!objects.prunes()).then(|| {
                let what = format!("{} does not delete what leaves the artifact", self.target.title());
                UserError::new(ErrorKind::Policy, what).hint(
                    "set `spec.syncPolicy.automated.prune: true` (Argo CD) or `spec.prune: true` (Flux)",
                )
            });
        }
        let planned = planned.into_iter().map(|result| {
            let planned = result?;
            match (planned.public.action, &problem) {
                (Action::Delete, Some(problem)) => Err(problem.clone().into()),
                (Action::Forget, _) if !planned.public.notes.is_empty() => {
                    let what = format!("`{}` would stay, but the controller deletes it", planned.item.id);
                    Err(UserError::new(ErrorKind::Policy, what)
                        .with_resource(&planned.item.id)
                        .hint("remove the annotation `konverge/keep` from the object")
                        .into())
                }
                _ => Ok(planned),
            }
        });
        Ok(planned.collect())
    }

    /// Pushes the artifact, and waits until the controller is healthy at its digest.
    async fn deliver(
        &self,
        scope: &StackScope,
        planned: Vec<PlannedResource>,
        sink: &dyn ApplySink,
    ) -> Result<(), UserError> {
        let mut resources = Vec::with_capacity(planned.len());
        for one in &planned {
            let wanted: &Option<Resource> = one.preparation.get()?;
            if let Some(path) = leaked(&self.secrets, one)? {
                let id = &one.item.id;
                let what = format!("`{id}` would carry a secret value into the artifact at `{path}`");
                return Err(UserError::new(ErrorKind::Secret, what)
                    .with_resource(id)
                    .hint("write the value into a secret store, and let the cluster read it from there"));
            }
            resources.extend(wanted.clone());
        }
        let files = self.files(resources)?;
        let digest = files.artifact.digest();
        let objects = self.objects().await?;
        if let Some(file) = objects.unread(files.paths()) {
            let what = format!("no Kustomization of {} reads `{file}`", self.target.title());
            return Err(UserError::new(ErrorKind::Policy, what).hint(format!(
                "apply the Kustomizations of the new levels of the stack first: {}",
                self.target.export_hint(&self.stack)
            )));
        }
        sink.check_lease().await?;
        let registry = RegistryClient::new(self.login.clone(), self.interrupt.clone());
        // The tag may point to the digests that applies of the stack have pushed. That is checked before any change,
        // because another writer may own the tag.
        let known = DeliveryRecord::pushed(self.before.as_ref(), &self.target);
        let reference = self.target.reference()?;
        let checked = registry.check_tag(&reference, &files.artifact, &known).await;
        checked.map_err(not_moved)?;
        // Recorded before any change, so that a killed run does not look like a finished delivery.
        let pushing = DeliveryRecord::pushing(self.before.as_ref(), &self.target, &digest);
        if self.before.as_ref() != Some(&pushing) {
            Self::record(&pushing, sink).await?;
        }
        // Done before the push: otherwise a field that leaves the Spec would stay in the object for ever.
        self.hand_over(&planned).await?;
        let pushed = registry.publish(&reference, &files.artifact, &known).await;
        pushed.map_err(not_moved)?;
        self.wait_until_healthy(scope, &digest, &planned, sink).await?;
        Self::record(&DeliveryRecord::settled(&self.target, digest), sink).await
    }

    /// Makes the controller the manager of the fields that Konverge, or an earlier controller, applied, so that it
    /// removes fields that leave the artifact. Nothing is deleted here.
    async fn hand_over(&self, planned: &[PlannedResource]) -> Result<(), UserError> {
        if self.last_digest().is_some() {
            return Ok(());
        }
        let manager = self.target.field_manager();
        let items = planned.iter().map(|one| &one.item);
        let items: Vec<Item> = items.filter(|item| item.prior.is_some()).cloned().collect();
        self.kubernetes
            .hand_over(&self.stack, &items, &managers_besides(manager), manager)
            .await
    }

    async fn record(record: &DeliveryRecord, sink: &dyn ApplySink) -> Result<(), UserError> {
        let (key, value) = record.entry();
        Ok(sink.runtime_data(key, value).await?)
    }
}

/// Converts the error of a push that has not moved the tag.
fn not_moved(error: PublishError) -> UserError {
    match error {
        PublishError::OtherContent { reference, found, .. } => {
            let what = format!("`{reference}` is `{found}`, which no apply of this stack pushed");
            UserError::new(ErrorKind::Policy, what).hint(
                "find out who pushed the artifact: only the jobs of the default branch may push. Delete the tag, and run the command again",
            )
        }
        error => error.into(),
    }
}

/// Removes changes of the field manager from a plan, because the controller makes them.
fn without_ownership(stack: &StackId, planned: &mut PlannedResource) {
    let public = &planned.public;
    if public.action == Action::Update && public.changes.is_empty() {
        let id = public.id.clone();
        planned.public = ResourcePlan {
            cluster: public.cluster.clone(),
            validated: public.validated,
            ..ResourcePlan::new(stack, id, public.runtime, Action::Unchanged, Vec::new())
        };
    }
}

fn not_replaced(planned: &PlannedResource) -> UserError {
    let id = &planned.item.id;
    let paths: Vec<_> = planned
        .public
        .replace
        .iter()
        .map(|path| format!("`{path}`"))
        .collect();
    let paths = paths.join(", ");
    let what =
        format!("`{id}` must be replaced ({paths}), and the controller does not delete what it applies");
    UserError::new(ErrorKind::Policy, what).with_resource(id).hint(
        "give the object another name, or delete it in the cluster yourself: the controller creates it again",
    )
}

/// Returns the first path of an object whose value came from a secret. The record masks the value, but the object alone
/// does not show that it is secret.
///
/// # Errors
/// The plan lacks the record or the object, so this is unknown.
fn leaked(secrets: &Secrets, planned: &PlannedResource) -> Result<Option<FieldPath>, UserError> {
    let (Some(recorded), Some(desired)) = (&planned.recorded, &planned.item.desired) else {
        let what = format!("internal error: the plan of `{}` has no record", planned.item.id);
        return Err(UserError::new(ErrorKind::Internal, what).with_resource(&planned.item.id));
    };
    let alone = mask_object(secrets, &desired.attributes);
    let mut found = None;
    compare(
        &recorded.attributes.as_ref().clone().into(),
        &Value::Object(alone.into_owned()),
        &FieldPath::root(),
        &mut found,
    );
    Ok(found)
}

fn compare(recorded: &Value, alone: &Value, path: &FieldPath, found: &mut Option<FieldPath>) {
    if found.is_some() || recorded == alone {
        return;
    }
    if masked_value::is_secret(recorded) && !masked_value::is_secret(alone) {
        *found = Some(path.clone());
        return;
    }
    // A key that the object lacks is compared with null, so that a secret in it is found.
    match recorded {
        Value::Object(map) => {
            for (key, value) in map {
                let other = alone.get(key).unwrap_or(&Value::Null);
                compare(value, other, &path.join(key), found);
            }
        }
        Value::Array(items) => {
            for (at, value) in items.iter().enumerate() {
                let other = alone.get(at).unwrap_or(&Value::Null);
                compare(value, other, &path.item(at), found);
            }
        }
        _ => {}
    }
}

#[async_trait]
impl Runtime for DeliveredObjects {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Kubernetes
    }

    fn granularity(&self) -> Granularity {
        Granularity::Segment
    }

    async fn prepare(
        &self,
        cluster: Option<&ClusterName>,
        resources: Vec<Resource>,
    ) -> Result<Vec<(ResourceId, Resource)>, UserError> {
        self.planner.prepare(cluster, resources).await
    }

    async fn observe(&self, scope: &StackScope, items: &[Item]) -> Result<Vec<ObservedObject>, UserError> {
        self.planner.observe(scope, items).await
    }

    async fn find_missing(&self, items: &[Item], earlier: &[Recorded]) -> Result<Vec<ResourceId>, UserError> {
        self.planner.find_missing(items, earlier).await
    }

    async fn to_remember(
        &self,
        scope: &StackScope,
        clusters: &BTreeSet<ClusterName>,
    ) -> Result<Option<(String, Value)>, UserError> {
        self.planner.to_remember(scope, clusters).await
    }

    async fn plan(
        &self,
        scope: &StackScope,
        items: Vec<Item>,
    ) -> Result<Vec<Result<PlannedResource, PlanFailure>>, UserError> {
        if items.iter().any(|item| item.desired.is_some()) {
            self.plan_desired(scope, items).await
        } else {
            self.plan_deletions(scope, items).await
        }
    }

    async fn apply(
        &self,
        scope: &StackScope,
        planned: Vec<PlannedResource>,
        sink: &dyn ApplySink,
    ) -> Result<(), UserError> {
        if planned.iter().any(|one| one.item.desired.is_some()) {
            return self.deliver(scope, planned, sink).await;
        }
        if self.has_delivered() {
            self.wait_until_gone(scope, planned, sink).await
        } else {
            self.ours.apply(scope, planned, sink).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_engine::runtime::Needs;
    use konverge_secrets::HashKey;
    use serde_json::json;

    /// An object, and what a plan recorded of it.
    fn planned(desired: Option<Value>, recorded: Option<Value>) -> PlannedResource {
        let id: ResourceId = "v1:ConfigMap:a:b".parse().unwrap();
        let resource = |attributes| json!({"id": id, "type": "Kubernetes", "attributes": attributes});
        let item = Item {
            id: id.clone(),
            cluster: None,
            prior: None,
            desired: desired.map(|one| serde_json::from_value(resource(one)).unwrap()),
            needs: Needs::default(),
        };
        let stack: StackId = "a/dev".parse().unwrap();
        let mut planned = PlannedResource::forgotten(&stack, item, RuntimeKind::Kubernetes, String::new());
        planned.recorded = recorded.map(|one| serde_json::from_value(resource(one)).unwrap());
        planned
    }

    #[test]
    fn a_secret_value_is_found_and_a_plan_without_its_record_is_an_error() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let leaked = |desired: Value, recorded: Value| {
            super::leaked(&secrets, &planned(Some(desired), Some(recorded))).unwrap()
        };
        let secret = masked_value::secret("1");
        let data = json!({"data": {"v": "x"}});
        assert_eq!(leaked(data.clone(), data.clone()), None);
        for (recorded, path) in [
            (json!({"data": {"v": secret}}), "/data/v"),
            (json!({"data": {"v": {"of": [1, secret]}}}), "/data/v/of/1"),
            (json!({"data": {"v": "x", "more": [secret]}}), "/data/more/0"),
        ] {
            assert_eq!(leaked(data.clone(), recorded), Some(FieldPath::new(path)));
        }
        for unknown in [planned(Some(data.clone()), None), planned(None, Some(data))] {
            let error = super::leaked(&secrets, &unknown).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Internal);
        }
    }
}
