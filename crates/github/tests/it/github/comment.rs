//! The sticky comment: made once, found again, edited in place, left to newer runs, packed to what is taken.

use konverge_base::{
    error::chain,
    model::comment_marker::{CommentMarker, MarkerKind},
};
use konverge_forge::{BUDGETS, StickyComments as _, Upsert};
use serde_json::json;

use super::{body, client, client_with, marker};
use crate::support::github::{Act, FakeGithub, Hold, World};

#[tokio::test]
async fn one_comment_is_made_then_edited_in_place() {
    let fake = FakeGithub::start(World::new()).await;
    let github = client(&fake);
    let first = github
        .upsert_comment(12, &marker(1), &body(&marker(1), "one"))
        .await
        .unwrap();
    assert!(matches!(first, Upsert::Created { .. }), "{first:?}");
    let second = github
        .upsert_comment(12, &marker(2), &body(&marker(2), "two"))
        .await
        .unwrap();
    assert!(matches!(second, Upsert::Updated { .. }), "{second:?}");
    let again = github
        .upsert_comment(12, &marker(2), &body(&marker(2), "two"))
        .await
        .unwrap();
    assert!(matches!(again, Upsert::Unchanged { .. }), "{again:?}");
    fake.world(|world| {
        assert_eq!(world.comments.len(), 1);
        assert!(world.comments[0].body.ends_with("two\n"));
    });
    assert_eq!(fake.writes(), 2);
}

#[tokio::test]
async fn it_is_found_behind_a_hundred_others() {
    let fake = FakeGithub::start(World::new()).await;
    fake.world(|world| {
        for n in 0..250 {
            world.comment(12, "somebody", &format!("comment {n}"));
        }
        world.comment(12, "github-actions[bot]", &body(&marker(1), "ours"));
    });
    let result = client(&fake)
        .upsert_comment(12, &marker(2), &body(&marker(2), "new"))
        .await
        .unwrap();
    assert!(matches!(result, Upsert::Updated { .. }));
    assert_eq!(fake.world(|world| world.comments.len()), 251);
    let requests = fake.requests().len();
    assert_eq!(requests, 5, "three pages, who we are, and one write");
}

#[tokio::test]
async fn a_stranger_with_our_marker_is_left_alone() {
    let fake = FakeGithub::start(World::new()).await;
    let stranger = body(&marker(99), "captured");
    fake.world(|world| world.comment(12, "mallory", &stranger));
    client(&fake)
        .upsert_comment(12, &marker(1), &body(&marker(1), "ours"))
        .await
        .unwrap();
    fake.world(|world| {
        assert_eq!(world.comments.len(), 2);
        assert_eq!(world.comments[0].body, stranger);
    });
}

/// An App's token begins as GITHUB_TOKEN does, and writes under the App's name.
#[tokio::test]
async fn an_app_finds_its_own_comment_again() {
    let fake = FakeGithub::start(World::new().with_app("acme-konverge[bot]")).await;
    let actions = body(&marker(1), "by GITHUB_TOKEN");
    fake.world(|world| world.comment(12, "github-actions[bot]", &actions));
    for (run, text) in [(2, "one"), (3, "two")] {
        let github = client_with(&fake, "ghs_app");
        // All that a run says is by the same one: that is asked once.
        for number in [12, 13] {
            github
                .upsert_comment(number, &marker(run), &body(&marker(run), text))
                .await
                .unwrap();
        }
        github.remove_comment(13, &marker(run)).await.unwrap();
    }
    fake.world(|world| {
        let by = |c: &crate::support::github::Comment| (c.login.clone(), c.body.clone());
        let told: Vec<_> = world.comments.iter().map(by).collect();
        let ours = ("acme-konverge[bot]".to_owned(), body(&marker(3), "two"));
        assert_eq!(told, [("github-actions[bot]".to_owned(), actions.clone()), ours]);
    });
    let asked = fake.requests();
    assert_eq!(
        asked.iter().filter(|r| r.path == "/graphql").count(),
        2,
        "{asked:#?}"
    );
}

