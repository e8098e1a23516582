//! What fails in a rollout: a change that is held while others go, a hook, a stack that turns unready, a plan that is
//! refused.

use jiff::ToSpan;
use konverge_base::model::rollout::{RolloutPhase, RolloutRecord};
use serde_json::{Value, json};

use super::rollouts::{continued, people, phase, stacks};
use crate::{
    kubernetes::waiting_rollouts::{definition, healthy, paused, report, rollout},
    support::{
        ci_stage::Stage,
        cluster::{Cluster, EVICTED},
        objects::{Objects, path},
        payloads,
        prometheus::PrometheusServer,
        service::eventually,
        tiny_monorepo,
        webhook_receiver::{self, Seen},
    },
};

const NOTIFY: &str = "notify:\n- {kind: webhook, url_env: HOOK_URL, key_env: HOOK_KEY}\n";

/// Two waves. The gate between them asks `query`.
fn measured(query: &str, on_failure: &str) -> String {
    format!(
        "{NOTIFY}rollouts:\n- name: web\n  waves:\n  - {{match: 'appops/*/canary', bake: 1s, gates: [slo]}}\n  - {{match: 'appops/*/eu'}}\n  on_failure: {on_failure}\ngates: {{slo: {{prometheus: {{url_env: PROM_URL, query: {query}}}, pass: 'value < 0.3', fail: 'value > 0.4'}}}}\n"
    )
}

async fn record(stage: &Stage) -> RolloutRecord {
    stage.states().await.rollout("web").await.unwrap().unwrap().record
}

/// Writes a stack of these objects.
fn write(stage: &Stage, id: &str, objects: &[Value]) {
    let objects = json!(objects);
    let program = format!("import json\n\nresources = json.decode(r'''{objects}''')\n");
    tiny_monorepo::write_program(&stage.monorepo, id, &program);
}

/// What was told since the last call, with its stacks.
fn told(heard: &Seen) -> Vec<(String, Value)> {
    let heard = std::mem::take(&mut *heard.lock().unwrap());
    let told = heard.iter().map(|(_, body)| {
        let document: Value = serde_json::from_str(body).unwrap();
        (webhook_receiver::topic(body), document["stacks"].clone())
    });
    told.collect()
}

/// A merge of other stacks of the rollout goes its way, and leaves what failed as it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_to_another_app_does_not_apply_again_what_was_rolled_back() {
    let server = PrometheusServer::start(&[("bad", &[0.5, 0.5]), ("good", &[0.2, 0.2])]);
    let (url, heard) = webhook_receiver::receiver(Vec::new()).await;
    let names = ["canary", "eu"];
    let mut stage = Stage::small(&measured("good", "rollback")).await;
    stage.env = vec![
        ("PROM_URL", server.address()),
        ("HOOK_URL", url),
        ("HOOK_KEY", "signing-key".to_owned()),
    ];
    stage.reviewed(7, "first", |stage| stacks(stage, "held1", &names, "one"));
    stage.merge(7, "first").outcome.check(0);
    stage.monorepo.checkout("main");
    stage.configure(&measured("bad", "rollback"));
    stage.monorepo.commit("A gate that fails");
    stage.reviewed(8, "second", |stage| stacks(stage, "held1", &names, "two"));
    told(&heard);
    stage.merge(8, "second").outcome.check(3);
    assert_eq!(stage.value("held1-canary").await.as_deref(), Some("one"));
    // The receiver hears both, with the stacks that were rolled back.
    let events = told(&heard);
    for topic in ["rollout-failed", "rolled-back"] {
        let event = (topic.to_owned(), json!(["held1/canary"]));
        assert!(events.contains(&event), "{topic}: {events:?}");
    }
    // Of what was never tried nothing is told, and later runs tell nothing again.
    let is_failure = |(topic, _): &(String, Value)| topic == "apply-failed";
    assert!(!events.iter().any(is_failure), "{events:?}");
    for _ in 0..2 {
        continued(&mut stage).outcome.check(3);
        assert_eq!(told(&heard), []);
    }

    stage.monorepo.checkout("main");
    stage.configure(&measured("good", "rollback"));
    stage.monorepo.commit("A gate that passes");
    stage.reviewed(9, "other", |stage| stacks(stage, "held2", &names, "new"));
    let other = stage.merge(9, "other");
    other.outcome.check(3);
    for says in [
        "the rollout `web` failed with this change of held1/canary, so it is not applied again",
        "the rollout `web` failed with this change of held1/eu, so it is not applied again",
    ] {
        assert!(other.outcome.stdout.contains(says), "{}", other.outcome.stdout);
    }
    for name in names {
        let value = stage.value(&format!("held2-{name}")).await;
        assert_eq!(value.as_deref(), Some("new"), "{name}");
        let value = stage.value(&format!("held1-{name}")).await;
        assert_eq!(value.as_deref(), Some("one"), "{name}");
    }
    assert_eq!(phase(&stage).await.1, RolloutPhase::Done);
    let status = stage.konverge(["rollout", "status", "web"]).run();
    let says = "held: 2 changes that failed";
    assert!(status.stdout.contains(says), "{}", status.stdout);
    // A newer change of it lifts that.
    stage.reviewed(10, "third", |stage| stacks(stage, "held1", &names, "three"));
    let third = stage.merge(10, "third");
    third.outcome.check(0);
    assert_eq!(stage.value("held1-eu").await.as_deref(), Some("three"));
}

