//! What the client does when GitHub says no, says nothing, or asks to wait.

use std::time::Duration;

use konverge_base::error::{UserError, chain};
use konverge_base::model::comment_marker::{CommentMarker, MarkerKind};
use konverge_forge::{
    Changes as _, Checks as _, Deployments as _, ForgeError, KeptIssues as _, People as _, Publishing as _,
    RequestOptions, ReviewEdits as _, StatusState, StickyComments as _,
};
use konverge_github::{Client, Login};
use konverge_secrets::{HashKey, Secrets};
use serde_json::json;

use super::{body, check, client, client_with, marker, sha};
use crate::support::github::{Act, FakeGithub, Pull, Token, World};

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
    let mut drift = CommentMarker::new(MarkerKind::Drift, "shop/prod");
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
    // One more looks for a comment of another run.
    assert_eq!(github.requests(), 7);
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
        matches!(error, ForgeError::Limited { wait, .. } if wait.as_secs() == 3600),
        "{error:?}"
    );
    assert_eq!(fake.requests().len(), 1);
}

/// A repository that was renamed answers so. Where the way leads to another server, the token does not go along.
#[tokio::test]
async fn redirects_are_followed_and_the_token_stays_here() {
    let world = || {
        let mut world = World::new();
        world.pulls.push(Pull::open(12, sha('b').to_string()));
        world
    };
    let (fake, elsewhere) = (FakeGithub::start(world()).await, FakeGithub::start(world()).await);
    let to = |server: &FakeGithub, status: u16, path: &str| {
        let address = format!("{}/repos/acme/konfig{path}", server.api_url());
        Act::Answer(status, vec![("location", address)], json!({}))
    };
    fake.next("GET", "/pulls/12", to(&fake, 301, "/pulls/12"));
    assert_eq!(client(&fake).pull_request(12).await.unwrap().number, 12);
    fake.next("POST", "/comments", to(&fake, 307, "/issues/12/comments"));
    client(&fake)
        .upsert_comment(12, &marker(1), &body(&marker(1), "one"))
        .await
        .unwrap();
    assert_eq!(fake.world(|world| world.comments.len()), 1);

    fake.next("GET", "/pulls/12", to(&elsewhere, 302, "/pulls/12"));
    assert_eq!(client(&fake).pull_request(12).await.unwrap().number, 12);
    assert!(elsewhere.requests().is_empty());
    for _ in 0..4 {
        fake.next("GET", "/pulls/12", to(&fake, 301, "/pulls/12"));
    }
    let error = client(&fake).pull_request(12).await.unwrap_err();
    assert!(matches!(error, ForgeError::Malformed { .. }), "{error:?}");
}

#[tokio::test]
async fn silence_has_a_deadline() {
    let fake = FakeGithub::start(World::new()).await;
    fake.next("GET", "/pulls/1", Act::Hang);
    let github = client(&fake).with_options(RequestOptions {
        deadline: Duration::from_millis(200),
        ..RequestOptions::once()
    });
    let error = github.pull_request(1).await.unwrap_err();
    assert!(matches!(error, ForgeError::Unreachable { .. }), "{error:?}");
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
        let failure = UserError::from(error);
        assert!(
            failure.hints[0].contains(&format!("`{key}`")),
            "{call}: {failure:?}"
        );
    }
}

#[tokio::test]
async fn a_wrong_token_is_said_and_never_printed() {
    let fake = FakeGithub::start(World::new()).await;
    let failure = UserError::from(
        client_with(&fake, "ghs_expired_token")
            .pull_request(1)
            .await
            .unwrap_err(),
    );
    assert!(failure.message.contains("refuses the token"), "{failure:?}");
    assert!(!format!("{failure:?} {:?}", client_with(&fake, "ghs_expired_token")).contains("ghs_expired"));
}

#[tokio::test]
async fn addresses_and_tokens_that_can_not_be() {
    let make = |url: &str, token: &str| {
        Client::new(
            url,
            "acme/konfig",
            Login::Token(token),
            Secrets::new(HashKey::random()),
        )
    };
    assert!(make("api.github.com", "t").is_err());
    assert!(make("https://api.github.com", "").is_err());
    assert!(make("https://api.github.com", "a\nb").is_err());
    assert!(make("https://api.github.com/", "ghs_x").is_ok());
}

/// Whether somebody edited a review decides whether its text overrides a finding: what is not said for certain is an
/// error.
#[tokio::test]
async fn an_answer_that_does_not_say_for_certain_who_edited_a_review_is_an_error() {
    let review = konverge_forge::ReviewApproval {
        reviewer: "grace".to_owned(),
        commit: "a".repeat(40).parse().unwrap(),
        given: None,
        said: "override".to_owned(),
        node: "PRR_1".to_owned(),
    };
    let error = json!([{"type": "FORBIDDEN", "message": "editor is not accessible"}]);
    for (answer, words) in [
        (
            json!({"data": {"node": {"editor": null}}, "errors": error}),
            "editor is not accessible",
        ),
        (json!({"data": {"node": null}}), "who edited the review of grace"),
        (json!({"data": null, "errors": error}), "editor is not accessible"),
        (json!({}), "who edited the review of grace"),
    ] {
        let fake = FakeGithub::start(World::new()).await;
        fake.next("POST", "/graphql", Act::Answer(200, vec![], answer.clone()));
        let said = client(&fake).review_editor(&review).await;
        let said = chain(&said.expect_err(&answer.to_string()));
        assert!(said.contains(words), "{answer}: {said}");
    }
    for (editor, known) in [
        (json!(null), None),
        (json!({"login": "mallory"}), Some("mallory".to_owned())),
    ] {
        let fake = FakeGithub::start(World::new()).await;
        let answer = json!({"data": {"node": {"editor": editor}}});
        fake.next("POST", "/graphql", Act::Answer(200, vec![], answer));
        assert_eq!(client(&fake).review_editor(&review).await.unwrap(), known);
    }
}
