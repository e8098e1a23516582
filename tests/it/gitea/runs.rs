//! Workflows that are started, found again, and are over or not.

use konverge_forge::{ForgeError, Runs as _};
use serde_json::json;

use crate::support::{
    gitea_runner::{GiteaRunner, LABEL},
    gitea_stage::{GiteaStage, KONFIG},
};

const WORKFLOW: &str = "on:
  workflow_dispatch:
    inputs:
      stack: {}
      digest: {}
run-name: ${{ inputs.stack }} ${{ inputs.digest }}
jobs:
  hook:
    runs-on: LABEL
    steps:
      - run: 'true'
";

#[tokio::test]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn a_workflow_is_started_and_its_run_is_found_again() {
    let stage = GiteaStage::start().await;
    let konverge = stage.client();
    for file in ["hook.yml", "other.yml"] {
        let file = format!(".gitea/workflows/{file}");
        stage.konfig.write(&file, WORKFLOW.replace("LABEL", LABEL));
    }
    stage.commit_as(&stage.ada, "Workflows");
    stage.gitea.push(&stage.konfig, &stage.ada, KONFIG, &["main"]);
    assert!(
        konverge
            .dispatched_runs("hook.yml", "main", 1)
            .await
            .unwrap()
            .is_empty()
    );
    let inputs = json!({"stack": "shop/prod", "commit": "", "digest": "d1"});
    let first = konverge
        .dispatch_workflow("hook.yml", "main", &inputs)
        .await
        .unwrap();
    let other = konverge
        .dispatch_workflow("other.yml", "main", &inputs)
        .await
        .unwrap();
    let inputs = json!({"stack": "shop/prod", "commit": "", "digest": "d2"});
    let second = konverge
        .dispatch_workflow("hook.yml", "main", &inputs)
        .await
        .unwrap();
    assert!(first < other && other < second);
    let runs = konverge.dispatched_runs("hook.yml", "main", 100).await.unwrap();
    let told: Vec<_> = runs
        .iter()
        .map(|run| (run.id, run.display_title.as_str()))
        .collect();
    assert_eq!(told, [(second, "shop/prod d2"), (first, "shop/prod d1")]);
    assert_eq!(
        konverge
            .dispatched_runs("hook.yml", "main", 1)
            .await
            .unwrap()
            .len(),
        1
    );
    assert!(
        konverge
            .dispatched_runs("hook.yml", "elsewhere", 9)
            .await
            .unwrap()
            .is_empty()
    );

    let run = konverge.dispatched_run(first).await.unwrap().unwrap();
    assert_eq!(run.conclusion, None);
    let page = format!("{}/{KONFIG}/actions/runs/{first}", stage.gitea.url());
    assert_eq!(run.html_url, page);
    assert_eq!(konverge.is_over(&page).await.unwrap(), Some(false));
    assert_eq!(
        konverge.is_over("someone@laptop (process 7)").await.unwrap(),
        None
    );
    let elsewhere = format!("{}/acme/unknown/actions/runs/1", stage.gitea.url());
    let missing = konverge.is_over(&elsewhere).await.unwrap_err();
    assert!(matches!(missing, ForgeError::NotFound { .. }), "{missing}");
    // A runner takes it, and it fails.
    let runner = GiteaRunner::register(&stage.gitea, &stage.ada, KONFIG).await;
    let task = runner.take().await;
    assert_eq!(task.text("run_id"), first.to_string());
    assert_eq!(konverge.is_over(&page).await.unwrap(), Some(false));
    runner.end(&task, false).await;
    assert_eq!(konverge.is_over(&page).await.unwrap(), Some(true));
    let run = konverge.dispatched_run(first).await.unwrap().unwrap();
    assert_eq!(run.conclusion.as_deref(), Some("failure"));
    assert_eq!(konverge.dispatched_run(second + 100).await.unwrap(), None);
    assert!(konverge.server_time().is_some());

    let missing = konverge
        .dispatch_workflow("missing.yml", "main", &inputs)
        .await
        .unwrap_err();
    assert!(matches!(missing, ForgeError::NotFound { .. }), "{missing}");
    let eve = stage.client_with(&stage.eve.token);
    let refused = eve
        .dispatch_workflow("hook.yml", "main", &inputs)
        .await
        .unwrap_err();
    assert!(matches!(refused, ForgeError::Forbidden { .. }), "{refused}");
}
