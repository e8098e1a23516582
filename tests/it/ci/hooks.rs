//! Jobs that are hooks, in jobs of GitHub Actions: what reviewers and policy sets see of them, what a failed one leaves
//! on record, and that drift checks ignore them. The cluster's controllers and its node are real enough to run them.

use serde_json::{Value, json};

use crate::support::{
    ci_stage::Stage,
    cluster::{Cluster, EVICTED},
    objects::Objects,
    tiny_monorepo,
    vault::FakeVault,
    webhook_receiver::{self, Seen},
};

const ACCOUNTS: &str = "apply: {hooks: {service_accounts: [default]}}\n";
const NOTIFY: &str = "notify:\n- {kind: webhook, url_env: HOOK_URL, key_env: HOOK_KEY}\n";

fn deployment(ns: &str, image: &str) -> Value {
    let pod = json!({"containers": [{"name": "app", "image": image}]});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": ns},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod}}})
}

fn job(ns: &str, name: &str, time: &str) -> Value {
    let pod =
        json!({"restartPolicy": "Never", "containers": [{"name": "job", "image": "example.com/job:1"}]});
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": ns, "annotations": {"konverge/hook": time}},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}}})
}

/// Writes a stack of these objects.
fn write(stage: &Stage, id: &str, objects: &[Value]) {
    let objects = json!(objects);
    let program = format!("import json\n\nresources = json.decode(r'''{objects}''')\n");
    tiny_monorepo::write_program(&stage.monorepo, id, &program);
}

/// A stage on a cluster whose pods run.
async fn stage(config: &str) -> Stage {
    let mut stage = Stage::small(config).await;
    stage.cluster = Cluster::with_controllers();
    stage
}

/// The topic and the stacks of what was told since the last call.
fn told(heard: &Seen) -> Vec<(String, Value)> {
    let heard = std::mem::take(&mut *heard.lock().unwrap());
    let told = heard.iter().map(|(_, body)| {
        let document: Value = serde_json::from_str(body).unwrap();
        (webhook_receiver::topic(body), document["stacks"].clone())
    });
    told.collect()
}

async fn has_digest(stage: &Stage, stack: &str) -> bool {
    let found = stage.states().await.load(&stack.parse().unwrap()).await.unwrap();
    found.unwrap().state.input_digest.is_some()
}

/// The review of a change of the image: the comment, the page, the plan document, the JSON and the policy sets have the
/// hooks as `run`. What ran does not come back as drift.
#[tokio::test(flavor = "multi_thread")]
async fn reviewers_and_policy_sets_see_that_a_hook_runs_and_drift_checks_ignore_it() {
    let rules = "policy:\n  sets:\n  - {name: jobs, path: ops/policy, enforce: advise}\n";
    let mut stage = stage(&format!("{ACCOUNTS}{rules}")).await;
    let warn = "package main\n\nwarn contains msg if {\n\tsome resource in input.resources\n\tresource.action == \"run\"\n\tmsg := sprintf(\"%s runs\", [resource.id])\n}\n";
    stage.monorepo.write("ops/policy/jobs.rego", warn).commit("Rules");
    let ns = stage.cluster.namespace("ci-hooks").await;
    let objects = Objects::of(stage.cluster).await;
    let wanted = |image: &str| {
        [
            deployment(&ns, image),
            job(&ns, "migrate", "pre"),
            job(&ns, "smoke", "post"),
        ]
    };
    stage.reviewed(7, "first", |stage| write(stage, "hooked/dev", &wanted("web:1")));
    stage.merge(7, "first").outcome.check(0);
    for name in ["migrate", "smoke"] {
        let live = objects.get(&job(&ns, name, "")).await.unwrap();
        assert_eq!(live["status"]["succeeded"], 1, "{live}");
    }

    let (_, previewed) = stage.reviewed(8, "second", |stage| write(stage, "hooked/dev", &wanted("web:2")));
    let comment = stage.comments().pop().unwrap().1;
    let page = std::fs::read_to_string(previewed.output("summary-path")).unwrap();
    let id = format!("batch/v1:Job:{ns}:migrate");
    for (name, text) in [("comment", &comment), ("page", &page)] {
        for words in ["2 to run", &id, "it runs before Deployment", "because its"] {
            assert!(text.contains(words), "{name}: {words}: {text}");
        }
        assert!(
            // In the comment the id is code.
            text.replace('`', "").contains(&format!("{id} runs")),
            "{name}: the policy set: {text}"
        );
    }
    let result = std::fs::read_to_string(previewed.output("result-path")).unwrap();
    let result: Value = serde_json::from_str(&result).unwrap();
    let stack = &result["stacks"][0];
    assert_eq!(
        (&stack["summary"]["run"], &stack["summary"]["update"]),
        (&json!(2), &json!(1)),
        "{result}"
    );
    stage.monorepo.checkout("second");
    let document = stage
        .konverge(["preview", "--live", "required", "--output", "plan"])
        .run()
        .expect(0)
        .stdout;
    let document: Value = serde_json::from_str(&document).unwrap();
    let resources = document["stacks"][0]["resources"].as_array().unwrap();
    let of = |name: &str| {
        let suffix = format!(":{name}");
        let found = resources
            .iter()
            .find(|one| one["id"].as_str().unwrap().ends_with(&suffix));
        found.unwrap()["action"].clone()
    };
    assert_eq!(
        [of("migrate"), of("web"), of("smoke")],
        ["run", "update", "run"],
        "{document}"
    );
    let merged = stage.merge(8, "second");
    merged.outcome.check(0);

    // Somebody deletes one Job and changes another one.
    objects.delete(&job(&ns, "migrate", "")).await;
    let change = json!({"metadata": {"labels": {"by": "hand"}}});
    objects.merge(&job(&ns, "smoke", ""), "somebody", &change).await;
    let calm = stage.schedule();
    calm.outcome.check(0);
    assert_eq!(calm.output("has-drift"), "false", "{}", calm.summary);
    // A workload that it guards differs: that is drift, and restoring it runs nothing.
    let scaled = json!({"spec": {"replicas": 2}});
    objects.merge(&deployment(&ns, ""), "somebody", &scaled).await;
    let drifted = stage.schedule();
    assert_eq!(drifted.output("has-drift"), "true", "{}", drifted.summary);
    assert!(!drifted.summary.contains("to run"), "{}", drifted.summary);
    let restored = stage.approve(&drifted.output("drift-digests"));
    restored.outcome.check(0);
    assert_eq!(
        objects.get(&deployment(&ns, "")).await.unwrap()["spec"]["replicas"],
        1
    );
    assert!(objects.get(&job(&ns, "migrate", "")).await.is_none());
}

