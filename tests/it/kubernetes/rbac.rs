//! Who asks, what may be asked, and how much at once: credentials from a plugin, a right that is missing, the budget of
//! a cluster.

use std::sync::{Arc, Mutex};

use konverge_engine::runtime::RunNotes;
use serde_json::{Value, json};

use crate::support::{
    cluster::{Cluster, TOKEN_OF_PLUGIN, User},
    container::Container,
    faulty_api_server::{Faults, Proxy},
    objects::Objects,
    stack::{TestStack, spec},
    tiny_monorepo,
};

fn config_map(ns: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": ns}, "data": {"k": "1"}})
}

/// Gives the user without permissions these rules in a namespace.
async fn allow_nobody(objects: &Objects, ns: &str, rules: &Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let version = format!("{GROUP}/v1");
    let metadata = json!({"name": "allowed", "namespace": ns});
    let role = json!({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules});
    let binding = json!({"apiVersion": version, "kind": "RoleBinding", "metadata": metadata,
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": User::Nobody.name()}],
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "allowed"}});
    objects.create(&role).await;
    objects.create(&binding).await;
}

#[tokio::test]
async fn credentials_come_from_a_plugin() {
    let cluster = Cluster::shared();
    let (ns, folder) = (
        cluster.namespace("plugin").await,
        tempfile::TempDir::new().unwrap(),
    );
    let map = config_map(&ns, "c");
    let mut stack = TestStack::new(
        "plugin",
        cluster.kubeconfig_with_plugin(folder.path(), TOKEN_OF_PLUGIN),
    );
    stack.apply(std::slice::from_ref(&map)).await;
    assert!(Objects::of(cluster).await.get(&map).await.is_some());

    // What it was given and what it answered may be secret.
    let broken = "echo $THE_TOKEN; echo the session has expired >&2; exit 3";
    let babbling = "echo \"{token: $THE_TOKEN\"";
    for (script, words) in [
        (broken, "the session has expired"),
        (babbling, "not an `ExecCredential`"),
    ] {
        stack.act_as(cluster.kubeconfig_with_plugin(folder.path(), script));
        let failure = stack
            .try_plan(&spec(std::slice::from_ref(&map)))
            .await
            .err()
            .unwrap();
        assert!(
            failure.message.contains("plugin") && failure.message.contains(words),
            "{failure:?}"
        );
        assert!(
            !failure.hints.is_empty() && !format!("{failure:?}").contains("token-of"),
            "{failure:?}"
        );
    }
}

/// A token that no kubeconfig holds is known once it was used, and what a plugin says is told without it.
#[tokio::test]
async fn what_a_plugin_answers_is_masked() {
    let cluster = Cluster::shared();
    let (ns, folder) = (
        cluster.namespace("plugin-masked").await,
        tempfile::TempDir::new().unwrap(),
    );
    let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    let token = config["users"][0]["user"]["token"].as_str().unwrap().to_owned();
    let file = folder.path().join("the-token");
    std::fs::write(&file, &token).unwrap();
    let without_environment = |script: &str| {
        let kubeconfig = cluster.kubeconfig_with_plugin(folder.path(), script);
        let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&kubeconfig).unwrap()).unwrap();
        let exec = config["users"][0]["user"]["exec"].as_object_mut().unwrap();
        exec.remove("env");
        exec.insert("interactiveMode".to_owned(), json!("IfAvailable"));
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        kubeconfig
    };
    let cat = format!("$(cat {})", file.display());
    let told = format!(
        r#"echo "{{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \"status\": {{\"token\": \"{cat}\"}}}}""#
    );
    let map = config_map(&ns, "c");
    let mut stack = TestStack::new("plugin-masked", without_environment(&told));
    assert_eq!(stack.secrets.mask_finished(&token), token);
    stack.apply(std::slice::from_ref(&map)).await;
    assert!(Objects::of(cluster).await.get(&map).await.is_some());
    assert_eq!(
        stack.secrets.mask_finished(&format!("Bearer {token}")),
        "Bearer ***"
    );

    let complaint =
        format!("echo \"the token={cat} has expired, Bearer another-$((1+1))-t0ken\" >&2; exit 3");
    stack.act_as(without_environment(&complaint));
    let failure = stack
        .try_plan(&spec(std::slice::from_ref(&map)))
        .await
        .err()
        .unwrap();
    assert!(
        failure.message.contains("the token=*** has expired, Bearer ***"),
        "{failure:?}"
    );
}

