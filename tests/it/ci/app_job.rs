//! A job that logs in as a GitHub App, without a token of its own.

use crate::support::{ci_stage::Stage, tiny_monorepo};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_a_token_comments_as_its_app_and_shows_neither_key_nor_token() {
    let monorepo = tiny_monorepo::monorepo();
    tiny_monorepo::write_stack(&monorepo, "shop/dev", "app-login", "info");
    let mut stage = Stage::with("app-login", monorepo, "").await;
    let key = stage.github.world(|world| {
        *world = std::mem::take(world).with_installed_app("konverge[bot]", 1234);
        world.app.as_ref().unwrap().key.clone()
    });
    // As a store of secrets keeps it: in one line.
    let in_one_line = key.trim().replace('\n', "\\n");
    let lines: Vec<_> = key
        .lines()
        .filter(|line| line.len() == 64)
        .map(str::to_owned)
        .collect();
    stage.env = vec![
        ("KONVERGE_LIVE", "never".to_owned()),
        ("GITHUB_TOKEN", String::new()),
        ("KONVERGE_GITHUB_APP_ID", "1234".to_owned()),
        ("KONVERGE_GITHUB_APP_KEY", in_one_line),
        ("RUNNER_DEBUG", "1".to_owned()),
    ];
    stage.propose("paint", |repository| {
        repository.write("base/app.k", "color = \"blue\"\n");
    });
    let ran = stage.pull_request(7, "paint", "opened");
    ran.outcome.check(0);
    let comments = stage.github.world(|world| world.comments.clone());
    assert_eq!(comments.len(), 1);
    assert_eq!(comments[0].login, "konverge[bot]");
    let shown = format!("{}{}{}", ran.outcome.stdout, ran.outcome.stderr, ran.summary);
    assert!(!shown.contains("ghs_app"), "{shown}");
    assert!(lines.iter().all(|line| !shown.contains(line)), "{shown}");

    stage.env.retain(|(name, _)| *name != "KONVERGE_GITHUB_APP_ID");
    let half = stage.pull_request(7, "paint", "synchronize");
    half.outcome.check(1);
    assert!(
        half.outcome
            .stderr
            .contains("KONVERGE_GITHUB_APP_KEY is set without"),
        "{}",
        half.outcome.stderr
    );
}
