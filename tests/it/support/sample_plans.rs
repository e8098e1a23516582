//! Plans to render: a small one in which everything happens once, and large ones of any size.

use std::{collections::BTreeMap, time::Duration};

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        RepoPath, StackId,
        affected::{Affected, AffectedStack, InputChange, InputKind, InputReason, SpecChange},
        comment_marker::{CommentMarker, MarkerKind},
        model_change::{ModelChange, ModelPackageChange, ModelPropertyChange},
        permission_changes::PowerChange,
        plan::{Action, Basis, ChangeOrigin, FieldChange, Plan, ResourcePlan, StackPlan, Validation},
        policy_finding::{Enforcement, PolicyFinding},
        review::ReviewUnit,
        review_difference::ReviewDifference,
        spec::RuntimeKind,
        timeline::{PartKind, Timeline, TimelinePart},
    },
};
use konverge_report::{CommentInput, Merging, Mode, RunInfo, StackContext};
use serde_json::{Value, json};

/// All that a comment is made of, owned.
#[derive(Debug)]
pub struct Sample {
    pub run: RunInfo,
    pub affected: Affected,
    pub plan: Plan,
    pub findings: Vec<PolicyFinding>,
    pub power: Vec<PowerChange>,
    pub models: Vec<ModelChange>,
    pub last_push: Option<ReviewDifference>,
    pub contexts: BTreeMap<StackId, StackContext>,
    pub waves: BTreeMap<StackId, usize>,
    pub links: BTreeMap<StackId, String>,
    pub marker: CommentMarker,
    pub mode: Mode,
}

impl Sample {
    pub fn input(&self, budget: usize) -> CommentInput<'_> {
        CommentInput {
            run: &self.run,
            affected: &self.affected,
            plan: &self.plan,
            findings: &self.findings,
            settings: &[],
            power: &self.power,
            models: &self.models,
            last_push: self.last_push.as_ref(),
            contexts: &self.contexts,
            waves: &self.waves,
            rollouts: &[],
            links: &self.links,
            marker: &self.marker,
            mode: self.mode,
            budget,
        }
    }
}

fn path(text: &str) -> RepoPath {
    RepoPath::normalize(text).expect("a path inside the repository")
}

fn id(text: &str) -> StackId {
    text.parse().expect("an identity")
}

pub fn change(path: &str, from: Option<Value>, to: Option<Value>, origin: ChangeOrigin) -> FieldChange {
    FieldChange {
        path: path.into(),
        from,
        to,
        origin,
    }
}

pub fn resource(stack: &str, resource: &str, action: Action, changes: Vec<FieldChange>) -> ResourcePlan {
    let runtime = if resource.starts_with("hashicorp:") {
        RuntimeKind::Terraform
    } else {
        RuntimeKind::Kubernetes
    };
    let mut plan = ResourcePlan::new(
        &id(stack),
        resource.parse().expect("a resource id"),
        runtime,
        action,
        changes,
    );
    plan.validated = Validation::Server;
    plan
}

pub fn stack(name: &str, resources: Vec<ResourcePlan>) -> StackPlan {
    StackPlan::new(path(&format!("appops/{name}")), id(name), Basis::Live, resources)
}

pub fn affected_stack(name: &str, change: InputChange, chains: &[&[&str]]) -> AffectedStack {
    let stack = id(name);
    AffectedStack {
        stack: path(&format!("appops/{name}")),
        project: stack.project().to_owned(),
        name: stack.name().to_owned(),
        id: stack,
        change,
        spec: SpecChange::Changed,
        why: chains
            .iter()
            .map(|chain| InputReason {
                path: path(chain[0]),
                kind: InputKind::Import,
                chain: chain.iter().map(|file| path(file)).collect(),
            })
            .collect(),
    }
}

pub fn run() -> RunInfo {
    RunInfo {
        repository: "acme/konfig".into(),
        server_url: "https://github.com".into(),
        pr: Some(12),
        head: Some(
            "a1b2c3d4e5f60718293a4b5c6d7e8f9012345678"
                .parse()
                .expect("a commit"),
        ),
        base: Some(
            "0f1e2d3c4b5a69788796a5b4c3d2e1f001234567"
                .parse()
                .expect("a commit"),
        ),
        run_url: Some("https://github.com/acme/konfig/actions/runs/4711".into()),
        page_url: None,
        run: 4711,
        attempt: 1,
        timeline: Timeline {
            parts: vec![
                stage("affected", 0, 140),
                stage("compile", 140, 2_300),
                stage("plan", 2_440, 4_700),
            ],
            left_out: 0,
        },
        compiled: 7,
        cached: 4,
        stacks_in_repository: 140,
        version: "0.1.0".into(),
    }
}

