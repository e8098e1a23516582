//! Branches and pull requests that Konverge writes.

use konverge_base::model::{CommitId, RepoPath};
use konverge_forge::{Changes as _, CommittedFiles, FilesCommit, ForgeError, Proposals as _};
use serde_json::json;

use crate::support::gitea_stage::{GiteaStage, KONFIG, commit_as, id};

const BRANCH: &str = "konverge/set-1";

fn files(version: &str) -> Vec<(RepoPath, String)> {
    let path = |path: &str| RepoPath::normalize(path).unwrap();
    vec![
        (
            path("appops/shop/dev/main.k"),
            format!("image = \"shop:{version}\"\n"),
        ),
        (path("appops/new file.k"), format!("version = \"{version}\"\n")),
    ]
}

fn commit<'a>(base: &'a CommitId, files: &'a [(RepoPath, String)]) -> FilesCommit<'a> {
    FilesCommit {
        branch: BRANCH,
        base,
        files,
        title: "Set the image of shop",
        digest: "sha256:1",
    }
}

#[tokio::test]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn files_are_committed_to_a_branch_that_only_moves_forward() {
    committed_files(GiteaStage::start().await).await;
}

pub(super) async fn committed_files(stage: GiteaStage) {
    let konverge = stage.client();
    stage
        .konfig
        .write("appops/shop/dev/main.k", "image = \"shop:1\"\n");
    stage.commit_as(&stage.ada, "Shop");
    stage.gitea.push(&stage.konfig, &stage.ada, KONFIG, &["main"]);
    let base = id(&stage.fetched_main());
    let two = files("2");
    let CommittedFiles::Committed(made) = konverge.commit_files(commit(&base, &two)).await.unwrap() else {
        panic!("it is new");
    };
    let tip = konverge.branch(BRANCH).await.unwrap().tip;
    assert_eq!(tip, made);
    let remote = stage.gitea.remote(&stage.ada, KONFIG);
    let fetch = |branch: &str| {
        stage.konfig.git(["fetch", "--quiet", remote.as_str(), branch]);
    };
    fetch(BRANCH);
    let show = |what: &str| stage.konfig.git(["show", what]);
    assert_eq!(show("FETCH_HEAD:appops/shop/dev/main.k"), "image = \"shop:2\"");
    assert_eq!(show("FETCH_HEAD:appops/new file.k"), "version = \"2\"");
    assert_eq!(stage.konfig.rev("FETCH_HEAD^"), base.to_string());
    let message = stage.konfig.git(["log", "-1", "--format=%B", "FETCH_HEAD"]);
    assert_eq!(message, "Set the image of shop\n\nKonverge-Set: sha256:1");

    let again = konverge.commit_files(commit(&base, &two)).await.unwrap();
    assert_eq!(again, CommittedFiles::Present(made.clone()));
    let three = files("3");
    let CommittedFiles::Committed(next) = konverge.commit_files(commit(&base, &three)).await.unwrap() else {
        panic!("other contents");
    };
    fetch(BRANCH);
    assert_eq!(stage.konfig.rev("FETCH_HEAD^"), made.to_string());

    // Somebody commits with the words of ours, or amends it: their commit stays.
    let there = format!("/repos/{KONFIG}/contents/appops/new%20file.k?ref=konverge%2Fset-1");
    let there = stage.gitea.get(&stage.bob.token, &there).await;
    let file =
        json!({"operation": "update", "path": "appops/new file.k", "content": "eAo=", "sha": there["sha"]});
    let copied = json!({"branch": BRANCH, "message": "Set the image of shop\n\nKonverge-Set: sha256:1", "files": [file]});
    let contents = format!("/repos/{KONFIG}/contents");
    stage.gitea.post(&stage.bob.token, &contents, copied).await;
    let result = konverge.commit_files(commit(&base, &files("4"))).await.unwrap();
    assert_eq!(result, CommittedFiles::Conflict);
    stage
        .konfig
        .git(["checkout", "--quiet", "-b", "by-hand", "FETCH_HEAD"]);
    stage.konfig.git(["commit", "--quiet", "--amend", "--no-edit"]);
    let amended = stage.konfig.rev("HEAD");
    let refs = format!("by-hand:{BRANCH}");
    stage
        .gitea
        .push(&stage.konfig, &stage.bob, KONFIG, &["--force", &refs]);
    let result = konverge.commit_files(commit(&base, &files("4"))).await.unwrap();
    assert_eq!(result, CommittedFiles::Conflict);
    assert_eq!(konverge.branch(BRANCH).await.unwrap().tip, id(&amended));
    assert_ne!(next, id(&amended));

    // Everybody can write our message and our address: what changes another file is theirs.
    stage.konfig.write("appops/shop/dev/more.k", "more = 1\n");
    stage.konfig.git(["add", "--all"]);
    let ours = stage
        .konfig
        .git(["show", "--no-patch", "--format=%cn <%ce>", next.as_str()]);
    let (name, address) = ours.trim_end_matches('>').split_once(" <").unwrap();
    let forge = format!(
        "alias.forge=!GIT_COMMITTER_NAME='{name}' GIT_COMMITTER_EMAIL='{address}' git commit --quiet --amend --no-edit"
    );
    stage.konfig.git(["-c", forge.as_str(), "forge"]);
    let committer = stage
        .konfig
        .git(["show", "--no-patch", "--format=%cn <%ce>", "HEAD"]);
    assert_eq!(committer, ours);
    let forged = stage.konfig.rev("HEAD");
    stage
        .gitea
        .push(&stage.konfig, &stage.bob, KONFIG, &["--force", &refs]);
    let result = konverge.commit_files(commit(&base, &three)).await.unwrap();
    assert_eq!(result, CommittedFiles::Conflict);
    assert_eq!(konverge.branch(BRANCH).await.unwrap().tip, id(&forged));
}

