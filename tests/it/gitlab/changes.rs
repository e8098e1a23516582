//! Merge requests, branches and commits.

use std::collections::BTreeSet;

use konverge_forge::{Changes as _, ForgeError};

use crate::support::{
    gitea_stage::id,
    gitlab::{Act, MergeRequest},
    gitlab_stage::GitlabStage,
};
use konverge_base::error::chain;

#[tokio::test]
async fn a_merge_request_is_found_by_its_number_its_commit_and_its_branch() {
    let stage = GitlabStage::start().await;
    let head = stage.propose(1, "topic/a", "a", "1");
    let konverge = stage.client();
    let pull = konverge.pull_request(1).await.unwrap();
    assert_eq!(
        (
            pull.author.as_str(),
            pull.head.as_str(),
            pull.head_branch.as_str()
        ),
        ("ada", head.as_str(), "topic/a")
    );
    assert!(pull.open && !pull.from_fork && !pull.merged);
    let merged = stage.konfig.merge("topic/a");
    stage.gitlab.world(|world| {
        let one = &mut world.merge_requests[0];
        (one.state, one.merged_at) = ("merged", Some("2026-11-29T11:00:00Z"));
        one.merge_commit = Some(merged.clone());
        let fork = MergeRequest {
            source_project: Some(99),
            ..MergeRequest::open(2, "topic/a", &head)
        };
        world.merge_requests.push(fork);
    });
    let of_commit = konverge.pull_requests_of_commit(&id(&merged)).await.unwrap();
    assert_eq!(of_commit[0].merge_commit.as_ref().unwrap().as_str(), merged);
    assert!(of_commit[0].merged && !of_commit[0].open);
    let nobody = konverge.pull_requests_of_commit(&id(&"f".repeat(40))).await;
    assert!(nobody.unwrap().is_empty());
    let of_fork = konverge.open_pull_requests_from("eve", "topic/a").await.unwrap();
    assert_eq!(of_fork.iter().map(|pull| pull.number).collect::<Vec<_>>(), [2]);
    assert!(of_fork[0].from_fork);
    assert!(
        konverge
            .open_pull_requests_from("acme", "topic/a")
            .await
            .unwrap()
            .is_empty()
    );
}

/// A merge train may rebase before a fast-forward, and does not say to which commit.
#[tokio::test]
async fn a_merge_without_a_commit_was_a_fast_forward_only_if_its_head_is_on_the_branch() {
    let stage = GitlabStage::start().await;
    let head = stage.propose(1, "topic", "a", "1");
    let rebased = stage.propose(2, "other", "b", "2");
    stage.konfig.git(["merge", "--quiet", "--ff-only", "topic"]);
    stage.gitlab.world(|world| {
        // GitLab notes the time of a merge a moment later, and of an imported one never.
        for one in &mut world.merge_requests {
            (one.state, one.merged_at) = ("merged", None);
        }
        let elsewhere = MergeRequest {
            target: "gone".to_owned(),
            state: "merged",
            ..MergeRequest::open(3, "topic", &head)
        };
        let unknown = MergeRequest {
            state: "merged",
            ..MergeRequest::open(4, "topic", &"e".repeat(40))
        };
        world.merge_requests.extend([elsewhere, unknown]);
    });
    let konverge = stage.client();
    let found = konverge
        .recent_pull_requests(&BTreeSet::from([1, 2, 3, 4]), 1)
        .await;
    let found = found.unwrap();
    assert!(found.iter().all(|pull| pull.merged && !pull.open));
    let commits: Vec<_> = found.iter().map(|pull| pull.merge_commit.clone()).collect();
    assert_eq!(commits, [Some(id(&head)), None, None, None]);
    assert_eq!(konverge.pull_request(2).await.unwrap().merge_commit, None);
    let of_commit = konverge.pull_requests_of_commit(&id(&rebased)).await.unwrap();
    assert!(of_commit[0].merged && of_commit[0].merge_commit.is_none());
}