/// The contexts of a plan's stacks: production by their names.
fn contexts(plan: &Plan) -> BTreeMap<StackId, StackContext> {
    let context = |stack: &StackPlan| {
        let is_production = stack.id.name() == "prod";
        let context = StackContext {
            environment: stack.id.name().to_owned(),
            is_production,
            approvals: u32::from(is_production),
            reviewers: is_production
                .then(|| "acme/infra".to_owned())
                .into_iter()
                .collect(),
        };
        (stack.id.clone(), context)
    };
    plan.stacks.iter().map(context).collect()
}

fn marker() -> CommentMarker {
    let mut marker = CommentMarker::new(MarkerKind::Preview, "");
    marker.head = "a1b2c3d4e5f60718293a4b5c6d7e8f9012345678".into();
    marker.run = 4711;
    marker.attempt = 1;
    marker
}

fn image(stack: &str, name: &str) -> ResourcePlan {
    let namespace = stack.replace('/', "-");
    let at = "/spec/template/spec/containers/name=main/image";
    let from = Some(json!("registry.example/base:1.4"));
    let to = Some(json!("registry.example/base:1.5"));
    resource(
        stack,
        &format!("apps/v1:Deployment:{namespace}:{name}"),
        Action::Update,
        vec![change(at, from, to, ChangeOrigin::Change)],
    )
}

/// A change in which everything happens once.
pub fn shop() -> Sample {
    const MODEL: &[&str] = &[
        "base/pkg/backend/server.k",
        "base/base.k",
        "appops/orders/base/base.k",
        "appops/orders/dev/main.k",
    ];
    let why = |stack: &str, last: &str| {
        affected_stack(stack, InputChange::Modified, &[&[MODEL[0], MODEL[1], last]])
    };
    let mut bucket = resource(
        "media/prod",
        "hashicorp:aws:aws_s3_bucket:uploads",
        Action::Replace,
        vec![change(
            "/bucket",
            Some(json!("uploads")),
            Some(json!("uploads-eu")),
            ChangeOrigin::Change,
        )],
    );
    bucket.replace = vec!["/bucket".into()];
    bucket.data_loss = true;
    bucket.notes = vec!["every object in the bucket is deleted".into()];
    let config = |from: &str, to: &str| {
        change(
            "/data/settings.ini",
            Some(json!(from)),
            Some(json!(to)),
            ChangeOrigin::Change,
        )
    };
    let before: String = (1..=14).map(|n| format!("key{n} = {n}\n")).collect();
    let orders_prod = vec![
        image("orders/prod", "orders"),
        resource(
            "orders/prod",
            "v1:ConfigMap:orders-prod:settings",
            Action::Update,
            vec![config(&before, &before.replace("key7 = 7", "key7 = seven"))],
        ),
        resource(
            "orders/prod",
            "v1:Secret:orders-prod:database",
            Action::Update,
            vec![change(
                "/data/password",
                Some(json!({"$secret": "0a1b2c3d4e5f6071"})),
                Some(json!({"$secret": "f00dfeedf00dfeed"})),
                ChangeOrigin::Change,
            )],
        ),
        resource(
            "orders/prod",
            "autoscaling/v2:HorizontalPodAutoscaler:orders-prod:orders",
            Action::Update,
            vec![change(
                "/spec/minReplicas",
                Some(json!(5)),
                Some(json!(3)),
                ChangeOrigin::Drift,
            )],
        ),
    ];
    let mut broken = StackPlan::failed(
        path("appops/search/dev"),
        id("search/dev"),
        Basis::Live,
        UserError::new(
            ErrorKind::Kcl,
            "attribute 'replica' not found in 'Server'\ndid you mean 'replicas'?",
        )
        .at("appops/search/dev/main.k", Some(12), Some(5))
        .hint("`konverge build appops/search/dev` compiles it here")
        .body(),
    );
    broken.summary.unchanged = 0;
    let plan = Plan {
        version: 1,
        stacks: vec![
            stack(
                "media/prod",
                vec![
                    bucket,
                    resource(
                        "media/prod",
                        "batch/v1:Job:media-prod:migrate",
                        Action::Delete,
                        vec![change(
                            "",
                            Some(
                                json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "migrate"}}),
                            ),
                            None,
                            ChangeOrigin::Change,
                        )],
                    ),
                ],
            ),
            stack("orders/dev", vec![image("orders/dev", "orders")]),
            stack("orders/prod", orders_prod),
            broken,
            stack(
                "storefront/dev",
                vec![
                    image("storefront/dev", "web"),
                    resource(
                        "storefront/dev",
                        "v1:Service:storefront-dev:web",
                        Action::Create,
                        vec![change(
                            "",
                            None,
                            Some(
                                json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "storefront-dev"},
                                "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}], "selector": {"app": "web"}, "clusterIP": {"$unknown": true}}}),
                            ),
                            ChangeOrigin::Change,
                        )],
                    ),
                ],
            ),
            stack("storefront/prod", vec![]),
        ],
    };
    Sample {
        run: run(),
        affected: Affected {
            version: 1,
            base: run().base,
            head: run().head,
            stacks: vec![
                why("media/prod", "appops/media/prod/main.k"),
                why("orders/dev", "appops/orders/dev/main.k"),
                why("orders/prod", "appops/orders/prod/main.k"),
                affected_stack(
                    "search/dev",
                    InputChange::Modified,
                    &[&["appops/search/dev/main.k"]],
                ),
                affected_stack(
                    "storefront/dev",
                    InputChange::Added,
                    &[&["appops/storefront/dev/stack.yaml"]],
                ),
                why("storefront/prod", "appops/storefront/prod/main.k"),
            ],
        },
        contexts: contexts(&plan),
        plan,
        power: Vec::new(),
        models: Vec::new(),
        last_push: None,
        findings: vec![
            PolicyFinding {
                verdict: Enforcement::Deny,
                rule: "policy.reviewers".into(),
                stack: Some(id("media/prod")),
                message: "production stacks need an approval by one of @acme/infra; there is none".into(),
                hint: Some("ask one of @acme/infra to approve this pull request".into()),
                place: None,
            },
            PolicyFinding {
                verdict: Enforcement::Pass,
                rule: "policy.blast_radius".into(),
                stack: None,
                message: "9 resources change, 100 are allowed".into(),
                hint: None,
                place: None,
            },
        ],
        waves: BTreeMap::from([(id("orders/prod"), 1), (id("media/prod"), 1)]),
        links: BTreeMap::from([(id("orders/prod"), "https://github.com/acme/konfig/runs/99".into())]),
        marker: marker(),
        mode: Mode {
            merging: Merging::Applies,
            ..Mode::default()
        },
    }
}