/// One at a time, and the first by name comes after the second.
#[tokio::test(flavor = "multi_thread")]
async fn a_wave_that_goes_one_by_one_follows_after() {
    let config = "stacks: [{match: 'appops/order/a', after: ['appops/order/b']}]\nrollouts: [{name: web, waves: [{match: 'appops/order/*', at_once: 1}]}]\n";
    let mut stage = Stage::small(config).await;
    stage.reviewed(7, "order", |stage| stacks(stage, "order", &["a", "b"], "one"));
    let merged = stage.merge(7, "order");
    merged.outcome.check(0);
    for name in ["a", "b"] {
        let value = stage.value(&format!("order-{name}")).await;
        assert_eq!(value.as_deref(), Some("one"), "{name}: {}", merged.outcome.stdout);
    }
    assert_eq!(phase(&stage).await.1, RolloutPhase::Done);
}

const APPROVED: &str = "rollouts:\n- name: web\n  waves:\n  - {match: 'appops/*/canary', gates: [go]}\n  - {match: 'appops/*/eu'}\ngates: {go: {approve: {by: [acme/sre]}}}\n";

/// `pause` and `resume` as commands; then the run that the author starts is approved in its environment by the team.
#[tokio::test(flavor = "multi_thread")]
async fn people_pause_and_resume_and_approve_a_wave_in_an_environment() {
    let mut stage = Stage::small(APPROVED).await;
    people(&stage);
    stage.reviewed(7, "first", |stage| {
        stacks(stage, "hands", &["canary", "eu"], "one")
    });
    stage.merge(7, "first").outcome.check(0);
    let command = |stage: &Stage, name: &str, code: i32| {
        stage.monorepo.checkout("main");
        let ran = stage
            .konverge(["rollout", name, "web", "--reason", "incident 42"])
            .run();
        ran.check(code);
        format!("{}{}", ran.stdout, ran.stderr)
    };
    let refused = command(&stage, "resume", 64);
    assert!(
        refused.contains("it is not paused and has not stopped"),
        "{refused}"
    );
    let says = command(&stage, "pause", 0);
    assert!(says.contains("the rollout web is paused"), "{says}");
    let refused = command(&stage, "pause", 64);
    assert!(refused.contains("it is paused already"), "{refused}");
    let paused = continued(&mut stage);
    paused.outcome.check(0);
    let says = "rollout web: the rollout is paused";
    assert!(paused.outcome.stderr.contains(says), "{}", paused.outcome.stderr);
    let says = command(&stage, "resume", 0);
    assert!(says.contains("continues with the next run"), "{says}");
    let asked = continued(&mut stage);
    asked.outcome.check(0);
    let digest = asked.digest();

    stage.env = vec![("KONVERGE_ENVIRONMENT", "production".to_owned())];
    let approval = |login: &str, environment: &str| json!({"state": "approved", "comment": "", "environments": [{"id": 1, "name": environment}], "user": {"login": login}});
    // The author gives the digest. Nobody of the team has approved the run, or only in another environment.
    for given in [approval("bob", "production"), approval("grace", "staging")] {
        stage
            .github
            .world(|world| world.run_approvals = vec![given.clone()]);
        let ran = stage.approve(&digest);
        let says = "the digest was approved by nobody of acme/sre";
        assert!(
            ran.outcome.stderr.contains(says),
            "{given}: {}",
            ran.outcome.stderr
        );
        assert_eq!(stage.value("hands-eu").await, None, "{given}");
    }
    let given = vec![approval("grace", "production")];
    stage.github.world(|world| world.run_approvals = given);
    stage.approve(&digest).outcome.check(0);
    assert_eq!(stage.value("hands-eu").await.as_deref(), Some("one"));
    assert_eq!(phase(&stage).await.1, RolloutPhase::Done);
}