/// Each bad hook is an error of the preview, with the file, the object and what to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_hook_is_refused_in_the_preview_with_file_object_and_remedy() {
    let mut stage = Stage::small(ACCOUNTS).await;
    let ns = stage.cluster.namespace("ci-bad-hooks").await;
    let web = deployment(&ns, "web:1");
    let of = |name: &str, time: &str, after: &[&str]| {
        let id = format!("batch/v1:Job:{ns}:{name}");
        let after: Vec<_> = after.iter().map(|id| id.replace("NS", &ns)).collect();
        json!({"id": id, "type": "Kubernetes", "attributes": job(&ns, name, time), "dependsOn": after})
    };
    let web_id = format!("apps/v1:Deployment:{ns}:web");
    let web = json!({"id": web_id, "type": "Kubernetes", "attributes": web});
    let mut account = of("account", "pre", &[]);
    account["attributes"]["spec"]["template"]["spec"]["serviceAccountName"] = json!("admin");
    let mut restarts = of("restarts", "pre", &[]);
    restarts["attributes"]["spec"]["template"]["spec"]
        .as_object_mut()
        .unwrap()
        .remove("restartPolicy");
    let settings = json!({"id": format!("v1:ConfigMap:{ns}:settings"), "type": "Kubernetes", "attributes":
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": ns, "annotations": {"konverge/hook": "pre"}}}});
    let cases = [
        (
            "guards-nothing",
            vec![of("nothing", "pre", &["apps/v1:Deployment:NS:web"]), web.clone()],
            "batch/v1:Job:NS:nothing` guards nothing",
            "remove a `dependsOn`",
        ),
        (
            "circle",
            vec![
                of("first", "pre", &["batch/v1:Job:NS:second"]),
                of("second", "post", &[]),
                web.clone(),
            ],
            "hooks wait for each other",
            "remove one of these",
        ),
        (
            "account",
            vec![account, web.clone()],
            "batch/v1:Job:NS:account` uses the service account `admin`",
            "apply.hooks.service_accounts",
        ),
        (
            "restarts",
            vec![restarts, web.clone()],
            "batch/v1:Job:NS:restarts` has `restartPolicy: (not set)`",
            "`Never` or `OnFailure`",
        ),
        (
            "no-workload",
            vec![of("lonely", "post", &[])],
            "batch/v1:Job:NS:lonely` is `post`, but its stack has no workload",
            "move the Job into their stack",
        ),
        (
            "other-kind",
            vec![settings, web],
            "v1:ConfigMap:NS:settings` is not a Job",
            "move the annotation to a Job",
        ),
    ];
    stage.monorepo.checkout("main").branch("bad");
    for (name, objects, _, _) in &cases {
        write(&stage, &format!("{name}/dev"), objects);
    }
    stage.monorepo.commit("bad");
    let refused = stage.pull_request(7, "bad", "opened");
    refused.outcome.check(1);
    let said = &refused.outcome.stdout;
    for (name, _, what, remedy) in &cases {
        // The line of the Spec in the program that `write` makes.
        let file = format!("appops/{name}/dev/main.k:3");
        for words in [what.replace("NS", &ns).as_str(), remedy, &file] {
            assert!(said.contains(words), "{name}: {words}: {said}");
        }
    }
}

/// A `post` hook that fails: the new version is there, the stack has failed, and the next runs take it up until the
/// hook has ended well.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_post_hook_leaves_the_stack_pending() {
    let (url, heard) = webhook_receiver::receiver(Vec::new()).await;
    let mut stage = stage(&format!("{ACCOUNTS}{NOTIFY}")).await;
    stage.env = vec![("HOOK_URL", url), ("HOOK_KEY", "signing-key".to_owned())];
    let ns = stage.cluster.namespace("ci-hook-fails").await;
    let objects = Objects::of(stage.cluster).await;
    let mut smoke = job(&ns, "smoke", "post");
    smoke["spec"]["template"]["metadata"] = json!({"labels": {EVICTED: "true"}});
    stage.reviewed(7, "evicted", |stage| {
        write(stage, "smoked/dev", &[deployment(&ns, "web:1"), smoke.clone()]);
    });
    let failed = stage.merge(7, "evicted");
    failed.outcome.check(1);
    assert!(
        failed.outcome.stdout.contains("Evicted"),
        "{}",
        failed.outcome.stdout
    );
    assert_eq!(told(&heard), [("hook-failed".to_owned(), json!(["smoked/dev"]))]);
    assert!(objects.get(&deployment(&ns, "")).await.is_some());
    assert_eq!(stage.receipt("smoked/dev")["result"], "failed");
    assert!(!has_digest(&stage, "smoked/dev").await);
    let tip = stage.monorepo.rev("main");
    assert_eq!(stage.status(&tip, "konverge/apply").as_deref(), Some("failure"));

    // The same commit again: the hook alone is due, in another Job.
    let first = objects.get(&smoke).await.unwrap()["metadata"]["uid"].clone();
    stage.again().outcome.check(1);
    assert_ne!(objects.get(&smoke).await.unwrap()["metadata"]["uid"], first);
    assert!(!has_digest(&stage, "smoked/dev").await);
    told(&heard);

    let (_, _) = stage.reviewed(8, "roomy", |stage| {
        write(
            stage,
            "smoked/dev",
            &[deployment(&ns, "web:1"), job(&ns, "smoke", "post")],
        );
    });
    let comment = stage.comments().pop().unwrap().1;
    assert!(comment.contains("1 to run"), "{comment}");
    stage.merge(8, "roomy").outcome.check(0);
    assert!(has_digest(&stage, "smoked/dev").await);
    assert_eq!(stage.receipt("smoked/dev")["result"], "applied");
    assert_eq!(told(&heard), [("apply-done".to_owned(), json!(["smoked/dev"]))]);
}

