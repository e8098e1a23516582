//! Reviews, permissions and teams.

use konverge_forge::{Forge as _, ForgeError, People as _, Permission, Runs as _};
use reqwest::Method;
use serde_json::json;

use crate::support::gitea_stage::{GiteaStage, KONFIG, id};

#[tokio::test]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn an_approval_counts_while_it_is_official_and_the_last_word() {
    approvals(GiteaStage::start().await).await;
}

pub(super) async fn approvals(stage: GiteaStage) {
    let konverge = stage.client();
    let carl = stage.gitea.user("carl").await;
    stage.gitea.collaborator(&stage.ada, KONFIG, &carl, "write").await;
    let (number, head) = stage.opened(&stage.bob, "topic", "a.txt", "a\n").await;
    let review = async |user, event: &str| {
        stage
            .gitea
            .review(user, KONFIG, number, event, "I read it.")
            .await
    };
    let approvals = async || -> Vec<(String, String)> {
        let approvals = konverge.approvals(number).await.unwrap().into_iter();
        approvals
            .map(|approval| (approval.reviewer, approval.commit.to_string()))
            .collect()
    };
    let by = |login: &str| (login.to_owned(), head.clone());

    assert!(approvals().await.is_empty());
    review(&carl, "APPROVED").await;
    review(&stage.ada, "APPROVED").await;
    // Who may only read approves, too. The rules of the branch do not count it.
    let unofficial = review(&stage.eve, "APPROVED").await;
    assert_eq!(
        (&unofficial["official"], &unofficial["state"]),
        (&json!(false), &json!("APPROVED"))
    );
    assert_eq!(approvals().await, [by("carl"), by("ada")]);
    let said = konverge.approvals(number).await.unwrap();
    assert_eq!(said[0].said, "I read it.");
    assert!(said[0].given.is_some() && !said[0].node.is_empty());

    review(&carl, "COMMENT").await;
    assert_eq!(approvals().await, [by("carl"), by("ada")]);
    review(&carl, "REQUEST_CHANGES").await;
    assert_eq!(approvals().await, [by("ada")]);
    let again = review(&carl, "APPROVED").await;
    assert_eq!(approvals().await, [by("ada"), by("carl")]);
    let dismissal = format!(
        "/repos/{KONFIG}/pulls/{number}/reviews/{}/dismissals",
        again["id"]
    );
    let why = json!({"message": "too fast"});
    stage.gitea.post(&stage.ada.token, &dismissal, why).await;
    assert_eq!(approvals().await, [by("ada")]);

    // Another head: the approval is of the one before, and Gitea calls it stale.
    stage.konfig.checkout("topic").write("a.txt", "b\n");
    let next = stage.commit_as(&stage.bob, "More");
    stage.gitea.push(&stage.konfig, &stage.bob, KONFIG, &["topic"]);
    stage.gitea.sees_head(KONFIG, number, &next).await;
    assert_eq!(approvals().await, [by("ada")]);
    assert_ne!(konverge.approvals(number).await.unwrap()[0].commit, id(&next));
    // More reviews than a page has.
    for _ in 0..55 {
        review(&carl, "COMMENT").await;
    }
    review(&stage.ada, "REQUEST_CHANGES").await;
    assert!(approvals().await.is_empty());
}

#[tokio::test]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn permissions_are_told_to_administrators_and_teams_to_their_members() {
    permissions(GiteaStage::start().await).await;
}

pub(super) async fn permissions(stage: GiteaStage) {
    let konverge = stage.client();
    for (login, permission) in [
        ("ada", Permission::Admin),
        ("konverge", Permission::Admin),
        ("bob", Permission::Write),
        ("eve", Permission::Read),
        ("nobody-of-that-name", Permission::None),
    ] {
        assert_eq!(konverge.permission(login).await.unwrap(), permission, "{login}");
    }
    for (team, login, is_member) in [
        ("developers", "bob", true),
        ("Developers", "bob", true),
        ("developers", "eve", false),
        ("developers", "nobody-of-that-name", false),
        ("readers", "eve", true),
    ] {
        let answer = konverge.is_team_member("acme", team, login).await.unwrap();
        assert_eq!(answer, is_member, "{team} {login}");
    }
    // A question that cannot be answered is no `no`.
    let missing = konverge
        .is_team_member("acme", "nobody", "bob")
        .await
        .unwrap_err();
    assert!(matches!(missing, ForgeError::NotFound { .. }), "{missing}");
    let bob = stage.client_with(&stage.bob.token);
    let refused = bob.permission("eve").await.unwrap_err();
    assert!(matches!(refused, ForgeError::Forbidden { .. }), "{refused}");
    // A Forgejo tells their own permission to collaborators alone; Bob writes by a team.
    match bob.permission("bob").await {
        Ok(own) => assert_eq!(own, Permission::Write),
        Err(refused) => assert!(
            stage.gitea.is_forgejo() && matches!(refused, ForgeError::Forbidden { .. }),
            "{refused}"
        ),
    }
    let refused = bob.is_team_member("acme", "readers", "eve").await.unwrap_err();
    assert!(matches!(refused, ForgeError::Forbidden { .. }), "{refused}");
    let stranger = stage.gitea.user("stranger").await;
    let stranger = stage.client_with(&stranger.token);
    stranger
        .is_team_member("acme", "readers", "eve")
        .await
        .unwrap_err();

    // Who may only start workflows may not push.
    let grace = stage.gitea.user("grace").await;
    let units = [("repo.code", "read"), ("repo.actions", "write")];
    stage
        .gitea
        .team_for(&stage.ada, "acme", "starters", &units, &[&grace])
        .await;
    assert_eq!(konverge.permission("grace").await.unwrap(), Permission::Read);
    assert!(!konverge.starters_may_push());
}

#[tokio::test]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn what_it_has_not_is_a_value() {
    missing_parts(GiteaStage::start().await).await;
}

pub(super) async fn missing_parts(stage: GiteaStage) {
    let konverge = stage.client();
    let missing = [
        konverge.checks().err(),
        konverge.deployments().err(),
        konverge.environments().err(),
        konverge.review_edits().err(),
        konverge.branch_activity().err(),
        konverge.code_owners().err(),
    ];
    for missing in missing {
        assert!(missing.unwrap().to_string().starts_with("Gitea has no "));
    }
    // Its feed leaves out who keeps activities private, so it does not say who pushed.
    let bob = &stage.bob.token;
    stage
        .gitea
        .call(
            bob,
            Method::PATCH,
            "/user/settings",
            json!({"hide_activity": true}),
        )
        .await;
    stage.propose(&stage.bob, "hidden", "a.txt", "a\n");
    let feed = format!("/repos/{KONFIG}/activities/feeds");
    let seen = stage.gitea.get(&stage.bot.token, &feed).await;
    let by = |login: &str| {
        seen.as_array()
            .unwrap()
            .iter()
            .any(|one| one["act_user"]["login"] == login)
    };
    assert!(by("ada") && !by("bob"), "{seen}");
}
