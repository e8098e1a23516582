//! What the client writes besides the comment: statuses, check runs, issues, deployments, within their limits.

use konverge_base::model::comment_marker::{CommentMarker, MarkerKind};
use konverge_forge::{
    Checks as _, DeploymentState, Deployments as _, IssueChange, KeptIssues as _, Publishing as _,
    StatusState, duplicate_issues,
};
use serde_json::json;

use super::{body, check, client, client_with, sha};
use crate::support::github::{Act, FakeGithub, Issue, World};

#[tokio::test]
async fn statuses_fit() {
    let fake = FakeGithub::start(World::new()).await;
    let github = client(&fake);
    let long = "12 of 140 stacks change ".repeat(20);
    github
        .set_status(
            &sha('a'),
            "konverge/preview",
            StatusState::Success,
            &long,
            Some("https://x/y"),
        )
        .await
        .unwrap();
    fake.next("POST", &format!("/statuses/{}", sha('a')), Act::DropAfter);
    github
        .set_status(&sha('a'), "konverge/preview", StatusState::Failure, "no", None)
        .await
        .unwrap();
    fake.world(|world| {
        assert_eq!(world.statuses.last().unwrap().1["state"], "failure");
        assert_eq!(world.statuses[0].1["target_url"], "https://x/y");
    });
}

#[tokio::test]
async fn checks_keep_their_limits() {
    let fake = FakeGithub::start(World::new()).await;
    client(&fake)
        .create_check(&sha('a'), &check(120), "run-1", Some("https://x/y"))
        .await
        .unwrap();
    fake.world(|world| {
        assert_eq!(world.checks.len(), 1);
        assert_eq!(
            world.checks[0]["output"]["annotations"].as_array().unwrap().len(),
            120
        );
    });
    assert_eq!(fake.writes(), 3, "fifty annotations a request");
}

/// By GITHUB_TOKEN, and by an App, whose issues are its own.
#[tokio::test]
async fn an_issue_is_opened_updated_closed_and_reopened() {
    for token in ["ghs_token", "ghs_app"] {
        kept_by(token).await;
    }
}

async fn kept_by(token: &str) {
    let fake = FakeGithub::start(World::new().with_app("acme-konverge[bot]")).await;
    let github = client_with(&fake, token);
    let label = "konverge-drift";
    let mut drift = CommentMarker::new(MarkerKind::Drift, "shop/prod");
    let mut seen = Vec::new();
    fake.world(|world| {
        let forged = body(&CommentMarker::new(MarkerKind::Drift, "shop/prod"), "not ours");
        world.issues.push(Issue {
            number: 5,
            login: "mallory".into(),
            title: "x".into(),
            body: forged,
            labels: vec![label.into()],
            state: "open".into(),
        });
    });
    for digest in ["d1", "d1", "d2"] {
        drift.digest = digest.into();
        let known = github.kept_issues(label).await.unwrap();
        seen.push(
            github
                .keep_issue(&known, label, &drift, "drift", &body(&drift, digest))
                .await
                .unwrap(),
        );
    }
    let known = github.kept_issues(label).await.unwrap();
    seen.push(github.close_issue(&known[0]).await.unwrap());
    let known = github.kept_issues(label).await.unwrap();
    seen.push(
        github
            .keep_issue(&known, label, &drift, "drift", &body(&drift, "again"))
            .await
            .unwrap(),
    );
    assert_eq!(
        seen,
        [
            IssueChange::Opened,
            IssueChange::Unchanged,
            IssueChange::Updated,
            IssueChange::Closed,
            IssueChange::Reopened
        ]
    );
    assert_eq!(
        fake.world(|world| world.issues.len()),
        2,
        "the stranger's stays as it is"
    );
}

#[tokio::test]
async fn an_older_run_leaves_the_issue_of_a_newer_one() {
    let fake = FakeGithub::start(World::new()).await;
    let github = client(&fake);
    let mut drift = CommentMarker::new(MarkerKind::Drift, "shop/prod");
    let mut seen = Vec::new();
    for (run, digest) in [(7, "d7"), (6, "d6"), (8, "d8")] {
        (drift.run, drift.digest) = (run, digest.into());
        let known = github.kept_issues("l").await.unwrap();
        let text = body(&drift, digest);
        let change = github.keep_issue(&known, "l", &drift, "drift", &text);
        seen.push(change.await.unwrap());
    }
    use IssueChange::{Opened, Unchanged, Updated};
    assert_eq!(seen, [Opened, Unchanged, Updated]);
    assert!(fake.world(|world| world.issues[0].body.contains("d8")));
}

#[tokio::test]
async fn a_deployment_is_told() {
    let fake = FakeGithub::start(World::new()).await;
    let github = client(&fake);
    let receipt = json!({"digest": "d", "run": "https://x/y", "outcome": "applied"});
    let id = github
        .create_deployment(&sha('a'), "prod", "apply of 3 stacks", &receipt)
        .await
        .unwrap();
    github
        .set_deployment_status(id, DeploymentState::Success, "3 stacks applied", None)
        .await
        .unwrap();
    fake.world(|world| {
        assert_eq!(world.deployments[0]["auto_merge"], false);
        assert_eq!(world.deployments[0]["required_contexts"], json!([]));
        assert_eq!(world.deployment_statuses[0].1["state"], "success");
    });
}

/// Two runs find no issue of a stack, and each opens one: the older stays, and so do those of other stacks and kinds.
#[tokio::test]
async fn of_two_issues_of_a_stack_the_older_stays() {
    let fake = FakeGithub::start(World::new()).await;
    let github = client(&fake);
    let marker = |kind, scope: &str, run| {
        let mut marker = CommentMarker::new(kind, scope);
        marker.run = run;
        marker
    };
    let nothing_known = [];
    for marker in [
        marker(MarkerKind::Drift, "shop/prod", 7),
        marker(MarkerKind::Drift, "shop/prod", 8),
        marker(MarkerKind::Drift, "shop/dev", 8),
        marker(MarkerKind::Unreviewed, "shop/prod", 8),
    ] {
        let text = body(&marker, "x");
        let opened = github.keep_issue(&nothing_known, "l", &marker, "t", &text);
        assert_eq!(opened.await.unwrap(), IssueChange::Opened);
    }
    let known = github.kept_issues("l").await.unwrap();
    let double = duplicate_issues(&known, MarkerKind::Drift);
    assert_eq!(
        double.iter().map(|issue| issue.marker.run).collect::<Vec<_>>(),
        [8]
    );
    assert_eq!(double[0].marker.scope, "shop/prod");
    github.close_issue(double[0]).await.unwrap();
    let known = github.kept_issues("l").await.unwrap();
    assert!(duplicate_issues(&known, MarkerKind::Drift).is_empty());
    // The next run writes to the one that is open.
    let mut next = marker(MarkerKind::Drift, "shop/prod", 9);
    next.digest = "new".into();
    let text = body(&next, "y");
    let change = github.keep_issue(&known, "l", &next, "t", &text);
    assert_eq!(change.await.unwrap(), IssueChange::Updated);
    assert!(fake.world(|world| world.issues[0].body.ends_with("y\n")));
}
