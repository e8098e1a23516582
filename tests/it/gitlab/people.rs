//! Who approved which head, and who may.

use konverge_forge::{Forge as _, ForgeError, People as _, Permission};

use crate::support::{gitlab::Act, gitlab_stage::GitlabStage};

#[tokio::test]
async fn an_approval_is_of_the_head_that_gitlab_had_then() {
    let stage = GitlabStage::start().await;
    let old = stage.propose(1, "topic", "a", "1");
    let new = "b".repeat(40);
    let konverge = stage.client();
    assert!(konverge.approvals(1).await.unwrap().is_empty());
    stage.gitlab.world(|world| {
        let one = &mut world.merge_requests[0];
        one.versions
            .push((new.clone(), "2026-11-29T12:00:00.000Z".to_owned()));
        one.approvals = vec![
            ("bob", Some("2026-11-29T11:00:00.000Z")),
            ("eve", Some("2026-11-29T12:00:00.001Z")),
            // Before there was a head.
            ("ada", Some("2026-11-29T09:00:00.000Z")),
        ];
    });
    let found = konverge.approvals(1).await.unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|one| (one.reviewer.as_str(), one.commit.as_str()))
        .collect();
    assert_eq!(found, [("bob", old.as_str()), ("eve", new.as_str())]);
}

#[tokio::test]
async fn a_server_that_says_no_time_of_an_approval_is_too_old() {
    let stage = GitlabStage::start().await;
    stage.propose(1, "topic", "a", "1");
    stage.gitlab.world(|world| {
        world.merge_requests[0].approvals = vec![("bob", None)];
        world.version = "17.11.2-ee";
    });
    let error = stage.client().approvals(1).await.unwrap_err();
    assert!(matches!(error, ForgeError::Outdated { .. }));
    let said = error.to_string();
    assert!(
        said.contains("GitLab 17.11.2-ee is too old") && said.contains("18.5"),
        "{said}"
    );
}

#[tokio::test]
async fn a_permission_is_that_of_an_active_member() {
    let stage = GitlabStage::start().await;
    let konverge = stage.client();
    stage.gitlab.world(|world| {
        world
            .users
            .extend([("mallory", "blocked"), ("guest", "active"), ("minimal", "active")]);
        world
            .members
            .extend([("mallory", 50), ("guest", 10), ("minimal", 5)]);
    });
    for (user, permission) in [
        ("ada", Permission::Admin),
        ("bob", Permission::Write),
        ("eve", Permission::Read),
        ("guest", Permission::Read),
        ("minimal", Permission::None),
        ("mallory", Permission::None),
        ("reader", Permission::None),
        ("nobody", Permission::None),
        ("../ada", Permission::None),
    ] {
        assert_eq!(konverge.permission(user).await.unwrap(), permission, "{user}");
    }
    // What fails is no answer.
    stage.gitlab.next(
        "GET",
        "/members/all/1",
        Act::Answer(403, vec![], r#"{"message":"403 Forbidden"}"#),
    );
    assert!(konverge.permission("bob").await.is_err());
}

#[tokio::test]
async fn a_team_is_a_group_and_its_direct_members() {
    let stage = GitlabStage::start().await;
    let konverge = stage.client();
    stage.gitlab.world(|world| {
        world.groups.insert("acme/platform/sre", vec!["bob"]);
    });
    let is_member = async |team: &str, user: &str| konverge.is_team_member("acme", team, user).await;
    assert!(is_member("platform/sre", "bob").await.unwrap());
    assert!(!is_member("platform/sre", "ada").await.unwrap());
    assert!(!is_member("platform/sre", "nobody").await.unwrap());
    let hidden = is_member("secret", "bob").await.unwrap_err();
    assert!(matches!(hidden, ForgeError::NotFound { .. }), "{hidden}");
    // It was moved, and another one is at its old name.
    stage.gitlab.next(
        "GET",
        "/groups/acme/platform/sre",
        Act::Answer(200, vec![], r#"{"full_path":"acme/other"}"#),
    );
    assert!(is_member("platform/sre", "bob").await.is_err());
}

#[tokio::test]
async fn what_gitlab_has_not_is_a_value() {
    let stage = GitlabStage::start().await;
    let konverge = stage.client();
    let lacking = [
        konverge.checks().err(),
        konverge.deployments().err(),
        konverge.environments().err(),
        konverge.review_edits().err(),
        konverge.branch_activity().err(),
        konverge.code_owners().err(),
    ];
    assert!(lacking.iter().all(Option::is_some), "{lacking:?}");
    assert!(stage.operations().is_empty());
}