#[tokio::test]
async fn any_number_of_merge_requests_is_asked_for_by_number() {
    let stage = GitlabStage::start().await;
    let head = stage.konfig.rev("main");
    stage.gitlab.world(|world| {
        for iid in 1..=250 {
            world.merge_requests.push(MergeRequest::open(iid, "topic", &head));
        }
        world.merge_requests.last_mut().unwrap().versions.clear();
    });
    let wanted: BTreeSet<u64> = (1..=251).filter(|number| number % 2 == 0).collect();
    let found = stage.client().recent_pull_requests(&wanted, 1).await.unwrap();
    // The last one has no head yet.
    assert_eq!(found.len(), 124);
    assert!(found.iter().all(|pull| wanted.contains(&pull.number)));
}

#[tokio::test]
async fn branches_are_read_with_their_protection() {
    let stage = GitlabStage::start().await;
    stage.propose(1, "topic/a", "a", "1");
    let konverge = stage.client();
    let main = konverge.default_branch().await.unwrap();
    assert_eq!((main.name.as_str(), main.protected), ("main", true));
    assert_eq!(main.tip.as_str(), stage.konfig.rev("main"));
    assert!(!konverge.branch("topic/a").await.unwrap().protected);
    let gone = konverge.branch("gone").await.unwrap_err();
    assert!(matches!(gone, ForgeError::NotFound { .. }), "{gone}");
}

#[tokio::test]
async fn commits_after_another_are_none_where_one_does_not_contain_it() {
    let stage = GitlabStage::start().await;
    let first = id(&stage.konfig.rev("main"));
    let topic = id(&stage.propose(1, "topic", "a", "1"));
    stage.konfig.write("b", "2").commit("Second");
    let tip = id(&stage.konfig.rev("main"));
    let konverge = stage.client();
    let after = |commit, tip| konverge.commits_after(commit, tip);
    assert_eq!(
        after(&first, &tip).await.unwrap(),
        Some(BTreeSet::from([tip.clone()]))
    );
    assert_eq!(after(&tip, &tip).await.unwrap(), Some(BTreeSet::new()));
    assert_eq!(after(&topic, &tip).await.unwrap(), None);
    // Of a commit that GitLab does not have nothing is known.
    let unknown = id(&"e".repeat(40));
    let error = after(&unknown, &tip).await.unwrap_err();
    assert!(matches!(error, ForgeError::NotFound { .. }), "{error}");
    // A list of another range is not believed.
    stage.gitlab.next(
        "GET",
        "/repository/commits",
        Act::Answer(200, vec![("x-next-page", "")], "[]"),
    );
    let error = after(&first, &tip).await.unwrap_err();
    assert!(
        chain(&error).contains("does not have the head of the merge request"),
        "{error:?}"
    );
}

#[tokio::test]
async fn contributions_are_those_of_the_range_or_an_error() {
    let stage = GitlabStage::start().await;
    let first = id(&stage.konfig.rev("main"));
    stage.konfig.write("apps/a", "1").git(["add", "--all"]);
    stage.konfig.git([
        "commit",
        "--quiet",
        "--author=Eve <5-eve@users.noreply.gitlab.example.com>",
        "-m",
        "One\n\nCo-authored-by: Bob <2-bob@users.noreply.gitlab.example.com>",
    ]);
    let head = id(&stage.konfig.rev("main"));
    let konverge = stage.client();
    let between = konverge.contributions_between(&first, &head).await.unwrap();
    let people: Vec<_> = between[0].people.iter().map(String::as_str).collect();
    assert_eq!((between.len(), people), (1, vec!["bob", "eve"]));
    assert!(
        konverge
            .contributions_between(&head, &first)
            .await
            .unwrap()
            .is_empty()
    );
    let folder = konverge.contributions_to_folder(&head, "apps").await.unwrap();
    assert_eq!(folder.len(), 1);
    let unknown = id(&"e".repeat(40));
    assert!(konverge.contributions_between(&first, &unknown).await.is_err());
    assert!(konverge.contributions_to_folder(&unknown, "apps").await.is_err());
    stage.propose(1, "topic", "a", "1");
    let of_pull = konverge.contributions_to_pull_request(1).await.unwrap();
    assert_eq!(of_pull.len(), 1);
}
