//! What GitHub is told when a run comes late, fails as a whole, or applies what several pull requests brought.

use konverge_base::model::comment_marker::{CommentMarker, MarkerKind};
use serde_json::json;

use crate::support::{
    ci_stage::{Ran, Stage},
    github::{Act, Hold},
    payloads,
};

/// The comment of a kind on a pull request.
fn comment(stage: &Stage, number: u64, kind: MarkerKind) -> String {
    let comments = stage.github.world(|world| world.comments.clone());
    let of = |body: &str| CommentMarker::parse(body).is_some_and(|marker| marker.kind == kind);
    let mut found = comments
        .iter()
        .filter(|comment| comment.issue == number && of(&comment.body));
    let body = found.next().map(|comment| comment.body.clone());
    assert!(found.next().is_none(), "one comment of a kind");
    body.unwrap_or_default()
}

fn issues(stage: &Stage) -> Vec<String> {
    stage
        .github
        .world(|world| world.issues.iter().map(|issue| issue.state.clone()).collect())
}

/// The push of a commit, by a run of this id and attempt.
fn push_of(stage: &mut Stage, (before, after): &(String, String), run: &str, attempt: &str) -> Ran {
    let payload = payloads::push("main", before, after, false);
    stage.monorepo.checkout(after);
    let folder = stage.monorepo.path().to_owned();
    let (konverge, scratch) = stage.prepared(&folder, "push", &payload, after, "refs/heads/main");
    let konverge = konverge
        .env("GITHUB_RUN_ID", run)
        .env("GITHUB_RUN_ATTEMPT", attempt);
    Ran::of(konverge.run(), scratch)
}

/// A run that is started again, and one that was held up, after a newer commit was applied.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_comes_late_leaves_what_a_newer_one_applied() {
    let mut stage = Stage::small("").await;
    stage.reviewed(7, "late-one", |stage| {
        stage.stack("late/dev", &[("late-map", "one")]);
    });
    let first = stage.press_merge(7, "late-one");
    push_of(&mut stage, &first, "6000", "1").outcome.check(0);
    // The second changes the stack, the third removes nothing of it but adds another one.
    stage.reviewed(8, "late-two", |stage| {
        stage.stack("late/dev", &[("late-map", "two")]);
    });
    let second = stage.press_merge(8, "late-two");
    stage.reviewed(9, "late-three", |stage| {
        stage.stack("late/dev", &[("late-map", "three")]);
        stage.stack("late/new", &[("late-new", "new")]);
    });
    let third = stage.press_merge(9, "late-three");
    push_of(&mut stage, &third, "6002", "1").outcome.check(0);
    assert_eq!(stage.value("late-map").await.as_deref(), Some("three"));
    let outcomes: Vec<_> = [7, 8, 9].map(|n| comment(&stage, n, MarkerKind::Apply)).into();
    assert!(
        outcomes.iter().all(|body| body.contains("applied")),
        "{outcomes:?}"
    );

    for (push, run, attempt) in [(&first, "6000", "2"), (&second, "6001", "1")] {
        let late = push_of(&mut stage, push, run, attempt);
        late.outcome.check(0);
        let words = ["late/dev", "late/new", "newer commit", &third.1[..7]];
        for word in words {
            assert!(late.summary.contains(word), "{word}: {}", late.summary);
            assert!(
                late.outcome.stderr.contains(word),
                "{word}: {}",
                late.outcome.stderr
            );
        }
        assert_eq!(late.output("has-changes"), "false");
        let status = stage.status(&push.1, "konverge/apply");
        assert_eq!(status.as_deref(), Some("success"), "{}", late.outcome.stderr);
        assert_eq!(issues(&stage), Vec::<String>::new());
    }
    let after: Vec<_> = [7, 8, 9].map(|n| comment(&stage, n, MarkerKind::Apply)).into();
    assert_eq!(after, outcomes, "what became of the pull requests stands");
    assert_eq!(stage.value("late-map").await.as_deref(), Some("three"));
    assert_eq!(stage.value("late-new").await.as_deref(), Some("new"));
    // The way back by a new commit is no late run.
    stage.reviewed(10, "late-back", |stage| {
        stage.stack("late/dev", &[("late-map", "one")]);
    });
    stage.merge(10, "late-back").outcome.check(0);
    assert_eq!(stage.value("late-map").await.as_deref(), Some("one"));
}

