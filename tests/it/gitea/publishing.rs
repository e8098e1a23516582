//! Comments, statuses and issues, as a job keeps them.

use jiff::Timestamp;
use konverge_base::model::comment_marker::{CommentMarker, MarkerKind};
use konverge_forge::{
    CommentAccess, IssueChange, KeptIssues as _, Publishing as _, StatusState, StickyComments as _, Upsert,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::gitea_stage::{GiteaStage, KONFIG, body, id, marker};

#[tokio::test]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn one_comment_is_made_then_edited_in_place_and_made_again_after_somebody_deleted_it() {
    comment(GiteaStage::start().await).await;
}

pub(super) async fn comment(stage: GiteaStage) {
    let (number, _) = stage.opened(&stage.bob, "topic", "a.txt", "a\n").await;
    let konverge = stage.client();
    let upsert = async |run: u64, text: &str| {
        let marker = marker(run);
        konverge
            .upsert_comment(number, &marker, &body(&marker, text))
            .await
            .unwrap()
    };
    let Upsert::Created { url, written } = upsert(1, "one").await else {
        panic!("it was there");
    };
    assert!(
        url.starts_with(&format!(
            "{}/{KONFIG}/pulls/{number}#issuecomment-",
            stage.gitea.url()
        )),
        "{url}"
    );
    assert!(written.is_some());
    assert!(matches!(upsert(2, "two").await, Upsert::Updated { .. }));
    assert!(matches!(upsert(2, "two").await, Upsert::Unchanged { .. }));
    assert!(matches!(upsert(1, "one").await, Upsert::NewerRunWrote { .. }));

    // Anybody can copy a marker into a comment of their own.
    let stranger = body(&marker(99), "captured");
    stage.gitea.comment(&stage.eve, KONFIG, number, &stranger).await;
    assert!(matches!(upsert(3, "three").await, Upsert::Updated { .. }));
    let all = konverge
        .comments(number, None, CommentAccess::Read)
        .await
        .unwrap();
    let said = |login: &str| {
        let by = all.iter().filter(|one| one.author.as_deref() == Some(login));
        by.map(|one| one.body.clone()).collect::<Vec<_>>()
    };
    assert_eq!(said("konverge"), [body(&marker(3), "three")]);
    assert_eq!(said("eve"), [stranger]);

    // By its time: what was written before is left out.
    let later: Timestamp = "2100-01-01T00:00:00Z".parse().unwrap();
    let none = konverge
        .comments(number, Some(later), CommentAccess::Read)
        .await
        .unwrap();
    assert!(none.is_empty());

    let ours = all
        .iter()
        .find(|one| one.author.as_deref() == Some("konverge"))
        .unwrap();
    let path = format!("/repos/{KONFIG}/issues/comments/{}", ours.id);
    stage
        .gitea
        .call(&stage.ada.token, Method::DELETE, &path, Value::Null)
        .await;
    assert!(matches!(upsert(4, "four").await, Upsert::Created { .. }));
    konverge.delete_comment(ours.id).await.unwrap();
    konverge.remove_comment(number, &marker(4)).await.unwrap();
    let left = konverge
        .comments(number, None, CommentAccess::Read)
        .await
        .unwrap();
    assert_eq!(left.len(), 1);
}

#[tokio::test]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn statuses_come_newest_first_although_they_are_of_one_second() {
    statuses(GiteaStage::start().await).await;
}

