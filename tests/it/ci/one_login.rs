//! A run connects to each cluster once: its plans, its writes and the secrets that it reads there use one connection. A
//! login is what a connection costs; it is counted by the plugin that gives the credentials.

use std::path::PathBuf;

use serde_json::json;

use crate::support::{
    ci_stage::Stage, cluster::TOKEN_OF_PLUGIN, objects::Objects, process::Outcome, tiny_monorepo,
};

/// The logins at the cluster, one line each.
struct Logins {
    file: PathBuf,
    kubeconfig: PathBuf,
    seen: usize,
}

impl Logins {
    fn new(stage: &Stage) -> Self {
        let folder = stage.scratch.path().join("login");
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("logins");
        let script = format!("echo login >> '{}'\n{TOKEN_OF_PLUGIN}", file.display());
        Self {
            file,
            kubeconfig: stage.cluster.kubeconfig_with_plugin(&folder, &script),
            seen: 0,
        }
    }

    /// How many there were since the last call.
    fn more(&mut self) -> usize {
        let lines = std::fs::read_to_string(&self.file).unwrap_or_default();
        let before = std::mem::replace(&mut self.seen, lines.lines().count());
        self.seen - before
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_and_a_command_log_in_to_a_cluster_once() {
    let store = "secrets: {stores: {platform: {kind: kubernetes, allow: [{stacks: 'appops/**', paths: '*/source'}]}}}\n";
    let mut stage = Stage::small(store).await;
    let namespace = stage.cluster.namespace("one-login").await;
    let mut logins = Logins::new(&stage);
    stage.env = vec![("KUBECONFIG", logins.kubeconfig.display().to_string())];
    let object = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}});
    let mut source = object("source");
    source["stringData"] = json!({"password": "from-the-cluster"});
    let objects = Objects::of(stage.cluster).await;
    objects.create(&source).await;

    // It reads the version of the secret, and compares with the cluster.
    let (_, preview) = stage.reviewed(7, "pay", |stage| {
        let mut pay = object("pay");
        pay["stringData"] = json!({"password": format!("ref+platform://{namespace}/source#/password")});
        let program = format!("resources = [{pay}]\n");
        tiny_monorepo::write_program(&stage.monorepo, "logins/dev", &program);
    });
    assert!(preview.summary.contains("logins/dev"), "{}", preview.summary);
    assert_eq!(logins.more(), 1, "a preview");

    // It reads the value, and writes it.
    stage.merge(7, "pay").outcome.check(0);
    assert_eq!(logins.more(), 1, "an apply");
    let pay = objects.get(&object("pay")).await.expect("it was applied");
    assert_eq!(pay["data"]["password"], "ZnJvbS10aGUtY2x1c3Rlcg==");

    // The same by hand, and what looks at the clusters alone.
    let mut by_hand = |arguments: &[&'static str]| -> Outcome {
        let konverge = stage.konverge(arguments.iter().copied());
        let outcome = konverge.env("KUBECONFIG", &logins.kubeconfig).run();
        assert_eq!(logins.more(), 1, "{arguments:?}: {}", outcome.stderr);
        outcome
    };
    by_hand(&["preview", "--all", "--live", "required"]).expect(0);
    by_hand(&["apply", "--all", "--yes"]).expect(0);
    by_hand(&["doctor"]);
}