#[tokio::test]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn one_pull_request_is_opened_edited_and_merged_when_its_rules_allow_it() {
    merge_when_allowed(GiteaStage::start().await).await;
}

pub(super) async fn merge_when_allowed(stage: GiteaStage) {
    let konverge = stage.client();
    let base = id(&stage.fetched_main());
    konverge.commit_files(commit(&base, &files("2"))).await.unwrap();
    assert!(konverge.proposals_of(BRANCH).await.unwrap().is_empty());
    let opened = konverge
        .open_proposal(BRANCH, "main", "Set it", "Please.")
        .await
        .unwrap();
    assert!(opened.open && !opened.merged);
    assert_eq!(
        (opened.title.as_str(), opened.body.as_str()),
        ("Set it", "Please.")
    );
    let again = konverge
        .open_proposal(BRANCH, "main", "Set it", "Please.")
        .await
        .unwrap();
    assert_eq!(again.number, opened.number);
    konverge
        .edit_proposal(opened.number, "Set it now", "Thanks.")
        .await
        .unwrap();
    let found = konverge.proposals_of(BRANCH).await.unwrap();
    assert_eq!(
        (found.len(), found[0].title.as_str(), found[0].body.as_str()),
        (1, "Set it now", "Thanks.")
    );
    assert!(konverge.starts_workflows().await.unwrap());

    // Without a rule it would be merged at once.
    let refused = konverge.ask_for_merge(&opened).await.unwrap_err();
    assert!(
        refused.to_string().contains("nothing stands in the way"),
        "{refused}"
    );
    let rule = json!({"rule_name": "main", "required_approvals": 1});
    stage
        .gitea
        .post(
            &stage.ada.token,
            &format!("/repos/{KONFIG}/branch_protections"),
            rule,
        )
        .await;
    konverge.ask_for_merge(&opened).await.unwrap();
    konverge.ask_for_merge(&opened).await.unwrap();
    assert!(!konverge.proposals_of(BRANCH).await.unwrap()[0].merged);
    stage
        .gitea
        .review(&stage.bob, KONFIG, opened.number, "APPROVED", "")
        .await;
    stage.gitea.is_merged(KONFIG, opened.number).await;
    let merged = &konverge.proposals_of(BRANCH).await.unwrap()[0];
    assert!(merged.merged && !merged.open);
    // Somebody else's branch of that name.
    let main = stage.fetched_main();
    stage.konfig.git(["checkout", "--quiet", "-b", "mine"]);
    stage.konfig.write("x.txt", "x\n");
    commit_as(&stage.konfig, "bob", "Mine");
    let refs = format!("mine:{BRANCH}");
    stage
        .gitea
        .push(&stage.konfig, &stage.bob, KONFIG, &["--force", &refs]);
    let result = konverge
        .commit_files(commit(&id(&main), &files("5")))
        .await
        .unwrap();
    assert_eq!(result, CommittedFiles::Conflict);
    // Who may only read writes nothing.
    let eve = stage.client_with(&stage.eve.token);
    let two = files("2");
    let other = FilesCommit {
        branch: "konverge/set-2",
        ..commit(&base, &two)
    };
    let refused = eve.commit_files(other).await.unwrap_err();
    assert!(matches!(refused, ForgeError::Forbidden { .. }), "{refused}");
}
