//! `konverge freeze`: nothing is applied in any way until `konverge unfreeze`.

use konverge_state::store::Key;
use serde_json::{Value, json};

use crate::support::{
    ci_stage::Stage,
    cluster::Cluster,
    objects::Objects,
    shop_monorepo::{Shop, resource},
};

const CONFIG: &str = "version: 1\nclusters: {test: {}}\n";

fn config_map(ns: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": ns}, "data": {"value": value}})
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_applied_destroyed_or_rolled_back_by_hand_while_it_holds() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("freeze").await, Objects::of(cluster).await);
    let shop = Shop::new(CONFIG, &[("KUBECONFIG", &cluster.kubeconfig())]);
    for value in ["1", "2"] {
        shop.wants("dev", &[resource(&config_map(&ns, value))]);
        shop.run(&["apply", "--all", "--yes"]).expect(0);
    }
    let value = async || objects.get(&config_map(&ns, "")).await.unwrap()["data"]["value"].clone();

    shop.run(&["freeze"]).expect(64);
    let empty = shop.run(&["freeze", "--reason", " "]).expect(64);
    assert!(empty.stderr.contains("the reason is empty"), "{}", empty.stderr);
    let idle = shop.run(&["unfreeze", "--reason", "none"]).expect(0);
    assert!(idle.stderr.contains("applies were not frozen"), "{}", idle.stderr);

    shop.run(&["freeze", "--reason", "failover \u{1b}[31m of the database"])
        .expect(0);
    shop.wants("dev", &[resource(&config_map(&ns, "3"))]);
    for command in [
        &["apply", "--all", "--yes"][..],
        &["destroy", "shop/dev", "--yes"],
        &["state", "rollback", "shop/dev", "--to", "1", "--yes"],
    ] {
        let stopped = shop.run(command).expect(3);
        let said = format!("{}{}", stopped.stdout, stopped.stderr);
        for words in ["applies are frozen since", "of the database", "konverge unfreeze"] {
            assert!(said.contains(words), "{command:?}: {words}: {said}");
        }
        assert!(!said.contains('\u{1b}'), "{said:?}");
        assert_eq!(value().await, "2", "{command:?}");
    }
    shop.run(&["preview", "--all"]).expect(0);
    let status = shop.run(&["status"]).expect(0);
    assert!(
        status.stderr.contains("applies are frozen since"),
        "{}",
        status.stderr
    );

    let once_more = shop.run(&["freeze", "--reason", "a migration"]).expect(0);
    assert!(
        once_more.stderr.contains("both reasons are kept"),
        "{}",
        once_more.stderr
    );
    let stopped = shop.run(&["apply", "--all", "--yes"]).expect(3);
    let said = format!("{}{}", stopped.stdout, stopped.stderr);
    let (first, second) = (said.find("of the database"), said.find("a migration"));
    assert!(first.is_some() && first < second, "{said}");

    let ended = shop.run(&["unfreeze", "--reason", "failover is done"]).expect(0);
    assert!(ended.stderr.contains("of the database"), "{}", ended.stderr);
    shop.run(&["apply", "--all", "--yes"]).expect(0);
    assert_eq!(value().await, "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_waits_for_its_end_and_the_next_run_catches_up() {
    let mut stage = Stage::small("").await;
    stage.konverge(["freeze", "--reason", "the fair"]).run().expect(0);
    stage.reviewed(7, "cold", |stage| stage.stack("cold/dev", &[("cold-web", "one")]));
    let merged = stage.merge(7, "cold");
    merged.outcome.check(3);
    let said = &merged.outcome.stdout;
    assert!(
        said.contains("applies are frozen") && said.contains("the fair"),
        "{said}"
    );
    assert_eq!(stage.value("cold-web").await, None);
    // A document that nobody can read stops applies too, and can be replaced.
    let states = stage.states().await;
    let damaged = Key::from_components(&["freeze", "0000000002"]);
    let bytes = bytes::Bytes::from_static(b"{}");
    states.store().create(&damaged, bytes).await.unwrap();
    let unread = stage.again();
    unread.outcome.check(1);
    let said = &unread.outcome.stdout;
    assert!(said.contains("konverge unfreeze --reason TEXT"), "{said}");
    let ended = stage
        .konverge(["unfreeze", "--reason", "it is over"])
        .run()
        .expect(0);
    assert!(ended.stderr.contains("could not be read"), "{}", ended.stderr);
    stage.again().outcome.check(0);
    assert_eq!(stage.value("cold-web").await.as_deref(), Some("one"));
}
