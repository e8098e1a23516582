//! Drift that somebody approves by its digest: exactly that difference of exactly that stack is restored, from what was
//! applied last; and why nothing happens otherwise.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use nix::sys::signal::Signal::SIGKILL;
use serde_json::{Value, json};

use super::reviews::{map, program};
use crate::support::{
    ci_stage::{Ran, Stage},
    faulty_api_server::{Faults, Proxy},
    github::Issue,
    payloads,
};

/// What happens to a stage between two runs.
type StageChange<'a> = &'a dyn Fn(&Stage);

async fn applied(more: &str, stacks: &[(&str, &[(&str, &str)])]) -> Stage {
    let mut stage = Stage::small(more).await;
    stage.reviewed(7, "drift", |stage| {
        for (stack, maps) in stacks {
            stage.stack(stack, maps);
        }
    });
    stage.merge(7, "drift").outcome.check(0);
    stage
}

/// The drift issue of a stack.
fn issue(stage: &Stage, stack: &str) -> Issue {
    let is_meant = |issue: &&Issue| issue.labels[0] == "konverge-drift" && issue.title.starts_with(stack);
    let found = stage
        .github
        .world(|world| world.issues.iter().find(is_meant).cloned());
    found.expect("an issue")
}

/// The digest that a text tells to approve.
fn digest_in(text: &str) -> String {
    // An issue has the command to type.
    let told = text
        .split_once("-f approve=")
        .or_else(|| text.split_once("approve: "));
    let (_, digest) = told.unwrap_or_else(|| panic!("{text}"));
    digest.chars().take_while(char::is_ascii_hexdigit).collect()
}

/// Looks for drift, and answers the digest of the issue of a stack.
pub(super) fn look(stage: &mut Stage, stack: &str) -> String {
    stage.schedule().outcome.check(0);
    digest_in(&issue(stage, stack).body)
}

/// Who starts the next runs.
fn by(stage: &mut Stage, login: &str) {
    stage.env = vec![("GITHUB_ACTOR", login.to_owned())];
}

async fn has(stage: &Stage, map: &str, value: &str) {
    assert_eq!(stage.value(map).await.as_deref(), Some(value), "{map}");
}

