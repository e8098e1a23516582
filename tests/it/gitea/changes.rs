//! Pull requests and branches: merged in every style, moved afterwards, forced, from forks and without a branch.

use std::collections::BTreeSet;

use konverge_forge::{Changes as _, Contribution, ForgeError};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::gitea_stage::{GiteaStage, KONFIG, commit_as, id};

fn people(contributions: &[Contribution]) -> Vec<Vec<&str>> {
    contributions
        .iter()
        .map(|one| one.people.iter().map(String::as_str).collect())
        .collect()
}

#[tokio::test]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn a_merged_pull_request_keeps_the_head_it_was_merged_with() {
    merged_head(GiteaStage::start().await).await;
}

pub(super) async fn merged_head(stage: GiteaStage) {
    let konverge = stage.client();
    for (n, style) in ["merge", "squash", "rebase", "rebase-merge"]
        .into_iter()
        .enumerate()
    {
        stage.fetched_main();
        let file = format!("{style}.txt");
        let (number, _) = stage.opened(&stage.bob, style, &file, "a\n").await;
        stage.konfig.checkout(style).write(&file, "b\n");
        let head = stage.commit_as(&stage.bob, "More");
        stage.gitea.push(&stage.konfig, &stage.bob, KONFIG, &[style]);
        stage.gitea.sees_head(KONFIG, number, &head).await;
        let open = konverge.pull_request(number).await.unwrap();
        assert!(open.open && !open.merged && !open.from_fork && open.merge_commit.is_none());
        assert_eq!(
            (open.head.as_str(), open.head_branch.as_str()),
            (head.as_str(), style)
        );
        assert_eq!((open.author.as_str(), open.base_branch.as_str()), ("bob", "main"));

        let merge = stage.gitea.merge(&stage.ada, KONFIG, number, style).await;
        assert_eq!(stage.fetched_main(), merge, "{style}");
        // Somebody pushes to the branch afterwards: what Gitea shows of the pull request has another head now.
        stage.konfig.checkout(style).write(&file, "unreviewed\n");
        let later = stage.commit_as(&stage.bob, "After the merge");
        stage.gitea.push(&stage.konfig, &stage.bob, KONFIG, &[style]);
        let shown = stage
            .gitea
            .get(&stage.bob.token, &format!("/repos/{KONFIG}/pulls/{number}"))
            .await;
        assert_eq!(shown["head"]["sha"], later);

        let merged = konverge.pull_request(number).await.unwrap();
        assert!(merged.merged && !merged.open);
        assert_eq!(merged.head, id(&head), "{style}");
        assert_eq!(merged.merge_commit, Some(id(&merge)), "{style}");
        let of_commit = konverge.pull_requests_of_commit(&id(&merge)).await.unwrap();
        assert_eq!(of_commit.as_slice(), std::slice::from_ref(&merged), "{style}");
        let recent = konverge
            .recent_pull_requests(&BTreeSet::from([number]), 1)
            .await
            .unwrap();
        assert_eq!(recent, [merged], "{style}");
        let all: BTreeSet<u64> = (1..=4).collect();
        let recent = konverge.recent_pull_requests(&all, 10).await.unwrap();
        assert_eq!(recent.len(), n + 1);
        // The branch is deleted: its name and the head are still known.
        let branch = format!("/repos/{KONFIG}/branches/{style}");
        stage
            .gitea
            .call(&stage.bob.token, Method::DELETE, &branch, Value::Null)
            .await;
        let merged = konverge.pull_request(number).await.unwrap();
        let recent = konverge
            .recent_pull_requests(&BTreeSet::from([number]), 1)
            .await
            .unwrap();
        assert_eq!(recent.as_slice(), std::slice::from_ref(&merged), "{style}");
        assert_eq!((merged.head, merged.head_branch.as_str()), (id(&head), style));
    }
    let pushed = stage.konfig.checkout("main").rev("main");
    assert!(
        konverge
            .pull_requests_of_commit(&id(&pushed))
            .await
            .unwrap()
            .len()
            <= 1
    );
}

#[tokio::test]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn the_commits_of_a_branch_and_what_a_forced_push_leaves() {
    commits_of_a_branch(GiteaStage::start().await).await;
}

