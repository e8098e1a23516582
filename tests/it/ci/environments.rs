//! An apply job for each environment: each applies its own stacks, waits for the others, and takes nothing from them.

use crate::support::{
    ci_stage::{Ran, Stage},
    payloads,
};

const RULES: &str = "stacks:\n- {match: 'appops/*/dev', environment: dev}\n- {match: 'appops/*/prod', environment: production, after: ['appops/*/dev']}\n";

/// The job of an environment, for the push of a merge.
fn job(stage: &mut Stage, environment: &str, (before, after): &(String, String)) -> Ran {
    stage.env = vec![("KONVERGE_FOR_ENVIRONMENT", environment.to_owned())];
    let ran = stage.push(before, after);
    stage.env.clear();
    ran
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_applies_its_environment_and_waits_for_the_stacks_before() {
    let mut stage = Stage::small(RULES).await;
    stage.reviewed(7, "both", |stage| {
        stage.stack("envs/dev", &[("envs-dev", "one")]);
        stage.stack("envs/prod", &[("envs-prod", "one")]);
    });
    let push = stage.press_merge(7, "both");
    let tip = push.1.clone();

    let first = job(&mut stage, "production", &push);
    first.outcome.check(0);
    let says = "skipped: envs/dev of the environment dev must be applied first and is pending";
    assert!(first.summary.contains(says), "{}", first.summary);
    assert!(
        first.outcome.stdout.contains("envs/prod"),
        "{}",
        first.outcome.stdout
    );
    assert_eq!(
        (stage.value("envs-dev").await, stage.value("envs-prod").await),
        (None, None)
    );
    let status = |stage: &Stage, name: &str| stage.status(&tip, &format!("konverge/apply ({name})"));
    assert_eq!(status(&stage, "production").as_deref(), Some("pending"));

    // The review of the merge serves each job.
    job(&mut stage, "dev", &push).outcome.check(0);
    assert_eq!(stage.value("envs-dev").await.as_deref(), Some("one"));
    assert_eq!(stage.value("envs-prod").await, None);
    assert_eq!(status(&stage, "dev").as_deref(), Some("success"));
    assert_eq!(status(&stage, "production").as_deref(), Some("pending"));

    job(&mut stage, "production", &push).outcome.check(0);
    assert_eq!(stage.value("envs-prod").await.as_deref(), Some("one"));
    assert_eq!(status(&stage, "production").as_deref(), Some("success"));
    assert_eq!(stage.status(&tip, "konverge/apply"), None);
    let receipt = stage.receipt("envs/prod");
    assert_eq!(receipt["pullRequests"][0]["number"], 7, "{receipt}");

    // Each environment has a comment of its own.
    let comments = stage.comments();
    let of = |name: &str| {
        let tells = |text: &String| text.contains(name) && text.contains("1 applied");
        comments.iter().filter(|(_, text)| tells(text)).count()
    };
    assert!(of("envs/dev") >= 1 && of("envs/prod") >= 1, "{comments:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_of_another_environment_stays_open() {
    let mut stage = Stage::small(RULES).await;
    let before = stage.monorepo.checkout("main").rev("main");
    stage.stack("unseen/dev", &[("unseen-dev", "one")]);
    stage.stack("lone/prod", &[("lone-prod", "one")]);
    let after = stage.monorepo.commit("Straight to main");
    let push = (before, after);
    job(&mut stage, "dev", &push).outcome.check(3);
    let open = |stage: &Stage| {
        stage.github.world(|world| {
            let open = world.issues.iter().filter(|issue| issue.state == "open");
            open.map(|issue| issue.title.clone()).collect::<Vec<_>>()
        })
    };
    assert_eq!(open(&stage).len(), 1, "{:?}", open(&stage));
    // Its stack comes after the one that is blocked: it is held back, and closes nothing.
    job(&mut stage, "production", &push).outcome.check(0);
    assert_eq!(open(&stage).len(), 1, "{:?}", open(&stage));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_means_nothing_is_refused_before_anything_is_applied() {
    let mut stage = Stage::small(RULES).await;
    stage.reviewed(7, "one", |stage| {
        stage.stack("typo/dev", &[("typo-dev", "one")]);
    });
    let push = stage.press_merge(7, "one");
    let wrong = job(&mut stage, "prod", &push);
    wrong.outcome.check(1);
    for said in ["`for-environment` is `prod`", "rules name dev, production"] {
        assert!(wrong.outcome.stderr.contains(said), "{}", wrong.outcome.stderr);
    }
    let status = stage.status(&push.1, "konverge/apply (prod)");
    assert_eq!(status.as_deref(), Some("error"));
    assert_eq!(stage.value("typo-dev").await, None);

    stage.env = vec![
        ("KONVERGE_FOR_ENVIRONMENT", "dev".to_owned()),
        ("KONVERGE_ENVIRONMENT", "production".to_owned()),
    ];
    let two = stage.push(&push.0, &push.1);
    two.outcome.check(3);
    let says = "runs in the environment `production`";
    assert!(two.outcome.stderr.contains(says), "{}", two.outcome.stderr);
    assert_eq!(stage.value("typo-dev").await, None);

    stage.env = vec![("KONVERGE_FOR_ENVIRONMENT", "dev".to_owned())];
    let drift = stage.schedule();
    drift.outcome.check(3);
    assert!(
        drift.outcome.stderr.contains("limits an apply"),
        "{}",
        drift.outcome.stderr
    );
    stage.monorepo.checkout("main").branch("two");
    stage.stack("typo/dev", &[("typo-dev", "two")]);
    stage.monorepo.commit("two");
    stage.pull_request(8, "two", "opened").outcome.check(3);
}

#[tokio::test(flavor = "multi_thread")]
async fn stacks_that_no_job_applies_are_told_in_every_run_and_by_doctor() {
    let workflow = "on: {push: {branches: [main]}}\njobs:\n  apply:\n    strategy: {matrix: {environment: [dev]}}\n    permissions: {contents: read, pull-requests: write, statuses: write, issues: write}\n    steps:\n    - uses: konverge/konverge@v1\n      with: {for-environment: '${{ matrix.environment }}'}\n";
    let mut stage = Stage::small(RULES).await;
    stage.monorepo.write(".github/workflows/konverge.yml", workflow);
    stage.monorepo.commit("A workflow");
    let says = "no job of the workflows applies cover/prod (production)";
    let (_, preview) = stage.reviewed(7, "both", |stage| {
        stage.stack("cover/dev", &[("cover-dev", "one")]);
        stage.stack("cover/prod", &[("cover-prod", "one")]);
    });
    assert!(
        preview.outcome.stderr.contains(says),
        "{}",
        preview.outcome.stderr
    );
    let push = stage.press_merge(7, "both");
    let applied = job(&mut stage, "dev", &push);
    applied.outcome.check(0);
    assert!(
        applied.outcome.stderr.contains(says),
        "{}",
        applied.outcome.stderr
    );
    let doctor = stage.konverge(["doctor"]).run();
    assert!(doctor.stdout.contains(says), "{}{}", doctor.stdout, doctor.stderr);
    // One job without the input applies all.
    let payload = payloads::push("main", &push.0, &push.1, false);
    let all = stage.ci("push", &payload, &push.1, "refs/heads/main");
    all.outcome.check(0);
    assert_eq!(stage.value("cover-prod").await.as_deref(), Some("one"));
}

/// A rule moves a stack to another environment while it is pending: its new job applies it, once, and the old one not
/// even in a run of the older commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_pending_stack_that_moves_is_applied_by_the_job_of_its_new_environment() {
    let mut stage = Stage::small(RULES).await;
    stage.reviewed(7, "roams", |stage| {
        stage.stack("roams/dev", &[("roams-dev", "one")]);
        stage.stack("stays/dev", &[("stays-dev", "one")]);
    });
    let merged = stage.press_merge(7, "roams");
    // The merge is not applied yet.
    stage.monorepo.checkout("main");
    stage.configure(&format!(
        "{RULES}- {{match: 'appops/roams/dev', environment: production}}\n"
    ));
    let moved = (merged.1.clone(), stage.monorepo.commit("The stack moves"));

    for push in [&merged, &moved] {
        let old = job(&mut stage, "dev", push);
        old.outcome.check(0);
        assert!(!old.summary.contains("roams/dev"), "{}", old.summary);
        assert_eq!(stage.value("roams-dev").await, None);
    }
    assert_eq!(stage.value("stays-dev").await.as_deref(), Some("one"));

    let new = job(&mut stage, "production", &moved);
    new.outcome.check(0);
    assert_eq!(stage.value("roams-dev").await.as_deref(), Some("one"));
    let receipt = stage.receipt("roams/dev");
    assert_eq!(receipt["pullRequests"][0]["number"], 7, "{receipt}");
    // Nobody applies it again.
    for environment in ["dev", "production"] {
        job(&mut stage, environment, &moved).outcome.check(0);
        assert_eq!(stage.receipt("roams/dev"), receipt, "{environment}");
    }
}
