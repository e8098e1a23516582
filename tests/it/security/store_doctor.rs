//! What `konverge doctor` says of secret stores that need no login.

use serde_json::{Value, json};

use crate::support::{cluster::Cluster, identities::User, process::Outcome, shop_monorepo::Shop};

/// Verdict, text and remedies of the finding of a store.
fn finding(outcome: &Outcome, store: &str) -> (String, String) {
    let document = outcome.json();
    let findings = document["findings"].as_array().unwrap().iter();
    let mut of_store = findings.filter(|finding| finding["what"] == format!("secret store {store}"));
    let found: &Value = of_store.next().unwrap_or_else(|| panic!("{}", outcome.stdout));
    (found["verdict"].as_str().unwrap().to_owned(), found.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_asks_stores_of_every_kind() {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("store-doctor").await;
    let allow = |paths: &str| json!([{"stacks": "**", "paths": paths}]);
    let stores = json!({
        "job": {"kind": "env", "allow": allow("PAY_PASSWORD")},
        "any": {"kind": "env", "allow": allow("PAY_*")},
        "files": {"kind": "sops", "allow": allow("secrets/*")},
        "here": {"kind": "kubernetes", "allow": allow(&format!("{namespace}/*"))},
        "anywhere": {"kind": "kubernetes", "allow": allow("*/shared")},
    });
    let config = json!({"version": 1, "clusters": {"test": {}}, "secrets": {"stores": stores}});
    let shop = Shop::new(
        &config.to_string(),
        &[("KUBECONFIG", cluster.kubeconfig().as_path())],
    );
    shop.wants("prod", &[]);
    let doctor = || shop.konverge(&["doctor", "--output", "json"]);
    let expect = |outcome: &Outcome, store: &str, verdict: &str, says: &str| {
        let (found, text) = finding(outcome, store);
        assert!(found == verdict && text.contains(says), "{store}: {text}");
    };

    let well = doctor()
        .env("PAY_PASSWORD", "hunter2-of-the-doctor")
        .env("SOPS_AGE_KEY", "# mine\nAGE-SECRET-KEY-1QQQ")
        .run();
    expect(&well, "job", "ok", "1 allowed variable set; 0 patterns");
    expect(&well, "any", "ok", "1 pattern");
    expect(&well, "files", "ok", "1 identity of age, 0 key services");
    let may = format!("may read the Secrets of {namespace}");
    expect(&well, "here", "ok", &may);
    expect(&well, "anywhere", "ok", "the cluster responds");
    assert!(!well.stdout.contains("hunter2") && !well.stdout.contains("1QQQ"));

    let at_home = doctor().run();
    expect(&at_home, "job", "unused", "PAY_PASSWORD is not set here");
    expect(&at_home, "files", "unused", "`SOPS_AGE_KEY` is not set");
    let in_job = doctor()
        .env("GITHUB_ACTIONS", "true")
        .env("SOPS_AGE_KEY", "age1public")
        .run();
    expect(&in_job, "job", "missing", "`PAY_PASSWORD` is not set in this job");
    expect(&in_job, "files", "missing", "a line that is not an age identity");
    let nobody = doctor()
        .env("KUBECONFIG", cluster.kubeconfig_of(User::Nobody))
        .run();
    expect(
        &nobody,
        "here",
        "missing",
        "may not get Secrets in this namespace",
    );
    expect(&nobody, "anywhere", "ok", "the cluster responds");
    let gone = doctor().env("KUBECONFIG", "/nowhere").run();
    expect(&gone, "here", "missing", "could not be read");
}
