//! Policy sets end to end: rules of the protected branch, a pull request that breaks them or edits them, a value that
//! becomes known on the way. GitHub is played by the fake, the API server is real.

use k8s_openapi::api::core::v1::Service;
use kube::Api;

use super::{
    policy::stopped,
    reviews::{map, program, service},
};
use crate::support::stage::Stage;

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

/// Whoever makes a rule stricter sees what it will deny, and it does.
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
        comment.contains("the set cannot be read, so nothing passes it"),
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
    assert!(said.contains("where a value became known"), "{said}");
    assert_eq!(stage.value("sets-later").await, None);
    let services: Api<Service> = Api::namespaced(stage.cluster.client().await, "default");
    assert!(services.get_opt("sets-service").await.unwrap().is_some());
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
