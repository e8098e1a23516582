//! What receivers are told of denials, overrides and new versions of secrets, by jobs on the real API server.

use serde_json::{Value, json};

use crate::support::{
    ci_stage::Stage,
    tiny_monorepo,
    webhook_receiver::{self, Seen},
};

const RECEIVERS: &str = "notify:\n- {kind: webhook, url_env: HOOK_URL, key_env: HOOK_KEY}\n- {kind: slack, url_env: CHAT_URL, on: [apply-failed], match: 'told/dev'}\n";

fn told(heard: &Seen) -> Vec<(String, Vec<String>)> {
    let documents = heard.lock().unwrap();
    let told = documents.iter().map(|(_, body)| {
        let document: Value = serde_json::from_str(body).unwrap();
        let stacks = serde_json::from_value(document["stacks"].clone()).unwrap();
        (document["topic"].as_str().unwrap().to_owned(), stacks)
    });
    told.collect()
}

fn one(topic: &str, stack: &str) -> (String, Vec<String>) {
    (topic.to_owned(), vec![stack.to_owned()])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_and_its_override_are_told() {
    let (hook, heard) = webhook_receiver::receiver(Vec::new()).await;
    let (chat, chatted) = webhook_receiver::receiver(Vec::new()).await;
    let rules = "policy:\n  sets:\n  - {name: maps, path: ops/policy, input: objects, enforce: override, override: {by: [grace]}}\n";
    let mut stage = Stage::small(&format!("{rules}{RECEIVERS}")).await;
    let deny = "package main\n\ndeny contains msg if {\n\tstartswith(input.data.value, \"bad\")\n\tmsg := \"a bad value\"\n}\n";
    stage.monorepo.write("ops/policy/maps.rego", deny).commit("Rules");
    stage.github.world(|world| {
        for login in ["dev", "grace"] {
            world.collaborators.insert(login.into(), "write");
        }
    });
    stage.env = vec![
        ("HOOK_URL", hook.clone()),
        ("HOOK_KEY", "signing-key".to_owned()),
        ("CHAT_URL", chat.clone()),
    ];
    stage.reviewed(7, "told", |stage| {
        stage.stack("told/dev", &[("told-a", "bad-a")]);
    });
    let merged = stage.merge(7, "told");
    merged.outcome.check(3);
    assert_eq!(told(&heard), [one("denied", "told/dev")]);
    // Who asked for failures before denials were told apart hears of it.
    let chatted: Vec<_> = chatted.lock().unwrap().drain(..).map(|(_, body)| body).collect();
    assert_eq!(chatted.len(), 1, "{chatted:?}");
    assert!(chatted[0].contains("the apply failed: told/dev"), "{chatted:?}");

    heard.lock().unwrap().clear();
    let digest = merged.digest();
    stage.env.push(("GITHUB_ACTOR", "grace".to_owned()));
    stage.approve(&digest).outcome.check(0);
    assert_eq!(
        told(&heard),
        [one("apply-done", "told/dev"), one("overridden", "told/dev")]
    );
    let heard = heard.lock().unwrap();
    let last = &heard[1].1;
    assert!(
        last.contains("a policy finding was overridden: told/dev"),
        "{last}"
    );
    assert!(!last.contains("grace") && !last.contains("bad"), "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_of_a_secret_is_told_and_its_value_is_not() {
    let (hook, heard) = webhook_receiver::receiver(Vec::new()).await;
    let stores = "secrets: {stores: {job: {kind: env, allow: [{stacks: '**', paths: 'PAY_*'}]}}}\n";
    let mut stage = Stage::small(&format!(
        "{stores}{}",
        RECEIVERS.split("- {kind: slack").next().unwrap()
    ))
    .await;
    let env = |value: &str| {
        vec![
            ("HOOK_URL", hook.clone()),
            ("HOOK_KEY", "signing-key".to_owned()),
            ("PAY_PASSWORD", value.to_owned()),
        ]
    };
    let write = |stage: &Stage, label: &str| {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "rotated", "namespace": "default",
            "labels": {"round": label}}, "stringData": {"password": "ref+job://PAY_PASSWORD"}});
        let program = format!(
            "import json\n\nresources = [json.decode(r'''{}''')]\n",
            json!({"id": "v1:Secret:default:rotated", "type": "Kubernetes", "attributes": secret})
        );
        tiny_monorepo::write_program(&stage.monorepo, "rotated/dev", &program);
    };
    stage.env = env("first-value-31");
    stage.reviewed(7, "first", |stage| write(stage, "one"));
    stage.merge(7, "first").outcome.check(0);
    assert_eq!(told(&heard), [one("apply-done", "rotated/dev")]);

    heard.lock().unwrap().clear();
    stage.env = env("second-value-32");
    stage.reviewed(8, "second", |stage| write(stage, "two"));
    stage.merge(8, "second").outcome.check(0);
    assert_eq!(
        told(&heard),
        [
            one("apply-done", "rotated/dev"),
            one("secret-rotated", "rotated/dev")
        ]
    );

    for (_, body) in heard.lock().unwrap().iter() {
        assert!(!body.contains("value-3"), "{body}");
    }
}
