//! Konverge against `kubectl` and against a bare client, on one real API server in one run: ratios, and requests
//! counted; and the scheduler by itself.
//!
//! `scripts/parts install test bench`, then `cargo bench --bench kubernetes`. `KONVERGE_BENCH_SIZES=1000,5000` says how
//! many objects; with `KONVERGE_WRITE_PERFORMANCE=1` the section of `benches/figures.md` is written.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods
)]

#[path = "../../tests/it/support/mod.rs"]
mod support;

mod command;
mod others;
mod page;
mod processor;
mod scheduler;

use std::{sync::Arc, time::Duration, time::Instant};

use command::{Command, Namespace};
use konverge_engine::{EnginePlan, RuntimeRegistry};
use konverge_kubernetes::Kubernetes;
use page::{Measured, Page};
use serde_json::{Value, json};
use support::{
    cluster::Cluster,
    stack::{TestStack, spec},
};

/// Runs of what takes little time; the best counts.
const ROUNDS: usize = 7;
/// What writes is measured by turns, as often as there are widths for the bare client.
const WIDTHS: [usize; 3] = [16, 32, 64];
/// The two shapes of a Spec, and what their first applies are called.
const SHAPES: [Namespace; 2] = [Namespace::There, Namespace::Own];
const FIRST_APPLIES: [&str; 2] = ["first apply", "first apply, with its Namespace"];
/// Up to so many objects `kubectl apply` is waited for.
const APPLIED_BY_KUBECTL: usize = 1000;

fn main() {
    // `cargo test --benches` only sees that it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let mut page = Page::default();
    let sizes = std::env::var("KONVERGE_BENCH_SIZES").unwrap_or_else(|_| "1000,5000".to_owned());
    for size in sizes.split(',').map(|size| size.trim().parse().unwrap()) {
        runtime.block_on(measure(size, &mut page));
    }
    say(format_args!("the scheduler"));
    scheduler::measure(&mut page);
    let text = page.text();
    println!("{text}");
    if std::env::var_os("KONVERGE_WRITE_PERFORMANCE").is_some() {
        page::write_section(&text);
    }
}

