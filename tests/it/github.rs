//! The client against the fake GitHub: what it writes, what it finds again, what it does when GitHub says no.

use std::time::Duration;

use konverge::{
    error::Failure,
    github::{Client, DeploymentState, GithubError, IssueChange, Permission, StatusState, Upsert},
    model::{
        CommitId,
        check::{Annotation, Check, Conclusion, Level},
        marker::{Marker, MarkerKind},
    },
    report::{COMMENT_BUDGET, markdown},
    retry::Policy,
    secrets::{HashKey, Secrets},
};
use serde_json::json;

use crate::support::{
    github::{Act, FakeGithub, Issue, Pull, Token, World},
    sample,
};

fn client(fake: &FakeGithub) -> Client {
    client_with(fake, "ghs_token")
}

fn client_with(fake: &FakeGithub, token: &str) -> Client {
    let quick = Policy {
        first: Duration::from_millis(1),
        total: Duration::from_secs(20),
        ..Policy::default()
    };
    Client::new(
        &fake.api_url(),
        "acme/konfig",
        token,
        Secrets::new(HashKey::derived("test")),
    )
    .unwrap()
    .with_patience(quick)
    .with_deadline(Duration::from_secs(10))
}

fn sha(digit: char) -> CommitId {
    digit.to_string().repeat(40).parse().unwrap()
}

fn marker(run: u64) -> Marker {
    let mut marker = Marker::new(MarkerKind::Preview, "");
    marker.run = run;
    marker.attempt = 1;
    marker
}

fn body(marker: &Marker, text: &str) -> String {
    format!("{}\n{text}\n", marker.line())
}

#[tokio::test]
async fn one_comment_is_made_then_edited_in_place() {
    let fake = FakeGithub::start(World::new()).await;
    let github = client(&fake);
    let first = github
        .upsert_comment(12, &marker(1), &body(&marker(1), "one"))
        .await
        .unwrap();
    assert!(matches!(first, Upsert::Created { .. }), "{first:?}");
    let second = github
        .upsert_comment(12, &marker(2), &body(&marker(2), "two"))
        .await
        .unwrap();
    assert!(matches!(second, Upsert::Updated { .. }), "{second:?}");
    let again = github
        .upsert_comment(12, &marker(2), &body(&marker(2), "two"))
        .await
        .unwrap();
    assert!(matches!(again, Upsert::Unchanged { .. }), "{again:?}");
    fake.world(|world| {
        assert_eq!(world.comments.len(), 1);
        assert!(world.comments[0].body.ends_with("two\n"));
    });
    assert_eq!(fake.writes(), 2);
}

#[tokio::test]
async fn it_is_found_behind_a_hundred_others() {
    let fake = FakeGithub::start(World::new()).await;
    fake.world(|world| {
        for n in 0..250 {
            world.comment(12, "somebody", &format!("comment {n}"));
        }
        world.comment(12, "github-actions[bot]", &body(&marker(1), "ours"));
    });
    let result = client(&fake)
        .upsert_comment(12, &marker(2), &body(&marker(2), "new"))
        .await
        .unwrap();
    assert!(matches!(result, Upsert::Updated { .. }));
    assert_eq!(fake.world(|world| world.comments.len()), 251);
    assert_eq!(fake.requests().len(), 4, "three pages and one write");
}

#[tokio::test]
async fn a_stranger_with_our_marker_is_left_alone() {
    let fake = FakeGithub::start(World::new()).await;
    let stranger = body(&marker(99), "captured");
    fake.world(|world| world.comment(12, "mallory", &stranger));
    client(&fake)
        .upsert_comment(12, &marker(1), &body(&marker(1), "ours"))
        .await
        .unwrap();
    fake.world(|world| {
        assert_eq!(world.comments.len(), 2);
        assert_eq!(world.comments[0].body, stranger);
    });
}

#[tokio::test]
async fn an_older_run_keeps_quiet_and_legs_have_their_own() {
    let fake = FakeGithub::start(World::new()).await;
    let github = client(&fake);
    github
        .upsert_comment(12, &marker(7), &body(&marker(7), "newer"))
        .await
        .unwrap();
    let older = github
        .upsert_comment(12, &marker(6), &body(&marker(6), "older"))
        .await
        .unwrap();
    assert!(matches!(older, Upsert::NewerRunWrote { .. }));
    let mut leg = marker(6);
    leg.scope = "2/8".into();
    github.upsert_comment(12, &leg, &body(&leg, "leg")).await.unwrap();
    let bodies = fake.world(|world| world.comments.iter().map(|c| c.body.clone()).collect::<Vec<_>>());
    assert_eq!(bodies, [body(&marker(7), "newer"), body(&leg, "leg")]);
}