pub(super) async fn commits_of_a_branch(stage: GiteaStage) {
    let konverge = stage.client();
    let first = id(&stage.fetched_main());
    let default = konverge.default_branch().await.unwrap();
    assert_eq!((default.name.as_str(), default.protected), ("main", false));
    assert_eq!(default.tip, first);
    let rule = json!({"rule_name": "main", "required_approvals": 1});
    stage
        .gitea
        .post(
            &stage.ada.token,
            &format!("/repos/{KONFIG}/branch_protections"),
            rule,
        )
        .await;
    assert!(konverge.branch("main").await.unwrap().protected);

    // Many commits, more than a page has, on a branch whose name has a slash.
    stage.konfig.checkout("main").branch("feature/one");
    let mut heads = Vec::new();
    for n in 0..60 {
        stage
            .konfig
            .write("appops/shop/dev/stack.yaml", format!("name: {n}\n"));
        heads.push(commit_as(
            &stage.konfig,
            if n == 0 { "ada" } else { "bob" },
            &format!("Change {n}\n\nCo-authored-by: Eve <eve@acme.example>\n"),
        ));
    }
    stage
        .gitea
        .push(&stage.konfig, &stage.bob, KONFIG, &["feature/one"]);
    let tip = konverge.branch("feature/one").await.unwrap().tip;
    assert_eq!(tip, id(heads.last().unwrap()));
    let after = konverge.commits_after(&first, &tip).await.unwrap().unwrap();
    assert_eq!(after, heads.iter().map(|head| id(head)).collect());
    assert_eq!(
        konverge.commits_after(&tip, &tip).await.unwrap(),
        Some(BTreeSet::new())
    );
    // The other way round it is not contained.
    assert_eq!(konverge.commits_after(&tip, &first).await.unwrap(), None);

    let between = konverge.contributions_between(&first, &tip).await.unwrap();
    assert_eq!(between.len(), 60);
    let oldest = between.iter().find(|one| one.commit == id(&heads[0])).unwrap();
    assert_eq!(oldest.parents.as_slice(), std::slice::from_ref(&first));
    // Nobody has Eve's address in these commits but she herself.
    assert!(
        people(&between)
            .iter()
            .all(|who| who == &["ada"] || who == &["bob"]),
        "{between:?}"
    );
    let folder = konverge
        .contributions_to_folder(&tip, "appops/shop/dev")
        .await
        .unwrap();
    assert_eq!(folder.len(), 60);
    assert_eq!(folder.last().unwrap().commit, id(&heads[0]));
    assert!(
        konverge
            .contributions_to_folder(&tip, "no/such")
            .await
            .unwrap()
            .is_empty()
    );
    let unknown = id(&"9".repeat(40));
    let missing = konverge
        .contributions_to_folder(&unknown, "no/such")
        .await
        .unwrap_err();
    assert!(matches!(missing, ForgeError::NotFound { .. }), "{missing}");
    let missing = konverge.commits_after(&unknown, &tip).await.unwrap_err();
    assert!(matches!(missing, ForgeError::NotFound { .. }), "{missing}");

    let number = stage.gitea.pull_request(&stage.bob, KONFIG, "feature/one").await;
    let of_pull = konverge.contributions_to_pull_request(number).await.unwrap();
    assert_eq!(of_pull.len(), 60);
    // The history is rewritten.
    stage.konfig.git(["reset", "--quiet", "--hard", "main"]);
    stage.konfig.write("b.txt", "b\n");
    let forced = commit_as(&stage.konfig, "bob", "Rewritten");
    stage
        .gitea
        .push(&stage.konfig, &stage.bob, KONFIG, &["--force", "feature/one"]);
    stage.gitea.sees_head(KONFIG, number, &forced).await;
    assert_eq!(konverge.pull_request(number).await.unwrap().head, id(&forced));
    assert_eq!(konverge.commits_after(&tip, &id(&forced)).await.unwrap(), None);
    assert_eq!(
        konverge
            .contributions_to_pull_request(number)
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn who_may_only_read_proposes_from_a_fork_or_without_a_branch() {
    heads_from_outside(GiteaStage::start().await).await;
}

pub(super) async fn heads_from_outside(stage: GiteaStage) {
    let konverge = stage.client();
    let fork = format!("/repos/{KONFIG}/forks");
    stage.gitea.post(&stage.eve.token, &fork, json!({})).await;
    stage.konfig.checkout("main").branch("fix");
    stage.konfig.write("a.txt", "from outside\n");
    let head = stage.commit_as(&stage.eve, "Fix");
    stage
        .gitea
        .push(&stage.konfig, &stage.eve, "eve/konfig", &["fix"]);
    let number = stage.gitea.pull_request(&stage.eve, KONFIG, "eve:fix").await;
    stage.gitea.sees_head(KONFIG, number, &head).await;
    // A branch of the same name, here.
    stage.konfig.checkout("main").branch("here").write("b.txt", "b\n");
    stage.commit_as(&stage.bob, "Another fix");
    stage.gitea.push(&stage.konfig, &stage.bob, KONFIG, &["here:fix"]);
    let ours = stage.gitea.pull_request(&stage.bob, KONFIG, "fix").await;

    let pull = konverge.pull_request(number).await.unwrap();
    assert!(pull.from_fork && pull.open);
    assert_eq!((pull.head_branch.as_str(), pull.author.as_str()), ("fix", "eve"));
    let from = async |owner: &str| -> Vec<u64> {
        let pulls = konverge.open_pull_requests_from(owner, "fix").await.unwrap();
        pulls.iter().map(|pull| pull.number).collect()
    };
    assert_eq!(from("eve").await, [number]);
    assert_eq!(from("acme").await, [ours]);
    assert!(from("bob").await.is_empty());

    // Pushed to `refs/for/main`: the head lies in this repository, and nobody had to be allowed to write.
    stage.konfig.checkout("main").branch("agit");
    stage.konfig.write("c.txt", "without a branch\n");
    let head = stage.commit_as(&stage.eve, "Without a branch");
    let options = ["--push-option=topic=agit", "agit:refs/for/main"];
    stage.gitea.push(&stage.konfig, &stage.eve, KONFIG, &options);
    let pulls = stage
        .gitea
        .get(&stage.bob.token, &format!("/repos/{KONFIG}/pulls?state=open"))
        .await;
    let agit = pulls
        .as_array()
        .unwrap()
        .iter()
        .find(|pull| pull["head"]["sha"] == head)
        .unwrap();
    assert_eq!(agit["head"]["repo"]["full_name"], KONFIG);
    let pull = konverge
        .pull_request(agit["number"].as_u64().unwrap())
        .await
        .unwrap();
    assert!(pull.from_fork, "{pull:?}");
    assert_eq!(pull.head, id(&head));

    // The fork is deleted: the pull request is still from outside.
    stage
        .gitea
        .call(&stage.eve.token, Method::DELETE, "/repos/eve/konfig", Value::Null)
        .await;
    let pull = konverge.pull_request(number).await.unwrap();
    assert!(pull.from_fork);
    assert!(from("eve").await.is_empty());
}
