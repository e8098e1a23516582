//! [`TestRun`]: one live test with its part of the store, from its lease to the removal of everything.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::trusted_side::TrustedSide;
use crate::known_kinds::KnownKinds;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ClusterName, RepoPath, StackId,
        apply_result::StackResult,
        spec::{Resource, RuntimeKind, Sharing, Spec, object_key},
        stack::Stack,
        stack_test::StackTestFailure,
    },
    yaml::Placed,
};
use konverge_run::{
    HolderWatch, KeyUse, Planner, RunBuilder, SpecSource, StateBackend, Target,
    apply::{self, ApplyOptions, AutoApprove},
    cluster_selection::Live,
    observe_recorded, state_backend,
};
use konverge_secrets::redact;
use konverge_stack_test_language::{
    Assertion, TestedSpec, TestedStack, assertion,
    moving::{MovedSpec, owned_key},
};
use konverge_state::{
    Lease, LeaseOptions,
    store::{Key, Store},
};

/// The folder of the store that has a part for each test.
pub(super) fn tests_folder() -> Key {
    Key::from_components(&["tests"])
}

/// Returns the folder of a test. No rule of a repository matches it.
fn test_folder(name: &str) -> RepoPath {
    RepoPath::root().child(".konverge-test").child(name)
}

/// One live test. While its lease is held, no other run touches its resources.
pub(super) struct TestRun {
    pub(super) name: String,
    /// The store of the repository. The test uses a part of it.
    whole: Arc<dyn Store>,
    backend: StateBackend,
    lease: Lease,
    pub(super) planner: Planner,
    pub(super) target: Target,
}

impl TestRun {
    /// Creates a unique name: ten lower-case letters and digits.
    pub(super) fn new_name() -> String {
        uuid::Uuid::new_v4().simple().to_string()[..10].to_owned()
    }

    /// Begins a test of a stack.
    ///
    /// # Errors
    /// The store or the cluster is not available, or another run holds the lease of this test.
    pub(super) async fn begin(
        trusted: &TrustedSide,
        stack: &Stack,
        name: &str,
        cluster: &ClusterName,
    ) -> Result<Self, UserError> {
        let slug = stack.id.as_str().replace('/', "-");
        let id = StackId::new(Some("test"), name, &slug)
            .map_err(|error| UserError::from_error(ErrorKind::Internal, error))?;
        Self::open(trusted, name, id, Some(cluster)).await
    }

    /// Opens the part of the store of a test, and takes its lease.
    ///
    /// # Errors
    /// The same as for [`TestRun::begin`].
    pub(super) async fn open(
        trusted: &TrustedSide,
        name: &str,
        id: StackId,
        cluster: Option<&ClusterName>,
    ) -> Result<Self, UserError> {
        let run = &trusted.run;
        run.begin_writes()?;
        let backend = state_backend::open_part(
            run,
            &trusted.config,
            Some(&trusted.repository),
            KeyUse::Make,
            Some(tests_folder().child(name)),
        )
        .await?;
        let term = trusted.config.state.lease.term.duration();
        let session = session_id(name);
        let options = LeaseOptions {
            term,
            // A killed holder is recognized after one term, so half a term more is enough.
            wait: term + term / 2,
            folder: test_folder(name).into(),
            watch: Some(Arc::new(HolderWatch::new(run, &session))),
            ..LeaseOptions::default()
        };
        let lease = backend.states.acquire(&session, options).await?;
        let builder = RunBuilder {
            live: Live::Required,
            backend: Some(backend.clone()),
            rule_files: Some(Arc::clone(&trusted.revision.source)),
            ..RunBuilder::new(run, trusted.config.clone())
        };
        let planner = builder.planner(SpecSource::File(Spec::default())).await?;
        let stack = Stack {
            cluster: cluster.cloned(),
            ..Stack::new(id.clone(), test_folder(name))
        };
        let target = match cluster {
            Some(_) => Target::new(&stack, None),
            // A sweep does not know the cluster. Each recorded object names its own.
            None => Target::forgotten(id, test_folder(name)),
        };
        Ok(Self {
            name: name.to_owned(),
            whole: trusted.backend.states.shared_store(),
            backend,
            lease,
            planner,
            target,
        })
    }

