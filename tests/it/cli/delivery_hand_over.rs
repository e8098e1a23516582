//! A delivered stack goes from one controller to another.

use std::collections::BTreeMap;

use serde_json::json;

use super::delivery_stage::{Stage, Tool, only, said};

/// The objects change their owner without being deleted. As long as the earlier controller is there, the apply stops:
/// it would write against the other one.
#[tokio::test(flavor = "multi_thread")]
async fn a_stack_goes_from_flux_to_argo_cd_without_a_deletion() {
    let mut stage = Stage::new(Tool::Flux).await;
    stage.configure(Some("flux"));
    stage.wants(&[stage.config_map("a", json!({"x": "1", "gone": "y"}))]);
    let flux = stage.delivery();
    stage.install(&flux).await;
    let mut inventory = BTreeMap::new();
    stage.apply_and_deliver(&flux, &mut inventory).await.expect(0);
    let (uid, first) = (stage.uid("a").await, stage.digest().await);

    stage.hand_to(Tool::Argocd).await;
    let argocd = stage.delivery();
    stage.install(&argocd).await;
    stage.wants(&[stage.config_map("a", json!({"x": "2"}))]);
    let preview = stage.shop.run(&["preview", "shop/dev"]);
    assert!(said(&preview).contains("Orphan"), "{}", said(&preview));
    let refused = stage.apply().expect(3);
    assert!(
        said(&refused).contains("is delivered by OCIRepository") && said(&refused).contains("Orphan"),
        "{}",
        said(&refused)
    );
    assert_eq!((stage.uid("a").await, stage.digest().await), (uid.clone(), first));
    assert_eq!(stage.live("a").await.unwrap()["data"]["x"], "1");

    for document in &flux {
        stage.objects.delete(document).await;
    }
    // Killed after the state names the other controller, and before a field is handed over.
    stage.killed_at_first_write().await;
    assert_eq!(stage.managers("a").await, only("kustomize-controller"));
    stage.apply_and_deliver(&argocd, &mut inventory).await.expect(0);
    assert_eq!(stage.managers("a").await, only("argocd-controller"));
    assert_eq!(stage.uid("a").await, uid);
    // The field that left the Spec belonged to the earlier controller.
    assert_eq!(stage.live("a").await.unwrap()["data"], json!({"x": "2"}));
}
