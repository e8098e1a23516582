//! One stack in both worlds, through the engine, on a real API server: a value made by Terraform goes into a ConfigMap,
//! one made by the API server into a file, and its hash into another ConfigMap; a sensitive one is carried hidden.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use konverge_base::model::{
    RepoPath,
    apply_result::{StackOutcome, StackResult},
    event::NoEvents,
    plan::Action,
    spec::{Resource, RuntimeKind, Spec},
    state::{JournalEntry, StackState},
};
use konverge_engine::{self as engine, ApplyRequest, EnginePlan, NoReview, PlanRequest, RuntimeRegistry};
use konverge_kubernetes::{ClusterAccess, ClusterCredentials, Kubernetes, Options};
use konverge_secrets::{HashKey, Secrets, StackReferences};
use konverge_state::Sealer;
use konverge_terraform::{AllowedProvider, Terraform};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::runtime_fixture::{Rig, StateSeal, data};
use crate::support::{cluster::Cluster, stack::Notebook};

/// The password that no output may hold.
const PASSWORD: &str = "the-database-password-of-the-mixed-stack";

pub struct Mixed {
    pub binary: PathBuf,
    /// Allowed besides the one that the mirror has.
    pub providers: Vec<AllowedProvider>,
    /// Of Terraform's state; the same in every run.
    key: Sealer,
    runtimes: RuntimeRegistry,
    pub state: StackState,
    namespace: String,
    secrets: Secrets,
    client: kube::Client,
    outside: tempfile::TempDir,
    outputs: Mutex<String>,
    /// Removed when the test ends.
    scratch: tempfile::TempDir,
}

/// What differs between one wish and the next.
#[derive(Clone)]
struct Wish {
    address: &'static str,
    again: u32,
    /// The file's name; with a slash in it the provider fails.
    file: &'static str,
}

const FIRST: Wish = Wish {
    address: "10.0.0.7",
    again: 1,
    file: "report",
};

impl Mixed {
    pub async fn new(binary: PathBuf) -> Self {
        let cluster = Cluster::shared();
        let mut stack = Self {
            binary,
            providers: Vec::new(),
            key: Sealer::generate(),
            runtimes: RuntimeRegistry::new(),
            state: StackState::empty("shop/mixed".parse().unwrap(), RepoPath::root()),
            namespace: cluster.namespace("mixed").await,
            secrets: Secrets::new(HashKey::derive("test")),
            client: cluster.client().await,
            outside: tempfile::TempDir::new().unwrap(),
            outputs: Mutex::default(),
            scratch: tempfile::TempDir::new().unwrap(),
        };
        stack.start_anew().await;
        stack
    }

    /// Runtimes that know nothing of what was before, as a new process has them.
    pub async fn start_anew(&mut self) {
        let Rig { runtime, scratch, .. } = Rig::with(self.binary.clone(), |options| {
            options.key = Some(Arc::new(StateSeal(self.key.clone())));
            options.providers.extend(self.providers.iter().cloned());
        });
        self.scratch = scratch;
        let access = ClusterAccess {
            name: "test".parse().unwrap(),
            credentials: ClusterCredentials::Kubeconfig {
                path: Some(Cluster::shared().kubeconfig()),
                context: None,
                variable: None,
            },
            requests: None,
        };
        let kubernetes = Kubernetes::connect(vec![access], Options::default(), self.secrets.clone()).await;
        let terraform: Arc<Terraform> = Arc::new(runtime);
        self.runtimes = RuntimeRegistry::new().with(Arc::new(kubernetes)).with(terraform);
    }

    pub fn map_of(&self, name: &str, data: Value) -> Resource {
        let ns = &self.namespace;
        let metadata = json!({"name": name, "namespace": ns});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        Resource {
            id: format!("v1:ConfigMap:{ns}:{name}").parse().unwrap(),
            runtime: RuntimeKind::Kubernetes,
            attributes: object.as_object().unwrap().clone(),
            depends_on: Vec::new(),
            extensions: serde_json::Map::new(),
            sharing: konverge_base::model::spec::Sharing::default(),
        }
    }

    fn spec(&self, wish: &Wish) -> Spec {
        let ns = &self.namespace;
        let map = |name: &str, data: Value| self.map_of(name, data);
        let database = "$kusion_path.terraform:builtin:terraform_data:database";
        let report = "$kusion_path.hashicorp:local:local_file:report";
        let app = format!("$kusion_path.v1:ConfigMap:{ns}:app");
        let mut file = super::runtime_fixture::resource(
            "hashicorp:local:local_file:report",
            json!({"filename": self.outside.path().join(wish.file), "content": format!("app {app}.metadata.uid\n")}),
        );
        file.depends_on = Vec::new();
        let password = super::runtime_fixture::resource(
            "hashicorp:local:local_sensitive_file:password",
            json!({"filename": self.outside.path().join("password"), "content": PASSWORD}),
        );
        Spec {
            resources: vec![
                map("digest", json!({"sha256": format!("{report}.content_sha256")})),
                file,
                map(
                    "app",
                    json!({"address": format!("http://{database}.output.address:5432")}),
                ),
                data(
                    "database",
                    json!({"input": {"address": wish.address}, "triggers_replace": wish.again}),
                ),
                password,
                map(
                    "url",
                    json!({"url": "postgres://app:$kusion_path.hashicorp:local:local_sensitive_file:password.content@db"}),
                ),
            ],
            secret_stores: Vec::new(),
            outputs: serde_json::Map::new(),
            notes: Vec::new(),
        }
    }