/// A service account that may do everything, and a token of it.
async fn robot(cluster: &Cluster, ns: &str) -> String {
    let objects = Objects::of(cluster).await;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": ns}});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": format!("robot-of-{ns}")},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": ns}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}});
    objects.create(&account).await;
    objects.create(&binding).await;
    let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
    let path = format!("/api/v1/namespaces/{ns}/serviceaccounts/robot/token");
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(wanted.to_string().into_bytes())
        .unwrap();
    let answer: Value = cluster.client().await.request(request).await.unwrap();
    answer["status"]["token"].as_str().unwrap().to_owned()
}

fn asked_as_robot(cluster: &Cluster, ns: &str, what: &str) -> bool {
    let name = format!("system:serviceaccount:{ns}:robot");
    let mut asked = cluster.audit().into_iter();
    asked.any(|event| event.user.username == name && event.uri.contains(what))
}

/// A service account's token is an OpenID Connect token as any provider's: this server trusts its own issuer.
#[tokio::test]
async fn credentials_come_from_an_oidc_provider() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("oidc").await;
    let token = robot(cluster, &ns).await;
    let folder = tempfile::TempDir::new().unwrap();
    let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    let provider = json!({"client-id": "konverge", "idp-issuer-url": "https://kubernetes.default.svc", "id-token": token});
    config["users"][0]["user"] = json!({"auth-provider": {"name": "oidc", "config": provider}});
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let map = config_map(&ns, "c");
    let mut stack = TestStack::new("oidc", kubeconfig);
    stack.apply(std::slice::from_ref(&map)).await;
    assert!(Objects::of(cluster).await.get(&map).await.is_some());
    assert!(asked_as_robot(cluster, &ns, "/configmaps/c"));
}

/// The kubelet mounts token and authority where a pod's programs look for them, and names the server in variables.
#[tokio::test]
async fn credentials_are_the_pods_own_service_account() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("pod").await;
    let folder = tempfile::TempDir::new().unwrap();
    let account = folder.path().join("account");
    std::fs::create_dir_all(&account).unwrap();
    std::fs::write(account.join("token"), robot(cluster, &ns).await).unwrap();
    std::fs::write(account.join("namespace"), &ns).unwrap();
    std::fs::copy(cluster.path("ca.crt"), account.join("ca.crt")).unwrap();
    let monorepo = tiny_monorepo::monorepo();
    tiny_monorepo::write_stack(&monorepo, "pod/dev", &format!("{ns}-new"), "info");
    monorepo
        .write(
            "konverge.yaml",
            "version: 1\nclusters: {here: {in_cluster: true}}\n",
        )
        .commit("A stack");
    let preview = ["/usr/local/bin/konverge", "preview", "--all", "--output=json"];
    let root = folder.path().join("root");
    std::fs::create_dir_all(&root).unwrap();
    let mut container = Container::new(&root);
    container.shared(monorepo.path(), "/work");
    let run = |container: &Container| {
        let port = cluster.url().rsplit(':').next().unwrap();
        container
            .run(0, "/work", &preview)
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env("KUBERNETES_SERVICE_PORT", port)
            .run()
    };
    let outside = run(&container).expect(1);
    assert!(
        outside
            .stdout
            .contains("this is not a pod with a service account"),
        "{}",
        outside.stdout
    );
    container.read_only(&account, "/var/run/secrets/kubernetes.io/serviceaccount");
    let inside = run(&container).expect(0);
    let plan: Value = serde_json::from_str(&inside.stdout).unwrap();
    assert_eq!(plan["stacks"][0]["basis"], "live", "{plan}");
    assert_eq!(plan["stacks"][0]["summary"]["create"], 2, "{plan}");
    assert!(asked_as_robot(cluster, &ns, "dryRun"));
}

