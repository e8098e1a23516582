//! Branches and merge requests that Konverge writes.

use konverge_base::model::RepoPath;
use konverge_forge::{CommittedFiles, FilesCommit, ForgeError, Proposals as _};

use crate::support::{
    git::Repository,
    gitea_stage::id,
    gitlab::{Act, FakeGitlab, HERE, World},
    gitlab_stage::GitlabStage,
    process::{Konverge, Outcome},
};

fn files(text: &str) -> Vec<(RepoPath, String)> {
    ["README.md", "apps/new.k"]
        .map(|path| (RepoPath::normalize(path).unwrap(), text.to_owned()))
        .into()
}

#[tokio::test]
async fn files_are_committed_to_a_branch_of_ours_that_moves_forward() {
    let stage = GitlabStage::start().await;
    let konverge = stage.client();
    let base = id(&stage.konfig.rev("main"));
    let commit = async |files: &[(RepoPath, String)]| {
        let commit = FilesCommit {
            branch: "konverge/set/x",
            base: &base,
            files,
            title: "Set x",
            digest: "abc",
        };
        konverge.commit_files(commit).await.unwrap()
    };
    let one = files("one\n");
    let CommittedFiles::Committed(first) = commit(&one).await else {
        panic!()
    };
    assert_eq!(stage.konfig.git(["show", &format!("{first}:apps/new.k")]), "one");
    assert_eq!(commit(&one).await, CommittedFiles::Present(first.clone()));
    let CommittedFiles::Committed(second) = commit(&files("two\n")).await else {
        panic!()
    };
    assert_eq!(stage.konfig.rev(&format!("{second}^")), first.as_str());
    // The answer is lost: it is there.
    stage.gitlab.next("POST", "/repository/commits", Act::DropAfter);
    assert!(matches!(
        commit(&files("three\n")).await,
        CommittedFiles::Committed(_)
    ));
    // Somebody else pushed.
    stage.konfig.checkout("konverge/set/x");
    stage.konfig.write("theirs", "x").commit("Theirs");
    let tip = stage.konfig.rev("konverge/set/x");
    stage.konfig.checkout("main");
    assert_eq!(commit(&files("four\n")).await, CommittedFiles::Conflict);
    assert_eq!(stage.konfig.rev("konverge/set/x"), tip);
}

#[tokio::test]
async fn a_branch_has_one_merge_request_which_is_merged_when_the_rules_allow_it() {
    let stage = GitlabStage::start().await;
    let konverge = stage.client();
    stage.konfig.branch("set").write("a", "1").commit("Set");
    stage.konfig.checkout("main");
    let opened = konverge
        .open_proposal("set", "main", "Set a", "/merge\nbody")
        .await
        .unwrap();
    assert!(
        opened.open && opened.url.ends_with("/-/merge_requests/1"),
        "{opened:?}"
    );
    let again = konverge.open_proposal("set", "main", "x", "y").await.unwrap();
    assert_eq!(again.number, opened.number);
    konverge.edit_proposal(1, "Another", "text").await.unwrap();
    let all = konverge.proposals_of("set").await.unwrap();
    assert_eq!((all.len(), all[0].title.as_str()), (1, "Another"));

    let refused = konverge.ask_for_merge(&opened).await.unwrap_err();
    assert!(
        refused.to_string().contains("nothing stands in the way"),
        "{refused}"
    );
    stage.gitlab.world(|world| world.needs_pipeline = true);
    konverge.ask_for_merge(&opened).await.unwrap();
    assert!(stage.gitlab.world(|world| world.merge_requests[0].auto_merge));
    // What was pushed meanwhile is not merged.
    stage.gitlab.world(|world| {
        let head = ("b".repeat(40), "2026-11-29T12:00:00.000Z".to_owned());
        world.merge_requests[0].versions.push(head);
    });
    let moved = konverge.ask_for_merge(&opened).await.unwrap_err();
    assert!(
        matches!(moved, ForgeError::Refused { status: 409, .. }),
        "{moved}"
    );
    assert!(konverge.starts_workflows().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn set_opens_one_merge_request_in_a_job_of_gitlab() {
    let konfig = Repository::konfig_example();
    let gitlab = FakeGitlab::start(World::of(&konfig)).await;
    let propose = |tag: &str| -> Outcome {
        let image = format!("ghcr.io/example/storefront=ghcr.io/example/storefront:{tag}");
        Konverge::new(["set", "storefront/dev", "--image", &image, "--pull-request"])
            .dir(konfig.path())
            .env("GITLAB_CI", "true")
            .env("CI_PROJECT_PATH", HERE)
            .env("CI_SERVER_URL", gitlab.url())
            .env("CI_API_V4_URL", gitlab.api_url())
            .env("GITLAB_TOKEN", "glpat-bot")
            .with_kcl()
            .run()
            .expect(0)
    };
    let opened = propose("2.5.0").stderr;
    assert!(opened.contains("/-/merge_requests/1"), "{opened}");
    let same = propose("2.5.0").stderr;
    assert!(same.contains("proposes this already"), "{same}");
    propose("2.6.0");
    let merge_request = gitlab.world(|world| {
        assert_eq!(world.merge_requests.len(), 1);
        world.merge_requests[0].clone()
    });
    let file = format!("{}:appops/storefront/dev/main.k", merge_request.branch);
    let file = konfig.git(["show", file.as_str()]);
    assert!(file.contains("storefront:2.6.0"), "{file}");
}