    pub async fn plan(&self, spec: &Spec) -> EnginePlan {
        let plan = self.try_plan(spec).await;
        assert!(plan.failures.is_empty(), "{:?}", plan.failures);
        plan
    }

    pub async fn try_plan(&self, spec: &Spec) -> EnginePlan {
        let plan = engine::plan(PlanRequest {
            stack: self.state.stack.clone(),
            folder: RepoPath::root(),
            spec: spec.clone(),
            outputs: std::collections::BTreeMap::new(),
            state: &self.state,
            runtimes: &self.runtimes,
            ignore: &[],
            cluster: Some("test".parse().unwrap()),
            events: &NoEvents,
            hooks: konverge_base::model::hook::HookRules::default(),
            references: StackReferences::default(),
            secrets: &self.secrets,
            only_compares: false,
        })
        .await
        .unwrap()
        .without_other_stacks()
        .await
        .unwrap();
        self.note(&serde_json::to_string(&plan.public).unwrap());
        plan
    }

    pub async fn carry_out(&mut self, plan: EnginePlan) -> StackOutcome {
        let outcome = self.carry_out_until(plan, |_| false).await;
        outcome.expect("nobody ends it")
    }

    /// Carries a plan out until its process dies, which it does when the journal is as far as that; what was journalled
    /// by then is kept.
    async fn carry_out_until(
        &mut self,
        plan: EnginePlan,
        is_far_enough: impl Fn(&[JournalEntry]) -> bool,
    ) -> Option<StackOutcome> {
        let journal = Notebook::default();
        let applied = engine::apply(ApplyRequest {
            plan,
            review: &NoReview,
            journal: &journal,
            events: &NoEvents,
            cancel: CancellationToken::new(),
            parallelism: 8,
            allow_empty: true,
        });
        let killed = async {
            while !is_far_enough(&journal.entries()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let outcome = tokio::select! {
            applied = applied => Some(applied.outcome),
            () = killed => None,
        };
        self.note(&serde_json::to_string(&outcome).unwrap());
        self.note(&serde_json::to_string(&journal.entries()).unwrap());
        journal.merge_into(&mut self.state);
        self.note(&serde_json::to_string(&self.state).unwrap());
        outcome
    }

    async fn apply(&mut self, wish: &Wish) -> StackOutcome {
        let spec = self.spec(wish);
        let plan = self.plan(&spec).await;
        self.carry_out(plan).await
    }

    fn note(&self, text: &str) {
        self.outputs.lock().unwrap().push_str(text);
    }

    pub async fn map(&self, name: &str) -> Option<Value> {
        use k8s_openapi::api::core::v1::ConfigMap;
        let maps: kube::Api<ConfigMap> = kube::Api::namespaced(self.client.clone(), &self.namespace);
        let found = maps.get_opt(name).await.unwrap()?;
        Some(serde_json::to_value(found).unwrap())
    }

    fn file(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.outside.path().join(name)).ok()
    }

    /// What the API server, the provider and the Spec agree on.
    async fn assert_agreed(&self, address: &str) {
        let app = self.map("app").await.unwrap();
        assert_eq!(app["data"]["address"], format!("http://{address}:5432"));
        let content = self.file("report").unwrap();
        assert_eq!(
            content,
            format!("app {}\n", app["metadata"]["uid"].as_str().unwrap())
        );
        let digest = self.map("digest").await.unwrap();
        assert_eq!(digest["data"]["sha256"], sha256(&content));
    }
}

fn sha256(text: &str) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(text.as_bytes())
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

pub fn action_of(plan: &EnginePlan, name: &str) -> Action {
    let found = plan
        .public
        .resources
        .iter()
        .find(|r| r.id.as_str().ends_with(&format!(":{name}")));
    found.map_or(Action::Unchanged, |r| r.action)
}

/// Without Terraform its resources say why, and the others are planned all the same.
pub async fn without_terraform() {
    let stack = Mixed::new("/nonexistent/terraform".into()).await;
    let mut spec = stack.spec(&FIRST);
    spec.resources
        .push(stack.map_of("alone", json!({"needs": "nothing"})));
    let plan = stack.try_plan(&spec).await;
    for name in ["database", "password"] {
        let mut failures = plan.failures.iter();
        let (_, failure) = failures
            .find(|(id, _)| id.as_str().ends_with(&format!(":{name}")))
            .unwrap();
        assert!(
            failure.hints[0].contains("install Terraform"),
            "{name}: {failure:?}"
        );
    }
    assert_eq!(action_of(&plan, "alone"), Action::Create);
}

pub async fn lives_through_the_engine(binary: PathBuf) {
    let mut stack = Mixed::new(binary).await;
    // Created: four segments, each waiting for values of the one before.
    let plan = stack.plan(&stack.spec(&FIRST)).await;
    assert_eq!(plan.public.summary.create, 6);
    assert!(stack.map("app").await.is_none() && stack.file("password").is_none());
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    stack.assert_agreed("10.0.0.7").await;
    let again = stack.plan(&stack.spec(&FIRST)).await;
    assert_eq!(again.public.summary.unchanged, 6, "{:?}", again.public);
    let url = stack.map("url").await.unwrap();
    assert_eq!(url["data"]["url"], format!("postgres://app:{PASSWORD}@db"));
    let recorded = stack
        .state
        .resources
        .iter()
        .find(|r| r.id.as_str().ends_with(":url"));
    // The address can be reviewed, its password not.
    let url = recorded.unwrap().attributes["data"]["url"].as_str().unwrap();
    assert!(
        url.starts_with("postgres://app:$secret:") && url.ends_with("@db"),
        "{recorded:?}"
    );

    // Changed: the address flows from Terraform into the cluster.
    let second = Wish {
        address: "10.0.0.8",
        ..FIRST
    };
    let plan = stack.plan(&stack.spec(&second)).await;
    assert_eq!(action_of(&plan, "database"), Action::Update);
    assert_eq!(
        action_of(&plan, "app"),
        Action::Unknown,
        "Terraform says its output only after apply"
    );
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    stack.assert_agreed("10.0.0.8").await;

    // Replaced.
    let third = Wish { again: 2, ..second };
    let plan = stack.plan(&stack.spec(&third)).await;
    assert_eq!(action_of(&plan, "database"), Action::Replace);
    assert_eq!(stack.carry_out(plan).await.result, StackResult::Applied);
    stack.assert_agreed("10.0.0.8").await;

    // Drifted on both sides: put back.
    std::fs::write(stack.outside.path().join("report"), "somebody else").unwrap();
    let patch = kube::api::Patch::Merge(json!({"data": {"address": "elsewhere"}}));
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(stack.client.clone(), &stack.namespace);
    maps.patch("app", &kube::api::PatchParams::default(), &patch)
        .await
        .unwrap();
    let outcome = stack.apply(&third).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    stack.assert_agreed("10.0.0.8").await;

    // Half failed: the file cannot be made, what does not need it is done.
    let broken = Wish {
        address: "10.0.0.9",
        file: "password/below",
        ..third.clone()
    };
    let outcome = stack.apply(&broken).await;
    assert_eq!(outcome.result, StackResult::Failed);
    let app = stack.map("app").await.unwrap();
    assert_eq!(app["data"]["address"], "http://10.0.0.9:5432", "{outcome:?}");
    let fixed = Wish {
        file: "report",
        ..broken
    };
    let outcome = stack.apply(&fixed).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    stack.assert_agreed("10.0.0.9").await;

    // Killed while the provider works on the file, and resumed by a run that knows the journal alone.
    let pipe = stack.outside.path().join("pipe");
    super::interruption::pipe(&pipe);
    let moved = Wish {
        address: "10.0.0.10",
        file: "pipe",
        ..fixed
    };
    let plan = stack.plan(&stack.spec(&moved)).await;
    let key = stack.key.clone();
    let in_flight = |entries: &[JournalEntry]| {
        let mut books = entries.iter().filter_map(|entry| match entry {
            JournalEntry::Runtime { value, .. } => Some(key.open_value(value).unwrap()),
            _ => None,
        });
        let book = books.next_back().unwrap_or_default();
        let flight = &book["in_flight"]["hashicorp:local:local_file:report"];
        flight["action"] == "create" && flight["planned"].is_null()
    };
    let outcome = stack.carry_out_until(plan, in_flight).await;
    assert!(outcome.is_none(), "the file is not made: {outcome:?}");
    super::cli_fixture::end_left_over(stack.scratch.path());
    std::fs::remove_file(&pipe).unwrap();
    stack.start_anew().await;
    let resumed = Wish {
        file: "report",
        ..moved
    };
    let outcome = stack.apply(&resumed).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    stack.assert_agreed("10.0.0.10").await;
    let again = stack.plan(&stack.spec(&resumed)).await;
    assert_eq!(again.public.summary.unchanged, 6, "{:?}", again.public);

    // Destroyed.
    let nothing = Spec::default();
    let plan = stack.plan(&nothing).await;
    assert_eq!(plan.public.summary.delete, 6);
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    for name in ["app", "digest", "url"] {
        assert!(stack.map(name).await.is_none(), "{name}");
    }
    assert!(stack.file("report").is_none() && stack.file("password").is_none());
    assert!(stack.state.resources.is_empty());

    let outputs = stack.outputs.lock().unwrap();
    assert!(
        outputs.contains("$secret"),
        "the sensitive value was shown as a mark"
    );
    assert!(
        !outputs.contains(PASSWORD),
        "in a plan, outcome, journal or state"
    );
}