/// What may not be looked at is not taken for an object that is not there, nor for one that is gone.
#[tokio::test]
async fn what_may_not_be_read_is_neither_new_nor_gone() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("unreadable").await, Objects::of(cluster).await);
    let rules =
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch", "delete"]}]);
    allow_nobody(&objects, &ns, &rules).await;
    let mut stack = TestStack::new("unreadable", cluster.kubeconfig());
    // Few are read one by one, many are listed.
    for count in [1, 5] {
        let maps: Vec<_> = (0..count).map(|n| config_map(&ns, &format!("c{n}"))).collect();
        stack.act_as(cluster.kubeconfig());
        stack.apply(&maps).await;
        stack.act_as(cluster.kubeconfig_of(User::Nobody));
        for wanted in [&maps[..], &[]] {
            let failure = stack
                .try_plan(&spec(wanted))
                .await
                .err()
                .expect("it cannot be seen");
            let said = &failure.message;
            assert!(
                said.contains("cannot get") || said.contains("cannot list"),
                "{said}"
            );
            assert!(!failure.hints.is_empty(), "{failure:?}");
        }
    }
}

/// Who may not list webhooks and policies cannot know that they did not change: the server is asked for each object.
#[tokio::test]
async fn without_the_right_to_see_admission_nothing_is_proven_unchanged() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("admission").await, Objects::of(cluster).await);
    let all = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    allow_nobody(&objects, &ns, &all).await;
    let maps = [config_map(&ns, "a"), config_map(&ns, "b")];
    let mut stack = TestStack::new("admission", cluster.kubeconfig());
    for (kubeconfig, expected) in [
        (cluster.kubeconfig(), 0),
        (cluster.kubeconfig_of(User::Nobody), maps.len()),
    ] {
        stack.act_as(kubeconfig);
        stack.apply(&maps).await;
        let before = cluster.audit().len();
        assert_eq!(stack.plan_well(&maps).await.public.summary.unchanged, maps.len());
        let audit = cluster.audit();
        let asked = audit[before..]
            .iter()
            .filter(|event| event.is_in(&ns) && event.verb == "patch");
        assert_eq!(asked.count(), expected);
    }
}

/// Without the right to read `kube-system` an object that is still there proves which cluster it is. Where nothing is
/// left to prove it, nothing is created a second time.
#[tokio::test]
async fn a_cluster_that_cannot_be_told_stops_the_stack_only_where_nothing_is_left_of_it() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("untold").await, Objects::of(cluster).await);
    let all = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    allow_nobody(&objects, &ns, &all).await;
    let maps = [config_map(&ns, "a"), config_map(&ns, "b")];
    let mut stack = TestStack::new("untold", cluster.kubeconfig());
    stack.apply(&maps).await;
    stack.act_as(cluster.kubeconfig_of(User::Nobody));
    assert_eq!(stack.plan_well(&maps).await.public.summary.unchanged, 2);
    objects.delete(&maps[0]).await;
    assert_eq!(stack.plan_well(&maps).await.public.summary.create, 1);
    objects.delete(&maps[1]).await;
    let failure = stack.try_plan(&spec(&maps)).await.err().expect("it stops");
    let hints = failure.hints.join("\n");
    assert!(
        failure.message.contains("is unknown: none of its applied"),
        "{failure:?}"
    );
    for word in [
        "`get` the namespace `kube-system`",
        "konverge state rebind test/untold",
    ] {
        assert!(hints.contains(word), "{hints}");
    }

    // What was never recorded cannot be compared: that is said once, with the right that is missing.
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&said);
    let mut other = TestStack::new("untold-other", cluster.kubeconfig_of(User::Nobody));
    other.options.notes = RunNotes::new(move |note| heard.lock().unwrap().push(note.text));
    let plan = other
        .plan_well(&[config_map(&ns, "c"), config_map(&ns, "d")])
        .await;
    other.carry_out(plan).await;
    let said = said.lock().unwrap();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("right to `get` the namespace `kube-system`"),
        "{said:?}"
    );
}

#[tokio::test]
async fn a_cluster_has_one_budget_of_requests() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("budget").await;
    let maps: Vec<_> = (0..40).map(|n| config_map(&ns, &format!("c{n}"))).collect();
    let proxy = Proxy::start(cluster, Faults::slow()).await;
    let mut stack = TestStack::new("budget", proxy.kubeconfig());
    for (requests, least, most) in [(Some(2), 2, 2), (None, 3, 16)] {
        stack.requests = requests;
        stack.apply(&maps).await;
        let seen = proxy.most_at_once();
        assert!((least..=most).contains(&seen), "{requests:?}: {seen} at once");
        stack.apply(&[]).await;
        proxy.most_at_once();
    }
}