/// The newer commit is applied after this run has asked which commits are newer, and before it has the lease.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_newer_run_applies_before_the_lease_is_taken_stays() {
    let mut stage = Stage::small("").await;
    stage.reviewed(7, "lease-one", |stage| {
        stage.stack("lease/dev", &[("lease-map", "one")]);
    });
    stage.merge(7, "lease-one").outcome.check(0);
    stage.reviewed(8, "lease-two", |stage| {
        stage.stack("lease/dev", &[("lease-map", "two")]);
    });
    let (before, older) = stage.press_merge(8, "lease-two");
    let hold = Hold::new();
    stage.github.next("GET", "/konfig/pulls", Act::Hold(hold.clone()));
    let payload = payloads::push("main", &before, &older, false);
    stage.monorepo.checkout(&older);
    let folder = stage.monorepo.path().to_owned();
    let (konverge, scratch) = stage.prepared(&folder, "push", &payload, &older, "refs/heads/main");
    let konverge = konverge.env("GITHUB_RUN_ID", "6001");
    let late = std::thread::spawn(move || konverge.run());
    hold.came().await;
    stage.reviewed(9, "lease-three", |stage| {
        stage.stack("lease/dev", &[("lease-map", "three")]);
    });
    let newer = stage.press_merge(9, "lease-three");
    push_of(&mut stage, &newer, "6002", "1").outcome.check(0);
    hold.let_go();
    let late = Ran::of(late.join().unwrap(), scratch);
    late.outcome.check(0);
    assert_eq!(stage.value("lease-map").await.as_deref(), Some("three"));
    for word in ["lease/dev", "newer commit", &newer.1[..7]] {
        assert!(late.summary.contains(word), "{word}: {}", late.summary);
    }
    assert_eq!(stage.status(&older, "konverge/apply").as_deref(), Some("success"));
    assert_eq!(issues(&stage), Vec::<String>::new());
}

/// A pull request that nobody previewed is told by the run that catches up with it. One that an earlier run has told is
/// not told again, nor is one that had nothing to apply.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_without_a_preview_is_told_once() {
    let mut stage = Stage::small("").await;
    let stack = |stage: &Stage, name: &str| {
        stage.stack(&format!("unseen/{name}"), &[(&format!("unseen-{name}"), "one")])
    };
    let unseen = |stage: &mut Stage, number: u64, branch: &str, change: &dyn Fn(&Stage)| {
        stage.monorepo.checkout("main").branch(branch);
        change(stage);
        stage.monorepo.commit(branch);
        stage.opened(number, branch, "opened", "acme/konfig");
        stage.press_merge(number, branch)
    };
    stage.reviewed(7, "unseen-a", |stage| stack(stage, "a"));
    stage.merge(7, "unseen-a").outcome.check(0);
    let first = comment(&stage, 7, MarkerKind::Apply);
    unseen(&mut stage, 8, "unseen-b", &|stage| stack(stage, "b"));
    stage.reviewed(9, "unseen-c", |stage| stack(stage, "c"));
    let merged = stage.merge(9, "unseen-c");
    merged.outcome.check(3);
    for number in [8, 9] {
        let told = comment(&stage, number, MarkerKind::Apply);
        assert!(
            told.contains("unseen/b") && told.contains("stopped"),
            "#{number}: {told}"
        );
    }
    assert_eq!(comment(&stage, 7, MarkerKind::Apply), first);
    stage.approve(&merged.digest()).outcome.check(0);
    let second = comment(&stage, 8, MarkerKind::Apply);
    let (before, after) = unseen(&mut stage, 10, "unseen-text", &|stage| {
        stage.monorepo.write("README.md", "text\n");
    });
    stage.push(&before, &after).outcome.check(0);
    stage.reviewed(11, "unseen-d", |stage| stack(stage, "d"));
    stage.merge(11, "unseen-d").outcome.check(0);
    let told = [8, 10].map(|number| comment(&stage, number, MarkerKind::Apply));
    assert_eq!(told, [second, String::new()]);
    assert!(comment(&stage, 11, MarkerKind::Apply).contains("1 applied"));
}

