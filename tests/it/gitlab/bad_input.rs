//! What a server, a proxy or a token may be: each is said with the next step.

use konverge_base::error::UserError;
use konverge_forge::{Changes as _, CommentAccess, ForgeError, Publishing as _};

use crate::support::{
    gitea_stage::{body, marker},
    gitlab::Act,
    gitlab_stage::{GitlabStage, client},
};

/// What is printed of an error: the message and the hints.
fn said(error: ForgeError) -> String {
    let error = UserError::from(error);
    format!("{}\n{}", error.message, error.hints.join("\n"))
}

#[tokio::test]
async fn a_token_that_lacks_something_is_told_so() {
    let stage = GitlabStage::start().await;
    stage.propose(1, "topic", "a", "1");
    let reader = client(&stage.gitlab.api_url(), "glpat-reader");
    let marker = marker(1);
    let refused = reader.create_comment(1, &marker, &body(&marker, "x")).await;
    let refused = said(refused.unwrap_err());
    assert!(
        refused.contains("`GITLAB_TOKEN`") && refused.contains("the scope `api`"),
        "{refused}"
    );
    let wrong = client(&stage.gitlab.api_url(), "glpat-revoked");
    let refused = said(wrong.default_branch().await.unwrap_err());
    assert!(refused.contains("has expired"), "{refused}");
    let gone = said(reader.comments(77, None, CommentAccess::Read).await.unwrap_err());
    assert!(gone.contains("renamed or moved"), "{gone}");
}

#[tokio::test]
async fn what_comes_from_a_proxy_is_not_taken_for_an_answer() {
    let stage = GitlabStage::start().await;
    let konverge = stage.client();
    let login = "<!DOCTYPE html><title>Sign in</title>";
    stage
        .gitlab
        .next("GET", "/konfig", Act::Answer(200, vec![], login));
    let error = said(konverge.default_branch().await.unwrap_err());
    assert!(
        error.contains("HTML") && error.contains("CI_API_V4_URL"),
        "{error}"
    );
    // It has left the header of pages out.
    let all = "[".to_owned() + &vec!["{\"id\":1}"; 100].join(",") + "]";
    stage.propose(1, "topic", "a", "1");
    stage
        .gitlab
        .next("GET", "/notes", Act::Answer(200, vec![], all.leak()));
    let notes = konverge.comments(1, None, CommentAccess::Read).await.unwrap();
    assert_eq!(notes.len(), 100);
    // One that names itself as the next page would never end.
    let looped = Act::Answer(200, vec![("x-next-page", "1")], "[]");
    stage.gitlab.next("GET", "/notes", looped);
    assert!(konverge.comments(1, None, CommentAccess::Read).await.is_err());
}

#[tokio::test]
async fn a_limit_is_waited_for() {
    let stage = GitlabStage::start().await;
    let limited = Act::Answer(
        429,
        vec![("retry-after", "0")],
        r#"{"message":"429 Too Many Requests"}"#,
    );
    stage.gitlab.next("GET", "/konfig", limited);
    stage.client().default_branch().await.unwrap();
}

#[tokio::test]
async fn hostile_names_stay_in_their_place_of_a_path() {
    let stage = GitlabStage::start().await;
    let konverge = stage.client();
    for name in ["../../../users", "a?b=c&d", "x#y", "ünï/köd", "%2e%2e"] {
        let error = konverge.branch(name).await.unwrap_err();
        assert!(matches!(error, ForgeError::NotFound { .. }), "{name}: {error}");
    }
    let asked = stage.operations();
    assert!(
        asked
            .iter()
            .all(|operation| operation == "GET /projects/{id}/repository/branches/{branch}"),
        "{asked:?}"
    );
}
