//! The scheduled look for drift: whose turn it is, one issue a stack, what is late, and what is put back.

use konverge_state::DriftHistory;
use serde_json::json;

use crate::support::{ci_stage::Stage, github::Issue, tiny_monorepo};

fn issues(stage: &Stage) -> Vec<Issue> {
    let of_drift = |issue: &&Issue| issue.labels.iter().any(|label| label == "konverge-drift");
    stage
        .github
        .world(|world| world.issues.iter().filter(of_drift).cloned().collect())
}

/// Writes to issues so far.
fn issue_writes(stage: &Stage) -> usize {
    let requests = stage.github.requests();
    let write =
        |path: &str, method: &str| method != "GET" && path.contains("/issues") && !path.contains("comments");
    requests
        .iter()
        .filter(|request| write(&request.path, &request.method))
        .count()
}

async fn applied(more: &str, stacks: &[(&str, &str)]) -> Stage {
    let mut stage = Stage::small(more).await;
    stage.reviewed(7, "drift", |stage| {
        for (stack, map) in stacks {
            stage.stack(stack, &[(map, "one")]);
        }
    });
    stage.merge(7, "drift").outcome.check(0);
    stage
}

#[tokio::test(flavor = "multi_thread")]
async fn one_issue_a_stack_is_updated_only_when_the_difference_changes() {
    let mut stage = applied("", &[("calm/dev", "drift-calm"), ("loose/dev", "drift-loose")]).await;
    stage.schedule().outcome.check(0);
    assert!(issues(&stage).is_empty());

    stage.by_hand("drift-loose", Some("two")).await;
    let drifted = stage.schedule();
    drifted.outcome.check(0);
    assert_eq!(drifted.output("has-drift"), "true");
    let summary = &drifted.summary;
    assert!(summary.contains("1 of 2 stacks differs"), "{summary}");
    assert!(
        summary.contains("| `loose/dev` | 1 changed | less than a minute |"),
        "{summary}"
    );
    let opened = issues(&stage);
    assert_eq!(opened.len(), 1);
    assert!(
        opened[0].title.contains("loose/dev") && opened[0].body.contains("two"),
        "{opened:?}"
    );

    // The same again writes nothing; another value is another difference, though the way back is the same.
    let writes = issue_writes(&stage);
    stage.schedule().outcome.check(0);
    assert_eq!(issue_writes(&stage), writes);
    stage.by_hand("drift-loose", Some("three")).await;
    stage.schedule().outcome.check(0);
    assert_eq!(issue_writes(&stage), writes + 1);
    let updated = issues(&stage);
    assert_eq!((updated.len(), updated[0].number), (1, opened[0].number));
    assert!(updated[0].body.contains("three"), "{}", updated[0].body);
    // Its age is that of the first difference.
    let first_seen = |body: &str| body.split("first detected ").nth(1).unwrap()[..24].to_owned();
    assert_eq!(first_seen(&updated[0].body), first_seen(&opened[0].body));

    stage.by_hand("drift-loose", Some("one")).await;
    let calm = stage.schedule();
    assert_eq!(calm.output("has-drift"), "false");
    assert_eq!(issues(&stage)[0].state, "closed");
    // It comes back to the same issue.
    stage.by_hand("drift-loose", Some("two")).await;
    stage.schedule().outcome.check(0);
    let again = issues(&stage);
    assert_eq!((again.len(), again[0].state.as_str()), (1, "open"));

    // A stack that is no more has no issue either.
    stage.reviewed(8, "gone", |stage| {
        stage.monorepo.remove("appops/loose");
    });
    stage.merge(8, "gone").outcome.check(0);
    stage.schedule().outcome.check(0);
    assert_eq!(issues(&stage)[0].state, "closed");
}

