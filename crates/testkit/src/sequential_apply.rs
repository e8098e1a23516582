//! The reference result for tests of dependent changes: the same objects, applied one by one with plain server-side
//! apply.

use std::time::Duration;

use http::Request;
use serde_json::{Value, json};

use super::{objects::path, random::setting, service::eventually};

/// Applies the objects in order, each after the earlier ones have taken effect.
///
/// # Errors
/// The message of the first object that the server refuses.
pub async fn apply_in_order(client: &kube::Client, wanted: &[Value]) -> Result<(), String> {
    for object in wanted {
        let mut tries = 0;
        loop {
            let uri = format!(
                "{}?fieldManager=ordered&fieldValidation=Strict",
                path(object, true)
            );
            let request = Request::patch(uri)
                .header("content-type", "application/apply-patch+yaml")
                .body(object.to_string().into_bytes())
                .unwrap();
            match client.request::<Value>(request).await {
                Ok(_) => break,
                // The server reads classes and roles from caches that lag behind for a moment.
                Err(kube::Error::Api(status)) if tries < 40 && matches!(status.code, 403 | 404) => {
                    tries += 1;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(kube::Error::Api(status)) => {
                    return Err(format!("{}: {}", object["metadata"]["name"], status.message));
                }
                Err(error) => panic!("{error}"),
            }
        }
        if object["kind"] == "CustomResourceDefinition" {
            in_force(client, object).await;
        }
    }
    Ok(())
}

/// Waits until a definition has taken effect. Each definition has a marker field of its own in each served version: the
/// schema is in force when the server accepts an object with that field.
async fn in_force(client: &kube::Client, definition: &Value) {
    let group = definition["spec"]["group"].as_str().unwrap().to_owned();
    for version in definition["spec"]["versions"].as_array().unwrap() {
        if version["served"] == false {
            continue;
        }
        let name = version["name"].as_str().unwrap();
        let properties = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        let marker = properties
            .as_object()
            .unwrap()
            .keys()
            .find(|key| key.starts_with("marker"))
            .unwrap();
        let marker = marker.clone();
        let group = group.clone();
        eventually("the schema is in force", Duration::from_secs(60), || {
            let probe = json!({"apiVersion": format!("{group}/{name}"), "kind": definition["spec"]["names"]["kind"],
                "metadata": {"name": "probe", "namespace": "default"}, "spec": {marker.as_str(): "x"}});
            let uri = format!(
                "{}?fieldManager=ordered&fieldValidation=Strict&dryRun=All",
                path(&probe, true)
            );
            async move {
                let request = Request::patch(uri)
                    .header("content-type", "application/apply-patch+yaml")
                    .body(probe.to_string().into_bytes())
                    .unwrap();
                client.request::<Value>(request).await.ok()
            }
        })
        .await;
    }
}

/// Seeds that once showed a difference, or that show each kind of result.
const KEPT: [u64; 6] = [1, 7, 42, 1_001, 20_261_122, 77_777];

/// Returns the kept seeds and some more, or the seed of `KONVERGE_SEED`.
pub fn seeds() -> Vec<u64> {
    let rounds = setting("KONVERGE_ROUNDS", 6);
    match setting("KONVERGE_SEED", 0) {
        0 => KEPT
            .into_iter()
            .chain((0..rounds).map(|n| 5_000 + 977 * n))
            .collect(),
        seed => vec![seed],
    }
}
