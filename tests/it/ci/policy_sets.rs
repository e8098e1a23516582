//! Policy sets end to end: rules of the default branch, a pull request that breaks them or edits them, a value that
//! becomes known on the way. GitHub is played by the fake, the API server is real.

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use serde_json::{Value, json};

use super::{
    policy::stopped,
    reviews::{map, program, service},
};
use crate::support::{
    ci_stage::{Ran, Stage},
    process::Outcome,
};

const SETS: &str = "policy:\n  sets:\n  - {name: maps, path: ops/policy, input: objects}\n";
const RULES: &str = "ops/policy/maps.rego";

/// No ConfigMap may have this value.
fn forbids(value: &str) -> String {
    format!(
        "package main\n\ndeny contains msg if {{\n\tinput.kind == \"ConfigMap\"\n\tinput.data.value == \"{value}\"\n\tmsg := sprintf(\"%s holds a forbidden value\", [input.metadata.name])\n}}\n"
    )
}

async fn stage(config: &str, rules: &str) -> Stage {
    let stage = Stage::small(config).await;
    stage.monorepo.write(RULES, rules).commit("Rules");
    stage
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_rule_denies_is_shown_and_not_applied() {
    let mut stage = stage(SETS, &forbids("bad")).await;
    let (_, previewed) = stage.reviewed(7, "denied", |stage| {
        stage.stack("denied/dev", &[("sets-denied", "bad")]);
    });
    let comment = &stage.comments()[0].1;
    for word in [
        "maps/main.deny",
        "sets-denied holds a forbidden value",
        "Policy sets: 1 denied",
        "v1:ConfigMap:default:sets-denied",
    ] {
        assert!(comment.contains(word), "{word}: {comment}");
    }
    let said = &previewed.outcome.stderr;
    assert!(said.contains("::error title=policy maps/main.deny"), "{said}");
    let merged = stage.merge(7, "denied");
    let words = ["maps/main.deny: sets-denied holds a forbidden value"];
    stopped(&stage, &merged, "sets-denied", &words).await;

    stage.reviewed(8, "allowed", |stage| {
        stage.stack("denied/dev", &[("sets-denied", "good")]);
    });
    stage.merge(8, "allowed").outcome.check(0);
    assert_eq!(stage.value("sets-denied").await.as_deref(), Some("good"));
}

/// The rule as it was when the pull request was reviewed holds at the merge, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_its_own_pull_request_removes_still_holds() {
    let mut stage = stage(SETS, &forbids("bad")).await;
    stage.reviewed(7, "weaker", |stage| {
        stage.stack("weaker/dev", &[("sets-weaker", "bad")]);
        stage.monorepo.write(RULES, forbids("nothing"));
    });
    let comment = stage.comments()[0].1.clone();
    assert!(comment.contains("policy.sets: maps"), "{comment}");
    let merged = stage.merge(7, "weaker");
    stopped(&stage, &merged, "sets-weaker", &["holds a forbidden value"]).await;

    stage.reviewed(8, "without", |stage| {
        stage.stack("without/dev", &[("sets-without", "nothing")]);
        stage.configure("");
        stage.monorepo.remove(RULES);
    });
    let merged = stage.merge(8, "without");
    stopped(&stage, &merged, "sets-without", &["holds a forbidden value"]).await;
}

