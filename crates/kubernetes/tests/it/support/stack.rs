//! A stack on a real cluster: planned, applied and remembered as `crates/run/` does it, with the state in memory.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use konverge_base::{
    error::UserError,
    model::{
        ClusterName, FieldPath, RepoPath, StackId,
        apply_result::StackOutcome,
        event::NoEvents,
        hook::HookRules,
        plan::{Action, ResourcePlan},
        spec::{Resource, RuntimeKind, Spec},
        state::{JournalEntry, StackState},
    },
};
use konverge_engine::{
    self as engine, ApplyRequest, EnginePlan, Journal, NoReview, PlanRequest, Review, RuntimeRegistry,
    runtime::{RecordFailure, Runtime},
};
use konverge_kubernetes::{ClusterAccess, ClusterCredentials, Conflicts, Kubernetes, Options};
use konverge_secrets::{HashKey, Secrets, StackReferences};
use konverge_state::merge_journal;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

/// A stack with its state, on one cluster.
pub struct TestStack {
    /// Its identity.
    pub id: StackId,
    /// What is remembered.
    pub state: StackState,
    /// The registry of the run.
    pub secrets: Secrets,
    /// How the cluster is treated.
    pub options: Options,
    /// What is not compared.
    pub ignore: Vec<FieldPath>,
    /// What hooks may do.
    pub hooks: HookRules,
    /// Plans are drift checks.
    pub only_compares: bool,
    /// Requests under way at once, if it is not the usual number.
    pub requests: Option<usize>,
    kubeconfig: PathBuf,
}

/// The name under which the cluster is configured.
pub const CLUSTER: &str = "test";

impl TestStack {
    /// A stack that nobody has applied. `name` must be its own among the tests.
    pub fn new(name: &str, kubeconfig: PathBuf) -> Self {
        let id: StackId = format!("test/{name}").parse().unwrap();
        Self {
            state: StackState::empty(id.clone(), RepoPath::root()),
            id,
            secrets: Secrets::new(HashKey::derive("test")),
            options: Options {
                conflicts: Conflicts::Restore,
                // Controllers are slow on a busy machine. A test of the limit sets its own.
                ready_timeout: Duration::from_secs(180),
                wait: false,
                ..Options::default()
            },
            ignore: Vec::new(),
            hooks: HookRules::default(),
            only_compares: false,
            requests: None,
            kubeconfig,
        }
    }

    /// Takes another user's kubeconfig from now on.
    pub fn act_as(&mut self, kubeconfig: PathBuf) {
        self.kubeconfig = kubeconfig;
    }

    /// A runtime of its own, as a new process would have.
    pub async fn kubernetes(&self) -> Arc<Kubernetes> {
        let access = ClusterAccess {
            name: CLUSTER.parse().unwrap(),
            credentials: ClusterCredentials::Kubeconfig {
                path: Some(self.kubeconfig.clone()),
                context: None,
                variable: None,
            },
            requests: self.requests,
        };
        let connected = Kubernetes::connect(vec![access], self.options.clone(), self.secrets.clone()).await;
        Arc::new(connected)
    }

    /// Plans, as a new process would.
    pub async fn plan(&self, objects: &[Value]) -> EnginePlan {
        self.try_plan(&spec(objects)).await.unwrap()
    }

    /// Plans, and expects that nothing was refused.
    pub async fn plan_well(&self, objects: &[Value]) -> EnginePlan {
        let plan = self.plan(objects).await;
        assert!(plan.failures.is_empty(), "{:?}", plan.failures);
        plan
    }

    /// Plans a Spec, as a new process would.
    pub async fn try_plan(&self, spec: &Spec) -> Result<EnginePlan, UserError> {
        let kubernetes: Arc<dyn Runtime> = self.kubernetes().await;
        self.plan_on(&RuntimeRegistry::new().with(kubernetes), spec.clone())
            .await
    }

    /// Plans with runtimes of the test's own.
    pub async fn plan_on(&self, runtimes: &RuntimeRegistry, spec: Spec) -> Result<EnginePlan, UserError> {
        engine::plan(PlanRequest {
            stack: self.id.clone(),
            folder: RepoPath::root(),
            spec,
            outputs: std::collections::BTreeMap::new(),
            state: &self.state,
            runtimes,
            ignore: &self.ignore,
            cluster: Some(cluster()),
            events: &NoEvents,
            hooks: self.hooks.clone(),
            references: StackReferences::default(),
            secrets: &self.secrets,
            only_compares: self.only_compares,
        })
        .await?
        .without_other_stacks()
        .await
    }

    /// Carries a plan out and remembers.
    pub async fn carry_out(&mut self, plan: EnginePlan) -> StackOutcome {
        self.carry_out_reviewed(plan, &NoReview).await
    }

    /// Carries a plan out under a review.
    pub async fn carry_out_reviewed(&mut self, plan: EnginePlan, review: &dyn Review) -> StackOutcome {
        let outcome = self.carry_out_under(plan, review, std::future::pending()).await;
        outcome.expect("nobody ends it")
    }

