//! Policy sets on many stacks: twenty rules, 2,000 stacks of twenty resources each, in every language, on two cores.
//! Writes its section of `benches/figures.md` when run with `KONVERGE_WRITE_PERFORMANCE=1`.
//!
//! `cargo bench --bench policy`; needs no part.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

use std::{
    fs,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use konverge_base::model::{
    RepoPath, StackId,
    health::HealthReport,
    plan::{Action, Basis, ChangeOrigin, FieldChange, ResourcePlan, StackPlan},
    plan_document::StackDocument,
    spec::RuntimeKind,
};
use konverge_config::Config;
use konverge_kubernetes::health::run_lua;
use konverge_policy_sets::{
    self as policy_sets, PolicyFile, PolicySet, PolicySets,
    workers::{RuleLimits, RuleWorkers},
};
use konverge_secrets::{HashKey, Secrets};
use konverge_testkit::{performance, process::peak_kib};
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const STACKS: usize = 2_000;
const RESOURCES: usize = 20;
const RULES: usize = 20;
const CORES: usize = 2;

/// The bounds: seconds, and MiB of memory.
const TIME: f64 = 2.0;
const MEMORY: f64 = 150.0;

struct Measured {
    name: &'static str,
    /// With workers: on the clock, and of the processors of all processes.
    wall: Duration,
    all: Duration,
    /// The same in this process, without workers.
    here: Duration,
    processor: Duration,
    memory: f64,
    findings: usize,
}

fn main() {
    let only = std::env::args()
        .nth(1)
        .filter(|argument| !argument.starts_with('-'));
    let kinds: [(&str, &str, Vec<PolicyFile>); 4] = [
        ("Rego on the plan", "input: plan", rego(true)),
        ("Rego on each object", "input: objects", rego(false)),
        ("ValidatingAdmissionPolicies", "language: vap", admission()),
        ("Gatekeeper", "language: gatekeeper", gatekeeper()),
    ];
    let mut measured = Vec::new();
    for (name, settings, files) in kinds {
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let one = measure(name, settings, &files);
        println!(
            "{name}: {:.2} s, {:.2} s of processors; without workers {:.2} s, {:.2} s of processors, {:.0} MiB; {} findings",
            one.wall.as_secs_f64(),
            one.all.as_secs_f64(),
            one.here.as_secs_f64(),
            one.processor.as_secs_f64(),
            one.memory,
            one.findings
        );
        measured.push(one);
    }
    let scripts = measure_scripts();
    println!(
        "a readiness script: {:.2} ms in this process, {:.2} ms in a worker, {:.0} ms to start one",
        milliseconds(scripts.here),
        milliseconds(scripts.worker),
        milliseconds(scripts.start)
    );
    if std::env::var_os("KONVERGE_WRITE_PERFORMANCE").is_some() {
        write(&measured, &scripts);
    }
}

/// The medians of a readiness script in Lua on one object.
struct MeasuredScripts {
    here: Duration,
    worker: Duration,
    /// With the first result.
    start: Duration,
}

/// In the form of Argo CD's scripts: it walks the conditions, compares numbers and builds a message.
const SCRIPT: &str = r#"
local health = {status = "Progressing", message = "waits for its parts"}
if obj.status == nil then return health end
local ready, messages = 0, {}
for _, condition in ipairs(obj.status.conditions or {}) do
  if condition.type == "Degraded" and condition.status == "True" then
    return {status = "Degraded", message = condition.reason .. ": " .. condition.message}
  end
  if string.match(condition.type, "^Part%-(%d+)$") and condition.status == "True" then ready = ready + 1 end
  table.insert(messages, string.format("%s is %s", condition.type, string.lower(condition.status)))
end
if obj.status.observedGeneration == obj.metadata.generation and ready == obj.spec.parts then
  return {status = "Healthy", message = table.concat(messages, ", ")}
end
return health
"#;

fn measure_scripts() -> MeasuredScripts {
    let parts = 60;
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "Assembly", "metadata": {"name": "shop", "generation": 3},
        "spec": {"parts": parts, "template": object(0, 0).1},
        "status": {"observedGeneration": 3, "conditions": (0..parts).map(|part| json!({
            "type": format!("Part-{part}"), "status": "True", "reason": "Ready", "message": "has its replicas",
            "lastTransitionTime": "2026-11-30T03:00:00Z", "observedGeneration": 3,
        })).collect::<Vec<_>>()},
    });
    let healthy = |report: Result<Option<HealthReport>, String>| {
        assert!(report.unwrap().unwrap().message.starts_with("Part-0 is true"));
    };
    let here = median((0..1_000).map(|_| {
        let started = Instant::now();
        healthy(run_lua(SCRIPT, &object));
        started.elapsed()
    }));
    let pool = || RuleWorkers::new(Some(env!("CARGO_BIN_EXE_konverge").into()), RuleLimits::default());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let call = |workers: &RuleWorkers| {
        let started = Instant::now();
        healthy(runtime.block_on(workers.run_script(SCRIPT, &object)));
        started.elapsed()
    };
    let start = median((0..30).map(|_| call(&pool())));
    let workers = pool();
    call(&workers);
    MeasuredScripts {
        here,
        worker: median((0..1_000).map(|_| call(&workers))),
        start,
    }
}

fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<_> = times.collect();
    times.sort();
    times[times.len() / 2]
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

fn sets(settings: &str, files: &[PolicyFile]) -> PolicySets {
    let config = Config::parse(&format!("policy: {{sets: [{{name: s, path: p, {settings}}}]}}\n")).unwrap();
    PolicySets::new(vec![PolicySet::load(&config.policy.sets[0], files, &[])], &[])
}

/// The documents are made one after another, as in a preview, and only the evaluation is timed.
fn measure(name: &'static str, settings: &str, files: &[PolicyFile]) -> Measured {
    let before = resident();
    let started = Instant::now();
    let sets = sets(settings, files);
    let rules: Vec<_> = sets
        .iter()
        .map(|set| set.source().unwrap().parse().unwrap())
        .collect();
    let loaded = started.elapsed();
    let (sets, rules) = (&sets, &rules);
    let work = |core: usize| {
        let (mut wall, mut processor, mut findings) = (Duration::ZERO, Duration::ZERO, 0);
        for number in (core..STACKS).step_by(CORES) {
            let document = document(number);
            let (started, used) = (Instant::now(), processor_time());
            let secrets = Secrets::new(HashKey::derive("k"));
            let outcomes = rules.iter().map(|rules| Ok(rules.outcomes(&document))).collect();
            let found = sets.findings_from(&document, Timestamp::now(), &secrets, outcomes);
            wall += started.elapsed();
            processor += processor_time().saturating_sub(used);
            findings += found.len();
            let error = found
                .iter()
                .find(|finding| finding.message.contains("could not be evaluated"));
            assert!(error.is_none(), "{error:?}");
        }
        (wall, processor, findings)
    };
    let parts: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..CORES).map(|core| scope.spawn(move || work(core))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let memory = peak().max(before) - before;
    let (wall, all) = apart(sets, parts.iter().map(|part| part.2).sum());
    let measured = Measured {
        name,
        wall,
        all,
        here: loaded + parts.iter().map(|part| part.0).max().unwrap(),
        processor: loaded + parts.iter().map(|part| part.1).sum::<Duration>(),
        memory,
        findings: parts.iter().map(|part| part.2).sum(),
    };
    assert!(measured.findings > 0, "{name} finds nothing");
    measured
}

