//! How much a preview asks of GitHub: little, however many stacks a change reaches.

use crate::support::{
    ci_stage::Stage,
    git::Repository,
    github::{Recorded, World},
    tiny_monorepo,
};

/// Rules that have to ask GitHub about people.
const RULES: &str = "policy:\n  approvals: 1\n  reviewers: [acme/infra]\n";

fn stacks(repository: &Repository, number: usize) {
    for nth in 0..number {
        tiny_monorepo::write_stack(
            repository,
            &format!("app-{:04}/{}", nth / 2, ["dev", "prod"][nth % 2]),
            &format!("requests-{nth}"),
            "info",
        );
    }
}

/// A preview, Spec against Spec, of a change of the base that reaches every stack; what it asked of GitHub.
async fn previewed(number: usize) -> (Stage, Vec<Recorded>) {
    let monorepo = tiny_monorepo::monorepo();
    stacks(&monorepo, number);
    let mut stage = Stage::with("requests", monorepo, RULES).await;
    stage.env = vec![("KONVERGE_LIVE", "never".to_owned())];
    stage.propose("paint", |repository| {
        repository.write("base/app.k", "color = \"blue\"\n");
    });
    stage.github.world(|world: &mut World| {
        for nth in 0..150 {
            world.comment(7, "somebody", &format!("comment {nth}"));
        }
        for comment in &mut world.comments {
            comment.updated = "2026-11-01T10:00:00Z".into();
        }
    });
    let ran = stage.pull_request(7, "paint", "opened");
    ran.outcome.check(0);
    let requests = stage.github.requests();
    (stage, requests)
}

fn is_check(request: &&Recorded) -> bool {
    request.path.ends_with("/check-runs")
}

fn writes(request: &&Recorded) -> bool {
    request.method != "GET"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_common_preview_takes_few_requests() {
    let (stage, requests) = previewed(12).await;
    // One of them looks, after the comment was created, for that of another run.
    assert!(requests.len() <= 14, "{}: {requests:#?}", requests.len());
    assert_eq!(requests.iter().filter(is_check).count(), 1);
    let writes = requests
        .iter()
        .filter(writes)
        .filter(|request| !is_check(request));
    assert_eq!(writes.count(), 3, "two statuses and the comment");
    let body = stage.comments().pop().unwrap().1;
    assert!(body.contains("Same change in 12 stacks"), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "compiles 4,000 Specs: `make test-all`"]
async fn two_thousand_stacks_are_one_comment_and_one_check() {
    let (stage, requests) = previewed(2_000).await;
    assert!(requests.len() <= 14, "{}", requests.len());
    assert_eq!(requests.iter().filter(is_check).count(), 1);
    let others = requests
        .iter()
        .filter(writes)
        .filter(|request| !is_check(request));
    assert!(others.count() <= 5);
    let ours = |(_, body): &&(u64, String)| body.starts_with("<!-- konverge:v1 ");
    let comments = stage.comments();
    assert_eq!(comments.iter().filter(ours).count(), 1);
    let body = &comments.last().unwrap().1;
    assert!(
        body.contains("2000 to update\n\n2000 stacks affected: 2000 to change")
            && body.contains("Same change in 2000 stacks"),
        "{body}"
    );
}