    /// Carries a plan out unless the process is killed before it ends; what was journalled by then is kept.
    pub async fn carry_out_until(
        &mut self,
        plan: EnginePlan,
        killed: impl Future<Output = ()>,
    ) -> Option<StackOutcome> {
        self.carry_out_under(plan, &NoReview, killed).await
    }

    async fn carry_out_under(
        &mut self,
        plan: EnginePlan,
        review: &dyn Review,
        killed: impl Future<Output = ()>,
    ) -> Option<StackOutcome> {
        let journal = Notebook::default();
        let applied = engine::apply(ApplyRequest {
            plan,
            review,
            journal: &journal,
            events: &NoEvents,
            cancel: CancellationToken::new(),
            parallelism: 16,
            allow_empty: true,
        });
        let outcome = tokio::select! {
            applied = applied => Some(applied.outcome),
            () = killed => None,
        };
        if outcome.is_some() {
            journal.merge_into(&mut self.state);
        } else {
            journal.merge_stored_into(&mut self.state);
        }
        outcome
    }

    /// Plans and carries out; expects that all of it goes well.
    pub async fn apply(&mut self, objects: &[Value]) -> StackOutcome {
        let plan = self.plan_well(objects).await;
        let outcome = self.carry_out(plan).await;
        assert!(outcome.error.is_none(), "{outcome:?}");
        outcome
    }
}

/// A journal in memory, of which a state becomes what a next run would read. As in a lease, results wait to be stored
/// with others, and a kill loses them.
#[derive(Default)]
pub struct Notebook(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    stored: Vec<JournalEntry>,
    waiting: Vec<JournalEntry>,
}

impl Notebook {
    /// What was written down so far.
    pub fn entries(&self) -> Vec<JournalEntry> {
        let notes = self.0.lock().unwrap();
        [&notes.stored[..], &notes.waiting].concat()
    }

    /// Merges what was written down into the state before.
    pub fn merge_into(self, state: &mut StackState) {
        merge_journal(state, &self.entries());
    }

    /// Merges what was stored before a kill into the state before.
    pub fn merge_stored_into(self, state: &mut StackState) {
        merge_journal(state, &self.0.into_inner().unwrap().stored);
    }
}

#[async_trait]
impl Journal for Notebook {
    async fn intend(&self, entries: Vec<JournalEntry>) -> Result<(), UserError> {
        let mut notes = self.0.lock().unwrap();
        let waiting = std::mem::take(&mut notes.waiting);
        notes.stored.extend(waiting.into_iter().chain(entries));
        Ok(())
    }

    async fn record(&self, entry: JournalEntry) -> Result<(), RecordFailure> {
        let is_result = matches!(
            entry,
            JournalEntry::Done { .. }
                | JournalEntry::Gone { .. }
                | JournalEntry::Failed { .. }
                | JournalEntry::Untouched { .. }
        );
        if !is_result {
            return Ok(self.intend(vec![entry]).await?);
        }
        self.0.lock().unwrap().waiting.push(entry);
        Ok(())
    }

    async fn check_lease(&self) -> Result<(), UserError> {
        Ok(())
    }
}

/// The cluster's name.
pub fn cluster() -> ClusterName {
    CLUSTER.parse().unwrap()
}

/// A Spec of whole objects.
pub fn spec(objects: &[Value]) -> Spec {
    Spec {
        resources: objects.iter().map(resource).collect(),
        secret_stores: Vec::new(),
        outputs: serde_json::Map::new(),
        notes: Vec::new(),
    }
}

/// A resource of an object, with its id as Kusion forms it; `$dependsOn` in the object becomes `dependsOn`.
pub fn resource(object: &Value) -> Resource {
    let mut attributes: Map<String, Value> = object.as_object().unwrap().clone();
    let depends_on = attributes.shift_remove("$dependsOn").unwrap_or_default();
    let depends_on = depends_on.as_array().into_iter().flatten();
    Resource {
        id: id(object).parse().unwrap(),
        runtime: RuntimeKind::Kubernetes,
        attributes,
        depends_on: depends_on
            .map(|id| id.as_str().unwrap().parse().unwrap())
            .collect(),
        extensions: Map::new(),
        sharing: konverge_base::model::spec::Sharing::default(),
    }
}

/// An object's id.
pub fn id(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut parts = vec![text(&object["apiVersion"]), text(&object["kind"])];
    if object["metadata"]["namespace"].is_string() {
        parts.push(text(&object["metadata"]["namespace"]));
    }
    parts.push(text(&object["metadata"]["name"]));
    parts.join(":")
}

/// The plan of one resource by its object; `None` if it is unchanged.
pub fn planned<'a>(plan: &'a EnginePlan, object: &Value) -> Option<&'a ResourcePlan> {
    let id = id(object);
    plan.public
        .resources
        .iter()
        .find(|resource| resource.id.as_str() == id)
}

/// The action planned for an object.
pub fn action(plan: &EnginePlan, object: &Value) -> Action {
    planned(plan, object).map_or(Action::Unchanged, |resource| resource.action)
}