pub(super) async fn statuses(stage: GiteaStage) {
    let (_, head) = stage.opened(&stage.bob, "topic", "a.txt", "a\n").await;
    let (konverge, head) = (stage.client(), id(&head));
    let set = async |context: &str, state, text: &str| {
        let url = Some("https://ci.acme.example/1");
        konverge
            .set_status(&head, context, state, text, url)
            .await
            .unwrap();
    };
    set("konverge/preview", StatusState::Pending, "it runs").await;
    set("konverge/apply", StatusState::Error, "it broke").await;
    set("konverge/preview", StatusState::Success, &"long ".repeat(100)).await;
    // More than one page.
    for run in 0..60 {
        set(&format!("other/{run}"), StatusState::Failure, "no").await;
    }
    let newest = konverge.newest_statuses(&head).await.unwrap();
    assert_eq!((newest.len(), newest[0].context.as_str()), (50, "other/59"));
    let all = konverge.statuses(&head).await.unwrap();
    assert_eq!(all.len(), 63);
    let ours: Vec<_> = all
        .iter()
        .filter(|one| one.context == "konverge/preview")
        .collect();
    assert_eq!(
        ours.iter().map(|one| one.state).collect::<Vec<_>>(),
        [StatusState::Success, StatusState::Pending]
    );
    assert_eq!(ours[0].target_url.as_deref(), Some("https://ci.acme.example/1"));
    assert!(ours[0].description.as_ref().unwrap().ends_with('…'));
    // A state that only Gitea has.
    let path = format!("/repos/{KONFIG}/statuses/{head}");
    for (state, read) in [("warning", StatusState::Failure), ("skipped", StatusState::Error)] {
        let status = json!({"state": state, "context": "konverge/preview"});
        stage.gitea.post(&stage.bob.token, &path, status).await;
        assert_eq!(konverge.newest_statuses(&head).await.unwrap()[0].state, read);
    }
}

#[tokio::test]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn issues_are_kept_by_their_label_and_their_marker() {
    issues(GiteaStage::start().await).await;
}

pub(super) async fn issues(stage: GiteaStage) {
    const LABEL: &str = "konverge-drift";
    let konverge = stage.client();
    let drift = |digest: &str| {
        let mut marker = CommentMarker::new(MarkerKind::Drift, "shop/prod");
        (marker.run, marker.attempt, marker.digest) = (1, 1, digest.to_owned());
        marker
    };
    let keep = async |digest: &str| {
        let known = konverge.kept_issues(LABEL).await.unwrap();
        let (marker, title) = (drift(digest), format!("shop/prod drifted: {digest}"));
        let change = konverge
            .keep_issue(&known, LABEL, &marker, &title, &body(&marker, digest))
            .await;
        change.unwrap()
    };
    // A stranger's issue with the marker, and ours without the label, which nobody has made yet: neither is ours.
    let path = format!("/repos/{KONFIG}/issues");
    let copied = json!({"title": "mine", "body": body(&drift("a"), "copied")});
    stage.gitea.post(&stage.eve.token, &path, copied.clone()).await;
    stage.gitea.post(&stage.bot.token, &path, copied).await;
    assert!(konverge.marked_issues(LABEL).await.unwrap().is_empty());

    assert_eq!(keep("a").await, IssueChange::Opened);
    assert_eq!(keep("a").await, IssueChange::Unchanged);
    assert_eq!(keep("b").await, IssueChange::Updated);
    let known = konverge.kept_issues(LABEL).await.unwrap();
    assert_eq!(known.len(), 1);
    assert_eq!(known[0].marker, drift("b"));
    let issue = stage
        .gitea
        .get(&stage.eve.token, &format!("{path}/{}", known[0].number))
        .await;
    assert_eq!(issue["title"], "shop/prod drifted: b");
    assert_eq!(issue["labels"][0]["name"], LABEL);

    assert_eq!(
        konverge.close_issue(&known[0]).await.unwrap(),
        IssueChange::Closed
    );
    assert!(!konverge.kept_issues(LABEL).await.unwrap()[0].open);
    assert_eq!(keep("b").await, IssueChange::Reopened);
    // Somebody deletes it by hand.
    let known = konverge.kept_issues(LABEL).await.unwrap();
    let gone = format!("{path}/{}", known[0].number);
    stage
        .gitea
        .call(&stage.ada.token, Method::DELETE, &gone, Value::Null)
        .await;
    let marker = drift("c");
    let kept = konverge
        .keep_issue(&known, LABEL, &marker, "again", &body(&marker, "c"))
        .await;
    assert_eq!(kept.unwrap(), IssueChange::Opened);
    konverge.end_issue(known[0].number).await.unwrap();
    // One label, however often it was asked for.
    let labels = stage
        .gitea
        .get(&stage.bob.token, &format!("/repos/{KONFIG}/labels"))
        .await;
    assert_eq!(labels.as_array().unwrap().len(), 1);
}