/// Where it may not be asked who we are, we are taken for GITHUB_TOKEN; where it cannot be answered, nothing is
/// written.
#[tokio::test]
async fn who_we_are_may_not_be_told() {
    for refused in [
        Act::Answer(
            403,
            vec![],
            json!({"message": "Resource not accessible by integration"}),
        ),
        Act::Answer(
            200,
            vec![],
            json!({"data": {"viewer": null}, "errors": [{"type": "FORBIDDEN", "message": "no"}]}),
        ),
    ] {
        let fake = FakeGithub::start(World::new()).await;
        fake.world(|world| world.comment(12, "github-actions[bot]", &body(&marker(1), "one")));
        fake.next("POST", "/graphql", refused);
        let github = client(&fake);
        let again = github
            .upsert_comment(12, &marker(2), &body(&marker(2), "two"))
            .await;
        assert!(matches!(again.unwrap(), Upsert::Updated { .. }));
    }
    let fake = FakeGithub::start(World::new().with_app("acme-konverge[bot]")).await;
    fake.world(|world| world.comment(12, "acme-konverge[bot]", &body(&marker(1), "one")));
    let limited = json!({"errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]});
    fake.next("POST", "/graphql", Act::Answer(200, vec![], limited));
    let github = client_with(&fake, "ghs_app");
    let again = github
        .upsert_comment(12, &marker(2), &body(&marker(2), "two"))
        .await;
    assert!(chain(&again.unwrap_err()).contains("rate limit exceeded"));
    assert_eq!(fake.writes(), 0);
}

#[tokio::test]
async fn an_older_run_keeps_quiet_and_legs_have_their_own() {
    let fake = FakeGithub::start(World::new()).await;
    let github = client(&fake);
    github
        .upsert_comment(12, &marker(7), &body(&marker(7), "newer"))
        .await
        .unwrap();
    let older = github
        .upsert_comment(12, &marker(6), &body(&marker(6), "older"))
        .await
        .unwrap();
    assert!(matches!(older, Upsert::NewerRunWrote { .. }));
    let mut leg = marker(6);
    leg.scope = "2/8".into();
    github.upsert_comment(12, &leg, &body(&leg, "leg")).await.unwrap();
    let bodies = fake.world(|world| world.comments.iter().map(|c| c.body.clone()).collect::<Vec<_>>());
    assert_eq!(bodies, [body(&marker(7), "newer"), body(&leg, "leg")]);
}

#[tokio::test]
async fn two_that_raced_become_one() {
    let fake = FakeGithub::start(World::new()).await;
    fake.world(|world| {
        world.comment(12, "github-actions[bot]", &body(&marker(1), "a"));
        world.comment(12, "github-actions[bot]", &body(&marker(2), "b"));
    });
    client(&fake)
        .upsert_comment(12, &marker(3), &body(&marker(3), "c"))
        .await
        .unwrap();
    let bodies = fake.world(|world| world.comments.iter().map(|c| c.body.clone()).collect::<Vec<_>>());
    assert_eq!(bodies, [body(&marker(3), "c")]);
}

#[tokio::test]
async fn what_is_too_long_is_packed_smaller() {
    let fake = FakeGithub::start(World::new()).await;
    let refuse = || {
        Act::Answer(
            422,
            vec![],
            json!({"message": "Validation Failed", "errors": [{"message": "Body is too long (maximum is 65536 characters)"}]}),
        )
    };
    fake.next("POST", "/comments", refuse());
    fake.next("POST", "/comments", refuse());
    let (github, marker) = (client(&fake), marker(1));
    let packed = github.upsert_packed(12, &marker, |budget| {
        let text = body(&marker, "");
        format!("{text}{}", "x".repeat(budget - text.len()))
    });
    let packed = packed.await.unwrap();
    assert_eq!(packed.text.len(), BUDGETS[2]);
    assert_eq!(fake.world(|world| world.comments[0].body.clone()), packed.text);
}

/// The largest comment that is rendered is below GitHub's limit.
#[tokio::test]
async fn a_comment_at_the_largest_budget_is_taken() {
    let fake = FakeGithub::start(World::new()).await;
    let text = body(&marker(1), "");
    let text = format!("{text}{}", "x".repeat(BUDGETS[0] - text.len()));
    client(&fake).upsert_comment(12, &marker(1), &text).await.unwrap();
    assert_eq!(fake.writes(), 1);
}

/// Somebody deletes it between the list and the write.
#[tokio::test]
async fn a_comment_that_is_deleted_meanwhile_is_written_anew() {
    let fake = FakeGithub::start(World::new()).await;
    let github = client(&fake);
    github
        .upsert_comment(12, &marker(1), &body(&marker(1), "one"))
        .await
        .unwrap();
    let id = fake.world(|world| world.comments[0].id);
    let hold = Hold::new();
    fake.next(
        "PATCH",
        &format!("/issues/comments/{id}"),
        Act::Hold(hold.clone()),
    );
    let again = tokio::spawn(async move {
        github
            .upsert_comment(12, &marker(2), &body(&marker(2), "two"))
            .await
    });
    hold.came().await;
    fake.world(|world| world.comments.clear());
    hold.let_go();
    let again = again.await.unwrap().unwrap();
    assert!(matches!(again, Upsert::Created { .. }), "{again:?}");
    fake.world(|world| assert!(world.comments.last().unwrap().body.ends_with("two\n")));
}

/// Two runs find no comment and both create one. The first POST is held until the second run is done with its own.
/// The first of `runs` posts last, and `act` is what happens to its POST then. Returns their results in the same order.
async fn race(fake: &FakeGithub, runs: [&CommentMarker; 2], act: Option<Act>) -> [Upsert; 2] {
    let hold = Hold::new();
    fake.next("POST", "/issues/12/comments", Act::Hold(hold.clone()));
    let [late, early] = runs.map(|marker| (client(fake), marker.clone()));
    let late = tokio::spawn(async move {
        let text = body(&late.1, &format!("run {}", late.1.run));
        late.0.upsert_comment(12, &late.1, &text).await
    });
    hold.came().await;
    let text = body(&early.1, &format!("run {}", early.1.run));
    let early = early.0.upsert_comment(12, &early.1, &text).await.unwrap();
    if let Some(act) = act {
        fake.next("POST", "/issues/12/comments", act);
    }
    hold.let_go();
    [late.await.unwrap().unwrap(), early]
}

/// The ids and texts of the comments on the pull request.
fn comments(fake: &FakeGithub) -> Vec<(u64, String)> {
    fake.world(|world| world.comments.iter().map(|c| (c.id, c.body.clone())).collect())
}

#[tokio::test]
async fn the_later_poster_gives_way_to_a_newer_run() {
    let fake = FakeGithub::start(World::new()).await;
    let [late, early] = race(&fake, [&marker(1), &marker(2)], None).await;
    let (Upsert::NewerRunWrote { url: seen }, Upsert::Created { url, .. }) = (&late, &early) else {
        panic!("{late:?} {early:?}");
    };
    assert_eq!(seen, url);
    assert_eq!(comments(&fake), [(1001, body(&marker(2), "run 2"))]);
}

#[tokio::test]
async fn the_later_poster_writes_the_comment_of_an_older_run() {
    let fake = FakeGithub::start(World::new()).await;
    let [late, early] = race(&fake, [&marker(2), &marker(1)], None).await;
    let (Upsert::Updated { url: seen, .. }, Upsert::Created { url, .. }) = (&late, &early) else {
        panic!("{late:?} {early:?}");
    };
    assert_eq!(seen, url);
    assert_eq!(comments(&fake), [(1001, body(&marker(2), "run 2"))]);
}

/// Both are there before either run looks again: the run that posted first leaves the other alone.
#[tokio::test]
async fn of_two_posts_at_the_same_time_the_older_stays() {
    let fake = FakeGithub::start(World::new()).await;
    let (post, look) = (Hold::new(), Hold::new());
    fake.next("POST", "/issues/12/comments", Act::Hold(post.clone()));
    fake.next("POST", "/issues/12/comments", Act::Hold(look.clone()));
    let start = |run| {
        let github = client(&fake);
        tokio::spawn(async move {
            let text = body(&marker(run), &format!("run {run}"));
            github.upsert_comment(12, &marker(run), &text).await
        })
    };
    let (first, second) = (start(1), start(2));
    post.came().await;
    look.came().await;
    post.let_go();
    look.let_go();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(comments(&fake), [(1001, body(&marker(2), "run 2"))]);
}

/// A comment of another shard, of another kind, on another pull request, and one that somebody else wrote.
#[tokio::test]
async fn a_race_deletes_nothing_else() {
    let fake = FakeGithub::start(World::new()).await;
    let mut shard = marker(5);
    shard.scope = "2/8".into();
    let apply = CommentMarker::new(MarkerKind::Apply, "");
    let ours = "github-actions[bot]";
    let others = [
        (12, "mallory", marker(1)),
        (12, ours, apply),
        (13, ours, marker(1)),
        (12, ours, shard),
    ];
    let others = others.map(|(issue, login, marker)| {
        let text = body(&marker, "another");
        (fake.world(|world| world.comment(issue, login, &text)), text)
    });
    race(&fake, [&marker(2), &marker(1)], None).await;
    let mut expected = others.to_vec();
    expected.push((1005, body(&marker(2), "run 2")));
    assert_eq!(comments(&fake), expected);
}

/// The answer of our POST is lost, and the comment of another run is there: it is not taken for ours.
#[tokio::test]
async fn a_lost_answer_does_not_lose_the_text_to_another_run() {
    let fake = FakeGithub::start(World::new()).await;
    let [late, _] = race(&fake, [&marker(2), &marker(1)], Some(Act::DropBefore)).await;
    assert!(matches!(late, Upsert::Updated { .. }), "{late:?}");
    assert_eq!(comments(&fake), [(1001, body(&marker(2), "run 2"))]);
}
