//! Pipelines and jobs.

use konverge_forge::{CiJob as _, ForgeError, JobInfo, Runs as _};
use konverge_gitlab::PipelineJob;
use serde_json::json;

use crate::support::gitlab_stage::GitlabStage;
use konverge_base::error::chain;

fn job(stage: &GitlabStage, pipeline: u64) -> JobInfo {
    let set = [
        ("CI_PIPELINE_SOURCE", "web".to_owned()),
        ("CI_PROJECT_PATH", "acme/platform/konfig".to_owned()),
        ("CI_SERVER_URL", stage.gitlab.url()),
        ("CI_PIPELINE_ID", pipeline.to_string()),
        ("CI_COMMIT_SHA", stage.konfig.rev("main")),
        ("CI_COMMIT_BRANCH", "main".to_owned()),
        ("CI_DEFAULT_BRANCH", "main".to_owned()),
        ("GITLAB_USER_LOGIN", "eve".to_owned()),
    ];
    let set = set.map(|(name, value)| (name.to_owned(), value));
    PipelineJob::from_env(&set.into()).unwrap().info().clone()
}

#[tokio::test]
async fn a_run_is_over_when_its_job_has_ended() {
    let stage = GitlabStage::start().await;
    let konverge = stage.client();
    stage.gitlab.world(|world| {
        world.jobs.insert(1, "running");
        world.jobs.insert(2, "failed");
        world.pipelines.insert(3, ("canceled", "ada"));
    });
    let page = |rest: &str| format!("{}/acme/platform/konfig/-/{rest}", stage.gitlab.url());
    for (rest, over) in [("jobs/1", false), ("jobs/2", true), ("pipelines/3", true)] {
        assert_eq!(konverge.is_over(&page(rest)).await.unwrap(), Some(over), "{rest}");
    }
    assert!(matches!(
        konverge.is_over(&page("jobs/9")).await,
        Err(ForgeError::NotFound { .. })
    ));
    assert_eq!(konverge.is_over("ada@laptop (process 7)").await.unwrap(), None);
    assert!(konverge.server_time().is_some());
}

#[tokio::test]
async fn a_pipeline_is_started_with_inputs_and_found_by_its_name() {
    let stage = GitlabStage::start().await;
    let konverge = stage.client();
    let inputs = json!({"stack": "shop/dev", "digest": "x"});
    let run = konverge
        .dispatch_workflow(".gitlab-ci.yml", "main", &inputs)
        .await
        .unwrap();
    assert_eq!(
        stage.gitlab.world(|world| world.started.clone()),
        [json!({"ref": "main", "inputs": inputs})]
    );
    let newest = konverge
        .dispatched_runs(".gitlab-ci.yml", "main", 1)
        .await
        .unwrap();
    assert_eq!((newest[0].id, newest[0].conclusion.as_deref()), (run, None));
    // The list has no names.
    let named = konverge
        .dispatched_runs(".gitlab-ci.yml", "main", 100)
        .await
        .unwrap();
    assert_eq!(named[0].display_title, format!("pipeline {run}"));
    stage
        .gitlab
        .world(|world| world.pipelines.insert(run, ("success", "ada")));
    let found = konverge.dispatched_run(run).await.unwrap().unwrap();
    assert_eq!(found.conclusion.as_deref(), Some("success"));
    assert_eq!(konverge.dispatched_run(9999).await.unwrap(), None);
    let other = konverge.dispatch_workflow("migrate.yml", "main", &inputs).await;
    assert!(matches!(other, Err(ForgeError::Unsupported(_))), "{other:?}");
}

#[tokio::test]
async fn who_started_a_pipeline_is_what_gitlab_says_where_nobody_may_overwrite_its_variables() {
    let stage = GitlabStage::start().await;
    let konverge = stage.client();
    stage
        .gitlab
        .world(|world| world.pipelines.insert(42, ("running", "ada")));
    // After a retry the variable is who retried.
    let job = job(&stage, 42);
    assert_eq!(job.starter, "eve");
    assert_eq!(konverge.starter(&job).await.unwrap(), "ada");
    for role in ["developer", "maintainer", "something new"] {
        stage.gitlab.world(|world| world.variables_role = role);
        let error = konverge.starter(&job).await.unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("override the variables that GitLab sets"),
            "{role}: {said}"
        );
    }
    stage.gitlab.world(|world| world.variables_role = "owner");
    assert_eq!(konverge.starter(&job).await.unwrap(), "ada");
    // An older server does not have the older form of the setting; where it is off, the role counts for nothing.
    stage.gitlab.world(|world| world.restricts_variables = None);
    assert_eq!(konverge.starter(&job).await.unwrap(), "ada");
    stage
        .gitlab
        .world(|world| world.restricts_variables = Some(false));
    let said = konverge.starter(&job).await.unwrap_err().to_string();
    assert!(said.contains("override the variables that GitLab sets"), "{said}");
}

#[tokio::test]
async fn a_schedule_with_variables_is_refused_whatever_the_setting_says() {
    let stage = GitlabStage::start().await;
    let konverge = stage.client();
    stage.gitlab.world(|world| {
        world.pipelines.insert(42, ("running", "ada"));
        world.schedules.insert(5, Some(0));
    });
    let job = job(&stage, 42);
    assert_eq!(konverge.starter(&job).await.unwrap(), "ada");
    stage.gitlab.world(|world| world.schedules.insert(6, Some(1)));
    let said = konverge.starter(&job).await.unwrap_err().to_string();
    assert!(said.contains("pipeline schedule 6 has variables"), "{said}");
    // What the token may not see is not none.
    stage.gitlab.world(|world| world.schedules.insert(6, None));
    let hidden = konverge.starter(&job).await.unwrap_err();
    assert!(matches!(hidden, ForgeError::Forbidden { .. }), "{hidden:?}");
    stage
        .gitlab
        .world(|world| world.schedules = (1..=51).map(|id| (id, Some(0))).collect());
    let said = konverge.starter(&job).await.unwrap_err().to_string();
    assert!(said.contains("more than 50 pipeline schedules"), "{said}");
}

#[tokio::test]
async fn a_retry_is_counted_among_the_jobs_of_its_name() {
    let stage = GitlabStage::start().await;
    stage.gitlab.world(|world| {
        // More than a page of them.
        let retries = (1..=120).map(|id| (42, id, "preview".to_owned()));
        world.pipeline_jobs.extend(retries);
        world.pipeline_jobs.push((42, 121, "apply".to_owned()));
    });
    for (id, name, attempt) in [("1", "preview", 1), ("110", "preview", 110), ("121", "apply", 1)] {
        let konverge = stage.client_of_job(42, id, name);
        assert_eq!(konverge.attempt(&job(&stage, 42)).await.unwrap(), attempt, "{id}");
    }
    // Not in the list; of another pipeline; not in a job.
    let unlisted = stage.client_of_job(42, "122", "preview");
    let said = chain(&unlisted.attempt(&job(&stage, 42)).await.unwrap_err());
    assert!(said.contains("does not have this job"), "{said}");
    for konverge in [stage.client_of_job(41, "1", "preview"), stage.client()] {
        let said = konverge.attempt(&job(&stage, 42)).await.unwrap_err().to_string();
        assert!(said.contains("CI_JOB_NAME"), "{said}");
    }
}
