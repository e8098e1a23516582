//! The review contract end to end, where the order of events matters: what becomes known only on the way, who merged
//! when, what is removed. GitHub is played by the fake, the API server is real.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use crate::support::{stage::Stage, tiny};

/// A Service, whose address only the API server knows.
fn service(name: &str) -> String {
    format!(
        "    {{id = \"v1:Service:default:{name}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"Service\", metadata = {{name = \"{name}\", namespace = \"default\"}}, spec = {{ports = [{{port = 80}}]}}}}}}\n"
    )
}

/// A ConfigMap with further lines of KCL, for example `immutable = True`.
fn map(name: &str, value: &str, more: &str) -> String {
    format!(
        "    {{id = \"v1:ConfigMap:default:{name}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{name}\", namespace = \"default\"}}, data = {{value = \"{value}\"}}{more}}}}}\n"
    )
}

fn program(stage: &Stage, id: &str, resources: &[String]) {
    let program = format!("resources = [\n{}]\n", resources.concat());
    tiny::write_program(&stage.monorepo, id, &program);
}

async fn uid(stage: &Stage, name: &str) -> String {
    let maps: Api<ConfigMap> = Api::namespaced(stage.cluster.client().await, "default");
    maps.get(name).await.unwrap().metadata.uid.unwrap()
}

/// A reviewer who saw "some value, known after apply" did not agree to the object being deleted and made anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_known_after_apply_does_not_replace_unseen() {
    let mut stage = Stage::small("").await;
    let (name, more) = ("unseen-map", ", immutable = True");
    stage.reviewed(7, "first", |stage| {
        program(stage, "unseen/dev", &[map(name, "one", more)])
    });
    stage.merge(7, "first").outcome.check(0);
    let before = uid(&stage, name).await;

    let address = "$kusion_path.v1:Service:default:unseen-service.spec.clusterIP";
    stage.reviewed(8, "reads", |stage| {
        program(
            stage,
            "unseen/dev",
            &[service("unseen-service"), map(name, address, more)],
        );
    });
    let merged = stage.merge(8, "reads");
    merged.outcome.check(1);
    assert_eq!(uid(&stage, name).await, before, "it was deleted and made anew");
    let said = &merged.outcome.stdout;
    assert!(said.contains("replace v1:ConfigMap:default:unseen-map"), "{said}");
    // What could be agreed to now is in the next run's plan, with its own digest.
    assert!(said.contains("what was done before it is recorded"), "{said}");
    assert!(!said.contains("approve: "), "{said}");

    let again = stage.again();
    again.outcome.check(3);
    assert_eq!(uid(&stage, name).await, before);
    stage.approve(&again.digest()).outcome.check(0);
    assert_ne!(uid(&stage, name).await, before);
}

/// Whoever agreed to a plan by its digest agreed to what of it only the apply knows, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_approved_by_its_digest_goes_to_its_end() {
    let mut stage = Stage::small("").await;
    let address = "$kusion_path.v1:Service:default:agreed-service.spec.clusterIP";
    let stopped = stage.straight_to_main(|stage| {
        program(
            stage,
            "agreed/dev",
            &[service("agreed-service"), map("agreed-map", address, "")],
        );
    });
    stopped.outcome.check(3);
    stage.approve(&stopped.digest()).outcome.check(0);
    let value = stage.value("agreed-map").await.unwrap();
    assert!(value.parse::<std::net::IpAddr>().is_ok(), "{value}");
}