/// A person aborts while a run waits for the end of the bake in its job: neither that run nor a later one goes on with
/// the commit, until somebody resumes.
#[tokio::test(flavor = "multi_thread")]
async fn an_abort_during_a_bake_holds_the_commit() {
    const BAKES: &str = "rollouts:\n- name: web\n  waves:\n  - {match: 'appops/*/canary', bake: 8s}\n  - {match: 'appops/*/eu'}\n";
    let names = ["canary", "eu"];
    let mut stage = Stage::small(BAKES).await;
    stage.reviewed(7, "first", |stage| stacks(stage, "bakes", &names, "one"));
    let (before, after) = stage.press_merge(7, "first");
    let payload = payloads::push("main", &before, &after, false);
    stage.monorepo.checkout(&after);
    let checkout = stage.monorepo.path().to_owned();
    let (konverge, _) = stage.prepared(&checkout, "push", &payload, &after, "refs/heads/main");
    let running = konverge.start();
    let states = stage.states().await;
    eventually("a bake", std::time::Duration::from_secs(120), || async {
        let stored = states.rollout("web").await.unwrap()?;
        (stored.record.phase == RolloutPhase::Baking).then_some(())
    })
    .await;
    let shown = stage
        .konverge(["rollout", "list", "--output", "json"])
        .run()
        .expect(0)
        .json();
    let rollout = &shown["rollouts"][0];
    assert_eq!(
        (&rollout["phase"], &rollout["wave"]),
        (&json!("baking"), &json!(1)),
        "{shown}"
    );
    assert!(rollout["until"].as_str() > rollout["since"].as_str(), "{shown}");
    let shown = stage.konverge(["rollout", "status", "web"]).run().expect(0);
    assert!(
        shown.stdout.contains("wave 1 of 2 of ") && shown.stdout.contains(", baking until 2"),
        "{}",
        shown.stdout
    );
    let command = |name: &str| {
        let ran = stage
            .konverge(["rollout", name, "web", "--reason", "incident 42"])
            .run();
        ran.check(0);
        ran.stderr
    };
    let says = command("abort");
    assert!(says.contains("its commit is held"), "{says}");
    running.wait().check(3);
    let held = stage.again();
    held.outcome.check(3);
    let says = "the rollout `web` was aborted with this change of bakes/eu, so it is not applied again";
    assert!(held.outcome.stdout.contains(says), "{}", held.outcome.stdout);
    assert_eq!(stage.value("bakes-eu").await, None);
    stage.monorepo.checkout("main");
    stage
        .konverge(["rollout", "resume", "web", "--reason", "it is well"])
        .run()
        .check(0);
    stage.again().outcome.check(0);
    assert_eq!(stage.value("bakes-eu").await.as_deref(), Some("one"));
    assert_eq!(phase(&stage).await.1, RolloutPhase::Done);
}