/// A change of the base that reaches `n` stacks: most change in the same way, every tenth in a way of its own.
pub fn large(n: usize) -> Sample {
    let mut stacks = Vec::with_capacity(n);
    let mut affected = Vec::with_capacity(n);
    for i in 0..n {
        let name = format!("app-{:04}/{}", i / 2, if i % 2 == 0 { "dev" } else { "prod" });
        let mut resources = vec![image(&name, "web")];
        let mut object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {}});
        if i % 10 == 0 {
            for line in 0..40 {
                object["data"][format!("key-{line}")] = json!(format!("value {line} of {name}"));
            }
            let id = format!("v1:ConfigMap:{}:settings", name.replace('/', "-"));
            resources.push(resource(
                &name,
                &id,
                Action::Create,
                vec![change("", None, Some(object), ChangeOrigin::Change)],
            ));
        }
        if i % 100 == 7 {
            let id = format!("v1:Service:{}:old", name.replace('/', "-"));
            resources.push(resource(&name, &id, Action::Delete, Vec::new()));
        }
        stacks.push(stack(&name, resources));
        let last = format!("appops/{name}/main.k");
        affected.push(affected_stack(
            &name,
            InputChange::Modified,
            &[&["base/pkg/backend/server.k", "base/base.k", &last]],
        ));
    }
    let plan = Plan { version: 1, stacks };
    Sample {
        affected: Affected {
            version: 1,
            base: run().base,
            head: run().head,
            stacks: affected,
        },
        contexts: contexts(&plan),
        plan,
        findings: Vec::new(),
        power: Vec::new(),
        models: Vec::new(),
        last_push: None,
        waves: BTreeMap::new(),
        links: BTreeMap::new(),
        run: RunInfo {
            stacks_in_repository: n,
            ..run()
        },
        marker: marker(),
        mode: Mode {
            merging: Merging::Applies,
            ..Mode::default()
        },
    }
}