/// A new version of a secret is found by the drift check, which reads versions and no values.
#[tokio::test(flavor = "multi_thread")]
async fn a_drift_check_tells_of_a_new_version_of_a_secret() {
    let (url, heard) = webhook_receiver::receiver(Vec::new()).await;
    let vault = FakeVault::start().await;
    vault.allow("preview", &["secret/metadata/"]);
    vault.allow("apply", &["secret/metadata/", "secret/data/pay/"]);
    vault.put("pay/db", json!({"password": "first-value-41"}));
    let stores = format!(
        "secrets:\n  stores:\n    db:\n      kind: vault\n      address: {}\n      auth: {{method: jwt, role: apply, preview_role: preview}}\n      allow: [{{stacks: '**', paths: 'secret/pay/**'}}]\n",
        vault.address()
    );
    let mut stage = Stage::small(&format!("{stores}{NOTIFY}")).await;
    stage.env = vec![("HOOK_URL", url), ("HOOK_KEY", "signing-key".to_owned())];
    stage.env.extend(vault.job());
    let ns = stage.cluster.namespace("ci-rotated").await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pay", "namespace": ns},
        "stringData": {"password": "ref+vault://secret/pay/db#/password"}});
    stage.reviewed(7, "secret", |stage| write(stage, "vaulted/dev", &[secret]));
    stage.merge(7, "secret").outcome.check(0);
    stage.schedule().outcome.check(0);
    assert_eq!(told(&heard), [("apply-done".to_owned(), json!(["vaulted/dev"]))]);

    vault.put("pay/db", json!({"password": "second-value-42"}));
    vault.requests();
    let drifted = stage.schedule();
    drifted.outcome.check(0);
    let bodies = format!("{:?}", heard.lock().unwrap());
    assert!(!bodies.contains("value-4"), "{bodies}");
    assert_eq!(
        told(&heard),
        [
            ("drift".to_owned(), json!(["vaulted/dev"])),
            ("secret-rotated".to_owned(), json!(["vaulted/dev"]))
        ]
    );
    let asked = vault.requests();
    let paths: Vec<_> = asked.iter().map(|(_, path)| path.as_str()).collect();
    assert!(paths.contains(&"secret/metadata/pay/db"), "{asked:?}");
    assert!(!paths.contains(&"secret/data/pay/db"), "{asked:?}");
}

