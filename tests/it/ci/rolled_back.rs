//! A stack that somebody rolled back, and the first apply that nobody has to approve: what other pull requests are
//! told.

use crate::support::ci_stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_that_was_rolled_back_is_left_alone_until_a_pull_request_reverts_the_change() {
    let mut stage = Stage::small("").await;
    for (number, branch, value) in [(1, "good", "one"), (2, "bad", "two")] {
        stage.reviewed(number, branch, |stage| {
            stage.stack("rolled/dev", &[("rolled-web", value)])
        });
        stage.merge(number, branch).outcome.check(0);
    }
    let rolled = stage
        .konverge(["state", "rollback", "rolled/dev", "--to", "1", "--yes"])
        .run();
    let told = rolled.expect(0).stderr;
    assert!(
        told.contains("revert the commit there, by a pull request"),
        "{told}"
    );
    assert_eq!(stage.value("rolled-web").await.as_deref(), Some("one"));

    // Somebody else's merge.
    stage.reviewed(3, "other", |stage| {
        stage.stack("other/dev", &[("rolled-other", "one")])
    });
    let before = stage.comments().len();
    let merged = stage.merge(3, "other");
    merged.outcome.check(0);
    let said = format!("{}{}", merged.outcome.stdout, merged.outcome.stderr);
    assert!(
        said.contains("rolled/dev was rolled back to serial 1")
            && said.contains("until a pull request reverts that"),
        "{said}"
    );
    let comments = stage.comments();
    let new = &comments[before.min(comments.len())..];
    assert!(
        !new.iter().any(|(_, body)| body.contains("rolled/dev")),
        "{new:?}"
    );
    assert_eq!(stage.value("rolled-web").await.as_deref(), Some("one"));
    assert_eq!(stage.value("rolled-other").await.as_deref(), Some("one"));

    // A later change of the stack is one that somebody has reviewed.
    stage.reviewed(4, "again", |stage| {
        stage.stack("rolled/dev", &[("rolled-web", "three")])
    });
    stage.merge(4, "again").outcome.check(0);
    assert_eq!(stage.value("rolled-web").await.as_deref(), Some("three"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_apply_that_nobody_has_to_approve_is_told_once() {
    let mut stage = Stage::small("").await;
    let told = |stage: &Stage| {
        let comments = stage.comments();
        comments.last().unwrap().1.contains("nobody has to approve")
    };
    stage.reviewed(1, "first", |stage| {
        stage.stack("first/dev", &[("first-web", "one")])
    });
    assert!(told(&stage), "{:?}", stage.comments());
    stage.merge(1, "first").outcome.check(0);
    stage.reviewed(2, "second", |stage| {
        stage.stack("first/dev", &[("first-web", "two")])
    });
    assert!(!told(&stage), "{:?}", stage.comments());

    let mut careful = Stage::small("policy: {approvals: 1}\n").await;
    careful.reviewed(1, "careful", |stage| {
        stage.stack("careful/dev", &[("careful-web", "one")])
    });
    assert!(!told(&careful), "{:?}", careful.comments());
}