/// The plan of the next wave has a secret of a store without versions: what an approval stands for is what the apply
/// makes. People are asked once, and again if the secret changes after the approval was asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_wave_with_a_secret_is_approved_once_and_asked_for_once() {
    let (url, heard) = webhook_receiver::receiver(Vec::new()).await;
    let config = format!(
        "{APPROVED}secrets: {{rotation: write, stores: {{job: {{kind: env, allow: [{{stacks: '**', paths: 'PAY_*'}}]}}}}}}\nnotify:\n- {{kind: webhook, url_env: HOOK_URL, key_env: HOOK_KEY}}\n"
    );
    let mut stage = Stage::small(&config).await;
    people(&stage);
    let ns = stage.cluster.namespace("ci-secret-wave").await;
    let env = |token: &str| {
        vec![
            ("PAY_TOKEN", token.to_owned()),
            ("HOOK_URL", url.clone()),
            ("HOOK_KEY", "signing-key".to_owned()),
        ]
    };
    let secret = |label: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pay", "namespace": ns, "labels": {"round": label}},
            "stringData": {"token": "ref+env://PAY_TOKEN"}})
    };
    for (number, round) in [(7, "one"), (8, "two")] {
        stage.env = env(&format!("token-{round}"));
        let branch = format!("round-{round}");
        stage.reviewed(number, &branch, |stage| {
            stacks(stage, "paid", &["canary"], round);
            write(stage, "paid/eu", &[secret(round)]);
        });
        let asked = stage.merge(number, &branch);
        asked.outcome.check(0);
        let waits = ("waiting".to_owned(), json!(["paid/eu"]));
        let events = told(&heard);
        assert_eq!(
            events.iter().filter(|event| **event == waits).count(),
            1,
            "{events:?}"
        );
        // Nothing has happened since.
        continued(&mut stage).outcome.check(0);
        assert_eq!(told(&heard), []);
        stage.env.push(("GITHUB_ACTOR", "grace".to_owned()));
        stage.approve(&asked.digest()).outcome.check(0);
        assert_eq!(phase(&stage).await.1, RolloutPhase::Done, "{round}");
        told(&heard);
    }
}

/// A plan that an apply would refuse has no digest, so nobody can approve it.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_refused_cannot_be_approved() {
    let mut stage = Stage::small(APPROVED).await;
    people(&stage);
    let ns = stage.cluster.namespace("ci-refused").await;
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "refused", "namespace": ns}});
    stage.reviewed(7, "first", |stage| {
        stacks(stage, "refused", &["canary"], "one");
        write(stage, "refused/eu", std::slice::from_ref(&map));
    });
    // No controller ends it: it stays, and takes nothing new.
    let objects = Objects::of(stage.cluster).await;
    objects
        .delete(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}}))
        .await;
    let merged = stage.merge(7, "first");
    merged.outcome.check(0);
    let said = format!("{}{}", merged.outcome.stdout, merged.outcome.stderr);
    assert!(said.contains("gate `go`: refused/eu: "), "{said}");
    assert!(said.contains("terminat"), "{said}");
    assert!(!said.contains("approve: "), "{said}");
    assert!(record(&stage).await.planned.is_empty());
    assert_eq!(phase(&stage).await.1, RolloutPhase::Gate);
}

fn deployment(ns: &str, image: &str) -> Value {
    let pod = json!({"containers": [{"name": "app", "image": image}]});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": ns},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod}}})
}

fn hook(ns: &str, is_evicted: bool) -> Value {
    let labels = if is_evicted {
        json!({EVICTED: "true"})
    } else {
        json!({})
    };
    let pod =
        json!({"restartPolicy": "Never", "containers": [{"name": "job", "image": "example.com/job:1"}]});
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "smoke", "namespace": ns, "annotations": {"konverge/hook": "post"}},
        "spec": {"backoffLimit": 0, "template": {"metadata": {"labels": labels}, "spec": pod}}})
}

