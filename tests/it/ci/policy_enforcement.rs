//! Every way to write × every enforcement of a policy set. What is enforced always is overridden by nobody on any way.
//! GitHub is played by the fake, the API server is real.

use serde_json::{Value, json};

use super::drift_approval::look;
use crate::support::ci_stage::{Ran, Stage};

/// Nothing may get a value that starts with `bad`, and nothing with such a value may be deleted.
const RULES: &str = "package main

deny contains {\"msg\": \"a bad value\", \"resource\": r.id} if {
	some r in input.resources
	r.action != \"unchanged\"
	startswith(r.after.data.value, \"bad\")
}

deny contains {\"msg\": \"a bad value goes\", \"resource\": r.id} if {
	some r in input.resources
	r.action == \"delete\"
	startswith(r.before.data.value, \"bad\")
}
";

/// The pull request whose stacks the ways try to write.
const PULL: u64 = 9;

/// A stack with a bad value that was merged and denied.
struct Denied {
    stack: String,
    map: String,
    head: String,
    /// The digest of its plan, and that of the finding.
    plan: String,
    finding: String,
}

/// What a way tries to write.
#[derive(Clone, Copy, PartialEq)]
enum Subject {
    /// A stack with a bad value that was merged and denied.
    New,
    /// Restoring a bad value that was applied before the rules came.
    Drifted,
    /// Going back to such a value.
    RolledBack,
    /// Deleting such a value.
    Gone,
}

/// A way to write.
struct Way {
    name: &'static str,
    on: Subject,
    /// Whether it writes where a set is enforced always, where `grace` may override it, and where it advises.
    writes: [bool; 3],
    go: fn(&mut Stage, &Denied) -> Ran,
}

/// To add a way: a row with its name, what it writes, and how it is gone.
const WAYS: [Way; 18] = [
    Way {
        on: Subject::New,
        name: "the push once more",
        writes: [false, false, true],
        go: |stage, _| stage.again(),
    },
    Way {
        on: Subject::New,
        name: "a dispatch with the digest of the plan",
        writes: [false, false, true],
        go: |stage, denied| dispatched(stage, "grace", &denied.plan),
    },
    Way {
        on: Subject::New,
        name: "a dispatch with the digest of the finding by somebody who is not named",
        writes: [false, false, true],
        go: |stage, denied| dispatched(stage, "bob", &denied.finding),
    },
    Way {
        on: Subject::New,
        name: "a dispatch with the digest of the finding by its author",
        writes: [false, false, true],
        go: |stage, denied| dispatched(stage, "ada", &denied.finding),
    },
    Way {
        on: Subject::New,
        name: "a dispatch with both digests by who is named",
        writes: [false, true, true],
        go: |stage, denied| dispatched(stage, "grace", &format!("{} {}", denied.plan, denied.finding)),
    },
    Way {
        on: Subject::New,
        name: "the environment of a second job",
        writes: [false, true, true],
        go: |stage, denied| {
            lets_go_on(stage, &denied.finding);
            ended(stage, Stage::again)
        },
    },
    Way {
        on: Subject::New,
        name: "an ordinary approval of the last head",
        writes: [false, false, true],
        go: |stage, denied| reviewed(stage, denied, "agreed"),
    },
    Way {
        on: Subject::New,
        name: "a review that names the finding",
        writes: [false, true, true],
        go: |stage, denied| reviewed(stage, denied, &format!("It is late:\n{}", denied.finding)),
    },
    Way {
        on: Subject::New,
        name: "an apply by hand with --yes",
        writes: [false, false, true],
        go: |stage, denied| by_hand(stage, &["apply", &denied.stack, "--yes"]),
    },
    // The last one of these: it means every finding of the comment.
    Way {
        on: Subject::New,
        name: "a review that means all that the comment shows",
        writes: [false, true, true],
        go: |stage, denied| reviewed(stage, denied, "konverge override"),
    },
    // Nobody overrode anything when these were applied.
    Way {
        on: Subject::Drifted,
        name: "a dispatch with the digest of the drift",
        writes: [false, false, true],
        go: |stage, denied| {
            let drift = look(stage, &denied.stack);
            dispatched(stage, "grace", &drift)
        },
    },
    Way {
        on: Subject::Drifted,
        name: "a dispatch with the digests of drift and finding by somebody who is not named",
        writes: [false, false, true],
        go: |stage, denied| {
            let digests = drift_and_finding(stage, denied);
            dispatched(stage, "bob", &digests)
        },
    },
    Way {
        on: Subject::Drifted,
        name: "a dispatch with the digests of drift and finding by who is named",
        writes: [false, true, true],
        go: |stage, denied| {
            let digests = drift_and_finding(stage, denied);
            dispatched(stage, "grace", &digests)
        },
    },
    Way {
        on: Subject::Drifted,
        name: "the environment of a second job after a drift check",
        writes: [false, true, true],
        go: |stage, denied| {
            let digests = drift_and_finding(stage, denied);
            lets_go_on(stage, &digests);
            ended(stage, Stage::schedule)
        },
    },
    Way {
        on: Subject::Drifted,
        name: "an apply of what is recorded by hand with --yes",
        writes: [false, false, true],
        go: |stage, denied| by_hand(stage, &["apply", &denied.stack, "--recorded", "--yes"]),
    },
    // The last one of these: it restores each drift that it finds.
    Way {
        on: Subject::Drifted,
        name: "the restore of drift",
        writes: [false, false, true],
        go: |stage, _| {
            stage.straight_to_main(|stage| {
                let config = stage.monorepo.read("konverge.yaml");
                let config = format!("{config}drift: {{reconcile: restore}}\n");
                stage.monorepo.write("konverge.yaml", config);
            });
            stage.schedule()
        },
    },
    Way {
        on: Subject::RolledBack,
        name: "a rollback by hand with --yes",
        writes: [false, false, true],
        go: |stage, denied| by_hand(stage, &["state", "rollback", &denied.stack, "--to", "1", "--yes"]),
    },
    Way {
        on: Subject::Gone,
        name: "a destroy by hand with --yes",
        writes: [false, false, true],
        go: |stage, denied| by_hand(stage, &["destroy", &denied.stack, "--yes"]),
    },
];

fn ended(stage: &mut Stage, go: impl FnOnce(&mut Stage) -> Ran) -> Ran {
    let ran = go(stage);
    stage.env.clear();
    ran
}

fn dispatched(stage: &mut Stage, login: &str, digests: &str) -> Ran {
    stage.env = vec![("GITHUB_ACTOR", login.to_owned())];
    ended(stage, |stage| stage.approve(digests))
}

/// The reviewer of the environment lets a second job go on with these digests.
fn lets_go_on(stage: &mut Stage, digests: &str) {
    stage.github.world(|world| {
        let environments = json!([{"id": 1, "name": "production"}]);
        let approved = json!({"state": "approved", "comment": "", "user": {"login": "grace"}, "environments": environments});
        world.run_approvals = vec![approved];
    });
    stage.env = vec![
        ("KONVERGE_APPROVE", digests.to_owned()),
        ("KONVERGE_ENVIRONMENT", "production".to_owned()),
    ];
}

/// The digest of a stack's drift, and that of what the rules say to its restoration. A run with the first alone tells
/// the second, by somebody who overrides nothing.
fn drift_and_finding(stage: &mut Stage, way: &Denied) -> String {
    let drift = look(stage, &way.stack);
    let stopped = dispatched(stage, "ada", &drift);
    let finding = denied(&stopped, &way.stack, &way.map, &way.head).finding;
    assert!(!finding.is_empty(), "{}", stopped.outcome.stdout);
    format!("{drift} {finding}")
}

fn reviewed(stage: &mut Stage, denied: &Denied, words: &str) -> Ran {
    stage.github.world(|world| world.reviews.clear());
    stage.approved_saying(PULL, "grace", &denied.head, words);
    stage.again()
}

fn by_hand(stage: &Stage, arguments: &[&str]) -> Ran {
    stage.monorepo.checkout("main");
    let outcome = stage.konverge(arguments.iter().copied()).run();
    Ran::of(outcome, stage.scratch.path().join("none"))
}

fn result(ran: &Ran) -> Value {
    serde_json::from_str(&std::fs::read_to_string(ran.output("result-path")).unwrap()).unwrap()
}

/// The digests of what a run stopped.
fn denied(ran: &Ran, stack: &str, map: &str, head: &str) -> Denied {
    let result = result(ran);
    let row = |list: &str, key: &str| {
        let mut rows = result[list].as_array().unwrap().iter();
        rows.find(|row| row[key] == stack).unwrap_or(&Value::Null).clone()
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Denied {
        stack: stack.to_owned(),
        map: map.to_owned(),
        head: head.to_owned(),
        plan: text(&row("stacks", "id")["digest"]),
        finding: text(&row("findings", "stack")["place"]["digest"]),
    }
}

async fn every_way(enforcement: usize, name: &str, settings: &str) {
    let mut stage = Stage::small("").await;
    stage
        .monorepo
        .write("ops/policy/values.rego", RULES)
        .commit("Rules");
    stage.github.world(|world| {
        for login in ["ada", "dev", "grace", "bob"] {
            world.collaborators.insert(login.into(), "write");
        }
        let token = world.tokens.get_mut("ghs_token").unwrap();
        token.permissions.insert("actions", "read");
    });
    let map = |at: usize| format!("enforced-{name}-{at}");
    let stack = |at: usize| format!("enforced-{name}-{at}/dev");
    let of = |is: fn(Subject) -> bool| {
        let ways = WAYS.iter().enumerate();
        ways.filter(move |(_, way)| is(way.on)).map(|(at, _)| at)
    };
    let write = |stage: &Stage, ways: &mut dyn Iterator<Item = usize>, value: &str| {
        ways.for_each(|at| stage.stack(&stack(at), &[(&map(at), value)]));
    };
    // What was applied before the rules came.
    stage.reviewed(7, "before", |stage| {
        write(stage, &mut of(|on| on != Subject::New), "bad")
    });
    stage.merge(7, "before").outcome.check(0);
    stage.reviewed(8, "good", |stage| {
        write(stage, &mut of(|on| on == Subject::RolledBack), "good")
    });
    stage.merge(8, "good").outcome.check(0);
    let sets = format!("policy:\n  sets:\n  - {{name: values, path: ops/policy{settings}}}\n");
    stage.straight_to_main(|stage| stage.configure(&sets));

    let (head, _) = stage.reviewed(PULL, "ways", |stage| {
        write(stage, &mut of(|on| on == Subject::New), "bad")
    });
    let merged = stage.merge(PULL, "ways");
    let advises = enforcement == 2;
    merged.outcome.check(if advises { 0 } else { 3 });
    for at in of(|on| on == Subject::New) {
        let value = stage.value(&map(at)).await;
        assert_eq!(value.is_some(), advises, "{name}: the merge");
    }
    for (at, way) in WAYS.iter().enumerate() {
        let (map, stack) = (map(at), stack(at));
        if way.on == Subject::Drifted {
            stage.by_hand(&map, Some("drifted")).await;
        }
        let denied = denied(&merged, &stack, &map, &head);
        let ran = (way.go)(&mut stage, &denied);
        let said = format!("{}\n{}\n{}", ran.outcome.stdout, ran.outcome.stderr, ran.summary);
        let value = stage.value(&denied.map).await;
        let written = match way.on {
            Subject::Gone => value.is_none(),
            _ => value.as_deref() == Some("bad"),
        };
        assert_eq!(written, way.writes[enforcement], "{name}: {}:\n{said}", way.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_enforced_always_is_overridden_by_nobody() {
    every_way(0, "always", ", enforce: always").await;
}

/// `enforce: override` follows from `override.by`.
#[tokio::test(flavor = "multi_thread")]
async fn what_may_be_overridden_is_by_whom_the_set_names() {
    every_way(1, "override", ", override: {by: [grace]}").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_advises_stops_no_way() {
    every_way(2, "advise", ", enforce: advise").await;
}