pub fn sample(stacks: Vec<StackPlan>) -> Sample {
    let affected = stacks.iter().map(|stack| {
        let last = format!("appops/{}/main.k", stack.id);
        let chain = ["base/pkg/backend/server.k", "base/base.k", &last];
        affected_stack(stack.id.as_str(), InputChange::Modified, &[&chain])
    });
    let affected = affected.collect();
    let plan = Plan { version: 1, stacks };
    Sample {
        affected: Affected {
            version: 1,
            base: run().base,
            head: run().head,
            stacks: affected,
        },
        contexts: contexts(&plan),
        plan,
        findings: Vec::new(),
        ..shop()
    }
}

/// The same change of one field in `n` stacks.
pub fn equal(n: usize) -> Sample {
    let stacks = (0..n).map(|i| {
        let name = format!("app-{i:02}/dev");
        stack(&name, vec![image(&name, if i % 2 == 0 { "web" } else { "api" })])
    });
    Sample {
        waves: BTreeMap::new(),
        links: BTreeMap::new(),
        ..sample(stacks.collect())
    }
}

/// Four new applications in three environments, 76 objects, and one image of production that runs.
pub fn creates_beside_an_image() -> Sample {
    let objects = |stack: &str, count: usize| {
        let object = |at: usize| {
            let name = format!("part-{at}");
            let data: serde_json::Map<_, _> = (0..24)
                .map(|line| {
                    (
                        format!("key-{line}"),
                        json!(format!("value {line} of {name} in {stack}")),
                    )
                })
                .collect();
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": stack}, "data": data});
            let id = format!("v1:ConfigMap:{}:{name}", stack.replace('/', "-"));
            resource(
                stack,
                &id,
                Action::Create,
                vec![change("", None, Some(object), ChangeOrigin::Change)],
            )
        };
        (0..count).map(object).collect::<Vec<_>>()
    };
    let mut stacks = vec![stack("orders/prod", vec![image("orders/prod", "orders")])];
    for app in ["cart", "mail", "search", "users"] {
        for (environment, count) in [("dev", 6), ("staging", 6), ("prod", 7)] {
            let name = format!("{app}/{environment}");
            stacks.push(stack(&name, objects(&name, count)));
        }
    }
    stacks.sort_by(|a, b| a.stack.cmp(&b.stack));
    Sample {
        waves: BTreeMap::new(),
        links: BTreeMap::new(),
        ..sample(stacks)
    }
}

/// So many stacks that are taken over as they run, with so many objects each, and one whose image changes with it.
pub fn takeover(stacks: usize, objects: usize) -> Sample {
    let adopted = |stack: &str, name: &str, more: Option<FieldChange>| {
        let owner = change(
            "/metadata/annotations/konverge~1stack",
            None,
            Some(json!(stack)),
            ChangeOrigin::Change,
        );
        let id = format!("apps/v1:Deployment:{}:{name}", stack.replace('/', "-"));
        let changes = [owner].into_iter().chain(more).collect();
        let mut plan = resource(stack, &id, Action::Adopt, changes);
        plan.notes = vec![
            "takes ownership of `/spec/replicas`: same value, only the field manager changes".to_owned(),
        ];
        plan
    };
    let mut plans: Vec<_> = (0..stacks)
        .map(|at| {
            let name = format!("old-{at:02}/prod");
            let of_stack = (0..objects).map(|object| adopted(&name, &format!("part-{object}"), None));
            stack(&name, of_stack.collect())
        })
        .collect();
    let image = image("shop/prod", "web").changes.remove(0);
    plans.push(stack("shop/prod", vec![adopted("shop/prod", "web", Some(image))]));
    Sample {
        waves: BTreeMap::new(),
        links: BTreeMap::new(),
        ..sample(plans)
    }
}

/// A number in a base model that reaches so many applications in three environments: each workload has its own name,
/// and production more pods.
pub fn base_number(apps: usize) -> Sample {
    let stacks = (0..apps).flat_map(|at| {
        [("dev", 1), ("prod", 5), ("staging", 3)].map(|(environment, pods)| {
            let (app, name) = (format!("app-{at:02}"), format!("app-{at:02}/{environment}"));
            let path = format!("/spec/template/spec/containers/name={app}/resources/limits/memory");
            let memory = change(
                &path,
                Some(json!("256Mi")),
                Some(json!("512Mi")),
                ChangeOrigin::Change,
            );
            let id = format!("apps/v1:Deployment:{app}-{environment}:{app}");
            let mut plan = resource(&name, &id, Action::Update, vec![memory]);
            plan.pods.restarts = pods;
            let pods = if pods == 1 {
                "1 pod".to_owned()
            } else {
                format!("{pods} pods")
            };
            plan.notes = vec![format!("restarts {pods} by rolling update")];
            stack(&name, vec![plan])
        })
    });
    Sample {
        waves: BTreeMap::new(),
        links: BTreeMap::new(),
        ..sample(stacks.collect())
    }
}

