//! What 500 references to secrets cost a run: an apply of ten Secrets with them, beside one of the same Secrets with
//! plain values, and the requests of the store alone. Each request of the store takes 20 ms. Writes its section of
//! `benches/figures.md` when run with `KONVERGE_WRITE_PERFORMANCE=1`.
//!
//! `cargo bench --bench secrets`; needs `scripts/parts install kcl control-plane`.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

#[path = "../tests/it/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use serde_json::{Map, Value, json};
use support::{
    cluster::Cluster,
    shop_monorepo::{Shop, resource},
    vault::FakeVault,
};

const SECRETS: usize = 10;
const KEYS: usize = 50;
const LATENCY: Duration = Duration::from_millis(20);
/// How many requests are sent at once, by Konverge and by the bare client.
const AT_ONCE: usize = 16;
const ROUNDS: usize = 5;
/// What the references may add, in times of the bare client.
const BOUND: f64 = 1.5;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(bench());
}

async fn bench() {
    let (cluster, vault) = (Cluster::shared(), FakeVault::start().await);
    for number in 0..SECRETS * KEYS {
        vault.put(&path(number), json!({"password": value(number)}));
    }
    vault.allow("bench", &["secret/metadata/", "secret/data/"]);
    vault.be_slow(LATENCY);
    let token = vault.token("bench");
    let config = format!(
        "clusters: {{test: {{}}}}\nsecrets: {{stores: {{db: {{kind: vault, address: '{}', mount: secret, allow: [{{stacks: '**', paths: '**'}}]}}}}}}\n",
        vault.address()
    );
    let namespace = cluster.namespace("bench-secrets").await;
    let shop = Shop::new(&config, &[("KUBECONFIG", cluster.kubeconfig().as_path())]);
    let run = |arguments: &[&str]| {
        let started = Instant::now();
        shop.konverge(arguments)
            .env("VAULT_TOKEN", &token)
            .run()
            .expect(0);
        started.elapsed()
    };
    let apply = |text: &dyn Fn(usize) -> String| {
        shop.wants("prod", &secrets(&namespace, text));
        let previewed = run(&["preview", "--all", "--live", "required"]);
        let applied = run(&["apply", "--all", "--yes", "--no-wait"]);
        run(&["destroy", "shop/prod", "--yes"]);
        (previewed, applied)
    };
    let (mut plain, mut refers, mut store) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(apply(&value));
        vault.requests();
        refers.push(apply(&|number| format!("ref+db://{}#/password", path(number))));
        let asked = vault.requests().len();
        assert!(asked <= 2 * SECRETS * KEYS + 10, "{asked} requests");
        store.push(bare(&vault, &token).await);
    }
    let of = |times: &[(Duration, Duration)], pick: fn(&(Duration, Duration)) -> Duration| {
        median(times.iter().map(pick).collect())
    };
    let own = median(store);
    let row = |what: &str, pick: fn(&(Duration, Duration)) -> Duration| {
        let (without, with) = (of(&plain, pick), of(&refers, pick));
        let ratio = with.saturating_sub(without).as_secs_f64() / own.as_secs_f64();
        println!("{what}: {ratio:.2}");
        assert!(ratio <= BOUND, "{what} adds more than {BOUND} times");
        format!(
            "| {what} | {:.2} s | {:.2} s | {ratio:.2} |\n",
            without.as_secs_f64(),
            with.as_secs_f64()
        )
    };
    let rows = [
        row("preview, which reads the versions", |times| times.0),
        row("apply, which reads the values", |times| times.1),
    ];
    let section = format!(
        "## References to secrets\n\n{} references in {SECRETS} Secrets of one stack. The store takes {} ms a request, {AT_ONCE} at once; a bare client takes {:.2} s. The last column is what the references add, as a multiple of that. Medians of {ROUNDS} rounds alternately. Bound: {BOUND}.\n\n| command | plain values | references | added |\n|---|---|---|---|\n{}\n`KONVERGE_WRITE_PERFORMANCE=1 cargo bench --bench secrets` writes this.",
        SECRETS * KEYS,
        LATENCY.as_millis(),
        own.as_secs_f64(),
        rows.concat()
    );
    println!("{section}");
    if std::env::var_os("KONVERGE_WRITE_PERFORMANCE").is_some() {
        support::performance::write("secrets", &section);
    }
}

fn path(number: usize) -> String {
    format!("pay/s{number:03}")
}

fn value(number: usize) -> String {
    format!("Kq7w-{number:03}-zX9v")
}

fn secrets(namespace: &str, text: &dyn Fn(usize) -> String) -> Vec<Value> {
    let secret = |at: usize| {
        let keys = (0..KEYS).map(|key| (format!("k{key}"), json!(text(at * KEYS + key))));
        let metadata = json!({"name": format!("bench-{at}"), "namespace": namespace});
        let texts: Map<String, Value> = keys.collect();
        resource(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": texts}))
    };
    (0..SECRETS).map(secret).collect()
}

/// The time of the same requests, one for each secret, by a client that does nothing else.
async fn bare(vault: &FakeVault, token: &str) -> Duration {
    let client = reqwest::Client::new();
    let started = Instant::now();
    let requests = (0..SECRETS * KEYS).map(|number| {
        let url = format!("{}/v1/secret/data/{}", vault.address(), path(number));
        let request = client.get(url).header("x-vault-token", token);
        async move {
            let answer = request.send().await.unwrap().error_for_status().unwrap();
            assert!(answer.bytes().await.unwrap().len() > 10);
        }
    });
    stream::iter(requests)
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    started.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
