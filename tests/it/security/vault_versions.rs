//! Versions of secrets in a Vault: how often they are asked, and what an apply does when one moved.

use serde_json::{Value, json};

use crate::support::{objects::Objects, shop_monorepo::resource};

use super::vault::{CANARY, Vaulted, changes};

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_was_made_anew_with_the_same_version_is_written() {
    let vaulted = Vaulted::new("vault-again", "").await;
    let first = format!("{CANARY}-leaked");
    vaulted.vault.put("pay/db", json!({"password": first}));
    let pay = vaulted.wants(
        json!({"password": "ref+vault://secret/pay/db#/password"}),
        json!({}),
    );
    vaulted.apply().expect(0);
    assert_eq!(vaulted.value(&pay, "password").await, Some(first));

    // Its versions count from 1 again.
    let second = format!("{CANARY}-new");
    vaulted.vault.forget("pay/db");
    vaulted.vault.put("pay/db", json!({"password": second}));
    let applied = vaulted.apply().expect(0);
    vaulted.holds_no_value(&applied);
    assert_eq!(vaulted.value(&pay, "password").await, Some(second.clone()));
    let again = vaulted.apply().expect(0);
    assert_eq!(
        again.json()["stacks"][0]["result"],
        "unchanged",
        "{}",
        again.stdout
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn another_value_of_the_same_version_is_a_rotation() {
    let vaulted = Vaulted::new("vault-again-stop", "  rotation: stop\n").await;
    let first = format!("{CANARY}-leaked");
    vaulted.vault.put("pay/db", json!({"password": first}));
    let pay = vaulted.wants(
        json!({"password": "ref+vault://secret/pay/db#/password"}),
        json!({}),
    );
    vaulted.apply().expect(0);
    vaulted.vault.forget("pay/db");
    vaulted
        .vault
        .put("pay/db", json!({"password": format!("{CANARY}-new")}));
    let stopped = vaulted.apply().expect(3);
    vaulted.holds_no_value(&stopped);
    assert!(
        stopped.stdout.contains("`secrets.rotation` is `stop`"),
        "{}",
        stopped.stdout
    );
    assert_eq!(vaulted.value(&pay, "password").await, Some(first));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_read_once_for_all_stacks_of_a_run() {
    let vaulted = Vaulted::new("vault-once", "").await;
    vaulted
        .vault
        .put("pay/db", json!({"password": format!("{CANARY}-once")}));
    let texts = json!({"password": "ref+vault://secret/pay/db#/password"});
    for stack in ["one", "two", "three"] {
        let metadata = json!({"name": format!("pay-{stack}"), "namespace": vaulted.namespace});
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": texts});
        vaulted.shop.wants(stack, &[resource(&object)]);
    }
    vaulted.vault.requests();
    let applied = vaulted.apply().expect(0);
    vaulted.holds_no_value(&applied);
    assert_eq!(applied.json()["stacks"].as_array().unwrap().len(), 3);
    let asked = vaulted.vault.requests();
    let asked: Vec<_> = asked.iter().filter(|(_, path)| path.contains("pay/db")).collect();
    assert_eq!(asked, [&("apply".to_owned(), "secret/data/pay/db".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_only_notified_stays_in_annotations_too() {
    let vaulted = Vaulted::new("vault-leave", "  rotation: leave\n").await;
    let values = ["one", "two"].map(|word| format!("{CANARY}-{word}"));
    vaulted.vault.put("pay/db", json!({"password": values[0]}));
    let pay = vaulted.wants(
        json!({"password": "ref+vault://secret/pay/db#/password"}),
        json!({"example.com/version": "ref+vault://secret/pay/db?as=version"}),
    );
    vaulted.apply().expect(0);
    vaulted.vault.put("pay/db", json!({"password": values[1]}));
    // It is shown, and not written.
    let shown = changes(&vaulted.preview().expect(0));
    assert!(
        shown.iter().any(|change| change["origin"] == "rotation"),
        "{shown:?}"
    );
    let applied = vaulted.apply().expect(0);
    assert_eq!(
        applied.json()["stacks"][0]["result"],
        "unchanged",
        "{}",
        applied.stdout
    );
    assert_eq!(vaulted.value(&pay, "password").await, Some(values[0].clone()));
    let live = Objects::of(vaulted.cluster).await.get(&pay).await.unwrap();
    assert_eq!(live["metadata"]["annotations"]["example.com/version"], "1");
}

/// A missing secret is asked once, and stops the stack before its lease also where only its version is needed.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_version_stops_the_stack_untouched() {
    let vaulted = Vaulted::new("vault-version", "").await;
    let reference = "ref+vault://secret/pay/none?as=version";
    vaulted.wants(
        json!({"plain": "text"}),
        json!({"example.com/one": reference, "example.com/two": reference}),
    );
    let asked = |vaulted: &Vaulted| {
        let requests = vaulted.vault.requests();
        let of_secret = requests.iter().filter(|(_, path)| path.contains("pay/none"));
        of_secret.map(|(role, _)| role.clone()).collect::<Vec<_>>()
    };
    let previewed = vaulted.preview().expect(1);
    assert!(previewed.stdout.contains("is not there"), "{}", previewed.stdout);
    assert_eq!(asked(&vaulted), ["preview"]);
    let applied = vaulted.apply().expect(1);
    let stack = &applied.json()["stacks"][0];
    assert_eq!(stack["result"], "failed", "{stack}");
    assert!(
        stack["error"]["message"].as_str().unwrap().contains("pay/none"),
        "{stack}"
    );
    assert_eq!(asked(&vaulted), ["apply"]);
    let journal = vaulted.run(&["state", "list", "--output", "json"]).expect(0);
    assert!(!journal.stdout.contains("shop/prod"), "{}", journal.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_references_cost_one_request_for_each_secret() {
    let vaulted = Vaulted::new("vault-500", "").await;
    // Five objects of a hundred references, to 250 secrets.
    let objects: Vec<_> = (0..5)
        .map(|object| {
            let texts = (0..100).map(|n| {
                let secret = (object * 100 + n) / 2;
                let key = if n % 2 == 0 { "user" } else { "password" };
                (
                    format!("key-{n}"),
                    json!(format!("ref+db://secret/pay/s{secret}#/{key}")),
                )
            });
            let texts: serde_json::Map<String, Value> = texts.collect();
            let metadata = json!({"name": format!("pay-{object}"), "namespace": vaulted.namespace});
            resource(
                &json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": texts}),
            )
        })
        .collect();
    for secret in 0..250 {
        let fields = json!({"user": "app", "password": format!("{CANARY}-{secret}")});
        vaulted.vault.put(&format!("pay/s{secret}"), fields);
    }
    vaulted.shop.wants("prod", &objects);
    let count = |word: &str, asked: &[(String, String)]| {
        let paths = asked.iter().filter(|(_, path)| path.contains(word));
        paths.count()
    };
    vaulted.preview().expect(0);
    let asked = vaulted.vault.requests();
    assert_eq!((count("secret/metadata/", &asked), asked.len()), (250, 251));
    vaulted.holds_no_value(&vaulted.apply().expect(0));
    let asked = vaulted.vault.requests();
    assert_eq!((count("secret/data/", &asked), count("login", &asked)), (250, 1));
    assert!(count("secret/metadata/", &asked) <= 250, "{}", asked.len());
    assert_eq!(changes(&vaulted.preview().expect(0)), [] as [Value; 0]);
}
