//! `into: any`: a value of such a store may stand outside of a Secret, and is found nowhere but in its object.

use serde_json::{Value, json};

use crate::support::{objects::Objects, process::Outcome, shop_monorepo::resource};

use super::secret_references::{CANARY, Refers, changes};

const ANY: &str = "into: any, ";

/// A short word: nothing but its place says that it is a secret.
const WORD: &str = "zqxjv";

fn text(outcome: &Outcome) -> String {
    format!("{}{}", outcome.stdout, outcome.stderr)
}

/// A ConfigMap with a value alone, a value in a text and a value in an annotation.
fn settings(refers: &Refers) -> Value {
    let mut settings = refers.object(
        "ConfigMap",
        "settings",
        json!({"data": {
            "password": "ref+job://PAY_PASSWORD",
            "url": "postgres://app:ref+job://PAY_PASSWORD+@db/pay",
            "word": "ref+job://PAY_WORD",
            "plain": "shown",
        }}),
    );
    settings["metadata"]["annotations"] = json!({"example.com/entry": "ref+job://PAY_PASSWORD"});
    settings
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_in_a_plain_place_is_found_in_its_object_alone() {
    let refers = Refers::of_job_store("plain-places", "", ANY).await;
    let settings = settings(&refers);
    let objects = Objects::of(refers.cluster).await;
    let words = [CANARY, WORD];
    let apply = |value: &str| {
        let run = refers.konverge(&["apply", "--all", "--yes", "--no-wait", "--output", "json"]);
        let run = run.env("PAY_PASSWORD", value).env("PAY_WORD", WORD);
        let outcome = run.run();
        refers.holds_none_of(&words, &outcome, "an apply");
        outcome
    };
    let preview = |what: &str| {
        let outcome = refers.preview().expect(0);
        refers.holds_none_of(&words, &outcome, what);
        outcome
    };
    refers.shop.wants("prod", &[resource(&settings)]);

    let made = changes(&preview("a preview of a creation"));
    let to = &made[0]["to"];
    assert_eq!(
        to["data"]["password"],
        json!({"$secret": {"ref": "job:PAY_PASSWORD"}})
    );
    assert!(to["data"]["url"]["$secret"]["text"].is_string(), "{to}");
    assert_eq!(to["data"]["plain"], "shown");
    assert_eq!(
        to["metadata"]["annotations"]["example.com/entry"]["$secret"]["ref"],
        "job:PAY_PASSWORD"
    );

    let first = format!("{CANARY}-1");
    apply(&first).expect(0);
    let live = objects.get(&settings).await.unwrap();
    assert_eq!(live["data"]["password"], first);
    assert_eq!(live["data"]["url"], format!("postgres://app:{first}@db/pay"));
    assert_eq!(live["data"]["word"], WORD);
    assert_eq!(live["metadata"]["annotations"]["example.com/entry"], first);
    assert_eq!(changes(&preview("a preview without a change")), [] as [Value; 0]);
    assert_eq!(apply(&first).expect(0).json()["stacks"][0]["result"], "unchanged");

    // Another value is another version.
    let second = format!("{CANARY}-2");
    apply(&second).expect(0);
    assert_eq!(objects.get(&settings).await.unwrap()["data"]["password"], second);

    // Somebody wrote other values: they are as secret.
    let theirs = json!({"data": {"password": format!("{CANARY}-theirs"), "word": format!("{WORD}s")}});
    objects.merge(&settings, "somebody", &theirs).await;
    let drifted = changes(&preview("a preview of drift"));
    let paths: Vec<_> = drifted
        .iter()
        .map(|change| change["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["/data/password", "/data/word"]);
    for change in &drifted {
        assert!(change["from"]["$secret"].is_string(), "{change}");
        assert_eq!(change["origin"], "drift", "{change}");
    }
    let report = refers.konverge(&["drift", "--output", "json"]).run();
    refers.holds_none_of(&words, &report, "a drift report");
    assert!(text(&report).contains("/data/word"), "{}", text(&report));
    apply(&second).expect(0);

    // The reference leaves the Spec: the old value is hidden, the new text is shown.
    let mut moved = settings.clone();
    moved["data"]["word"] = json!("now-in-clear");
    moved["data"].as_object_mut().unwrap().shift_remove("url");
    refers.shop.wants("prod", &[resource(&moved)]);
    let left = changes(&preview("a preview without the reference"));
    let at = |path: &str| left.iter().find(|change| change["path"] == path).unwrap();
    assert!(at("/data/word")["from"]["$secret"].is_string(), "{left:?}");
    assert_eq!(at("/data/word")["to"], "now-in-clear");
    assert!(at("/data/url")["from"]["$secret"].is_string(), "{left:?}");
    apply(&second).expect(0);

    refers.shop.wants("prod", &[]);
    let deleted = changes(&preview("a preview of a deletion"));
    let from = &deleted[0]["from"]["data"];
    let entry = &deleted[0]["from"]["metadata"]["annotations"]["example.com/entry"];
    assert!(entry["$secret"].is_string(), "{deleted:?}");
    assert_eq!(from["word"], "now-in-clear", "it is in the Spec");
    refers.shop.wants("prod", &[resource(&settings)]);
    apply(&second).expect(0);
    let destroyed = refers
        .konverge(&["destroy", "shop/prod", "--yes", "--output", "json"])
        .run()
        .expect(0);
    refers.holds_none_of(&words, &destroyed, "a destroy");
    assert_eq!(objects.get(&settings).await, None);
}

/// The record of the stack that wrote the value is not asked: the object says which of its texts are secret.
#[tokio::test(flavor = "multi_thread")]
async fn a_stack_that_takes_the_object_over_shows_no_value() {
    let refers = Refers::of_job_store("plain-taken", "", ANY).await;
    let settings = settings(&refers);
    refers.shop.wants("prod", &[resource(&settings)]);
    let run = refers.konverge(&["apply", "--all", "--yes", "--no-wait"]);
    run.env("PAY_PASSWORD", CANARY)
        .env("PAY_WORD", WORD)
        .run()
        .expect(0);
    let id = resource(&settings)["id"].as_str().unwrap().to_owned();
    refers
        .konverge(&["state", "forget", "shop/prod", &id, "--yes"])
        .run()
        .expect(0);
    refers.shop.wants("prod", &[]);
    let mut taken = settings.clone();
    taken["data"] = json!({"plain": "other"});
    taken["metadata"]
        .as_object_mut()
        .unwrap()
        .shift_remove("annotations");
    refers.shop.wants("stage", &[resource(&taken)]);
    let preview = refers.konverge(&["preview", "shop/stage", "--live", "required", "--output", "json"]);
    let preview = preview.run().expect(0);
    refers.holds_none_of(&[CANARY, WORD], &preview, "a preview of a take-over");
    let shown = changes(&preview);
    let at = |path: &str| shown.iter().find(|change| change["path"] == path);
    assert_eq!(at("/data/plain").unwrap()["from"], "shown", "{shown:?}");
    let foreign = objects_left(&refers, &settings).await;
    assert_eq!(foreign["data"]["word"], WORD, "only the preview hides it");
    let applied = refers.konverge(&["apply", "shop/stage", "--yes", "--no-wait", "--output", "json"]);
    refers.holds_none_of(&[CANARY, WORD], &applied.run().expect(0), "a take-over");
    let left = objects_left(&refers, &settings).await;
    assert_eq!(left["data"], json!({"plain": "other"}));
    assert_eq!(
        left["metadata"]["annotations"]["konverge/secret-places"],
        Value::Null
    );
}

async fn objects_left(refers: &Refers, object: &Value) -> Value {
    Objects::of(refers.cluster).await.get(object).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_stands_nowhere_where_it_could_not_be_kept() {
    let refers = Refers::of_job_store("never-places", "", ANY).await;
    let reference = "ref+job://PAY_PASSWORD";
    let labelled = {
        let mut object = refers.object("ConfigMap", "web", json!({}));
        object["metadata"]["labels"] = json!({"app": reference});
        object
    };
    let pod = json!({"spec": {"containers": [{"name": "web", "image": "web", "env": [{"name": "A", "value": reference}]}]}});
    for (object, why) in [
        (labelled, "found by their labels"),
        (refers.object("Pod", "web", pod), "an item of a list can move"),
        (
            refers.object(
                "Service",
                "web",
                json!({"spec": {"type": "ExternalName", "externalName": reference}}),
            ),
            "names appear in requests",
        ),
        (
            refers.object("Secret", "web", json!({"type": reference})),
            "`data` or `stringData`",
        ),
    ] {
        refers.shop.wants("prod", &[resource(&object)]);
        for outcome in [refers.preview(), refers.apply(Some(CANARY))] {
            let error = outcome.json()["stacks"][0]["error"].take();
            let message = error["message"].as_str().unwrap();
            assert!(
                message.contains(why) && message.contains("whatever the store allows"),
                "{message}"
            );
            refers.holds_no_value(&outcome, "a refused reference");
        }
        assert_eq!(Objects::of(refers.cluster).await.get(&object).await, None);
    }
}

/// The server repeats a value that it refuses, also one that is too short to be looked for in every text.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_server_holds_no_value() {
    let refers = Refers::of_job_store("refused-values", "", ANY).await;
    let group = format!("{}.example.com", refers.namespace);
    let password = json!({"type": "string", "pattern": "^(ref.*|[a-z]+)$"});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"password": password}}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("databases.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "Database", "plural": "databases", "singular": "database", "listKind": "DatabaseList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    refers.shop.wants("prod", &[resource(&definition)]);
    let apply = |value: &str| {
        let run = refers.konverge(&["apply", "--all", "--yes", "--output", "json"]);
        run.env("PAY_PASSWORD", value).run()
    };
    apply("-").expect(0);
    let mut database = refers.object(
        "Database",
        "pay",
        json!({"spec": {"password": "ref+job://PAY_PASSWORD"}}),
    );
    database["apiVersion"] = json!(format!("{group}/v1"));
    refers
        .shop
        .wants("prod", &[resource(&definition), resource(&database)]);
    let refused = apply("9Zq");
    assert_ne!(refused.code, Some(0), "{}", text(&refused));
    assert!(refused.stdout.contains("Invalid value"), "{}", text(&refused));
    refers.holds_none_of(&["9Zq"], &refused, "a refused value");
    apply("fits").expect(0);
    refers
        .konverge(&["destroy", "shop/prod", "--yes"])
        .run()
        .expect(0);
}

/// Another object does not get the value by reading it, and a merge that would change the place is told.
#[tokio::test(flavor = "multi_thread")]
async fn no_object_reads_a_value_in_a_plain_place() {
    let refers = Refers::of_job_store("plain-reading", "", ANY).await;
    let settings = settings(&refers);
    let id = format!("v1:ConfigMap:{}:settings", refers.namespace);
    let reads = |path: &str| {
        refers.object(
            "ConfigMap",
            "reader",
            json!({"data": {"x": format!("$kusion_path.{id}.{path}")}}),
        )
    };
    for path in ["data.password", "data"] {
        refers
            .shop
            .wants("prod", &[resource(&settings), resource(&reads(path))]);
        let run = refers.konverge(&["apply", "--all", "--yes", "--no-wait", "--output", "json"]);
        let run = run.env("PAY_PASSWORD", CANARY).env("PAY_WORD", WORD);
        let outcome = run.run().expect(1);
        assert!(
            outcome.stdout.contains("copies the value of a secret reference"),
            "{}",
            outcome.stdout
        );
        refers.holds_no_value(&outcome, "a refused reader");
    }
}
