//! Who approved what, and who may: what GitHub does not say for certain counts as no approval and no permission.

use konverge_forge::{
    BranchActivity as _, Changes as _, Environments as _, ForgeError, People as _, Permission,
};
use serde_json::{Value, json};

use super::{client, sha};
use crate::support::github::{Act, FakeGithub, World};

/// A GitHub whose next answer to a request that ends so is this one.
async fn answering(method: &'static str, path: &str, answer: Value) -> FakeGithub {
    let fake = FakeGithub::start(World::new()).await;
    fake.next(method, path, Act::Answer(200, vec![], answer));
    fake
}

#[tokio::test]
async fn only_the_last_word_of_a_reviewer_counts() {
    let review = |login: &str, state: &str, commit: Value| {
        (
            12,
            json!({"user": {"login": login}, "state": state, "commit_id": commit, "body": "why", "node_id": "N"}),
        )
    };
    let (old, new) = (json!(sha('a')), json!(sha('b')));
    let mut world = World::new();
    world.reviews = vec![
        review("ada", "APPROVED", old.clone()),
        review("ada", "APPROVED", new.clone()),
        review("bob", "APPROVED", new.clone()),
        review("bob", "DISMISSED", new.clone()),
        review("eve", "APPROVED", new.clone()),
        review("eve", "COMMENTED", new.clone()),
        review("joe", "APPROVED", json!(null)),
        review("kim", "CHANGES_REQUESTED", new.clone()),
        review("kim", "APPROVED", new.clone()),
        review("lou", "a state of next year", new),
    ];
    let fake = FakeGithub::start(world).await;
    let approvals = client(&fake).approvals(12).await.unwrap();
    let found: Vec<_> = approvals
        .iter()
        .map(|approval| (approval.reviewer.as_str(), &approval.commit))
        .collect();
    let head = sha('b');
    assert_eq!(found, [("ada", &head), ("eve", &head), ("kim", &head)]);
}

#[tokio::test]
async fn an_approval_of_a_run_is_of_its_environment() {
    let review = |login: Value, state: &str, environment: &str| json!({"user": login, "state": state, "environments": [{"name": environment}], "comment": "go"});
    let ada = json!({"login": "ada"});
    let answer = json!([
        review(ada.clone(), "approved", "Prod"),
        review(ada, "approved", "prod"),
        review(json!({"login": "bob"}), "rejected", "prod"),
        review(json!({"login": "eve"}), "approved", "prod-eu"),
        review(json!(null), "approved", "prod"),
    ]);
    let fake = answering("GET", "/approvals", answer).await;
    let approvals = client(&fake).run_approvals(7, "prod").await.unwrap();
    let found: Vec<_> = approvals
        .iter()
        .map(|approval| approval.reviewer.as_str())
        .collect();
    assert_eq!(found, ["ada"]);
}

#[tokio::test]
async fn a_permission_that_is_not_known_is_none() {
    for (said, permission) in [
        ("admin", Permission::Admin),
        ("maintain", Permission::Write),
        ("write", Permission::Write),
        ("triage", Permission::Read),
        ("read", Permission::Read),
        ("none", Permission::None),
        ("ADMIN", Permission::None),
        ("a role of next year", Permission::None),
    ] {
        let fake = answering("GET", "/permission", json!({"permission": said})).await;
        assert_eq!(
            client(&fake).permission("ada").await.unwrap(),
            permission,
            "{said}"
        );
    }
}

/// An invited member is none yet. A team that the token cannot see says nothing about its members.
#[tokio::test]
async fn a_member_of_a_team_is_an_active_one() {
    let path = "/memberships/ada";
    for (state, is_member) in [("active", true), ("pending", false)] {
        let fake = answering("GET", path, json!({"state": state})).await;
        let found = client(&fake)
            .is_team_member("acme", "infra", "ada")
            .await
            .unwrap();
        assert_eq!(found, is_member, "{state}");
    }
    let missing = || Act::Answer(404, vec![], json!({"message": "Not Found"}));
    let visible = FakeGithub::start(World::new()).await;
    visible.next("GET", path, missing());
    visible.next("GET", "/members", Act::Answer(200, vec![], json!([])));
    assert!(
        !client(&visible)
            .is_team_member("acme", "infra", "ada")
            .await
            .unwrap()
    );
    let hidden = FakeGithub::start(World::new()).await;
    hidden.next("GET", path, missing());
    hidden.next("GET", "/members", missing());
    let error = client(&hidden)
        .is_team_member("acme", "infra", "ada")
        .await
        .unwrap_err();
    assert!(matches!(error, ForgeError::NotFound { .. }), "{error}");
}

/// Nobody answers for the commits that are not listed.
#[tokio::test]
async fn contributors_of_a_cut_list_are_not_known() {
    let commit = json!({
        "sha": sha('a'), "parents": [{"sha": sha('b')}], "author": {"login": "ada"}, "committer": {"login": "ada"},
        "commit": {"author": {"email": "a@x"}, "committer": {"email": "a@x"}, "message": "one"},
    });
    let fake = answering("GET", "/pulls/12/commits", json!(vec![&commit; 249])).await;
    let found = client(&fake).contributions_to_pull_request(12).await.unwrap();
    assert_eq!(found.len(), 249);
    let fake = answering("GET", "/pulls/12/commits", json!(vec![&commit; 250])).await;
    client(&fake).contributions_to_pull_request(12).await.unwrap_err();
}

#[tokio::test]
async fn a_push_is_who_moved_the_branch_and_a_deletion_is_none() {
    let activity = |before: String, after: String, kind: &str, actor: Value| json!({"before": before, "after": after, "activity_type": kind, "actor": actor});
    let (zero, a, b) = ("0".repeat(40), sha('a').to_string(), sha('b').to_string());
    let ada = json!({"login": "ada"});
    let answer = json!([
        activity(b.clone(), zero.clone(), "branch_deletion", ada.clone()),
        activity(a.clone(), b.clone(), "pr_merge", ada.clone()),
        activity(a.clone(), b, "merge_queue_merge", json!(null)),
        activity(zero, a, "push", ada),
    ]);
    let fake = FakeGithub::start(World::new()).await;
    fake.next("GET", "/activity", Act::Answer(200, vec![], answer));
    let moves = client(&fake).movements("topic", &|_| true).await.unwrap();
    let found: Vec<_> = moves
        .iter()
        .map(|update| (update.before.is_some(), update.is_merge, update.actor.as_deref()))
        .collect();
    assert_eq!(
        found,
        [
            (true, true, Some("ada")),
            (true, true, None),
            (false, false, Some("ada"))
        ]
    );
}
