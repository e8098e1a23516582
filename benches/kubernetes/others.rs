//! What Konverge is held against: `kubectl`, and a bare client that does the least that can be done.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use http::Request;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    ROUNDS, objects,
    support::{self, cluster::Cluster},
};

/// Server-side apply of new objects by a bare client, so many at once.
pub async fn creates(cluster: &Cluster, size: usize, width: usize) -> Duration {
    let ns = cluster.namespace("bare").await;
    let all = objects(&ns, size);
    let started = Instant::now();
    send_all(cluster, &all, width, "").await;
    started.elapsed()
}

/// What a first apply asks of the server and no more: each object's dry run, and then each object's write.
pub async fn asks_and_creates(cluster: &Cluster, size: usize, width: usize) -> Duration {
    let ns = cluster.namespace("both").await;
    let all = objects(&ns, size);
    let started = Instant::now();
    send_all(cluster, &all, width, "&dryRun=All").await;
    send_all(cluster, &all, width, "").await;
    started.elapsed()
}

async fn send_all(cluster: &Cluster, all: &[Value], width: usize, query: &str) {
    let client = cluster.client().await;
    stream::iter(all)
        .for_each_concurrent(width, |object| {
            let client = client.clone();
            async move {
                let path = support::objects::path(object, true);
                let request = Request::patch(format!("{path}?fieldManager=bare{query}"))
                    .header("content-type", "application/apply-patch+yaml")
                    .body(object.to_string().into_bytes())
                    .unwrap();
                client.request_text(request).await.unwrap();
            }
        })
        .await;
}

/// The LISTs of a namespace, all kinds at once, the answers only looked through for the next page.
pub async fn lists(cluster: &Cluster, ns: &str) -> Duration {
    let client = cluster.client().await;
    let collections = [
        format!("/api/v1/namespaces/{ns}/configmaps"),
        format!("/api/v1/namespaces/{ns}/services"),
        format!("/api/v1/namespaces/{ns}/secrets"),
        format!("/apis/apps/v1/namespaces/{ns}/deployments"),
    ];
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        futures::future::join_all(collections.iter().map(|path| pages(&client, path))).await;
        best = best.min(started.elapsed());
    }
    best
}

async fn pages(client: &kube::Client, path: &str) {
    let mut next = String::new();
    loop {
        let uri = match next.as_str() {
            "" => format!("{path}?limit=500"),
            token => format!("{path}?limit=500&continue={token}"),
        };
        let request = Request::get(uri).body(Vec::new()).unwrap();
        let page = client.request_text(request).await.unwrap();
        // The token stands at the head of the answer.
        let head = &page.as_bytes()[..page.len().min(2000)];
        let head = String::from_utf8_lossy(head);
        let token = head.split("\"continue\":\"").nth(1);
        next = token
            .and_then(|rest| rest.split('"').next())
            .unwrap_or_default()
            .to_owned();
        if next.is_empty() {
            return;
        }
    }
}

pub fn kubectl_apply(cluster: &Cluster, objects: &[Value]) -> Duration {
    kubectl(
        cluster,
        &["apply", "--server-side", "-f", "objects.json"],
        objects,
    )
}

/// Of objects that are as wanted, under our own name as field manager: there is no difference.
pub fn kubectl_diff(cluster: &Cluster, stack: &str, objects: &[Value]) -> Duration {
    let mut owned = objects.to_vec();
    for object in &mut owned {
        object["metadata"]["annotations"] = json!({"konverge/stack": stack});
    }
    let arguments = [
        "diff",
        "--server-side",
        "--field-manager=konverge",
        "-f",
        "objects.json",
    ];
    kubectl(cluster, &arguments, &owned)
}

/// A run with the objects in `objects.json`, its discovery cached.
fn kubectl(cluster: &Cluster, arguments: &[&str], objects: &[Value]) -> Duration {
    let home = TempDir::new().unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(home.path().join("objects.json"), list.to_string()).unwrap();
    run(cluster, home.path(), &["api-resources"]);
    run(cluster, home.path(), arguments)
}

fn run(cluster: &Cluster, home: &Path, arguments: &[&str]) -> Duration {
    let started = Instant::now();
    let ended = Command::new(support::executable("kubectl", "kubectl"))
        .env("HOME", home)
        .env_remove("KUBECTL_EXTERNAL_DIFF")
        .current_dir(home)
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig())
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let took = started.elapsed();
    assert!(
        ended.status.success(),
        "kubectl {arguments:?}: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
    took
}