/// Someone who makes a rule stricter sees what it will deny, and it does.
#[tokio::test(flavor = "multi_thread")]
async fn a_stricter_rule_is_shown_with_what_it_denies() {
    let mut stage = stage(SETS, &forbids("bad")).await;
    stage.reviewed(7, "stricter", |stage| {
        stage.stack("stricter/dev", &[("sets-stricter", "one")]);
        stage.monorepo.write(RULES, forbids("one"));
    });
    let comment = stage.comments()[0].1.clone();
    assert!(
        comment.contains("sets-stricter holds a forbidden value"),
        "{comment}"
    );
    let merged = stage.merge(7, "stricter");
    stopped(&stage, &merged, "sets-stricter", &["maps/main.deny"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_cannot_be_read_denies() {
    let mut stage = stage(SETS, "package main\ndeny contains if\n").await;
    stage.reviewed(7, "broken", |stage| {
        stage.stack("broken/dev", &[("sets-broken", "one")]);
    });
    let comment = stage.comments()[0].1.clone();
    assert!(
        comment.contains("the set cannot be read, so it denies everything"),
        "{comment}"
    );
    let merged = stage.merge(7, "broken");
    stopped(&stage, &merged, "sets-broken", &["maps/load"]).await;
    // The repair by a pull request is enough for what follows: no preview was made under the broken set.
    stage.reviewed(8, "repair", |stage| {
        stage.monorepo.write(RULES, forbids("bad"));
    });
    stage.merge(8, "repair");
    stage.reviewed(9, "after", |stage| {
        stage.stack("after/dev", &[("sets-after", "one")]);
    });
    stage.merge(9, "after");
    assert_eq!(stage.value("sets-after").await.as_deref(), Some("one"));
}

/// The address of a Service is known only when it is there: the rule decides then, before the ConfigMap is written.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_value_is_judged_before_it_is_written() {
    let rules = "package main\n\ndeny contains msg if {\n\tinput.kind == \"ConfigMap\"\n\tcontains(input.data.value, \".\")\n\tmsg := \"an address stands in a map\"\n}\n";
    let mut stage = stage(SETS, rules).await;
    let address = "$kusion_path.v1:Service:default:sets-service.spec.clusterIP";
    stage.reviewed(7, "later", |stage| {
        program(
            stage,
            "later/dev",
            &[service("sets-service"), map("sets-later", address, "")],
        );
    });
    let comment = stage.comments()[0].1.clone();
    for word in ["1 undecided", "it reads /data/value, known only after apply"] {
        assert!(comment.contains(word), "{word}: {comment}");
    }
    assert!(!comment.contains("an address stands in a map"), "{comment}");
    let merged = stage.merge(7, "later");
    merged.outcome.check(1);
    let said = &merged.outcome.stdout;
    assert!(said.contains("an address stands in a map"), "{said}");
    assert!(said.contains("because a value that became known"), "{said}");
    assert_eq!(stage.value("sets-later").await, None);
    let services: Api<Service> = Api::namespaced(stage.cluster.client().await, "default");
    assert!(services.get_opt("sets-service").await.unwrap().is_some());

    // The rule as it was at the review decides then, too: its own pull request removes it.
    let address = address.replace("sets-service", "sets-other");
    stage.reviewed(8, "removed", |stage| {
        program(
            stage,
            "removed/dev",
            &[service("sets-other"), map("sets-removed", &address, "")],
        );
        stage.monorepo.write(RULES, forbids("nothing"));
    });
    let merged = stage.merge(8, "removed");
    merged.outcome.check(1);
    let said = &merged.outcome.stdout;
    assert!(said.contains("an address stands in a map"), "{said}");
    assert_eq!(stage.value("sets-removed").await, None);
}

/// A set that advises denies nothing.
#[tokio::test(flavor = "multi_thread")]
async fn advice_is_shown_and_stops_nothing() {
    let config = "policy:\n  sets:\n  - {name: maps, path: ops/policy, input: objects, enforce: advise}\n";
    let mut stage = stage(config, &forbids("bad")).await;
    stage.reviewed(7, "advice", |stage| {
        stage.stack("advice/dev", &[("sets-advice", "bad")]);
    });
    let comment = stage.comments()[0].1.clone();
    assert!(comment.contains("Policy sets: 1 warning"), "{comment}");
    stage.merge(7, "advice").outcome.check(0);
    assert_eq!(stage.value("sets-advice").await.as_deref(), Some("bad"));
}

fn result(ran: &Ran) -> Value {
    let path = ran.output("result-path");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A finding is in the JSON of the preview and of the apply; what let it pass is in the receipt.
#[tokio::test(flavor = "multi_thread")]
async fn findings_are_in_the_result_and_in_the_receipt() {
    let config = "policy:\n  sets:\n  - {name: maps, path: ops/policy, input: objects}\n  exceptions:\n  - {set: maps, resource: '*:sets-kept', until: 2999-01-01, reason: the vendor}\n";
    let mut stage = stage(config, &forbids("bad")).await;
    let (_, previewed) = stage.reviewed(7, "kept", |stage| {
        stage.stack("kept/dev", &[("sets-kept", "bad")]);
        stage.stack("lost/dev", &[("sets-lost", "bad")]);
    });
    let shown = result(&previewed);
    let findings = shown["findings"].as_array().unwrap().iter();
    let verdicts: Vec<_> = findings
        .filter(|finding| finding["rule"] == "maps/main.deny")
        .collect();
    assert_eq!(verdicts.len(), 2, "{shown}");
    assert_eq!(
        (&verdicts[0]["verdict"], &verdicts[1]["verdict"]),
        (&json!("deny"), &json!("pass"))
    );
    assert_eq!(verdicts[0]["place"]["resource"], "v1:ConfigMap:default:sets-lost");

    let merged = stage.merge(7, "kept");
    merged.outcome.check(3);
    let applied = result(&merged);
    assert_eq!(applied["findings"][0]["verdict"], "deny", "{applied}");
    assert_eq!(applied["findings"][0]["stack"], "lost/dev", "{applied}");
    assert_eq!(stage.value("sets-kept").await.as_deref(), Some("bad"));
    assert_eq!(stage.value("sets-lost").await, None);
    let receipt = stage.receipt("kept/dev");
    let finding = &receipt["findings"]["shown"][0];
    assert_eq!(finding["rule"], "maps/main.deny", "{receipt}");
    let exception = json!({"exception": {"until": "2999-01-01", "reason": "the vendor"}});
    assert_eq!(finding["place"]["passedBy"], exception);
}

/// Someone who edits a rule sees what it means for the stacks that the pull request does not change.
#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_a_rule_says_how_many_stacks_more_are_denied() {
    let mut stage = stage(SETS, &forbids("bad")).await;
    stage.reviewed(7, "two", |stage| {
        stage.stack("outa/dev", &[("sets-out-a", "one")]);
        stage.stack("outb/dev", &[("sets-out-b", "one")]);
        stage.stack("outc/dev", &[("sets-out-c", "two")]);
    });
    stage.merge(7, "two").outcome.check(0);
    let (_, previewed) = stage.reviewed(8, "edit", |stage| {
        stage.monorepo.write(RULES, forbids("one"));
    });
    let line = "with the rules of this pull request 2 stacks more are denied (outa/dev, outb/dev), and 0 stacks no longer are denied";
    let shown = result(&previewed);
    assert_eq!(shown["findings"][0]["message"], line, "{shown}");
    let comment = stage.comments().last().unwrap().1.clone();
    assert!(comment.contains(line), "{comment}");
    // Advice: the merge applies.
    stage.merge(8, "edit").outcome.check(0);
}

/// What was applied is put back under the rules of today only.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_is_judged_by_the_rules() {
    let config = format!("drift: {{reconcile: restore}}\n{SETS}");
    let mut stage = stage(&config, &forbids("bad")).await;
    stage.reviewed(7, "restored", |stage| {
        stage.stack("restored/dev", &[("sets-restored", "one")]);
    });
    stage.merge(7, "restored").outcome.check(0);
    stage.by_hand("sets-restored", Some("two")).await;
    stage.straight_to_main(|stage| {
        stage.monorepo.write(RULES, forbids("one"));
    });
    let looked = stage.schedule();
    assert_eq!(stage.value("sets-restored").await.as_deref(), Some("two"));
    assert!(
        looked.summary.contains("holds a forbidden value"),
        "{}",
        looked.summary
    );
    let finding = &result(&looked)["findings"][0];
    assert_eq!(finding["rule"], "maps/main.deny", "{finding}");
    assert_eq!(finding["verdict"], "deny", "{finding}");
    assert_eq!(finding["stack"], "restored/dev", "{finding}");
    stage.straight_to_main(|stage| {
        stage.monorepo.write(RULES, forbids("bad"));
    });
    stage.schedule();
    assert_eq!(stage.value("sets-restored").await.as_deref(), Some("one"));
}

/// What was overridden stays so when it is put back.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_keeps_what_was_overridden() {
    let config = "drift: {reconcile: restore}\npolicy:\n  sets:\n  - {name: maps, path: ops/policy, input: objects, enforce: override, override: {by: [grace]}}\n";
    let mut stage = stage(config, &forbids("bad")).await;
    stage
        .github
        .world(|world| world.collaborators.insert("grace".into(), "write"));
    stage.reviewed(7, "again", |stage| {
        stage.stack("again/dev", &[("sets-again", "bad")]);
    });
    let digest = stage.merge(7, "again").digest();
    stage.env = vec![("GITHUB_ACTOR", "grace".to_owned())];
    stage.approve(&digest).outcome.check(0);
    stage.env.clear();
    stage.by_hand("sets-again", Some("two")).await;
    let looked = stage.schedule();
    looked.outcome.check(0);
    let value = stage.value("sets-again").await;
    assert_eq!(value.as_deref(), Some("bad"), "{}", looked.summary);
    let receipt = stage.receipt("again/dev");
    assert_eq!(receipt["reconciled"], json!(true), "{receipt}");
    assert_eq!(receipt["overrides"][0]["by"], json!(["grace"]), "{receipt}");

    // A set that nobody may override any more denies the restore.
    stage.straight_to_main(|stage| {
        stage.configure("drift: {reconcile: restore}\npolicy:\n  sets:\n  - {name: maps, path: ops/policy, input: objects}\n");
    });
    stage.by_hand("sets-again", Some("two")).await;
    let looked = stage.schedule();
    assert_eq!(
        stage.value("sets-again").await.as_deref(),
        Some("two"),
        "{}",
        looked.summary
    );
}