fn says(ran: &Ran, words: &[&str]) {
    let said = ran.outcome.stdout.clone() + &ran.outcome.stderr;
    for word in words {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_digest_restores_exactly_that_difference_and_says_who_approved_it() {
    let stacks: [(&str, &[(&str, &str)]); 2] = [
        ("exact/dev", &[("exact-a", "one"), ("exact-gone", "one")]),
        ("exactly/dev", &[("exact-b", "one")]),
    ];
    let mut stage = applied("", &stacks).await;
    stage.by_hand("exact-a", Some("two")).await;
    stage.by_hand("exact-gone", None).await;
    stage.by_hand("exact-b", Some("two")).await;
    let digest = look(&mut stage, "exact/dev");
    assert_ne!(digest, digest_in(&issue(&stage, "exactly/dev").body));
    let statuses = stage.github.world(|world| world.statuses.len());
    let comments = stage.comments().len();

    let ran = stage.approve(&digest);
    ran.outcome.check(0);
    has(&stage, "exact-a", "one").await;
    has(&stage, "exact-gone", "one").await;
    has(&stage, "exact-b", "two").await;
    assert!(
        ran.summary
            .contains("digest approved by dev (the vendor fixes it by May); restored"),
        "{}",
        ran.summary
    );
    assert_eq!(ran.output("has-drift"), "false");
    let receipt = stage.receipt("exact/dev");
    assert_eq!(receipt["agreedBy"], json!(["dev"]), "{receipt}");
    assert_eq!(receipt["reconciled"], json!(true), "{receipt}");
    let (closed, open) = (issue(&stage, "exact/dev"), issue(&stage, "exactly/dev"));
    assert_eq!((closed.state.as_str(), open.state.as_str()), ("closed", "open"));
    let (number, comment) = stage.github.world(|world| {
        let last = world.comments.last().unwrap();
        (last.issue, last.body.clone())
    });
    assert_eq!((number, stage.comments().len()), (closed.number, comments + 1));
    assert!(
        comment.contains("`exact/dev` was restored by [a run](https://github.com/acme/konfig/actions/runs/")
            && comment.contains("Approved by `dev`"),
        "{comment}"
    );
    // It was no apply of the head.
    assert_eq!(stage.github.world(|world| world.statuses.len()), statuses);

    // The digest stands for nothing any more.
    let again = stage.approve(&digest);
    again.outcome.check(3);
    let why = "found no plan, no finding and no drift with the digest";
    says(&again, &[why, &digest, "Today's digests"]);
    assert!(again.summary.contains(why), "{}", again.summary);
    has(&stage, "exact-b", "two").await;
    // It is not a digest at all.
    stage.approve(&"0".repeat(64)).outcome.check(3);
    stage.approve("shop/dev").outcome.check(64);

    // Another system may ask for it.
    let digest = digest_in(&open.body);
    let tip = stage.monorepo.rev("main");
    let call = payloads::repository_dispatch("konverge-apply", json!({"approve": digest}));
    let called = stage.ci("repository_dispatch", &call, &tip, "refs/heads/main");
    called.outcome.check(0);
    has(&stage, "exact-b", "one").await;
    assert_eq!(issue(&stage, "exactly/dev").state, "closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_difference_than_the_approved_one_is_not_restored() {
    let stacks: [(&str, &[(&str, &str)]); 1] = [("since/dev", &[("since-a", "one"), ("since-b", "one")])];
    let mut stage = applied("", &stacks).await;
    stage.by_hand("since-a", Some("two")).await;
    let old = look(&mut stage, "since/dev");
    // Another value, and another object, each alone.
    for (map, value) in [("since-a", "three"), ("since-b", "two")] {
        stage.by_hand("since-a", Some("two")).await;
        stage.by_hand(map, Some(value)).await;
        let ran = stage.approve(&old);
        ran.outcome.check(3);
        says(
            &ran,
            &[
                "the given digest is not that of its present difference",
                &format!("update v1:ConfigMap:default:{map} at /data/value"),
            ],
        );
        has(&stage, map, value).await;
        // The issue has today's difference, and the digest that the run names.
        let now = issue(&stage, "since/dev");
        assert_eq!(now.state, "open");
        assert_eq!(digest_in(&now.body), ran.digest());
        assert!(now.body.contains(map) && ran.digest() != old, "{}", now.body);
        stage.schedule().outcome.check(0);
        assert_eq!(digest_in(&issue(&stage, "since/dev").body), ran.digest());
        // The run forgets the old digest; a look that found the old difference again knows it again.
        stage.by_hand("since-a", Some("two")).await;
        stage.by_hand("since-b", Some("one")).await;
        assert_eq!(look(&mut stage, "since/dev"), old);
    }
    stage.by_hand("since-b", Some("two")).await;
    let refused = stage.approve(&old);
    refused.outcome.check(3);
    stage.approve(&refused.digest()).outcome.check(0);
    has(&stage, "since-a", "one").await;
    has(&stage, "since-b", "one").await;

    // Somebody was faster.
    stage.by_hand("since-a", Some("two")).await;
    let old = look(&mut stage, "since/dev");
    stage.by_hand("since-a", Some("one")).await;
    let serial = stage.state(&["show", "since/dev", "--output", "json"]).json()["serial"].clone();
    let ran = stage.approve(&old);
    ran.outcome.check(0);
    says(&ran, &["since/dev no longer differs from what was applied"]);
    assert_eq!(issue(&stage, "since/dev").state, "closed");
    let now = stage.state(&["show", "since/dev", "--output", "json"]).json()["serial"].clone();
    assert_eq!(now, serial);

    // The same difference from another applied commit is another one.
    stage.by_hand("since-a", Some("two")).await;
    let old = look(&mut stage, "since/dev");
    stage.reviewed(8, "moves", |stage| {
        stage.stack("since/dev", &[("since-a", "one"), ("since-b", "new")]);
    });
    stage.merge(8, "moves").outcome.check(0);
    stage.by_hand("since-a", Some("two")).await;
    let ran = stage.approve(&old);
    ran.outcome.check(3);
    says(&ran, &["the given digest is not that of its present difference"]);
    has(&stage, "since-a", "two").await;
}

/// What is restored is what was applied last. What waits on the default branch waits on.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_moved_on_is_not_applied_with_it() {
    let stacks: [(&str, &[(&str, &str)]); 2] = [
        ("moved/dev", &[("moved-a", "one"), ("moved-b", "one")]),
        ("moved/prod", &[("moved-gone", "one")]),
    ];
    let mut stage = applied("", &stacks).await;
    let was = stage.monorepo.rev("main");
    let pushed = stage.straight_to_main(|stage| {
        stage.stack(
            "moved/dev",
            &[("moved-a", "new"), ("moved-b", "new"), ("moved-c", "new")],
        );
        stage.monorepo.remove("appops/moved/prod");
    });
    pushed.outcome.check(3);
    for map in ["moved-a", "moved-gone"] {
        stage.by_hand(map, Some("by hand")).await;
    }
    let digest = look(&mut stage, "moved/dev");
    stage.approve(&digest).outcome.check(0);
    has(&stage, "moved-a", "one").await;
    has(&stage, "moved-b", "one").await;
    assert_eq!(stage.value("moved-c").await, None);
    let shown = stage.state(&["show", "moved/dev", "--output", "json"]).json();
    assert_eq!(shown["state"]["commit"], json!(was), "{shown}");
    let unreviewed = stage.github.world(|world| {
        let waits = |issue: &&Issue| issue.labels[0] == "konverge-unreviewed" && issue.state == "open";
        world.issues.iter().filter(waits).count()
    });
    assert_eq!(unreviewed, 2);

    // A stack that is to be deleted has no way back, and its issue offers none.
    let gone = issue(&stage, "moved/prod").body;
    assert!(
        gone.contains("it was removed from the repository") && !gone.contains("approve:"),
        "{gone}"
    );
    assert!(!gone.contains("--recorded"), "{gone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_an_unfinished_apply_is_not_restored() {
    let mut stage = applied("", &[("half/dev", &[("half-one", "one")])]).await;
    stage.reviewed(8, "half", |stage| {
        // The namespace is not there: the stack does not come to its end.
        let nowhere = map("half-two", "one", "").replace("default", "half-nowhere");
        program(stage, "half/dev", &[map("half-one", "one", ""), nowhere]);
    });
    stage.merge(8, "half").outcome.check(1);
    stage.by_hand("half-one", None).await;
    stage.schedule().outcome.check(0);
    let body = issue(&stage, "half/dev").body;
    assert!(
        body.contains("its state records no complete apply") && !body.contains("approve:"),
        "{body}"
    );
}

/// Freezes and policy sets hold; `policy.drift: stop` is about what nobody approved.
#[tokio::test(flavor = "multi_thread")]
async fn the_policies_of_the_default_branch_hold() {
    const SETS: &str =
        "policy:\n  drift: stop\n  sets:\n  - {name: maps, path: ops/policy, input: objects}\n";
    let forbids = |value: &str| {
        format!(
            "package main\n\ndeny contains msg if {{\n\tinput.data.value == \"{value}\"\n\tmsg := \"a forbidden value\"\n}}\n"
        )
    };
    let rules = "ops/policy/maps.rego";
    let mut stage = Stage::small(SETS).await;
    stage.monorepo.write(rules, forbids("bad")).commit("Rules");
    stage.reviewed(7, "held", |stage| stage.stack("held/dev", &[("held-a", "one")]));
    stage.merge(7, "held").outcome.check(0);
    stage.by_hand("held-a", Some("two")).await;
    let digest = look(&mut stage, "held/dev");

    let frozen = "policy: {freeze: [{from: '2020-01-01T00:00:00Z', until: '2999-01-01T00:00:00Z', reason: the fair}]}\n";
    let changes: [(StageChange<'_>, &str); 2] = [
        (
            &|stage| {
                stage.monorepo.write(rules, forbids("one"));
            },
            "a forbidden value",
        ),
        (&|stage| stage.configure(frozen), "the fair"),
    ];
    for (change, why) in changes {
        stage.straight_to_main(change);
        let ran = stage.approve(&digest);
        ran.outcome.check(3);
        says(&ran, &[why]);
        has(&stage, "held-a", "two").await;
        assert_eq!(issue(&stage, "held/dev").state, "open");
    }
    stage.straight_to_main(|stage| {
        stage.configure(SETS);
        stage.monorepo.write(rules, forbids("bad"));
    });
    stage.approve(&digest).outcome.check(0);
    has(&stage, "held-a", "one").await;
}

/// As for a plan that is approved by its digest: who brought what is applied does not approve it, here what was applied
/// last.
#[tokio::test(flavor = "multi_thread")]
async fn who_brought_the_applied_change_does_not_approve_its_restoration() {
    let mut stage = Stage::small("policy: {approvals: 1}\n").await;
    stage.github.world(|world| {
        for login in ["dev", "eve", "grace"] {
            world.collaborators.insert(login.into(), "write");
        }
    });
    for (pusher, value) in [("dev", "one"), ("eve", "two")] {
        by(&mut stage, pusher);
        let pushed = stage.straight_to_main(|stage| stage.stack("brought/dev", &[("brought-a", value)]));
        by(&mut stage, "grace");
        stage.approve(&pushed.digest()).outcome.check(0);
    }
    // What somebody pushes later is not part of it.
    by(&mut stage, "grace");
    stage.straight_to_main(|stage| {
        stage.monorepo.write("README.md", "later\n");
    });
    stage.env.clear();
    stage.by_hand("brought-a", Some("by hand")).await;
    let digest = look(&mut stage, "brought/dev");
    by(&mut stage, "eve");
    let own = stage.approve(&digest);
    own.outcome.check(3);
    says(
        &own,
        &[
            "policy.approvals: 0 of 1",
            "eve wrote or pushed a commit of the change",
        ],
    );
    has(&stage, "brought-a", "by hand").await;
    for (approver, value) in [("dev", "by hand"), ("grace", "by grace")] {
        by(&mut stage, approver);
        stage.by_hand("brought-a", Some(value)).await;
        let digest = look(&mut stage, "brought/dev");
        stage.approve(&digest).outcome.check(0);
        has(&stage, "brought-a", "two").await;
        stage.env.clear();
        assert_eq!(stage.receipt("brought/dev")["agreedBy"], json!([approver]));
    }
}

/// The second job of a drift check: the reviewers of its environment were shown the digests that the first one found.
#[tokio::test(flavor = "multi_thread")]
async fn the_reviewers_of_a_drift_check_s_second_job_approve_what_it_found() {
    let mut stage = applied("", &[("second/dev", &[("second-a", "one")])]).await;
    stage.by_hand("second-a", Some("two")).await;
    let looked = stage.schedule();
    let digests = looked.output("drift-digests");
    assert_eq!(digests, digest_in(&issue(&stage, "second/dev").body));
    let second = |digests: &str| {
        vec![
            ("KONVERGE_APPROVE", digests.to_owned()),
            ("KONVERGE_ENVIRONMENT", "drift".to_owned()),
        ]
    };
    stage.env = second(&digests);
    let nobody = stage.schedule();
    nobody.outcome.check(3);
    says(&nobody, &["nobody approved this run in the environment `drift`"]);
    let eve: Value = json!({"state": "approved", "comment": "", "environments": [{"id": 1, "name": "drift"}], "user": {"login": "eve"}});
    stage.github.world(|world| world.run_approvals = vec![eve]);
    stage.env = second(&"0".repeat(64));
    let other = stage.schedule();
    other.outcome.check(0);
    says(
        &other,
        &["found no plan, no finding and no drift with the digest 000"],
    );
    has(&stage, "second-a", "two").await;
    stage.env = second(&digests);
    stage.schedule().outcome.check(0);
    has(&stage, "second-a", "one").await;
    stage.env.clear();
    assert_eq!(stage.receipt("second/dev")["agreedBy"], json!(["eve"]));
    assert_eq!(issue(&stage, "second/dev").state, "closed");
}

/// A run that dies half-way loses nothing: the next apply takes the stack up.
#[tokio::test(flavor = "multi_thread")]
async fn a_restoration_that_is_killed_is_completed_by_the_next_apply() {
    let maps = [("killed-a", "one"), ("killed-b", "one"), ("killed-c", "one")];
    let mut stage = applied("", &[("killed/dev", &maps)]).await;
    for (map, _) in maps {
        stage.by_hand(map, Some("two")).await;
    }
    let digest = look(&mut stage, "killed/dev");
    let proxy = Proxy::start(stage.cluster, Faults::none()).await;
    stage.env = vec![("KUBECONFIG", proxy.kubeconfig().display().to_string())];
    let tip = stage.monorepo.checkout("main").rev("main");
    let payload = json!({"ref": "refs/heads/main", "inputs": {"approve": digest},
        "repository": {"full_name": "acme/konfig", "default_branch": "main"}});
    let checkout = stage.monorepo.path().to_owned();
    let (konverge, _) = stage.prepared(&checkout, "workflow_dispatch", &payload, &tip, "refs/heads/main");
    proxy.kill_at_write(2);
    let running = konverge.start();
    proxy.killed().await;
    running.signal(SIGKILL);
    assert_eq!(running.wait().code, None);
    proxy.calm();
    // GitHub says that it is over, so nobody waits for its lease.
    let run = 5000 + stage.runs;
    stage.github.world(|world| {
        world
            .runs
            .insert(run, json!({"id": run, "status": "completed", "run_attempt": 1}))
    });
    let again = stage.approve(&digest);
    again.outcome.check(1);
    says(
        &again,
        &[
            "its state records no complete apply",
            "run the apply of the default branch again",
        ],
    );
    stage.again().outcome.check(0);
    for (map, _) in maps {
        has(&stage, map, "one").await;
    }
    stage.schedule().outcome.check(0);
    assert_eq!(issue(&stage, "killed/dev").state, "closed");
}

/// `drift.reconcile` leaves what has to be replaced to people, and a digest restores it.
#[tokio::test(flavor = "multi_thread")]
async fn what_must_be_replaced_takes_a_digest() {
    let mut stage = Stage::small("drift: {reconcile: restore}\n").await;
    stage.reviewed(7, "replaced", |stage| {
        program(
            stage,
            "replaced/dev",
            &[map("replaced-a", "one", ", immutable = True")],
        );
    });
    stage.merge(7, "replaced").outcome.check(0);
    // Recreated by hand, with all that was on it and another value.
    let maps: Api<ConfigMap> = Api::namespaced(stage.cluster.client().await, "default");
    let mut copy = maps.get("replaced-a").await.unwrap();
    maps.delete("replaced-a", &DeleteParams::default()).await.unwrap();
    copy.metadata.uid = None;
    copy.metadata.resource_version = None;
    copy.data = Some([("value".to_owned(), "two".to_owned())].into());
    maps.create(&PostParams::default(), &copy).await.unwrap();

    let looked = stage.schedule();
    looked.outcome.check(0);
    let why = "needs more than creations and updates";
    assert!(looked.summary.contains(why), "{}", looked.summary);
    has(&stage, "replaced-a", "two").await;
    let digest = digest_in(&issue(&stage, "replaced/dev").body);
    assert_eq!(looked.output("drift-digests"), digest);
    stage.approve(&digest).outcome.check(0);
    has(&stage, "replaced-a", "one").await;
}

/// The values of secrets that the apply has, and the check has not, are no part of a digest: what was changed in a
/// Secret by reference is restored by the digest that the issue shows, and so is what differs beside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_by_reference_is_restored_by_the_digest_of_the_issue() {
    const STORES: &str = "secrets:\n  stores:\n    \
        job: {kind: env, allow: [{stacks: '**', paths: 'PAY_*'}]}\n    \
        vaulted: {kind: kubernetes, allow: [{stacks: '**', paths: 'default/refs-source'}]}\n";
    let mut stage = Stage::small(STORES).await;
    stage.env = vec![("PAY_TOKEN", "token-one".to_owned())];
    let secrets: Api<Secret> = Api::namespaced(stage.cluster.client().await, "default");
    let secret = |name: &str, value: &str| -> Secret {
        let object = json!({"metadata": {"name": name}, "stringData": {"key": value}});
        serde_json::from_value(object).unwrap()
    };
    let post = PostParams::default();
    secrets
        .create(&post, &secret("refs-source", "source-one"))
        .await
        .unwrap();
    let refers = |name: &str, reference: &str| {
        format!(
            "    {{id = \"v1:Secret:default:{name}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"Secret\", metadata = {{name = \"{name}\", namespace = \"default\"}}, stringData = {{key = \"{reference}\"}}}}}}\n"
        )
    };
    stage.reviewed(7, "refs", |stage| {
        let resources = [
            refers("refs-env", "ref+env://PAY_TOKEN"),
            refers("refs-k8s", "ref+k8s://default/refs-source/key"),
            map("refs-map", "one", ""),
        ];
        program(stage, "refs/dev", &resources);
    });
    stage.merge(7, "refs").outcome.check(0);
    let merge = Patch::Merge(json!({"stringData": {"key": "by hand"}}));
    let edit = async |name: &str| {
        secrets
            .patch(name, &PatchParams::default(), &merge)
            .await
            .unwrap();
    };
    let value = async |name: &str| {
        let data = secrets.get(name).await.unwrap().data.unwrap();
        String::from_utf8(data["key"].0.clone()).unwrap()
    };
    for name in ["refs-env", "refs-k8s"] {
        // Beside another difference; and gone altogether.
        edit(name).await;
        stage.by_hand("refs-map", Some("two")).await;
        let digest = look(&mut stage, "refs/dev");
        stage.approve(&digest).outcome.check(0);
        has(&stage, "refs-map", "one").await;
        assert_eq!(issue(&stage, "refs/dev").state, "closed");
        secrets.delete(name, &DeleteParams::default()).await.unwrap();
        let digest = look(&mut stage, "refs/dev");
        stage.approve(&digest).outcome.check(0);
        assert_eq!(value("refs-env").await, "token-one");
        assert_eq!(value("refs-k8s").await, "source-one");
    }
    // The digest stands for one difference: what is edited after it was shown is another one, and has another digest.
    edit("refs-env").await;
    let digest = look(&mut stage, "refs/dev");
    edit("refs-k8s").await;
    let ran = stage.approve(&digest);
    ran.outcome.check(3);
    says(&ran, &["the given digest is not that of its present difference"]);
    assert_eq!(value("refs-env").await, "by hand");
    stage.approve(&ran.digest()).outcome.check(0);
    assert_eq!(value("refs-env").await, "token-one");
    assert_eq!(value("refs-k8s").await, "source-one");
}