/// The first of three runs is cancelled, as GitHub does with one that waits: the last applies for all.
#[tokio::test(flavor = "multi_thread")]
async fn each_pull_request_that_a_run_applied_is_told() {
    let mut stage = Stage::small("").await;
    for (number, branch, id) in [(7, "each-a", "each/a"), (8, "each-b", "each/b")] {
        stage.reviewed(number, branch, |stage| {
            stage.stack(id, &[(branch, "one")]);
        });
    }
    stage.press_merge(7, "each-a");
    let (before, after) = stage.press_merge(8, "each-b");
    let ran = stage.push(&before, &after);
    ran.outcome.check(0);
    for number in [7, 8] {
        let told = comment(&stage, number, MarkerKind::Apply);
        assert!(told.contains("2 applied"), "#{number}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_issue_about_an_unreviewed_change_closes_when_the_change_is_gone() {
    let mut stage = Stage::small("").await;
    stage.reviewed(7, "gone-one", |stage| {
        stage.stack("gone/dev", &[("gone-map", "one")]);
    });
    stage.merge(7, "gone-one").outcome.check(0);
    let pushed = stage.straight_to_main(|stage| stage.stack("gone/dev", &[("gone-map", "two")]));
    pushed.outcome.check(3);
    assert_eq!(issues(&stage), ["open"]);
    let reverted = stage.straight_to_main(|stage| stage.stack("gone/dev", &[("gone-map", "one")]));
    reverted.outcome.check(0);
    assert_eq!(issues(&stage), ["closed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_by_a_rule_names_the_pull_request() {
    let mut stage = Stage::small("policy: {approvals: 1}\n").await;
    stage
        .github
        .world(|world| world.collaborators.insert("dev".into(), "write"));
    stage.reviewed(41, "named", |stage| {
        stage.stack("named/dev", &[("named-map", "one")]);
    });
    let merged = stage.merge(41, "named");
    merged.outcome.check(3);
    for told in [&merged.outcome.stdout, &merged.summary] {
        assert!(told.contains("brought by #41"), "{told}");
    }
}

/// The store cannot be reached any more: neither the preview nor the apply comes to a result.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_fails_as_a_whole_leaves_a_summary_and_a_true_comment() {
    let mut stage = Stage::set_up("").await;
    stage.propose("fatal", crate::support::ci_stage::storefront);
    stage.pull_request(7, "fatal", "opened").outcome.check(0);
    let before = comment(&stage, 7, MarkerKind::Preview);
    assert!(before.contains("Merging"), "{before}");
    stage.env = vec![("AWS_SECRET_ACCESS_KEY", "wrong-secret-key".to_owned())];
    let failed = stage.pull_request(7, "fatal", "synchronize");
    assert_ne!(failed.outcome.code, Some(0));
    let told = comment(&stage, 7, MarkerKind::Preview);
    for text in [&failed.summary, &told] {
        assert!(text.contains("### Konverge preview: failed"), "{text}");
        assert!(text.contains("hint: "), "{text}");
        assert!(!text.contains("**Merging** applies"), "{text}");
    }
    // What can be done again takes its place again.
    stage.env.clear();
    stage.pull_request(7, "fatal", "synchronize").outcome.check(0);
    let again = comment(&stage, 7, MarkerKind::Preview);
    assert!(!again.contains("failed"), "{again}");
    stage.env = vec![("AWS_SECRET_ACCESS_KEY", "wrong-secret-key".to_owned())];
    let merged = stage.merge(7, "fatal");
    assert_ne!(merged.outcome.code, Some(0));
    let told = comment(&stage, 7, MarkerKind::Apply);
    for text in [&merged.summary, &told] {
        assert!(text.contains("### Konverge apply: failed"), "{text}");
    }
}

/// Before anything is opened: the event is refused, there is no checkout, there is nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn every_end_leaves_a_summary() {
    let mut stage = Stage::small("").await;
    stage.reviewed(7, "early", |stage| {
        stage.stack("early/dev", &[("early-map", "one")]);
    });
    let head = stage.monorepo.rev("early");
    let (payload, trial) = stage.opened(7, "early", "synchronize", "acme/konfig");
    let nowhere = tempfile::tempdir().unwrap();
    let reference = "refs/pull/7/merge";
    let lost = stage.ci_in(nowhere.path(), "pull_request", &payload, &trial, reference);
    assert_ne!(lost.outcome.code, Some(0));
    assert!(
        lost.summary.contains("Konverge preview: failed"),
        "{}",
        lost.summary
    );
    let told = comment(&stage, 7, MarkerKind::Preview);
    assert!(told.contains("Konverge preview: failed"), "{told}");
    assert!(!told.contains("**Merging** applies"), "{told}");

    let status = stage.status(&head, "konverge/preview");
    assert_eq!(status.as_deref(), Some("error"), "{}", lost.outcome.stderr);

    let refused = stage.ci("pull_request_target", &payload, &trial, reference);
    assert_ne!(refused.outcome.code, Some(0));
    assert!(
        refused.summary.contains("### Konverge: failed"),
        "{}",
        refused.summary
    );
    let payload = payloads::push("topic", &head, &head, false);
    let other = stage.ci("push", &payload, &head, "refs/heads/topic");
    other.outcome.check(0);
    assert!(other.summary.contains("nothing to do"), "{}", other.summary);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_run_s_status_never_replaces_a_newer_one_s() {
    let mut stage = Stage::small("").await;
    stage.reviewed(7, "older", |stage| {
        stage.stack("older/dev", &[("older-map", "one")]);
    });
    let push = stage.press_merge(7, "older");
    push_of(&mut stage, &push, "7002", "1").outcome.check(0);
    stage.github.world(|world| {
        let newer = json!({"context": "konverge/apply", "state": "failure", "description": "no",
            "target_url": "https://github.com/acme/konfig/actions/runs/7002"});
        world.statuses.push((push.1.clone(), newer));
    });
    for (run, expected) in [("7001", "failure"), ("7003", "success")] {
        let ran = push_of(&mut stage, &push, run, "1");
        ran.outcome.check(0);
        let status = stage.status(&push.1, "konverge/apply");
        assert_eq!(status.as_deref(), Some(expected), "{run}: {}", ran.outcome.stderr);
    }
    // The attempts of one run, in whichever order they end.
    for (set, ends, expected) in [
        ("2", "1", "failure"),
        ("1", "2", "success"),
        ("3", "3", "success"),
    ] {
        stage.github.world(|world| {
            let other = json!({"context": "konverge/apply", "state": "failure", "description": "no",
                "target_url": format!("https://github.com/acme/konfig/actions/runs/7004/attempts/{set}")});
            world.statuses.push((push.1.clone(), other));
        });
        let ran = push_of(&mut stage, &push, "7004", ends);
        ran.outcome.check(0);
        let status = stage.status(&push.1, "konverge/apply");
        assert_eq!(
            status.as_deref(),
            Some(expected),
            "{set} {ends}: {}",
            ran.outcome.stderr
        );
    }
}

/// Nothing is known yet of the two sides that a preview compares: the status that is required ends all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_preview_that_cannot_begin_ends_its_status() {
    const WHOLE: &str = "konverge/preview";
    let mut stage = Stage::small("").await;
    let head = stage.propose("begin", |_| stage.stack("begin/dev", &[("begin-map", "one")]));
    let base = stage.monorepo.rev("main");
    let (payload, trial) = stage.opened(7, "begin", "opened", "acme/konfig");
    let reference = "refs/pull/7/merge";
    let nowhere = tempfile::tempdir().unwrap();
    let lost = |stage: &mut Stage, event: &str, payload: &serde_json::Value, sha: &str, reference: &str| {
        let ran = stage.ci_in(nowhere.path(), event, payload, sha, reference);
        assert_ne!(ran.outcome.code, Some(0));
    };
    let forbidden = || {
        Act::Answer(
            403,
            Vec::new(),
            json!({"message": "Resource not accessible by integration"}),
        )
    };

    // GitHub does not say which branch is the default one; then a share, and the verdict on all of them.
    stage
        .github
        .broken(Some(("GET", "/repos/acme/konfig", forbidden())));
    let refused = stage.preview(7, &payload, &trial);
    assert_ne!(refused.outcome.code, Some(0));
    stage.github.broken(None);
    let of = |stage: &Stage, context: &str| stage.status(&head, context);
    assert_eq!(of(&stage, WHOLE).as_deref(), Some("error"));
    stage.github.world(|world| world.statuses.clear());
    stage.env = vec![("KONVERGE_SHARD", "1/2".to_owned())];
    lost(&mut stage, "pull_request", &payload, &trial, reference);
    assert_eq!(of(&stage, "konverge/preview 1/2").as_deref(), Some("error"));
    assert_eq!(of(&stage, WHOLE), None);
    let statuses = format!("/repos/acme/konfig/commits/{head}/statuses");
    stage.github.broken(Some(("GET", &statuses, forbidden())));
    stage.env = vec![("KONVERGE_SHARD", "all/2".to_owned())];
    lost(&mut stage, "pull_request", &payload, &trial, reference);
    stage.github.broken(None);
    assert_eq!(of(&stage, WHOLE).as_deref(), Some("error"));
    stage.env.clear();

    // Another branch has a status of its own.
    let mut elsewhere = payload.clone();
    elsewhere["pull_request"]["base"]["ref"] = json!("release");
    lost(&mut stage, "pull_request", &elsewhere, &trial, reference);
    assert_eq!(
        of(&stage, "konverge/preview into release").as_deref(),
        Some("error")
    );
    // A queue's group, a push, a stranger's pull request in a job of this repository.
    let queue = format!("refs/heads/gh-readonly-queue/main/pr-7-{base}");
    lost(
        &mut stage,
        "merge_group",
        &payloads::merge_group(7, &base, &trial),
        &trial,
        &queue,
    );
    assert_eq!(stage.status(&trial, WHOLE).as_deref(), Some("error"));
    let main = "refs/heads/main";
    lost(
        &mut stage,
        "push",
        &payloads::push("main", &base, &base, false),
        &base,
        main,
    );
    assert_eq!(stage.status(&base, "konverge/apply").as_deref(), Some("error"));
    stage.github.world(|world| world.statuses.clear());
    let outside = payloads::workflow_run(("begin", &head), "mallory/konfig", "mallory");
    lost(&mut stage, "workflow_run", &outside, &base, main);
    assert_eq!(of(&stage, WHOLE).as_deref(), Some("error"));
    // Its own job may write nothing, and an older run says nothing over a newer one.
    let told = stage.github.writes();
    let (stranger, _) = stage.opened(7, "begin", "opened", "mallory/konfig");
    lost(&mut stage, "pull_request", &stranger, &trial, reference);
    assert_eq!(stage.github.writes(), told);
    stage.github.world(|world| {
        let newer = json!({"context": WHOLE, "state": "success", "description": "yes",
            "target_url": "https://github.com/acme/konfig/actions/runs/9999/attempts/1"});
        world.statuses.push((head.clone(), newer));
    });
    lost(&mut stage, "pull_request", &payload, &trial, reference);
    assert_eq!(of(&stage, WHOLE).as_deref(), Some("success"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_conversation_is_called_locked() {
    let mut stage = Stage::small("").await;
    let locked = json!({"message": "Unable to create comment because issue is locked."});
    stage
        .github
        .next("POST", "/issues/7/comments", Act::Answer(403, Vec::new(), locked));
    let (_, ran) = stage.reviewed(7, "locked", |stage| {
        stage.stack("locked/dev", &[("locked-map", "one")]);
    });
    let stderr = &ran.outcome.stderr;
    assert!(stderr.contains("the conversation is locked"), "{stderr}");
    assert!(!stderr.contains("pull-requests: write"), "{stderr}");
}
