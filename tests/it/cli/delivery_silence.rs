//! A delivery whose registry takes connections and never answers.

use std::collections::BTreeMap;

use nix::sys::signal::Signal::{SIGCONT, SIGINT, SIGSTOP};
use serde_json::json;

use super::delivery_stage::{LIMIT, Stage, Tool, said};
use crate::support::service::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_asked_to_stop_does_not_wait_for_a_silent_registry() {
    let stage = Stage::new(Tool::Flux).await;
    stage.configure(Some("flux"));
    stage.wants(&[stage.config_map("a", json!({"x": "1"}))]);
    let documents = stage.delivery();
    stage.install(&documents).await;
    stage.signal_registry(SIGSTOP);
    let run = stage.shop.konverge(&["apply", "shop/dev", "--yes"]).start();
    eventually("the registry is asked", LIMIT, || async {
        stage.registry_is_asked().then_some(())
    })
    .await;
    run.signal(SIGINT);
    let stopped = tokio::task::spawn_blocking(|| run.wait())
        .await
        .unwrap()
        .expect(130);
    assert!(
        said(&stopped).contains("the push to the registry"),
        "{}",
        said(&stopped)
    );
    stage.signal_registry(SIGCONT);
    assert_eq!(stage.digest().await, None);
    let mut inventory = BTreeMap::new();
    stage
        .apply_and_deliver(&documents, &mut inventory)
        .await
        .expect(0);
    assert_eq!(stage.live("a").await.unwrap()["data"]["x"], "1");
}