/// A hook with `post` is a gate of its own: its failure fails the wave.
#[tokio::test(flavor = "multi_thread")]
async fn a_post_hook_that_fails_stops_the_rollout() {
    let config = "apply: {hooks: {service_accounts: [default]}}\nrollouts: [{name: web, waves: [{match: 'appops/*/canary'}, {match: 'appops/*/eu'}]}]\n";
    let mut stage = Stage::small(config).await;
    stage.cluster = Cluster::with_controllers();
    let ns = stage.cluster.namespace("ci-rollout-hook").await;
    let change = |stage: &Stage, value: &str, is_evicted: bool| {
        write(
            stage,
            "hooked/canary",
            &[deployment(&ns, "web:1"), hook(&ns, is_evicted)],
        );
        stacks(stage, "hooked", &["eu"], value);
    };
    stage.reviewed(7, "evicted", |stage| change(stage, "one", true));
    let failed = stage.merge(7, "evicted");
    failed.outcome.check(1);
    let (wave, now, why) = phase(&stage).await;
    assert_eq!((wave, now), (0, RolloutPhase::Stopped), "{why}");
    assert!(why.starts_with("the apply of hooked/canary failed"), "{why}");
    assert_eq!(stage.value("hooked-eu").await, None);
    stage.reviewed(8, "roomy", |stage| change(stage, "two", false));
    let mended = stage.merge(8, "roomy");
    mended.outcome.check(0);
    assert_eq!(stage.value("hooked-eu").await.as_deref(), Some("two"));
    assert_eq!(phase(&stage).await.1, RolloutPhase::Done);
}

/// Its pod is ready when it is applied, and is not any more at the gate. After an hour of that the wave is rolled back.
#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_that_turns_unready_is_rolled_back() {
    let mut stage = Stage::small("").await;
    stage.cluster = Cluster::with_controllers();
    let (ns, objects) = (
        stage.cluster.namespace("ci-rollout-unready").await,
        Objects::of(stage.cluster).await,
    );
    let change = |stage: &Stage, image: &str| {
        write(stage, "unready/canary", &[deployment(&ns, image)]);
        stacks(stage, "unready", &["eu"], image);
    };
    stage.reviewed(6, "zero", |stage| change(stage, "web:1"));
    stage.merge(6, "zero").outcome.check(0);
    // The gate waits, for its server does not answer.
    let config = measured("good", "rollback").replace(NOTIFY, "");
    stage.straight_to_main(|stage| stage.configure(&config));
    stage.env = vec![("PROM_URL", "http://127.0.0.1:1".to_owned())];
    stage.reviewed(7, "one", |stage| change(stage, "web:2"));
    stage.merge(7, "one").outcome.check(0);
    let before = record(&stage).await;
    assert_eq!((before.phase, before.ready.len()), (RolloutPhase::Gate, 1));
    let pods = objects
        .labelled(&format!("/api/v1/namespaces/{ns}/pods"), "app%3Dweb")
        .await;
    let pod = pods
        .iter()
        .find(|pod| pod["spec"]["containers"][0]["image"] == "web:2")
        .unwrap();
    let mut conditions = pod["status"]["conditions"].clone();
    for condition in conditions.as_array_mut().unwrap() {
        if matches!(condition["type"].as_str(), Some("Ready" | "ContainersReady")) {
            condition["status"] = json!("False");
        }
    }
    let mut pod = pod.clone();
    (pod["apiVersion"], pod["kind"]) = (json!("v1"), json!("Pod"));
    objects
        .report(&path(&pod, true), &json!({"conditions": conditions}))
        .await;
    eventually(
        "the Deployment has no ready pod",
        std::time::Duration::from_secs(60),
        || async {
            let live = objects.get(&deployment(&ns, "")).await?;
            live["status"]["availableReplicas"].is_null().then_some(())
        },
    )
    .await;
    let unready = continued(&mut stage);
    unready.outcome.check(0);
    let says = "unready/canary is not ready: apps/v1:Deployment:";
    assert!(
        unready.outcome.stderr.contains(says),
        "{}",
        unready.outcome.stderr
    );
    let mut seen = record(&stage).await;
    assert_eq!(
        (seen.phase, seen.unready_since.len(), seen.ready.len()),
        (RolloutPhase::Gate, 1, 0)
    );

    // An hour later.
    let states = stage.states().await;
    let number = states.rollout_number("web").await.unwrap();
    for began in seen.unready_since.values_mut() {
        began.local -= 2.hours();
        began.server = began.server.map(|server| server - 2.hours());
    }
    assert!(states.write_rollout(number + 1, &seen).await.unwrap());
    let failed = continued(&mut stage);
    let (wave, now, why) = phase(&stage).await;
    assert_eq!(
        (wave, now),
        (0, RolloutPhase::Stopped),
        "{why}: {}",
        failed.outcome.stderr
    );
    assert!(
        why.contains("no longer ready") && why.contains("are rolled back"),
        "{why}"
    );
    let live = objects.get(&deployment(&ns, "")).await.unwrap();
    assert_eq!(
        live["spec"]["template"]["spec"]["containers"][0]["image"],
        "web:1"
    );
    assert_eq!(stage.value("unready-eu").await.as_deref(), Some("web:1"));
}