#[tokio::test]
async fn two_that_raced_become_one() {
    let fake = FakeGithub::start(World::new()).await;
    fake.world(|world| {
        world.comment(12, "github-actions[bot]", &body(&marker(1), "a"));
        world.comment(12, "github-actions[bot]", &body(&marker(2), "b"));
    });
    client(&fake)
        .upsert_comment(12, &marker(3), &body(&marker(3), "c"))
        .await
        .unwrap();
    let bodies = fake.world(|world| world.comments.iter().map(|c| c.body.clone()).collect::<Vec<_>>());
    assert_eq!(bodies, [body(&marker(3), "c")]);
}

#[tokio::test]
async fn a_post_whose_answer_was_lost_is_not_made_twice() {
    let fake = FakeGithub::start(World::new()).await;
    fake.next("POST", "/comments", Act::DropAfter);
    let github = client(&fake);
    github
        .upsert_comment(12, &marker(1), &body(&marker(1), "one"))
        .await
        .unwrap();
    assert_eq!(fake.world(|world| world.comments.len()), 1);

    fake.next("POST", "/comments", Act::DropBefore);
    github
        .upsert_comment(13, &marker(1), &body(&marker(1), "one"))
        .await
        .unwrap();
    assert_eq!(
        fake.world(|world| world.comments.len()),
        2,
        "one that never arrived is made after looking"
    );

    fake.next("POST", "/issues", Act::DropAfter);
    let mut drift = Marker::new(MarkerKind::Drift, "shop/prod");
    drift.digest = "d1".into();
    github
        .keep_issue(&[], "konverge-drift", &drift, "drift", &body(&drift, "x"))
        .await
        .unwrap();
    assert_eq!(fake.world(|world| world.issues.len()), 1);

    fake.next("POST", "/check-runs", Act::DropAfter);
    github
        .create_check(&sha('a'), &check(0), "run-1", None)
        .await
        .unwrap();
    assert_eq!(fake.world(|world| world.checks.len()), 1);

    fake.next("POST", "/deployments", Act::DropAfter);
    github
        .create_deployment(&sha('a'), "prod", "apply", &json!({"run": 1}))
        .await
        .unwrap();
    assert_eq!(fake.world(|world| world.deployments.len()), 1);
}