/// A look that took long ends after one that began later and saw more.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_look_closes_no_issue_of_a_newer_one() {
    let mut stage = applied("", &[("slow/dev", "drift-slow")]).await;
    stage.by_hand("drift-slow", Some("two")).await;
    stage.schedule().outcome.check(0);
    stage.by_hand("drift-slow", Some("one")).await;
    stage.env = vec![("GITHUB_RUN_ID", "17".to_owned())];
    stage.schedule().outcome.check(0);
    assert_eq!(issues(&stage)[0].state, "open");
    stage.env.clear();
    stage.schedule().outcome.check(0);
    assert_eq!(issues(&stage)[0].state, "closed");

    // Two that looked at the same time each opened an issue: the older stays.
    stage.by_hand("drift-slow", Some("two")).await;
    stage.schedule().outcome.check(0);
    stage.github.world(|world| {
        let double = Issue {
            number: world.issues[0].number + 500,
            ..world.issues[0].clone()
        };
        world.issues.push(double);
    });
    stage.schedule().outcome.check(0);
    let states: Vec<_> = issues(&stage).into_iter().map(|issue| issue.state).collect();
    assert_eq!(states, ["open", "closed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_not_looked_at_come_first_and_what_is_late_is_said() {
    let stacks = [
        ("turna/dev", "turn-a"),
        ("turnb/dev", "turn-b"),
        ("turnc/dev", "turn-c"),
    ];
    let mut stage = applied("drift: {stacks_per_run: 2, stale_after: 1d}\n", &stacks).await;
    let states = stage.states().await;
    let long_ago = DriftHistory {
        good: Some("2026-01-01T00:00:00Z".parse().unwrap()),
        ..DriftHistory::default()
    };
    states.save_drift_history(long_ago, |_| true).await.unwrap();
    for (_, map) in stacks {
        stage.by_hand(map, Some("two")).await;
    }

    let looked = |summary: &str| -> Vec<&str> {
        let turns = ["turna/dev", "turnb/dev", "turnc/dev"];
        turns
            .into_iter()
            .filter(|turn| summary.contains(&format!("#### `{turn}`")))
            .collect()
    };
    let first = stage.schedule();
    first.outcome.check(0);
    assert_eq!(
        looked(&first.summary),
        ["turna/dev", "turnb/dev"],
        "{}",
        first.summary
    );
    assert!(
        first.summary.contains("Checked 2 of 3 stacks"),
        "{}",
        first.summary
    );
    assert!(
        first.summary.contains("Not checked yet: `turnc/dev`"),
        "{}",
        first.summary
    );
    assert!(
        first.summary.contains("No successful drift check for"),
        "{}",
        first.summary
    );
    assert!(
        first
            .outcome
            .stderr
            .contains("warning: no successful drift check")
    );
    assert_eq!(issues(&stage).len(), 2);

    // What was not looked at is not closed, and it is its turn now.
    let second = stage.schedule();
    second.outcome.check(0);
    assert_eq!(
        looked(&second.summary),
        ["turna/dev", "turnc/dev"],
        "{}",
        second.summary
    );
    assert!(
        second.summary.contains("Least recently checked: `turnb/dev`"),
        "{}",
        second.summary
    );
    assert!(!second.summary.contains("ended well"), "{}", second.summary);
    assert!(issues(&stage).iter().all(|issue| issue.state == "open"));
    assert_eq!(issues(&stage).len(), 3);
    let history = states.drift_history().await.unwrap();
    assert_eq!(history.stacks.len(), 3);

    // What the default branch has and nobody applied is said, and is no drift.
    let pushed = stage.straight_to_main(|stage| stage.stack("turna/dev", &[("turn-a", "new")]));
    pushed.outcome.check(3);
    let third = stage.schedule();
    third.outcome.check(0);
    assert!(
        third
            .summary
            .contains("The default branch is ahead of what is applied for 1 stack: `turna/dev`"),
        "{}",
        third.summary
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_ends_the_look_and_keeps_the_rest_for_the_next() {
    let names: Vec<_> = (0..12)
        .map(|n| (format!("budget{n}/dev"), format!("budget-{n}")))
        .collect();
    let stacks: Vec<_> = names
        .iter()
        .map(|(id, map)| (id.as_str(), map.as_str()))
        .collect();
    let mut stage = applied("drift: {budget: 0s}\n", &stacks).await;
    stage.schedule().outcome.check(0);
    let states = stage.states().await;
    let first = states.drift_history().await.unwrap();
    assert_eq!(first.stacks.len(), 1, "{first:?}");
    stage.schedule().outcome.check(0);
    assert_eq!(states.drift_history().await.unwrap().stacks.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_has_moved_on_hides_no_drift() {
    let mut stage = Stage::small("").await;
    let maps = ["ahead-both", "ahead-gone", "ahead-code"];
    let all = |value| maps.map(|map| (map, value));
    stage.reviewed(7, "ahead", |stage| {
        stage.stack("ahead/dev", &all("one"));
    });
    stage.merge(7, "ahead").outcome.check(0);
    stage
        .straight_to_main(|stage| stage.stack("ahead/dev", &all("two")))
        .outcome
        .check(3);
    stage.schedule().outcome.check(0);
    assert!(issues(&stage).is_empty(), "what nobody applied is no drift");

    stage.by_hand("ahead-both", Some("by hand")).await;
    stage.by_hand("ahead-gone", None).await;
    let drifted = |stage: &mut Stage| {
        let looked = stage.schedule();
        looked.outcome.check(0);
        assert!(
            looked.summary.contains("| `ahead/dev` | 1 changed, 1 missing |"),
            "{}",
            looked.summary
        );
        let open = issues(stage);
        assert_eq!((open.len(), open[0].state.as_str()), (1, "open"));
        let body = &open[0].body;
        for said in ["ahead-both", "by hand", "ahead-gone", "one"] {
            assert!(body.contains(said), "{said}: {body}");
        }
        assert!(!body.contains("ahead-code") && !body.contains("two"), "{body}");
    };
    drifted(&mut stage);
    // The code does not even have the stack any more.
    stage
        .straight_to_main(|stage| {
            stage.monorepo.remove("appops/ahead");
        })
        .outcome
        .check(3);
    drifted(&mut stage);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_gone_of_an_unfinished_stack_is_reported() {
    let mut stage = applied("", &[("torn/dev", "torn-one")]).await;
    // The namespace is not there: the stack does not come to its end.
    let maps = [("torn-one", "default"), ("torn-two", "torn-nowhere")];
    let map = |(name, namespace): (&str, &str)| {
        format!(
            "    {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{name}\", namespace = \"{namespace}\"}}, data = {{value = \"one\"}}}}\n"
        )
    };
    let program = format!("resources = [\n{}]\n", maps.map(map).concat());
    stage.reviewed(8, "torn", |stage| {
        tiny_monorepo::write_program(&stage.monorepo, "torn/dev", &program)
    });
    stage.merge(8, "torn").outcome.check(1);
    stage.schedule().outcome.check(0);
    assert!(issues(&stage).is_empty(), "what is still to be done is no drift");
    stage.by_hand("torn-one", None).await;
    stage.schedule().outcome.check(0);
    let open = issues(&stage);
    assert_eq!(open.len(), 1, "{open:?}");
    let body = &open[0].body;
    assert!(body.contains("torn-one") && !body.contains("torn-two"), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_put_back_where_the_configuration_says_so() {
    let stacks = [
        ("backa/dev", "back-a"),
        ("backb/dev", "back-b"),
        ("backc/dev", "back-c"),
    ];
    let mut stage = applied("drift: {reconcile: restore}\npolicy: {approvals: 1}\n", &[]).await;
    stage
        .github
        .world(|world| world.collaborators.insert("dev".into(), "write"));
    let (head, _) = stage.reviewed(8, "back", |stage| {
        for (stack, map) in stacks {
            stage.stack(stack, &[(map, "one")]);
        }
    });
    stage.approved_by(8, "grace", &head);
    stage.merge(8, "back").outcome.check(0);

    // Changed and deleted by hand; and one whose code has moved on, which is the next apply's business.
    stage.by_hand("back-a", Some("two")).await;
    stage.by_hand("back-b", None).await;
    stage.by_hand("back-c", Some("two")).await;
    let pushed =
        stage.straight_to_main(|stage| stage.stack("backc/dev", &[("back-c", "one"), ("back-d", "new")]));
    pushed.outcome.check(3);
    let looked = stage.schedule();
    looked.outcome.check(0);
    assert_eq!(stage.value("back-a").await.as_deref(), Some("one"));
    assert_eq!(stage.value("back-b").await.as_deref(), Some("one"));
    assert_eq!(stage.value("back-c").await.as_deref(), Some("two"));
    let summary = &looked.summary;
    assert!(
        summary.contains("| `backa/dev` | 1 changed | |")
            || summary.contains("| `backa/dev` | 1 changed |  | yes |"),
        "{summary}"
    );
    let open = issues(&stage);
    assert_eq!(open.len(), 1, "{open:?}");
    assert!(open[0].title.contains("backc/dev"), "{open:?}");
    assert_eq!(stage.receipt("backa/dev")["reconciled"], json!(true));

    // A freeze holds this back too: the difference stays, with the reason.
    let frozen = "drift: {reconcile: restore}\npolicy: {freeze: [{from: '2020-01-01T00:00:00Z', until: '2999-01-01T00:00:00Z', reason: the fair}]}\n";
    stage
        .straight_to_main(|stage| stage.configure(frozen))
        .outcome
        .check(3);
    stage.by_hand("back-a", Some("three")).await;
    let looked = stage.schedule();
    looked.outcome.check(0);
    assert_eq!(stage.value("back-a").await.as_deref(), Some("three"));
    assert!(
        looked.summary.contains("**no**") && looked.summary.contains("the fair"),
        "{}",
        looked.summary
    );
    assert_eq!(looked.output("has-drift"), "true");
}