/// The time with workers: from the first document until the last finding, and that of the processors.
fn apart(sets: &PolicySets, findings: usize) -> (Duration, Duration) {
    let workers = RuleWorkers::new(Some(env!("CARGO_BIN_EXE_konverge").into()), RuleLimits::default());
    let secrets = Secrets::new(HashKey::derive("k"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let work = |core: usize| {
        let (sets, workers, secrets) = (sets.clone(), workers.clone(), secrets.clone());
        runtime.spawn(async move {
            let (mut wall, mut made, mut found) = (Duration::ZERO, Duration::ZERO, 0);
            for number in (core..STACKS).step_by(CORES) {
                let used = processor_time();
                let document = Arc::new(document(number));
                made += processor_time().saturating_sub(used);
                let started = Instant::now();
                let about: Vec<_> = sets.about(&document).collect();
                let outcomes = workers.outcomes(&about, &document).await;
                let findings = sets.findings_from(&document, Timestamp::now(), &secrets, outcomes);
                wall += started.elapsed();
                found += findings.len();
                // Without sets it is made and dropped, too.
                let used = processor_time();
                drop(document);
                made += processor_time().saturating_sub(used);
            }
            (wall, made, found)
        })
    };
    let before = process_time();
    let started: Vec<_> = (0..CORES).map(work).collect();
    let parts: Vec<_> = started
        .into_iter()
        .map(|part| runtime.block_on(part).unwrap())
        .collect();
    assert_eq!(parts.iter().map(|part| part.2).sum::<usize>(), findings);
    let made: Duration = parts.iter().map(|part| part.1).sum();
    let of_workers: Duration = workers.idle_pids().into_iter().map(time_of).sum();
    let all = (process_time() - before).saturating_sub(made) + of_workers;
    (parts.into_iter().map(|part| part.0).max().unwrap(), all)
}

/// The time that this process was on processors.
fn process_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap().into()
}

/// The same of another one, to a hundredth of a second.
fn time_of(process: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = text.rsplit_once(") ").unwrap();
    let ticks = fields
        .split(' ')
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().unwrap());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// The time that this thread was on a processor, until now: `/proc/thread-self/schedstat` has that of the last tick of the kernel.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// The memory of the process, whose highest value counts from now on.
fn resident() -> f64 {
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
}

fn peak() -> f64 {
    peak_kib(std::process::id()).unwrap() as f64 / 1024.0
}

/// A stack of Deployments, Services and ConfigMaps, of which a few break a rule.
fn document(number: usize) -> StackDocument {
    let stack: StackId = format!("project-{number:04}/prod").parse().unwrap();
    let plans = (0..RESOURCES).map(|at| {
        let (id, object) = object(number, at);
        let change = FieldChange {
            path: "".into(),
            from: None,
            to: Some(object),
            origin: ChangeOrigin::Change,
        };
        ResourcePlan::new(
            &stack,
            id.parse().unwrap(),
            RuntimeKind::Kubernetes,
            Action::Create,
            vec![change],
        )
    });
    let plan = StackPlan::new(RepoPath::root(), stack.clone(), Basis::Live, plans.collect());
    policy_sets::document(&plan, Vec::new())
}

fn object(number: usize, at: usize) -> (String, Value) {
    let namespace = format!("project-{number:04}");
    let name = format!("part-{at:02}");
    let labels =
        json!({"app.kubernetes.io/name": name, "app.kubernetes.io/instance": namespace, "team": "shop"});
    let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
    // One stack of a hundred has something to find.
    let tag = if number.is_multiple_of(100) && at == 0 {
        "latest"
    } else {
        "1.4.2"
    };
    let container = json!({
        "name": "main", "image": format!("registry.example.com/shop/{name}:{tag}"),
        "ports": [{"name": "http", "containerPort": 8080}],
        "env": (0..8).map(|n| json!({"name": format!("KEY_{n}"), "value": format!("value of {n}")})).collect::<Vec<_>>(),
        "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": {"runAsNonRoot": true, "privileged": false},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10},
    });
    match at % 3 {
        0 => (
            format!("apps/v1:Deployment:{namespace}:{name}"),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {
                "replicas": 3, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"serviceAccountName": name, "containers": [container]}},
            }}),
        ),
        1 => (
            format!("v1:Service:{namespace}:{name}"),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {
                "type": "ClusterIP", "selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
            }}),
        ),
        _ => (
            format!("v1:ConfigMap:{namespace}:{name}"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {
                "application.yaml": "server:\n  port: 8080\n".repeat(10), "level": "info",
            }}),
        ),
    }
}

fn file(path: &str, text: String) -> PolicyFile {
    PolicyFile {
        path: path.to_owned(),
        text,
    }
}

/// Twenty rules of five forms.
fn rego(whole: bool) -> Vec<PolicyFile> {
    let bodies = [
        "some container in object.spec.template.spec.containers\n\tendswith(container.image, \":latest\")\n\tmsg := sprintf(\"%s moves\", [container.image])",
        "object.kind == \"Deployment\"\n\tsome container in object.spec.template.spec.containers\n\tnot container.resources.limits.memory\n\tmsg := sprintf(\"%s has no limit\", [container.name])",
        "object.kind == \"Service\"\n\tobject.spec.type == \"LoadBalancer\"\n\tnot object.metadata.labels.public\n\tmsg := \"a public service\"",
        "object.kind == \"Deployment\"\n\trequired := {\"team\", \"app.kubernetes.io/name\"}\n\tmissing := required - {key | some key, _ in object.metadata.labels}\n\tcount(missing) > 0\n\tmsg := sprintf(\"no labels %v\", [missing])",
        "object.kind == \"ConfigMap\"\n\tsome key, value in object.data\n\tregex.match(`^-----BEGIN`, value)\n\tmsg := sprintf(\"%s is a key\", [key])",
    ];
    let object = if whole {
        "some resource in input.resources\n\tobject := resource.after"
    } else {
        "object := input"
    };
    let rules: String = (0..RULES)
        .map(|n| {
            format!(
                "deny_{n:02} contains msg if {{\n\t{object}\n\t{}\n}}\n\n",
                bodies[n % bodies.len()]
            )
        })
        .collect();
    vec![file("p/rules.rego", format!("package main\n\n{rules}"))]
}