    /// Applies a Spec. Returns the message if something failed.
    pub(super) async fn apply(&mut self, spec: Spec, target: Target) -> Result<Option<String>, UserError> {
        self.lease.check()?;
        self.planner.wanted = SpecSource::File(spec);
        let options = ApplyOptions {
            allow_empty: true,
            ..ApplyOptions::new(Arc::new(AutoApprove))
        };
        let ended = apply::run(&self.planner, &[target], &options).await?;
        let failed =
            ended.report.stacks.into_iter().find(|outcome| {
                !apply::has_succeeded(outcome.result) && outcome.result != StackResult::Waiting
            });
        Ok(failed.map(|outcome| match outcome.error {
            Some(error) => error.message,
            None => "the apply failed".to_owned(),
        }))
    }

    /// Deletes everything that the state of the test names.
    pub(super) async fn delete(&mut self) -> Result<Option<String>, UserError> {
        let target = self.target.destroyed();
        self.apply(Spec::default(), target).await
    }

    /// Deletes all resources, and then the test's part of the store.
    ///
    /// # Errors
    /// Something could not be deleted. The part of the store stays, so that a later run can clean up.
    pub(super) async fn end(mut self) -> Result<(), UserError> {
        let deleted = self.delete().await;
        let left = match deleted {
            Ok(None) => None,
            Ok(Some(why)) => Some(UserError::new(ErrorKind::Kubernetes, why)),
            Err(error) => Some(error),
        };
        // Release the lease even if resources are left: otherwise a sweep would wait until it expires.
        let released = self.lease.release().await;
        if let Some(left) = left {
            return Err(left);
        }
        released?;
        let store = self.backend.states.store();
        // Delete the index first, because without it the states are still found, and the states last, because they name
        // what is left.
        for folder in ["index", "keys", "stacks"] {
            for key in store.list(&Key::from_components(&[folder])).await? {
                store.delete(&key).await?;
            }
        }
        self.whole
            .remove_unfinished(&tests_folder().child(&self.name))
            .await?;
        Ok(())
    }

    /// Returns the live objects of the test, under the names that they have in the Spec of the stack.
    async fn live_objects(&self, moved: &MovedSpec) -> Result<Vec<Resource>, UserError> {
        let Some(recorded) = self.backend.states.load(&self.target.id).await? else {
            return Ok(Vec::new());
        };
        let seen = observe_recorded(
            &self.planner,
            &self.target,
            &recorded.state,
            RuntimeKind::Kubernetes,
        )
        .await?;
        let mut objects = Vec::new();
        for (item, seen) in seen {
            let Some(Value::Object(mut attributes)) = seen.live else {
                continue;
            };
            // Skip objects that are not in the Spec, such as the namespaces of the test: no assertion is about them.
            let Some((namespace, name)) = moved.originals.get(&owned_key(&attributes)) else {
                continue;
            };
            if let Some(metadata) = attributes.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.insert("name".to_owned(), name.as_str().into());
                if !namespace.is_empty() {
                    metadata.insert("namespace".to_owned(), namespace.as_str().into());
                }
            }
            let api_version = attributes
                .get("apiVersion")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let kind = object_key(&attributes).kind;
            let id = match namespace.as_str() {
                "" => format!("{api_version}:{kind}:{name}"),
                namespace => format!("{api_version}:{kind}:{namespace}:{name}"),
            };
            objects.push(Resource {
                id: id.parse().unwrap_or(item.id),
                runtime: RuntimeKind::Kubernetes,
                attributes,
                depends_on: Vec::new(),
                extensions: Map::new(),
                sharing: Sharing::default(),
            });
        }
        Ok(objects)
    }

    /// Returns the failures of the assertions for the live objects.
    pub(super) async fn failures(
        &self,
        moved: &MovedSpec,
        assertions: &[Placed<Assertion>],
        kinds: &KnownKinds,
    ) -> Result<Vec<StackTestFailure>, UserError> {
        let resources = self.live_objects(moved).await?;
        let secrets = self.planner.secrets();
        let shown = redact::resources(&resources, secrets);
        let spec = Spec {
            resources: resources.clone(),
            ..Spec::default()
        };
        let is_known_kind = |api_version: Option<&str>, kind: &str| kinds.has(&spec, api_version, kind);
        let tested = TestedStack::Compiled(TestedSpec {
            resources: &resources,
            shown: &shown,
            findings: &[],
            is_known_kind: &is_known_kind,
        });
        Ok(assertion::failures(assertions, &tested, secrets))
    }
}

/// Returns the identity under which a test holds its lease, from the first step to the end.
pub(super) fn session_id(name: &str) -> StackId {
    StackId::new(Some("test"), name, "session").expect("the name has letters and digits alone")
}
