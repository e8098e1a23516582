//! `--pull-request` against a GitHub that limits and refuses: nothing is done twice, nothing half, and the message says
//! which edit it was and what to do.

use serde_json::{Value, json};

use super::pull_requests::Stand;
use crate::support::github::Act;

const DEV: &str = "appops/storefront/dev/main.k";

/// A secondary limit, as GitHub words it.
fn limited(status: u16, seconds: &str) -> Act {
    let said = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.";
    Act::Answer(
        status,
        vec![("retry-after", seconds.to_owned())],
        json!({"message": said}),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_limit_is_waited_for_and_nothing_is_written_twice() {
    let stand = Stand::new().await;
    for (method, route, status) in [
        ("GET", "/repos/acme/konfig", 429),
        ("POST", "/git/trees", 403),
        ("POST", "/git/commits", 429),
        ("POST", "/git/refs", 403),
        ("POST", "/pulls", 403),
        ("POST", "/pulls", 429),
    ] {
        stand.github.next(method, route, limited(status, "0"));
    }
    stand.propose("2.5.0").expect(0);
    assert_eq!(stand.pulls().len(), 1);
    assert!(stand.file().contains("storefront:2.5.0"));
    let branch = format!("/git/refs/heads%2F{}", stand.branch().replace('/', "%2F"));
    stand.github.next("PATCH", &branch, limited(403, "0"));
    let pull = stand.github.world(|world| world.pulls[0].number);
    stand
        .github
        .next("PATCH", &format!("/pulls/{pull}"), limited(429, "0"));
    let updated = stand.propose("2.6.0").expect(0);
    assert!(updated.stderr.contains("updated"), "{}", updated.stderr);
    assert!(stand.file().contains("storefront:2.6.0"));
    assert_eq!(stand.pulls().len(), 1);
    let commits = format!("main..{}", stand.branch());
    assert_eq!(
        stand.repository.git(["rev-list", "--count", &commits]),
        "2",
        "one commit for each value"
    );
}

/// A limit of an hour ends the run, wherever it comes; the next run has one branch and one pull request.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_limit_ends_the_run_and_the_next_one_finishes_it() {
    for (method, route) in [
        ("GET", "/repos/acme/konfig"),
        ("POST", "/repos/acme/konfig/git/trees"),
        ("POST", "/repos/acme/konfig/git/commits"),
        ("POST", "/repos/acme/konfig/git/refs"),
        ("POST", "/repos/acme/konfig/pulls"),
    ] {
        let stand = Stand::new().await;
        stand.github.broken(Some((method, route, limited(403, "3600"))));
        let ended = stand.propose("2.5.0").expect(1);
        for said in ["limit", "run the job again later", &format!("{DEV}:8")] {
            assert!(ended.stderr.contains(said), "{route} {said}: {}", ended.stderr);
        }
        assert!(stand.pulls().is_empty(), "{route}");
        assert_eq!(stand.repository.git(["status", "--porcelain"]), "");
        stand.github.broken(None);
        stand.propose("2.5.0").expect(0);
        assert_eq!(stand.pulls().len(), 1, "{route}");
        assert!(stand.file().contains("storefront:2.5.0"));
        let branches = stand
            .repository
            .git(["branch", "--list", "konverge/set-*", "--format=%(refname)"]);
        assert_eq!(branches.lines().count(), 1, "{branches}");
    }
}

/// A merge queue, a merge method that is off, and a pull request that nothing holds up: GitHub's words reach the
/// person, and nothing else does.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_automatic_merge_leaves_the_pull_request_open() {
    let stand = Stand::new().await;
    stand.github.world(|world| world.allows_auto_merge = true);
    let arguments = ["storefront/dev", "server.env.LOG_LEVEL=\"info\"", "--auto-merge"];
    let viewer = json!({"data": {"viewer": {"login": "konverge-app[bot]"}}});
    for words in [
        "The merge strategy for main is set by the merge queue",
        "Merge method merge commits are not allowed on this repository",
        "Pull request Pull request is in clean status",
        "hostile \u{1b}[31m\n::error::injected",
    ] {
        stand
            .github
            .next("POST", "/graphql", Act::Answer(200, Vec::new(), viewer.clone()));
        let refusal = json!({"data": Value::Null, "errors": [{"type": "UNPROCESSABLE", "message": words}]});
        stand
            .github
            .next("POST", "/graphql", Act::Answer(200, Vec::new(), refusal));
        let refused = stand.propose_as("ghs_app", &arguments).expect(1);
        let shown = words.split(' ').next().unwrap();
        for said in [shown, "is not merged automatically", "/pull/"] {
            assert!(refused.stderr.contains(said), "{said}: {}", refused.stderr);
        }
        assert!(!refused.stderr.contains('\u{1b}'), "{}", refused.stderr);
        assert!(!refused.stderr.contains("\n::error"), "{}", refused.stderr);
        let open = |world: &mut crate::support::github::World| {
            world.pulls.len() == 1 && !world.pulls[0].closed && !world.pulls[0].auto_merge
        };
        assert!(stand.github.world(open), "{words}");
    }
    stand.propose_as("ghs_app", &arguments).expect(0);
    assert!(stand.github.world(|world| world.pulls[0].auto_merge));
}

/// A rule of the repository that keeps Apps from the branch is not somebody's push.
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_for_branches_is_told_as_one() {
    let stand = Stand::new().await;
    let refusal = json!({"message": "Repository rule violations found\n\nCannot create ref due to creations being restricted."});
    stand
        .github
        .next("POST", "/git/refs", Act::Answer(422, Vec::new(), refusal));
    let refused = stand.propose("2.5.0").expect(1);
    for said in ["creations being restricted", &format!("{DEV}:8")] {
        assert!(refused.stderr.contains(said), "{said}: {}", refused.stderr);
    }
    assert!(!refused.stderr.contains("somebody else"), "{}", refused.stderr);
    assert!(stand.pulls().is_empty());
    stand.propose("2.5.0").expect(0);
    assert_eq!(stand.pulls().len(), 1);
}

/// Two jobs at once for one stack and image: one branch, one pull request, and one of the two values.
#[tokio::test(flavor = "multi_thread")]
async fn two_calls_at_once_open_one_pull_request() {
    let stand = Stand::new().await;
    let (first, second) = tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let first = scope.spawn(|| stand.propose("2.5.0"));
            let second = scope.spawn(|| stand.propose("2.6.0"));
            (first.join().unwrap(), second.join().unwrap())
        })
    });
    let well = [&first, &second]
        .into_iter()
        .filter(|ended| ended.code == Some(0))
        .count();
    assert!(well >= 1, "{} {}", first.stderr, second.stderr);
    for ended in [&first, &second] {
        let lost = ended.code == Some(1) && ended.stderr.contains("somebody else pushed");
        assert!(ended.code == Some(0) || lost, "{}", ended.stderr);
    }
    assert_eq!(stand.pulls().len(), 1);
    // The one that lost continues.
    stand.propose("2.6.0").expect(0);
    assert!(stand.file().contains("storefront:2.6.0"));
    assert_eq!(stand.pulls().len(), 1);
}