/// A wave sees what an apply does not wait for: a Canary under way, and a Rollout that its controller pauses later.
#[tokio::test(flavor = "multi_thread")]
async fn a_wave_waits_for_a_canary_and_for_a_paused_rollout() {
    let config =
        "rollouts: [{name: web, waves: [{match: 'appops/*/canary', bake: 1s}, {match: 'appops/*/eu'}]}]\n";
    let mut stage = Stage::small(config).await;
    let ns = stage.cluster.namespace("ci-rollout-canary").await;
    let objects = Objects::of(stage.cluster).await;
    objects.create_definition(&definition()).await;
    let canaries = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "canaries.flagger.app"},
        "spec": {"group": "flagger.app", "scope": "Namespaced", "names": {"kind": "Canary", "plural": "canaries", "singular": "canary"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    objects.create_definition(&canaries).await;
    let web = rollout(&ns, "web:1", &json!({}));
    let canary = json!({"apiVersion": "flagger.app/v1beta1", "kind": "Canary", "metadata": {"name": "web", "namespace": ns}, "spec": {"targetRef": {"name": "web"}}});
    stage.reviewed(7, "one", |stage| {
        write(stage, "flagged/canary", &[web.clone(), canary.clone()]);
        stacks(stage, "flagged", &["eu"], "one");
    });
    let controller = tokio::spawn({
        let (web, canary) = (web.clone(), canary.clone());
        async move {
            report(&objects, &web, 1, &healthy(1)).await;
            report(
                &objects,
                &canary,
                1,
                &json!({"phase": "Progressing", "canaryWeight": 10}),
            )
            .await;
            objects
        }
    });
    let merged = stage.merge(7, "one");
    merged.outcome.check(0);
    let objects = controller.await.unwrap();
    let under_way = continued(&mut stage);
    under_way.outcome.check(0);
    let says = "flagged/canary is not ready: flagger.app/v1beta1:Canary:";
    assert!(
        under_way.outcome.stderr.contains(says),
        "{}",
        under_way.outcome.stderr
    );

    report(
        &objects,
        &canary,
        1,
        &json!({"phase": "Succeeded", "canaryWeight": 0}),
    )
    .await;
    report(&objects, &web, 1, &paused(1, jiff::Timestamp::now())).await;
    let at_step = continued(&mut stage);
    at_step.outcome.check(0);
    assert!(
        at_step.outcome.stderr.contains("paused, waits for promotion"),
        "{}",
        at_step.outcome.stderr
    );
    assert_eq!(stage.value("flagged-eu").await, None);
    assert_eq!(phase(&stage).await.0, 0);

    report(&objects, &web, 1, &healthy(1)).await;
    continued(&mut stage).outcome.check(0);
    assert_eq!(phase(&stage).await.1, RolloutPhase::Done);
    assert_eq!(stage.value("flagged-eu").await.as_deref(), Some("one"));
}