/// A preview without a cluster, of changes that a server would not make in place.
pub fn spec_only() -> Sample {
    let selector = |stack: &str| {
        let path = "/spec/selector/matchLabels/app";
        let changed = change(path, Some(json!("a")), Some(json!("b")), ChangeOrigin::Change);
        let mut plan = resource(stack, "apps/v1:Deployment:ns:web", Action::Update, vec![changed]);
        plan.immutable = vec![path.into()];
        plan
    };
    let mut claim = resource(
        "b/dev",
        "v1:PersistentVolumeClaim:ns:data",
        Action::Delete,
        Vec::new(),
    );
    claim.data_loss = true;
    claim.notes = vec!["the volume's data may be deleted with the claim".to_owned()];
    let mut stacks = vec![
        stack("a/dev", vec![selector("a/dev")]),
        stack("b/dev", vec![selector("b/dev"), claim]),
    ];
    for stack in &mut stacks {
        stack.basis = Basis::Spec;
        stack
            .resources
            .iter_mut()
            .for_each(|resource| resource.validated = Validation::None);
    }
    let mut sample = sample(stacks);
    sample.mode.merging = Merging::Outside;
    sample
}

/// A second push: one stack changes otherwise than before, and three fail with one error.
pub fn pushed() -> Sample {
    let replicas = change(
        "/spec/replicas",
        Some(json!(2)),
        Some(json!(3)),
        ChangeOrigin::Change,
    );
    let id_of = "apps/v1:Deployment:orders-dev:orders";
    let mut stacks = vec![stack(
        "orders/dev",
        vec![resource("orders/dev", id_of, Action::Update, vec![replicas])],
    )];
    for name in ["a/dev", "b/dev", "c/dev"] {
        let error = UserError::new(ErrorKind::Kcl, "attribute 'replica' not found in 'Server'")
            .at("base/base.k", Some(7), None)
            .hint("did you mean `replicas`?");
        let folder = path(&format!("appops/{name}"));
        stacks.push(StackPlan::failed(folder, id(name), Basis::Live, error.body()));
    }
    let unit = |resource: &str, action, path: &str, to: Option<Value>| ReviewUnit {
        stack: id("orders/dev"),
        resource: resource.parse().expect("a resource id"),
        action,
        path: path.into(),
        to,
        from: None,
    };
    let mut sample = sample(stacks);
    sample.last_push = Some(ReviewDifference {
        earlier: "0123456789abcdef0123456789abcdef01234567"
            .parse()
            .expect("a commit"),
        added: vec![unit(id_of, Action::Update, "/spec/replicas", Some(json!(3)))],
        removed: vec![
            unit(id_of, Action::Update, "/spec/replicas", Some(json!(4))),
            unit("v1:ConfigMap:orders-dev:old", Action::Delete, "", None),
        ],
        incomparable: Vec::new(),
    });
    sample
}

/// Packages of one folder of models, each with so many properties: one of twenty is gone, the others are new.
pub fn model_changes(packages: usize, properties: usize) -> Vec<ModelChange> {
    let property = |at: usize| ModelPropertyChange {
        schema: "ApplicationSpec".to_owned(),
        property: Some(format!("property{at}")),
        check: None,
        from: (at % 20 == 1).then(|| "optional str".to_owned()),
        to: (at % 20 != 1).then(|| "optional str".to_owned()),
    };
    let package = |at: usize| ModelPackageChange {
        package: path(&format!("base/pkg/argo/argoproj_io/v{at}")),
        change: InputChange::Modified,
        properties: (0..properties).map(property).collect(),
        stacks: vec![id("orders/dev")],
    };
    vec![ModelChange {
        folder: path("base/pkg/argo"),
        sources: vec!["crds/argocd".to_owned()],
        record: Some(InputChange::Modified),
        from_version: None,
        to_version: None,
        packages: (0..packages).map(package).collect(),
    }]
}

/// A stage that began and took so many milliseconds.
fn stage(name: &str, begin: u64, length: u64) -> TimelinePart {
    TimelinePart {
        kind: PartKind::Stage,
        name: name.to_owned(),
        within: None,
        begin: Duration::from_millis(begin),
        length: Duration::from_millis(length),
        work: None,
        status: None,
        bytes: None,
    }
}
