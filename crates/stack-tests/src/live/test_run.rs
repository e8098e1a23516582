//! [`TestRun`]: one live test, with its part of the store, from the first object to the last.

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
        stack::{CompileSetup, NamedBy, Stack},
        stack_test::StackTestFailure,
    },
};
use konverge_run::{
    HolderWatch, KeyUse, Planner, RunBuilder, SpecSource, StateBackend, Target,
    apply::{self, ApplyOptions, AutoApprove},
    cluster_selection::Live,
    observe_recorded, redact, state_backend,
};
use konverge_stack_test_language::{
    PlacedAssertion, TestedSpec, TestedStack, assertion,
    moving::{MovedSpec, owned_key},
};
use konverge_state::{
    Lease, LeaseOptions,
    store::{Key, Store},
};

/// The folder of the store with a part for each test.
pub(super) fn tests_folder() -> Key {
    Key::from_components(&["tests"])
}

/// The folder of a test. No rule of a repository means it.
fn test_folder(name: &str) -> RepoPath {
    RepoPath::root().child(".konverge-test").child(name)
}

/// One live test. Nobody else touches what it made while its lease is held.
pub(super) struct TestRun {
    pub(super) name: String,
    /// The store of the repository, of which the test has a part.
    whole: Arc<dyn Store>,
    backend: StateBackend,
    lease: Lease,
    pub(super) planner: Planner,
    pub(super) target: Target,
}

impl TestRun {
    /// A name that no other test has: ten lower-case letters and digits.
    pub(super) fn new_name() -> String {
        uuid::Uuid::new_v4().simple().to_string()[..10].to_owned()
    }

    /// Begins a test of a stack, or continues the one of this name to end it.
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
    /// As [`TestRun::begin`].
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
            // A holder that was killed is over after one term.
            wait: term + term / 2,
            folder: test_folder(name).into(),
            watch: Some(Arc::new(HolderWatch::new(run, &session))),
            ..LeaseOptions::default()
        };
        let lease = backend.states.acquire(&session, options).await?;
        let planner = RunBuilder::new(run, trusted.config.clone())
            .live(Live::Required)
            .states(backend.clone())
            .rule_files(Arc::clone(&trusted.revision.source))
            .planner(SpecSource::File(Spec::default()))
            .await?;
        let folder = test_folder(name);
        let stack = Stack {
            id: id.clone(),
            names: id.clone(),
            earlier_names: None,
            named_by: NamedBy::Names,
            folder: folder.clone(),
            manifest: folder.child("stack.yaml"),
            project_folder: folder,
            compile: Ok(CompileSetup::default()),
            cluster: cluster.cloned(),
            kubeconfig: None,
            reads: std::collections::BTreeMap::new(),
        };
        let target = match cluster {
            Some(_) => Target::new(&stack, None),
            // Each recorded object names its cluster.
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

    /// Applies a Spec; the message of what failed.
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

    /// Deletes everything, and then the part of the store.
    ///
    /// # Errors
    /// Something could not be deleted. The part of the store stays, so that a later run finds it.
    pub(super) async fn end(mut self) -> Result<(), UserError> {
        let deleted = self.delete().await;
        let left = match deleted {
            Ok(None) => None,
            Ok(Some(why)) => Some(UserError::new(ErrorKind::Kubernetes, why)),
            Err(error) => Some(error),
        };
        // Released also if something is left: a sweep would wait for its end.
        let released = self.lease.release().await;
        if let Some(left) = left {
            return Err(left);
        }
        released?;
        let store = self.backend.states.store();
        // The index goes first: without it the rest is only looked up. The newest state goes last.
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

    /// The live objects of the test, under the names that they have in the Spec of the stack.
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
            // A test asserts nothing about a namespace that the Spec does not have.
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

    /// The assertions that do not hold for the live objects.
    pub(super) async fn failures(
        &self,
        moved: &MovedSpec,
        assertions: &[PlacedAssertion],
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

/// The lease of a test: it is held from the first step to the end.
pub(super) fn session_id(name: &str) -> StackId {
    StackId::new(Some("test"), name, "session").expect("the name has letters and digits alone")
}