fn admission() -> Vec<PolicyFile> {
    let rules = [
        (
            "apps",
            "deployments",
            "object.spec.template.spec.containers.all(c, !c.image.endsWith(':latest'))",
        ),
        (
            "apps",
            "deployments",
            "object.spec.template.spec.containers.all(c, quantity(c.resources.limits.memory).isLessThan(quantity('1Gi')))",
        ),
        (
            "",
            "services",
            "object.spec.type != 'LoadBalancer' || has(object.metadata.labels.public)",
        ),
        (
            "*",
            "*",
            "['team', 'app.kubernetes.io/name'].all(k, k in object.metadata.labels)",
        ),
        (
            "",
            "configmaps",
            "object.data.all(k, !object.data[k].matches('^-----BEGIN'))",
        ),
    ];
    let texts = (0..RULES).map(|n| {
        let (group, resource, expression) = rules[n % rules.len()];
        format!("apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: p{n}}}\nspec:\n  matchConstraints: {{resourceRules: [{{apiGroups: ['{group}'], apiVersions: ['*'], operations: [CREATE, UPDATE], resources: ['{resource}']}}]}}\n  validations: [{{expression: \"{expression}\"}}]\n---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {{name: b{n}}}\nspec: {{policyName: p{n}, validationActions: [Deny]}}\n---\n")
    });
    vec![file("p/policies.yaml", texts.collect())]
}

fn gatekeeper() -> Vec<PolicyFile> {
    let rules = [
        (
            "apps",
            "Deployment",
            "container := input.review.object.spec.template.spec.containers[_]\n        endswith(container.image, input.parameters.tag)\n        msg := sprintf(\"%v moves\", [container.image])",
        ),
        (
            "apps",
            "Deployment",
            "container := input.review.object.spec.template.spec.containers[_]\n        not container.resources.limits.memory\n        msg := sprintf(\"%v has no limit\", [container.name])",
        ),
        (
            "",
            "Service",
            "input.review.object.spec.type == \"LoadBalancer\"\n        not input.review.object.metadata.labels.public\n        msg := \"a public service\"",
        ),
        (
            "*",
            "*",
            "required := {\"team\", \"app.kubernetes.io/name\"}\n        missing := required - {key | input.review.object.metadata.labels[key]}\n        count(missing) > 0\n        msg := sprintf(\"no labels %v\", [missing])",
        ),
        (
            "",
            "ConfigMap",
            "value := input.review.object.data[key]\n        re_match(`^-----BEGIN`, value)\n        msg := sprintf(\"%v is a key\", [key])",
        ),
    ];
    let templates = rules.iter().enumerate().map(|(n, (_, _, body))| {
        format!("apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nmetadata: {{name: rule{n}}}\nspec:\n  crd: {{spec: {{names: {{kind: Rule{n}}}, validation: {{openAPIV3Schema: {{type: object, properties: {{tag: {{type: string}}}}}}}}}}}}\n  targets:\n  - target: admission.k8s.gatekeeper.sh\n    rego: |\n      package rule{n}\n\n      violation[{{\"msg\": msg}}] {{\n        {body}\n      }}\n---\n")
    });
    let constraints = (0..RULES).map(|n| {
        let (group, kind, _) = rules[n % rules.len()];
        format!("{{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: Rule{}, metadata: {{name: c{n}}}, spec: {{match: {{kinds: [{{apiGroups: ['{group}'], kinds: ['{kind}']}}]}}, parameters: {{tag: ':latest'}}}}}}\n---\n", n % rules.len())
    });
    vec![file("p/all.yaml", templates.chain(constraints).collect())]
}

fn write(measured: &[Measured], scripts: &MeasuredScripts) {
    let rows: String = measured
        .iter()
        .map(|one| {
            format!(
                "| {} | {:.2} s | {:.2} s | {:.2} s | {:.2} s | {:.0} MiB |\n",
                one.name,
                one.all.as_secs_f64() / CORES as f64,
                one.wall.as_secs_f64(),
                one.here.as_secs_f64(),
                one.processor.as_secs_f64(),
                one.memory
            )
        })
        .collect();
    let scripts = format!(
        "| in the process of the run | {:.2} ms |\n| in a worker that runs | {:.2} ms |\n| in a new worker | {:.0} ms |\n",
        milliseconds(scripts.here),
        milliseconds(scripts.worker),
        milliseconds(scripts.start)
    );
    performance::write(
        "policy",
        &format!(
            "## Policy sets\n\n{RULES} rules on {STACKS} stacks of {RESOURCES} resources, in worker processes on {CORES} cores, without the planning. The first figure is the processor time of all processes, divided by the cores. Without workers it is not divided. The memory is what that process grew by. Bounds: {TIME:.0} s and {MEMORY:.0} MiB.\n\n| rules | processors, by core | clock | clock without workers | processors then | memory then |\n|---|---|---|---|---|---|\n{rows}\nA readiness script in Lua, as Argo CD has them, on an object of 60 conditions. Medians.\n\n| a verdict | time |\n|---|---|\n{scripts}\n`KONVERGE_WRITE_PERFORMANCE=1 cargo bench --bench policy` writes this."
        ),
    );
}
