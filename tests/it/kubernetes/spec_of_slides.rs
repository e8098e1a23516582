//! The Spec of KusionStack's slides on a real API server: it is previewed and applied as any other.

use serde_json::json;
use tempfile::TempDir;

use crate::support::{objects::Objects, spec_runs::SpecRuns};

#[tokio::test(flavor = "multi_thread")]
async fn a_slide_is_previewed_and_applied_like_the_spec_of_today() {
    let folder = TempDir::new().unwrap();
    let runs = SpecRuns::at("slides", &format!("file://{}", folder.path().display()), "").await;
    let slide = include_str!("../../fixtures/spec/instances.yaml").replace("garden", "garden-of-slides");
    let today = slide
        .replace("instances:", "resources:")
        .replace("  mode: managed\n", "  type: Kubernetes\n")
        .replace("    dependsOn:\n    -", "  dependsOn:\n  -");
    std::fs::write(runs.repository.path().join("slide.yaml"), slide).unwrap();
    std::fs::write(runs.repository.path().join("today.yaml"), today).unwrap();
    let run = |command: &str, file: &str| {
        let arguments = [command, "--output=json", "--spec", file, "--stack", "garden/prod"];
        match command {
            "apply" => runs.on_cluster(&arguments).arg_all(["--yes", "--no-wait"]),
            _ => runs.on_cluster(&arguments),
        }
    };

    let preview = run("preview", "slide.yaml").run().expect(0).json();
    let stack = &preview["stacks"][0];
    assert_eq!(stack["summary"]["create"], 3, "{preview}");
    let notes = preview.to_string();
    assert!(
        notes.contains("does not exist yet (this plan creates it)") && !notes.contains("another stack"),
        "{notes}"
    );
    // Both objects of the new namespace share one note, in the preview and in the progress of the apply.
    assert_eq!(notes.matches("does not exist yet").count(), 1, "{notes}");
    let applied = run("apply", "slide.yaml").run().expect(0);
    let progress = &applied.stderr;
    assert_eq!(progress.matches("does not exist yet").count(), 1, "{progress}");
    let applied = applied.json();
    assert_eq!(applied["stacks"][0]["result"], "applied", "{applied}");

    let objects = Objects::of(runs.cluster).await;
    // Its namespace is a reference.
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "garden-of-slides"}});
    assert_eq!(
        objects.get(&settings).await.unwrap()["data"],
        json!({"colour": "green"})
    );
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "fountain", "namespace": "garden-of-slides"}});
    let deployment = objects.get(&deployment).await.unwrap();
    let source = &deployment["spec"]["template"]["spec"]["containers"][0]["envFrom"][0];
    assert_eq!(source["configMapRef"]["name"], "settings");
    assert!(deployment["spec"]["dependsOn"].is_null() && deployment["dependsOn"].is_null());

    // The form of today has nothing to change.
    for file in ["slide.yaml", "today.yaml"] {
        let preview = run("preview", file).run().expect(0).json();
        let summary = &preview["stacks"][0]["summary"];
        assert_eq!(summary["unchanged"], 3, "{file}: {preview}");
    }
}