/// A pull request that adds a `pre-destroy` hook shows the Job, a policy set judges it, and its merge only records it.
/// What Helm and Argo CD make at times that do not exist here is made by no apply.
#[tokio::test(flavor = "multi_thread")]
async fn a_hook_for_later_is_shown_and_judged_and_a_test_of_helm_is_left_out() {
    let read = "apply: {hooks: {service_accounts: [default], read: [argocd, helm]}}\n";
    let rules = "policy:\n  sets:\n  - {name: jobs, path: ops/policy}\n";
    let mut stage = stage(&format!("{read}{rules}")).await;
    let deny = "package main\n\ndeny contains msg if {\n\tsome resource in input.resources\n\tresource.action == \"run\"\n\tresource.after.spec.template.spec.containers[0].image == \"example.com/evil:1\"\n\tmsg := sprintf(\"%s has an evil image\", [resource.id])\n}\n";
    stage.monorepo.write("ops/policy/jobs.rego", deny).commit("Rules");
    let ns = stage.cluster.namespace("ci-hooks-later").await;
    let objects = Objects::of(stage.cluster).await;
    let foreign = |name: &str, key: &str, value: &str| {
        let mut job = job(&ns, name, "");
        job["metadata"]["annotations"] = json!({key: value});
        job
    };
    let backup = |image: &str| {
        let mut job = job(&ns, "backup", "pre-destroy");
        job["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        job
    };
    let left_out = [
        foreign("helm-test", "helm.sh/hook", "test"),
        foreign("argo-skip", "argocd.argoproj.io/hook", "Skip"),
    ];
    let sync = foreign("argo-sync", "argocd.argoproj.io/hook", "Sync");
    let first = [&[deployment(&ns, "web:1"), sync.clone()][..], &left_out].concat();
    let (_, previewed) = stage.reviewed(7, "first", |stage| write(stage, "later/dev", &first));
    let comment = stage.comments().pop().unwrap().1;
    let page = std::fs::read_to_string(previewed.output("summary-path")).unwrap();
    for words in [
        "helm-test`: it is removed from the stack, and no apply creates it",
        "argo-skip`: it is removed from the stack",
    ] {
        assert!(
            page.contains(words) || comment.contains(words),
            "{words}: {comment}\n{page}"
        );
    }
    stage.merge(7, "first").outcome.check(0);
    for job in &left_out {
        assert!(objects.get(job).await.is_none(), "{job}");
    }
    assert!(objects.get(&sync).await.is_some());

    let with = |image: &str| [&first[..], &[backup(image)]].concat();
    let (_, evil) = stage.reviewed(8, "evil", |stage| {
        write(stage, "later/dev", &with("example.com/evil:1"))
    });
    let says = format!("`batch/v1:Job:{ns}:backup` has an evil image");
    assert!(evil.summary.contains(&says), "{}", evil.summary);
    stage.merge(8, "evil").outcome.check(3);
    let (_, good) = stage.reviewed(9, "good", |stage| {
        write(stage, "later/dev", &with("example.com/job:1"))
    });
    let comment = stage.comments().pop().unwrap().1;
    for words in [
        "1 to run",
        "it runs before the stack is deleted; this apply only records it",
    ] {
        assert!(
            comment.contains(words) || good.summary.contains(words),
            "{words}: {comment}"
        );
    }
    stage.merge(9, "good").outcome.check(0);
    assert!(objects.get(&backup("")).await.is_none(), "it is only recorded");
    assert!(has_digest(&stage, "later/dev").await);
    stage.again().outcome.check(0);
    assert_eq!(stage.receipt("later/dev")["result"], "applied");
}
