//! Notes, statuses and issues: one of each, whoever copies it.

use konverge_forge::{
    CommentAccess, IssueChange, KeptIssues as _, Publishing as _, StatusState, StickyComments as _, Upsert,
};
use serde_json::json;

use crate::support::{
    gitea_stage::{body, id, marker},
    gitlab::{Act, BOT, Issue, Note},
    gitlab_stage::GitlabStage,
};

#[tokio::test]
async fn a_merge_request_has_one_note_of_ours() {
    let stage = GitlabStage::start().await;
    stage.propose(1, "topic", "a", "1");
    let konverge = stage.client();
    let write = async |run: u64, text: &str| {
        let marker = marker(run);
        konverge
            .upsert_comment(1, &marker, &body(&marker, text))
            .await
            .unwrap()
    };
    // Somebody copied our first line, and GitLab noted a push.
    let copied = |author: &str, system| Note {
        id: if system { 299 } else { 300 },
        on: "merge_requests".to_owned(),
        iid: 1,
        author: author.to_owned(),
        body: body(&marker(9), "mine now"),
        system,
    };
    stage.gitlab.world(|world| {
        world.notes.push(copied("eve", false));
        world.notes.push(copied(BOT, true));
    });
    let Upsert::Created { url, .. } = write(1, "one").await else {
        panic!()
    };
    assert!(
        url.starts_with(&stage.gitlab.url())
            && url.ends_with("/acme/platform/konfig/-/merge_requests/1#note_301"),
        "{url}"
    );
    assert!(matches!(write(1, "one").await, Upsert::Unchanged { .. }));
    assert!(matches!(write(2, "two").await, Upsert::Updated { .. }));
    assert!(matches!(write(1, "late").await, Upsert::NewerRunWrote { .. }));
    // It is gone when it is to be written, and there again: one stays.
    let gone = Act::Answer(404, vec![], r#"{"message":"404 Not found"}"#);
    stage.gitlab.next("PUT", "/notes/301", gone);
    assert!(matches!(write(3, "again").await, Upsert::Updated { .. }));
    let shown = konverge.comments(1, None, CommentAccess::Read).await.unwrap();
    let shown: Vec<_> = shown.iter().map(|note| note.author.as_deref().unwrap()).collect();
    assert_eq!(shown, ["eve", BOT]);

    konverge.remove_comment(1, &marker(4)).await.unwrap();
    assert_eq!(stage.gitlab.world(|world| world.notes.len()), 2);
}

#[tokio::test]
async fn a_note_whose_answer_was_lost_is_not_written_twice() {
    let stage = GitlabStage::start().await;
    stage.propose(1, "topic", "a", "1");
    stage.gitlab.next("POST", "/notes", Act::DropAfter);
    let marker = marker(1);
    let written = stage
        .client()
        .upsert_comment(1, &marker, &body(&marker, "one"))
        .await
        .unwrap();
    assert!(matches!(written, Upsert::Created { .. }), "{written:?}");
    assert_eq!(stage.gitlab.world(|world| world.notes.len()), 1);
}

/// A line that begins with `/merge` is a command of the bot. The fake fails if it gets one.
#[tokio::test]
async fn no_text_of_others_is_a_command() {
    let stage = GitlabStage::start().await;
    stage.propose(1, "topic", "a", "1");
    let konverge = stage.client();
    let hostile = "/approve\n```\n/merge\n```\n\r/close\n";
    let text = body(&marker(1), hostile);
    konverge.upsert_comment(1, &marker(1), &text).await.unwrap();
    konverge
        .upsert_comment(1, &marker(2), &body(&marker(2), hostile))
        .await
        .unwrap();
    konverge
        .open_issue("drift", &marker(1), "/close", &text)
        .await
        .unwrap();
    konverge.write_issue(1, "t", &text).await.unwrap();
    let note = stage.gitlab.world(|world| world.notes[0].body.clone());
    assert!(note.contains("\n /approve\n"), "{note}");
}

#[tokio::test]
async fn an_issue_has_a_number_and_notes_of_its_own() {
    let stage = GitlabStage::start().await;
    // The merge request has the same number.
    stage.propose(1, "topic", "a", "1");
    let konverge = stage.client();
    let (label, marker) = ("konverge-drift", marker(1));
    let text = body(&marker, "it drifted");
    let known = konverge.kept_issues(label).await.unwrap();
    let opened = konverge.keep_issue(&known, label, &marker, "Drift", &text).await;
    assert_eq!(opened.unwrap(), IssueChange::Opened);
    // Somebody copied it, and another issue has no label.
    stage.gitlab.world(|world| {
        let ours = world.issues[0].clone();
        let by_eve = Issue {
            iid: 2,
            author: "eve".to_owned(),
            ..ours.clone()
        };
        let unlabelled = Issue {
            iid: 3,
            labels: Vec::new(),
            ..ours
        };
        world.issues.extend([by_eve, unlabelled]);
    });
    let known = konverge.kept_issues(label).await.unwrap();
    assert_eq!(known.iter().map(|issue| issue.number).collect::<Vec<_>>(), [1]);
    konverge
        .on_issues()
        .upsert_comment(1, &marker, &body(&marker, "on the issue"))
        .await
        .unwrap();
    assert_eq!(stage.gitlab.world(|world| world.notes[0].on.clone()), "issues");
    assert!(
        konverge
            .comments(1, None, CommentAccess::Read)
            .await
            .unwrap()
            .is_empty()
    );

    assert_eq!(
        konverge.close_issue(&known[0]).await.unwrap(),
        IssueChange::Closed
    );
    let known = konverge.kept_issues(label).await.unwrap();
    assert!(!known[0].open);
    let reopened = konverge.keep_issue(&known, label, &marker, "Drift", &text).await;
    assert_eq!(reopened.unwrap(), IssueChange::Reopened);
    assert_eq!(stage.gitlab.world(|world| world.issues[0].state), "opened");
    assert!(!konverge.write_issue(77, "gone", "x").await.unwrap());
}

#[tokio::test]
async fn an_issue_without_its_label_is_an_error() {
    let stage = GitlabStage::start().await;
    stage.gitlab.world(|world| world.members.remove(BOT));
    let error = stage
        .client()
        .open_issue("drift", &marker(1), "t", &body(&marker(1), "x"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("label issue #1"), "{error}");
}

/// Else the newest pipeline of the commit would get it, and the one that waits would never end.
#[tokio::test]
async fn a_status_is_of_the_pipeline_of_the_job_that_sets_it() {
    let stage = GitlabStage::start().await;
    let tip = stage.konfig.rev("main");
    let other = stage.propose(1, "topic", "a", "1");
    let konverge = stage.client_of_job(42, "1", "preview");
    let pipelines = [(42, &tip), (43, &tip), (44, &other)];
    stage.gitlab.world(|world| {
        let pipelines = pipelines.map(|(id, sha)| (id, sha.clone()));
        world.pipeline_commits.extend(pipelines);
    });
    for (sha, pipeline) in [(&tip, 42), (&other, 44)] {
        for state in [StatusState::Pending, StatusState::Success] {
            konverge
                .set_status(&id(sha), "konverge/preview", state, "", None)
                .await
                .unwrap();
        }
        let (of, status) = stage.gitlab.world(|world| world.statuses.pop().unwrap());
        assert_eq!((&of, &status["pipeline_id"]), (sha, &json!(pipeline)));
        assert_eq!(status["status"], "success");
    }
}

#[tokio::test]
async fn statuses_are_those_that_we_set_and_a_job_of_the_same_name_is_none() {
    let stage = GitlabStage::start().await;
    let head = stage.propose(1, "topic", "a", "1");
    let (konverge, sha) = (stage.client(), id(&head));
    let set = async |state| {
        let url = Some("https://gitlab.example.com/x");
        konverge
            .set_status(&sha, "konverge/preview", state, "one\nline", url)
            .await
    };
    set(StatusState::Pending).await.unwrap();
    // GitLab refuses the state that it has.
    set(StatusState::Pending).await.unwrap();
    set(StatusState::Success).await.unwrap();
    set(StatusState::Error).await.unwrap();
    // A merge request names a job as it likes.
    stage.gitlab.world(|world| {
        let job = json!({
            "id": 99, "sha": head, "name": "konverge/preview", "status": "success",
            "author": {"username": "eve"}, "description": null, "target_url": null,
        });
        world.statuses.push((head.clone(), job));
    });
    let all = konverge.statuses(&sha).await.unwrap();
    let all: Vec<_> = all
        .iter()
        .map(|status| (status.context.as_str(), status.state))
        .collect();
    assert_eq!(
        all,
        [
            ("konverge/preview", StatusState::Failure),
            ("konverge/preview", StatusState::Success)
        ]
    );
    let newest = konverge.newest_statuses(&sha).await.unwrap();
    assert_eq!(newest[0].description.as_deref(), Some("one line"));
}