/// By hand the rules of the working tree hold, for an apply, a rollback and a destroy.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_rule_denies_is_not_applied_by_hand() {
    let stage = stage(SETS, &forbids("bad")).await;
    let run = |stage: &Stage, arguments: &[&str], code: i32| {
        stage.konverge(arguments.iter().copied()).run().expect(code)
    };
    let apply = ["apply", "hand/dev", "--yes"];
    stage.stack("hand/dev", &[("sets-hand", "bad")]);
    let refused = run(&stage, &apply, 3);
    let said = format!("{}{}", refused.stdout, refused.stderr);
    assert!(
        said.contains("maps/main.deny: sets-hand holds a forbidden value"),
        "{said}"
    );
    assert!(said.contains("policy.exceptions"), "{said}");
    assert_eq!(stage.value("sets-hand").await, None);
    let json = |ran: &Outcome| -> Value { serde_json::from_str(&ran.stdout).unwrap() };
    let refused = json(&run(&stage, &[&apply[..], &["--output", "json"]].concat(), 3));
    let finding = &refused["findings"][0];
    assert_eq!(finding["rule"], "maps/main.deny", "{refused}");
    assert_eq!(finding["place"]["resource"], "v1:ConfigMap:default:sets-hand");
    assert_eq!(refused["stacks"][0]["result"], "stopped", "{refused}");

    // What a rule prints is not in the output: GitHub would read it as a command.
    let printing = format!(
        "{}\nwarn contains \"w\" if print(\"::error::\", input.data)\n",
        forbids("bad")
    );
    stage.monorepo.write(RULES, &printing);
    let ran = run(&stage, &apply, 3);
    let both = format!("{}{}", ran.stdout, ran.stderr);
    assert!(
        both.contains("forbidden value") && !both.contains("::error"),
        "{both}"
    );
    stage.monorepo.write(RULES, forbids("bad"));

    stage.monorepo.commit("Bad");
    stage.stack("hand/dev", &[("sets-hand", "one")]);
    stage.monorepo.commit("One");
    run(&stage, &apply, 0);
    stage.stack("hand/dev", &[("sets-hand", "two")]);
    stage.monorepo.commit("Two");
    run(&stage, &apply, 0);
    assert_eq!(stage.value("sets-hand").await.as_deref(), Some("two"));

    stage.monorepo.write(RULES, forbids("one"));
    let back = [
        "state", "rollback", "hand/dev", "--to", "1", "--yes", "--output", "json",
    ];
    let refused = json(&run(&stage, &back, 3));
    assert_eq!(refused["findings"][0]["verdict"], "deny", "{refused}");
    assert_eq!(stage.value("sets-hand").await.as_deref(), Some("two"));
    let gone = "package main\n\ndeny contains msg if {\n\tsome r in input.resources\n\tr.action == \"delete\"\n\tmsg := r.id\n}\n";
    stage.monorepo.write(RULES, gone);
    stage.configure(&SETS.replace("objects", "plan"));
    let refused = json(&run(
        &stage,
        &["destroy", "hand/dev", "--yes", "--output", "json"],
        3,
    ));
    assert_eq!(refused["findings"][0]["stack"], "hand/dev", "{refused}");
    assert_eq!(stage.value("sets-hand").await.as_deref(), Some("two"));
}