#[tokio::test]
async fn limits_are_waited_for_and_failures_retried() {
    let fake = FakeGithub::start(World::new()).await;
    let github = client(&fake);
    let limited = |status| {
        Act::Answer(
            status,
            vec![("retry-after", "0".into())],
            json!({"message": "secondary rate limit"}),
        )
    };
    fake.next("GET", "/comments", Act::Answer(502, vec![], json!({})));
    fake.next("GET", "/comments", Act::DropBefore);
    fake.next("POST", "/comments", limited(403));
    fake.next("POST", "/comments", limited(429));
    github
        .upsert_comment(12, &marker(1), &body(&marker(1), "one"))
        .await
        .unwrap();
    assert_eq!(fake.world(|world| world.comments.len()), 1);
    assert_eq!(github.requests(), 6);
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_an_error_and_nothing_is_tried_again() {
    let fake = FakeGithub::start(World::new()).await;
    fake.next(
        "GET",
        "/comments",
        Act::Answer(429, vec![("retry-after", "3600".into())], json!({})),
    );
    let error = client(&fake)
        .upsert_comment(12, &marker(1), "x")
        .await
        .unwrap_err();
    assert!(
        matches!(error, GithubError::Limited { wait, .. } if wait.as_secs() == 3600),
        "{error:?}"
    );
    assert_eq!(fake.requests().len(), 1);
}

#[tokio::test]
async fn silence_has_a_deadline() {
    let fake = FakeGithub::start(World::new()).await;
    fake.next("GET", "/pulls/1", Act::Hang);
    let once = Policy {
        attempts: 1,
        ..Policy::default()
    };
    let github = client(&fake)
        .with_patience(once)
        .with_deadline(Duration::from_millis(200));
    let error = github.pull_request(1).await.unwrap_err();
    assert!(matches!(error, GithubError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_missing_permission_names_its_key() {
    let cases: [(&str, &str); 6] = [
        ("comment", "pull-requests: write"),
        ("status", "statuses: write"),
        ("check", "checks: write"),
        ("issue", "issues: write"),
        ("deployment", "deployments: write"),
        ("team", "members: read"),
    ];
    for (call, key) in cases {
        let mut world = World::new();
        let permissions = [
            ("metadata", "read"),
            ("pull_requests", "read"),
            ("issues", "read"),
        ]
        .into();
        world.tokens.insert(
            "ghs_poor",
            Token {
                login: "github-actions[bot]",
                permissions,
            },
        );
        let fake = FakeGithub::start(world).await;
        let github = client_with(&fake, "ghs_poor");
        let marker = marker(1);
        let error = match call {
            "comment" => github.upsert_comment(12, &marker, "x").await.unwrap_err(),
            "status" => github
                .set_status(&sha('a'), "konverge/preview", StatusState::Success, "x", None)
                .await
                .unwrap_err(),
            "check" => github
                .create_check(&sha('a'), &check(0), "x", None)
                .await
                .unwrap_err(),
            "issue" => github.keep_issue(&[], "l", &marker, "t", "b").await.unwrap_err(),
            "deployment" => github
                .create_deployment(&sha('a'), "prod", "x", &json!({}))
                .await
                .unwrap_err(),
            _ => github.is_team_member("acme", "infra", "ada").await.unwrap_err(),
        };
        let failure = Failure::from(error);
        assert!(
            failure.hints[0].contains(&format!("`{key}`")),
            "{call}: {failure:?}"
        );
    }
}

#[tokio::test]
async fn a_wrong_token_is_said_and_never_printed() {
    let fake = FakeGithub::start(World::new()).await;
    let failure = Failure::from(
        client_with(&fake, "ghs_expired_token")
            .pull_request(1)
            .await
            .unwrap_err(),
    );
    assert!(failure.message.contains("refuses the token"), "{failure:?}");
    assert!(!format!("{failure:?} {:?}", client_with(&fake, "ghs_expired_token")).contains("ghs_expired"));
}

#[tokio::test]
async fn what_is_too_long_is_packed_smaller() {
    let fake = FakeGithub::start(World::new()).await;
    let refuse = || {
        Act::Answer(
            422,
            vec![],
            json!({"message": "Validation Failed", "errors": [{"message": "Body is too long (maximum is 65536 characters)"}]}),
        )
    };
    fake.next("POST", "/comments", refuse());
    fake.next("POST", "/comments", refuse());
    let large = sample::large(300);
    let github = client(&fake);
    github
        .upsert_packed(12, &large.marker, |budget| {
            markdown::comment(&large.input(budget)).body
        })
        .await
        .unwrap();
    let length = fake.world(|world| world.comments[0].body.len());
    assert!(length <= 20_000, "{length}");
}

#[tokio::test]
async fn a_comment_at_the_limit_is_taken() {
    let fake = FakeGithub::start(World::new()).await;
    let large = sample::large(2_000);
    let comment = markdown::comment(&large.input(COMMENT_BUDGET));
    client(&fake)
        .upsert_comment(12, &large.marker, &comment.body)
        .await
        .unwrap();
    assert_eq!(fake.writes(), 1);
}

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

fn check(annotations: u32) -> Check {
    let note = |line| Annotation {
        level: Level::Error,
        file: "appops/shop/dev/main.k".into(),
        line: Some(line),
        column: Some(1),
        title: "KCL".into(),
        message: "no such attribute".into(),
    };
    Check {
        name: "konverge: shop/dev".into(),
        conclusion: Conclusion::Failure,
        title: "failed".into(),
        summary: "é".repeat(40_000),
        text: "x".repeat(70_000),
        annotations: (1..=annotations).map(note).collect(),
    }
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

#[tokio::test]
async fn an_issue_is_opened_updated_closed_and_reopened() {
    let fake = FakeGithub::start(World::new()).await;
    let github = client(&fake);
    let label = "konverge-drift";
    let mut drift = Marker::new(MarkerKind::Drift, "shop/prod");
    let mut seen = Vec::new();
    fake.world(|world| {
        let forged = body(&Marker::new(MarkerKind::Drift, "shop/prod"), "not ours");
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
async fn who_merged_what_and_who_may() {
    let mut world = World::new();
    world.pulls.push(Pull {
        number: 12,
        head: sha('b').to_string(),
        merged_at: Some("2026-11-20T10:00:00Z".into()),
        merge_commit: Some(sha('c').to_string()),
        head_repository: None,
    });
    world.commit_pulls.insert(sha('c').to_string(), vec![12]);
    let review = |login: &str, state: &str| {
        (
            12,
            json!({"user": {"login": login}, "state": state, "commit_id": sha('b')}),
        )
    };
    world.reviews = vec![
        review("ada", "APPROVED"),
        review("bob", "APPROVED"),
        review("ada", "COMMENTED"),
        review("bob", "CHANGES_REQUESTED"),
    ];
    world.collaborators = [("ada".to_owned(), "write"), ("root".to_owned(), "admin")].into();
    let fake = FakeGithub::start(world).await;
    let github = client(&fake);
    let pulls = github.pull_requests_of_commit(&sha('c')).await.unwrap();
    assert!(pulls[0].is_merged() && pulls[0].from_fork && pulls[0].head == sha('b'));
    assert_eq!(github.merged_pull_requests("main", 2).await.unwrap(), pulls);
    let approvals = github.approvals(12).await.unwrap();
    assert_eq!(
        approvals.iter().map(|a| a.reviewer.as_str()).collect::<Vec<_>>(),
        ["ada"]
    );
    assert_eq!(github.permission("ada").await.unwrap(), Permission::Write);
    assert_eq!(github.permission("root").await.unwrap(), Permission::Admin);
    assert_eq!(
        github.permission("mallory/../root").await.unwrap(),
        Permission::None
    );
    assert!(github.is_protected("main").await.unwrap());
    assert!(!github.is_protected("topic").await.unwrap());
}

#[tokio::test]
async fn what_did_not_change_is_not_sent_again() {
    let mut world = World::new();
    world.pulls.push(Pull {
        number: 12,
        head: sha('b').to_string(),
        merged_at: None,
        merge_commit: None,
        head_repository: Some("acme/konfig".into()),
    });
    let fake = FakeGithub::start(world).await;
    let github = client(&fake);
    let first = github.pull_request(12).await.unwrap();
    assert_eq!(github.pull_request(12).await.unwrap(), first);
    fake.world(|world| world.pulls[0].head = sha('d').to_string());
    assert_eq!(github.pull_request(12).await.unwrap().head, sha('d'));
}

#[tokio::test]
async fn a_server_of_ones_own() {
    let fake = FakeGithub::start_at(World::new(), "/api/v3").await;
    fake.world(|world| {
        for n in 0..120 {
            world.comment(12, "somebody", &format!("comment {n}"));
        }
    });
    let github = client(&fake);
    github
        .upsert_comment(12, &marker(1), &body(&marker(1), "one"))
        .await
        .unwrap();
    assert_eq!(fake.world(|world| world.comments.len()), 121);
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

#[tokio::test]
async fn a_common_run_takes_few_requests() {
    let fake = FakeGithub::start(World::new()).await;
    let github = client(&fake);
    let shop = sample::shop();
    let head = shop.run.head.clone().unwrap();
    github
        .set_status(
            &head,
            "konverge/preview",
            StatusState::Pending,
            "previewing",
            None,
        )
        .await
        .unwrap();
    let packed = |budget| markdown::comment(&shop.input(budget)).body;
    github.upsert_packed(12, &shop.marker, packed).await.unwrap();
    github
        .set_status(
            &head,
            "konverge/preview",
            StatusState::Success,
            "5 of 140 stacks change",
            None,
        )
        .await
        .unwrap();
    assert_eq!(github.requests(), 4);
    assert!(fake.writes() <= 5);
}

#[tokio::test]
async fn addresses_and_tokens_that_can_not_be() {
    let make =
        |url: &str, token: &str| Client::new(url, "acme/konfig", token, Secrets::new(HashKey::random()));
    assert!(make("api.github.com", "t").is_err());
    assert!(make("https://api.github.com", "").is_err());
    assert!(make("https://api.github.com", "a\nb").is_err());
    assert!(make("https://api.github.com/", "ghs_x").is_ok());
}