/// 40 % ConfigMaps of 1 KB, 30 % Deployments, 20 % Services, 10 % Secrets.
fn objects(ns: &str, count: usize) -> Vec<Value> {
    let meta = |n: usize| json!({"name": format!("o{n}"), "namespace": ns, "labels": {"app": format!("o{n}"), "bench": "yes"}});
    (0..count)
        .map(|n| match n % 10 {
            0..4 => json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(n), "data": {"text": "x".repeat(1000), "n": n.to_string()}}),
            4..7 => json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta(n), "spec": {"replicas": 1, "selector": {"matchLabels": {"app": format!("o{n}")}},
                "template": {"metadata": {"labels": {"app": format!("o{n}")}}, "spec": {"containers": [{"name": "web", "image": "nginx:1", "ports": [{"containerPort": 80}],
                    "env": [{"name": "N", "value": n.to_string()}], "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]}}}}),
            7..9 => json!({"apiVersion": "v1", "kind": "Service", "metadata": meta(n), "spec": {"selector": {"app": format!("o{n}")}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}),
            _ => json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta(n), "data": {"password": "c2VjcmV0LW9mLXRoZS1iZW5jaA=="}}),
        })
        .collect()
}

/// What is measured now: the whole takes minutes.
fn say(what: std::fmt::Arguments<'_>) {
    eprintln!("measuring {what}");
}

/// How many LISTs find that many objects, 500 at a time.
fn lists(count: usize) -> u64 {
    [4, 3, 2, 1]
        .iter()
        .map(|tenths| (count * tenths / 10).div_ceil(500) as u64)
        .sum()
}

async fn measure(size: usize, page: &mut Page) {
    let (mut bare, mut both, mut writing) = (Duration::MAX, Duration::MAX, Measured::NOTHING);
    let mut whole = [Measured::NOTHING, Measured::NOTHING];
    let mut last = None;
    for (round, width) in WIDTHS.into_iter().enumerate() {
        say(format_args!(
            "{size} objects, round {} of {}",
            round + 1,
            WIDTHS.len()
        ));
        // A server that holds more is a slower one: each starts with an empty one.
        bare = bare.min(others::creates(&Cluster::start(), size, width).await);
        both = both.min(others::asks_and_creates(&Cluster::start(), size, width).await);
        for (shape, whole) in SHAPES.into_iter().zip(&mut whole) {
            let cluster = Cluster::start();
            let wanted = shape.objects(&cluster, size).await;
            let applied = Command::new(&cluster, &wanted).apply();
            *whole = std::mem::replace(whole, Measured::NOTHING).best(applied);
        }
        let cluster = Cluster::start();
        let ns = cluster.namespace("bench").await;
        let wanted = objects(&ns, size);
        let mut stack = TestStack::new("bench", cluster.kubeconfig());
        let kubernetes = stack.kubernetes().await;
        let runtimes = RuntimeRegistry::new().with(kubernetes.clone());
        writing = writing.best(write(&mut stack, &kubernetes, &runtimes, &wanted).await);
        last = Some((cluster, ns, wanted, stack, kubernetes, runtimes));
    }
    for ((shape, whole), what) in SHAPES.into_iter().zip(&whole).zip(FIRST_APPLIES) {
        if size <= APPLIED_BY_KUBECTL {
            say(format_args!("{size} objects, kubectl: {what}"));
            let cluster = Cluster::start();
            let wanted = shape.objects(&cluster, size).await;
            let kubectl = others::kubectl_apply(&cluster, &wanted);
            page.faster(what, size, whole, "`kubectl apply --server-side`", kubectl);
            if shape == Namespace::There {
                page.bound(size, Some(kubectl), bare, both);
            }
        } else if shape == Namespace::There {
            page.bound(size, None, bare, both);
        }
        page.longer(what, size, whole, "bare client, dry runs and creates", both);
        page.processor(what, size, whole);
    }
    page.memory("first apply", size, whole[0].memory);
    page.longer(
        "first apply, writing alone",
        size,
        &writing,
        "bare client, creates",
        bare,
    );

    say(format_args!("{size} objects, nothing changed"));
    let (cluster, ns, wanted, stack, kubernetes, runtimes) = last.unwrap();
    nothing_changed(&cluster, size, page).await;
    let all_unchanged = |plan: &EnginePlan| {
        assert_eq!(
            plan.public.summary.unchanged,
            size,
            "{:?}",
            plan.public.resources.first()
        )
    };
    let unchanged = best(&stack, &kubernetes, &runtimes, &wanted, all_unchanged).await;
    assert_eq!(
        unchanged.requests,
        lists(size),
        "an unchanged object costs a request of its own"
    );
    let mut edited = wanted.clone();
    for object in edited.iter_mut().step_by(size / 10).take(10) {
        object["metadata"]["labels"]["bench"] = json!("edited");
    }
    let ten_updated = |plan: &EnginePlan| assert_eq!(plan.public.summary.update, 10);
    let ten = best(&stack, &kubernetes, &runtimes, &edited, ten_updated).await;
    assert_eq!(ten.requests, unchanged.requests + 10);
    let bare = others::lists(&cluster, &ns).await;
    page.longer(
        "unchanged, planning alone",
        size,
        &unchanged,
        "bare LISTs, not parsed",
        bare,
    );
    page.longer(
        "10 changed, planning alone",
        size,
        &ten,
        "unchanged, planning alone",
        unchanged.took,
    );
}

/// The whole command against `kubectl`'s whole command, on objects that are as they were applied.
async fn nothing_changed(cluster: &Cluster, size: usize, page: &mut Page) {
    let wanted = Namespace::There.objects(cluster, size).await;
    let command = Command::new(cluster, &wanted);
    command.apply();
    let unchanged = command.preview();
    let diff = others::kubectl_diff(cluster, "bench/command", &wanted);
    page.faster(
        "unchanged",
        size,
        &unchanged,
        "`kubectl diff --server-side`",
        diff,
    );
    page.memory("preview, unchanged", size, unchanged.memory);
    page.processor("unchanged", size, &unchanged);
}

/// Plans everything as new and carries it out; what the carrying out takes.
async fn write(
    stack: &mut TestStack,
    kubernetes: &Arc<Kubernetes>,
    runtimes: &RuntimeRegistry,
    wanted: &[Value],
) -> Measured {
    let plan = stack.plan_on(runtimes, spec(wanted)).await.unwrap();
    assert_eq!(
        plan.public.summary.create,
        wanted.len(),
        "{:?}",
        plan.failures.first()
    );
    let (before, started) = (kubernetes.requests(), Instant::now());
    let outcome = stack.carry_out(plan).await;
    let took = started.elapsed();
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    Measured {
        took,
        requests: kubernetes.requests() - before,
        ..Measured::NOTHING
    }
}

/// From a compiled Spec and an opened state to the plan, discovery cached.
async fn best(
    stack: &TestStack,
    kubernetes: &Arc<Kubernetes>,
    runtimes: &RuntimeRegistry,
    wanted: &[Value],
    check: impl Fn(&EnginePlan),
) -> Measured {
    let spec = spec(wanted);
    let mut best = Measured::NOTHING;
    for _ in 0..ROUNDS {
        let spec = spec.clone();
        let (before, started) = (kubernetes.requests(), Instant::now());
        let plan = stack.plan_on(runtimes, spec).await.unwrap();
        let took = started.elapsed();
        check(&plan);
        best = best.best(Measured {
            took,
            requests: kubernetes.requests() - before,
            ..Measured::NOTHING
        });
    }
    best
}
