//! Read requests of the GitHub client: merged pull requests, permissions, caching, and other servers than github.com.

use konverge_forge::{Changes as _, People as _, Permission, StickyComments as _};
use serde_json::json;

use super::{body, client, marker, sha};
use crate::support::github::{FakeGithub, Pull, World};

#[tokio::test]
async fn who_merged_what_and_who_may() {
    let mut world = World::new();
    world.pulls.push(Pull {
        merged_at: Some("2026-11-20T10:00:00Z".into()),
        merge_commit: Some(sha('c').to_string()),
        head_repository: None,
        ..Pull::open(12, sha('b').to_string())
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
    world.main = vec![sha('a').to_string(), sha('c').to_string(), sha('d').to_string()];
    world.collaborators = [("ada".to_owned(), "write"), ("root".to_owned(), "admin")].into();
    let fake = FakeGithub::start(world).await;
    let github = client(&fake);
    let pulls = github.pull_requests_of_commit(&sha('c')).await.unwrap();
    assert!(pulls[0].merged && pulls[0].from_fork && pulls[0].head == sha('b'));
    assert_eq!(
        github.recent_pull_requests(&[12, 13].into(), 2).await.unwrap(),
        pulls
    );
    assert!(
        github
            .recent_pull_requests(&[13].into(), 2)
            .await
            .unwrap()
            .is_empty()
    );
    let branch = github.default_branch().await.unwrap();
    assert_eq!(
        (branch.name.as_str(), &branch.tip, branch.protected),
        ("main", &sha('d'), true)
    );
    let after = async |commit| github.commits_after(&sha(commit), &branch.tip).await.unwrap();
    assert_eq!(after('a').await, Some([sha('c'), sha('d')].into()));
    assert_eq!(after('d').await, Some([].into()));
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
    assert!(
        github.branch("topic").await.is_err(),
        "what GitHub does not know is no answer"
    );
}

/// GitHub does not list pull requests for a commit of a fork, so they are searched by branch.
#[tokio::test]
async fn a_forks_pull_request_is_found_by_its_branch() {
    let mut world = World::new();
    let fork = |number, base: &str| Pull {
        base: base.into(),
        branch: "fix/a#1".into(),
        head_repository: Some("mallory/konfig".into()),
        ..Pull::open(number, sha('b').to_string())
    };
    let closed = Pull {
        closed: true,
        ..fork(3, "main")
    };
    let own = Pull {
        branch: "fix/a#1".into(),
        ..Pull::open(4, sha('b').to_string())
    };
    world.pulls = vec![fork(1, "release"), fork(2, "main"), closed, own];
    let fake = FakeGithub::start(world).await;
    let github = client(&fake);
    let of_commit = github.pull_requests_of_commit(&sha('b')).await.unwrap();
    assert_eq!(of_commit.iter().map(|pull| pull.number).collect::<Vec<_>>(), [4]);
    let from = async |owner| {
        let pulls = github.open_pull_requests_from(owner, "fix/a#1").await.unwrap();
        let told = pulls
            .into_iter()
            .map(|pull| (pull.number, pull.base_branch, pull.from_fork));
        told.collect::<Vec<_>>()
    };
    let found = from("mallory").await;
    assert_eq!(found, [(2, "main".into(), true), (1, "release".into(), true)]);
    assert_eq!(from("acme").await, [(4, "main".into(), false)]);
    assert!(from("nobody").await.is_empty());
}

/// The client requests no page after the last one, and none beyond the limit.
#[tokio::test]
async fn pull_requests_are_looked_through_as_far_as_need_be() {
    let mut world = World::new();
    world
        .pulls
        .extend((1..=250).map(|number| Pull::open(number, sha('b').to_string())));
    let fake = FakeGithub::start(world).await;
    let github = client(&fake);
    for (wanted, pages, found, asked) in [
        (vec![250, 151], 9, vec![151, 250], 1),
        (vec![250, 150], 9, vec![150, 250], 2),
        (vec![250, 1], 2, vec![250], 2),
        (vec![250, 999], 9, vec![250], 3),
    ] {
        let before = fake.requests().len();
        let wanted = wanted.into_iter().collect();
        let pulls = github.recent_pull_requests(&wanted, pages).await.unwrap();
        let numbers: Vec<_> = pulls.iter().map(|pull| pull.number).collect();
        assert_eq!((numbers, fake.requests().len() - before), (found, asked));
    }
}

#[tokio::test]
async fn what_did_not_change_is_not_sent_again() {
    let mut world = World::new();
    world.pulls.push(Pull::open(12, sha('b').to_string()));
    let fake = FakeGithub::start(world).await;
    let github = client(&fake);
    let first = github.pull_request(12).await.unwrap();
    assert_eq!(github.pull_request(12).await.unwrap(), first);
    fake.world(|world| world.pulls[0].head = sha('d').to_string());
    assert_eq!(github.pull_request(12).await.unwrap().head, sha('d'));
    let answers: Vec<_> = fake.requests().iter().map(|one| one.status).collect();
    assert_eq!(answers, [200, 304, 200]);
}

#[tokio::test]
async fn a_server_of_ones_own() {
    let fake = FakeGithub::start_at(World::new(), "/api/v3").await;
    fake.world(|world| {
        for n in 0..120 {
            world.comment(12, "somebody", &format!("comment {n}"));
        }
    });
    for run in [1, 2] {
        client(&fake)
            .upsert_comment(12, &marker(run), &body(&marker(run), "one"))
            .await
            .unwrap();
    }
    assert_eq!(fake.world(|world| world.comments.len()), 121);
}
