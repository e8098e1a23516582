//! Konverge against `kubectl` and against a bare client, on one real API server in one run: ratios, and requests counted.
//! Writes its section of `docs/performance.md`.
//!
//! `cargo bench --bench kubernetes` (parts installed by `scripts/parts`, `kubectl` on the PATH);
//! `KONVERGE_BENCH_SIZES=1000,5000`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    clippy::disallowed_methods
)]

#[path = "../tests/it/support/mod.rs"]
mod support;

use std::{
    fmt::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use http::Request;
use konverge::engine::Runtimes;
use serde_json::{Value, json};
use support::{
    cluster::Cluster,
    stack::{TestStack, spec},
};

const BEGIN: &str = "<!-- kubernetes:begin -->";
const END: &str = "<!-- kubernetes:end -->";

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let text = runtime.block_on(measure());
    println!("{text}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/performance.md");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let page = std::fs::read_to_string(&path).unwrap_or_else(|_| "# Performance\n".to_owned());
    let section = format!("{BEGIN}\n{text}{END}\n");
    let page = match (page.find(BEGIN), page.find(END)) {
        (Some(from), Some(to)) => format!(
            "{}{section}{}",
            &page[..from],
            page[to + END.len()..].trim_start_matches('\n')
        ),
        _ => format!("{}\n\n{section}", page.trim_end()),
    };
    std::fs::write(path, page).unwrap();
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

struct Timed {
    took: Duration,
    requests: u64,
}

async fn measure() -> String {
    let mut text = String::from(
        "## Kubernetes\n\nOne real kube-apiserver (v1.34) on etcd, loopback TLS, two cores shared by client and server; 40 % ConfigMaps of 1 KB, 30 % Deployments,\n\
         20 % Services, 10 % Secrets. Best of the runs named; read the ratios, not the seconds. Written by `cargo bench --bench kubernetes`.\n\n\
         | what | objects | Konverge | requests | against | ratio |\n|---|---|---|---|---|---|\n",
    );
    let sizes = std::env::var("KONVERGE_BENCH_SIZES").unwrap_or_else(|_| "1000,5000".to_owned());
    for size in sizes.split(',').map(|size| size.trim().parse::<usize>().unwrap()) {
        let cluster = Cluster::start();
        size_up(&cluster, size, &mut text).await;
    }
    let _ = writeln!(
        text,
        "\nPeak memory of the whole bench process, the bare client's answers included: {} MiB.",
        peak_mib()
    );
    text
}

async fn size_up(cluster: &Cluster, size: usize, text: &mut String) {
    let ns = cluster.namespace("bench").await;
    let wanted = objects(&ns, size);
    let mut stack = TestStack::new("bench", cluster.kubeconfig());
    let kubernetes = stack.kubernetes().await;
    let runtimes = Runtimes::new().with(kubernetes.clone());
    let start = Instant::now();
    let plan = stack.plan_on(&runtimes, &spec(&wanted)).await.unwrap();
    assert_eq!(plan.public.summary.create, size, "{:?}", plan.failures.first());
    let planned = start.elapsed();
    let outcome = stack.carry_out(plan).await;
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    let whole = Timed {
        took: start.elapsed(),
        requests: kubernetes.requests(),
    };
    let writing = whole.took - planned;

    if size <= 1000 {
        let bare = bare_creates(cluster, size).await;
        let apply_ns = cluster.namespace("kubectl").await;
        let file = manifest(&objects(&apply_ns, size));
        let kubectl = kubectl(
            cluster,
            &["apply", "--server-side", "-f", file.to_str().unwrap()],
            &[0],
        );
        row(
            text,
            "first apply, whole command, no waiting",
            size,
            &whole,
            "`kubectl apply --server-side`",
            kubectl,
            false,
        );
        row(
            text,
            "the same",
            size,
            &whole,
            "fastest parallel creates of a bare client",
            bare,
            true,
        );
        row(
            text,
            "its writing phase",
            size,
            &Timed {
                took: writing,
                requests: size as u64,
            },
            "fastest parallel creates of a bare client",
            bare,
            true,
        );
    }

    let mut unchanged = Timed {
        took: Duration::MAX,
        requests: 0,
    };
    for _ in 0..5 {
        let (before, start) = (kubernetes.requests(), Instant::now());
        let plan = stack.plan_on(&runtimes, &spec(&wanted)).await.unwrap();
        assert_eq!(
            plan.public.summary.unchanged,
            size,
            "{:?}",
            plan.public.resources.first()
        );
        let took = start.elapsed();
        if took < unchanged.took {
            unchanged = Timed {
                took,
                requests: kubernetes.requests() - before,
            };
        }
    }
    let memory = peak_mib();
    let mut edited = wanted.clone();
    for object in edited.iter_mut().step_by(size / 10).take(10) {
        object["metadata"]["labels"]["bench"] = json!("edited");
    }
    let (before, start) = (kubernetes.requests(), Instant::now());
    let plan = stack.plan_on(&runtimes, &spec(&edited)).await.unwrap();
    assert_eq!(plan.public.summary.update, 10);
    let ten = Timed {
        took: start.elapsed(),
        requests: kubernetes.requests() - before,
    };
    let cold = stack.kubernetes().await;
    let start = Instant::now();
    stack
        .plan_on(&Runtimes::new().with(cold.clone()), &spec(&wanted))
        .await
        .unwrap();
    let cold = Timed {
        took: start.elapsed(),
        requests: cold.requests(),
    };

    let lists = bare_lists(cluster, &ns).await;
    let file = manifest(&wanted);
    let diff = kubectl(
        cluster,
        &[
            "diff",
            "--server-side",
            "--field-manager=konverge",
            "-f",
            file.to_str().unwrap(),
        ],
        &[0, 1],
    );
    row(
        text,
        "nothing changed, discovery cached",
        size,
        &unchanged,
        "`kubectl diff --server-side`",
        diff,
        false,
    );
    row(
        text,
        "the same",
        size,
        &unchanged,
        "the bare LISTs, answers not even parsed",
        lists,
        true,
    );
    row(
        text,
        "nothing changed, first connection and discovery included",
        size,
        &cold,
        "`kubectl diff --server-side`",
        diff,
        false,
    );
    row(
        text,
        "10 changed",
        size,
        &ten,
        "nothing changed",
        unchanged.took,
        true,
    );
    let _ = writeln!(text, "| peak memory up to here | {size} | {memory} MiB | | | |");
}

/// `times faster` reads well where we are faster, `times as long` where the other is the floor.
fn row(
    text: &mut String,
    what: &str,
    size: usize,
    ours: &Timed,
    against: &str,
    theirs: Duration,
    floor: bool,
) {
    let ratio = if floor {
        format!(
            "{:.2} times as long",
            ours.took.as_secs_f64() / theirs.as_secs_f64()
        )
    } else {
        format!(
            "{:.0} times as fast",
            theirs.as_secs_f64() / ours.took.as_secs_f64()
        )
    };
    let _ = writeln!(
        text,
        "| {what} | {size} | {:.3} s | {} | {against}: {:.3} s | {ratio} |",
        ours.took.as_secs_f64(),
        ours.requests,
        theirs.as_secs_f64()
    );
}

/// Server-side apply of the same objects by a bare client, best of several widths.
async fn bare_creates(cluster: &Cluster, size: usize) -> Duration {
    let client = cluster.client().await;
    let mut best = Duration::MAX;
    for width in [16, 32, 64] {
        let ns = cluster.namespace("bare").await;
        let all = objects(&ns, size);
        let start = Instant::now();
        stream::iter(all)
            .for_each_concurrent(width, |object| {
                let client = client.clone();
                async move {
                    let path = support::objects::path(&object, true);
                    let request = Request::patch(format!("{path}?fieldManager=bare"))
                        .header("content-type", "application/apply-patch+yaml")
                        .body(object.to_string().into_bytes())
                        .unwrap();
                    client.request_text(request).await.unwrap();
                }
            })
            .await;
        best = best.min(start.elapsed());
    }
    best
}

async fn bare_lists(cluster: &Cluster, ns: &str) -> Duration {
    let client = cluster.client().await;
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        let lists = ["api/v1", "api/v1", "api/v1", "apis/apps/v1"].iter().zip([
            "configmaps",
            "services",
            "secrets",
            "deployments",
        ]);
        let lists: Vec<_> = lists
            .map(|(root, plural)| {
                let client = client.clone();
                let path = format!("/{root}/namespaces/{ns}/{plural}?limit=500");
                async move {
                    let mut next = String::new();
                    loop {
                        let uri = if next.is_empty() {
                            path.clone()
                        } else {
                            format!("{path}&continue={next}")
                        };
                        let page = client
                            .request_text(Request::get(uri).body(Vec::new()).unwrap())
                            .await
                            .unwrap();
                        // The token stands at the head of the answer.
                        let head = &page[..page.len().min(2000)];
                        next = head
                            .split("\"continue\":\"")
                            .nth(1)
                            .and_then(|rest| rest.split('"').next())
                            .unwrap_or_default()
                            .to_owned();
                        if next.is_empty() {
                            break;
                        }
                    }
                }
            })
            .collect();
        futures::future::join_all(lists).await;
        best = best.min(start.elapsed());
    }
    best
}

fn manifest(objects: &[Value]) -> std::path::PathBuf {
    let path = support::service::folder("bench").join("objects.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(&path, list.to_string()).unwrap();
    path
}

fn kubectl(cluster: &Cluster, arguments: &[&str], codes: &[i32]) -> Duration {
    let start = Instant::now();
    let ended = Command::new("kubectl")
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig())
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .expect("kubectl is on the PATH");
    assert!(
        ended.status.code().is_some_and(|code| codes.contains(&code)),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    start.elapsed()
}

fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or(0)
        / 1024
}
