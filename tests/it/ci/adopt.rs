//! A repository whose stacks ran before Konverge came is taken over by one pull request: what is unchanged, and nothing
//! else.

use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::support::{
    ci_stage::Stage,
    process::{Konverge, Outcome, binary},
    root,
};

/// Somebody else applied a ConfigMap long ago.
async fn runs_already(stage: &Stage, map: &str, value: &str) {
    let api: Api<ConfigMap> = Api::namespaced(stage.cluster.client().await, "default");
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": map}, "data": {"value": value}});
    let client = PatchParams::apply("kubectl");
    api.patch(map, &client, &Patch::Apply(object)).await.unwrap();
}

async fn object(stage: &Stage, map: &str) -> ConfigMap {
    let api: Api<ConfigMap> = Api::namespaced(stage.cluster.client().await, "default");
    api.get(map).await.unwrap()
}

/// The stack that owns a ConfigMap.
async fn owner(stage: &Stage, map: &str) -> Option<String> {
    let annotations = object(stage, map).await.metadata.annotations?;
    annotations.get("konverge/stack").cloned()
}

fn adopt(stage: &Stage, arguments: &[&str]) -> Outcome {
    stage
        .konverge(["adopt"].iter().chain(arguments).copied())
        .env("XDG_STATE_HOME", stage.scratch.path())
        .run()
}

fn open_issues(stage: &Stage) -> usize {
    stage.github.world(|world| world.issues.len())
}

/// Two stacks run: the one is as its Spec says, the other is not. A third one is new.
async fn running(name: &str) -> Stage {
    let stage = Stage::small("").await;
    let [same, other] = [format!("{name}-same"), format!("{name}-other")];
    runs_already(&stage, &same, "one").await;
    runs_already(&stage, &other, "by hand").await;
    stage.stack(&format!("{name}/same"), &[(&same, "one")]);
    stage.stack(
        &format!("{name}/other"),
        &[(&other, "two"), (&format!("{name}-more"), "one")],
    );
    stage.stack(&format!("{name}/new"), &[(&format!("{name}-new"), "one")]);
    stage
}

#[tokio::test(flavor = "multi_thread")]
async fn one_pull_request_takes_over_what_is_unchanged_and_nothing_else() {
    let mut stage = running("adopt").await;
    stage.konverge(["init", "--adopt"]).run().expect(0);
    assert!(
        stage
            .monorepo
            .read("konverge.adopt.yaml")
            .ends_with("stacks: []\n")
    );
    // The first merge stops no stack and opens no issue.
    let first = stage.straight_to_main(|_| {});
    first.outcome.check(0);
    assert!(
        first.outcome.stdout.contains("3 stacks were never applied"),
        "{}",
        first.outcome.stdout
    );
    let tip = stage.monorepo.rev("main");
    assert_eq!(stage.status(&tip, "konverge/apply").as_deref(), Some("success"));
    assert_eq!(
        (open_issues(&stage), owner(&stage, "adopt-same").await),
        (0, None)
    );

    // What would be done, as a table and as JSON.
    let told = adopt(&stage, &[]).expect(0);
    let line = |start: &str| {
        told.stdout
            .lines()
            .find(|line| line.starts_with(start))
            .unwrap()
            .to_owned()
    };
    let words = |line: String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(line("adopt/same")), ["adopt/same", "unchanged", "1"]);
    assert_eq!(
        words(line("adopt/other")),
        ["adopt/other", "with", "changes", "1", "1"]
    );
    assert_eq!(
        words(line("adopt/new")),
        ["adopt/new", "nothing", "is", "there", "1"]
    );
    for sentence in [
        "1 stack would be taken over unchanged",
        "1 stack would change",
        "1 stack would be made",
        // The others are shown as previews.
        "by hand",
    ] {
        assert!(told.stdout.contains(sentence), "{sentence}: {}", told.stdout);
    }
    let found = adopt(&stage, &["--output", "json"]).expect(0).json();
    let kinds = found["stacks"].as_array().unwrap().iter();
    let kinds: Vec<(&str, &str)> = kinds.map(|s| (text(&s["id"]), text(&s["takeover"]))).collect();
    assert_eq!(
        kinds,
        [
            ("adopt/new", "new"),
            ("adopt/other", "changed"),
            ("adopt/same", "unchanged")
        ]
    );

    // One pull request, one merge.
    stage.reviewed(7, "take-over", |stage| {
        let written = adopt(stage, &["--write"]).expect(0);
        assert!(
            written.stderr.contains("konverge.adopt.yaml with 1 stack"),
            "{}",
            written.stderr
        );
    });
    let comment = stage.comments().pop().unwrap().1;
    assert!(
        comment.contains("adopt/same") && !comment.contains("adopt/other"),
        "{comment}"
    );
    let merged = stage.merge(7, "take-over");
    merged.outcome.check(0);
    assert_eq!(owner(&stage, "adopt-same").await.as_deref(), Some("adopt/same"));
    assert_eq!(stage.value("adopt-same").await.as_deref(), Some("one"));
    let receipt = stage.receipt("adopt/same");
    assert_eq!(receipt["pullRequests"][0]["number"], 7, "{receipt}");
    // The others are as they were.
    assert_eq!(owner(&stage, "adopt-other").await, None);
    assert_eq!(stage.value("adopt-other").await.as_deref(), Some("by hand"));
    assert_eq!(stage.value("adopt-new").await, None);
    assert_eq!(open_issues(&stage), 0);
    assert!(
        merged.outcome.stdout.contains("2 stacks were never applied"),
        "{}",
        merged.outcome.stdout
    );

    // A digest stands for its stack alone, and the others are still left alone.
    let left = adopt(&stage, &["--output", "json"]).expect(0).json();
    let new = left["stacks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|stack| stack["id"] == "adopt/new");
    stage.approve(text(&new.unwrap()["digest"])).outcome.check(0);
    assert_eq!(stage.value("adopt-new").await.as_deref(), Some("one"));
    assert_eq!(stage.value("adopt-other").await.as_deref(), Some("by hand"));
    assert_eq!(open_issues(&stage), 0);

    // The changed one goes the usual way.
    stage.reviewed(8, "other", |stage| {
        stage.stack("adopt/other", &[("adopt-other", "two"), ("adopt-more", "two")]);
    });
    stage.merge(8, "other").outcome.check(0);
    assert_eq!(stage.value("adopt-other").await.as_deref(), Some("two"));
    assert_eq!(stage.value("adopt-more").await.as_deref(), Some("two"));
}

/// The pull request that deletes the file shows what its merge then applies for the first time, and its review counts.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_adoption_is_shown_and_applied_as_reviewed() {
    let mut stage = running("end").await;
    stage.straight_to_main(|stage| {
        stage.monorepo.write("konverge.adopt.yaml", "stacks: []\n");
    });
    stage.reviewed(7, "end", |stage| {
        stage.monorepo.remove("konverge.adopt.yaml");
    });
    let comment = stage.comments().pop().unwrap().1;
    for part in [
        "The configuration changes for 3 stacks",
        "- `konverge.adopt.yaml`: the stack was left alone until now, and the merge applies it for the first time: `end/new`, `end/other`, `end/same`",
    ] {
        assert!(comment.contains(part), "{part}: {comment}");
    }
    let by_hand = stage
        .konverge(["preview", "--base", "main", "--rev", "end"])
        .env("XDG_STATE_HOME", stage.scratch.path());
    let shown = by_hand.run().expect(0).stdout;
    for part in [
        "end/new",
        "end/other",
        "end/same",
        "konverge.adopt.yaml: the stack was left alone",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    stage.merge(7, "end").outcome.check(0);
    assert_eq!(open_issues(&stage), 0);
    assert_eq!(stage.value("end-other").await.as_deref(), Some("two"));
    assert_eq!(stage.value("end-new").await.as_deref(), Some("one"));
}

/// By hand it is as in the job: the preview shows what the merge takes over, and what was never applied is left alone.
#[tokio::test(flavor = "multi_thread")]
async fn by_hand_the_same_stacks_are_shown_and_left_alone() {
    let mut stage = running("hand").await;
    stage.straight_to_main(|stage| {
        stage.monorepo.write("konverge.adopt.yaml", "stacks: []\n");
    });
    let run = |stage: &Stage, arguments: &[&str]| {
        stage
            .konverge(arguments.iter().copied())
            .env("XDG_STATE_HOME", stage.scratch.path())
            .run()
    };
    let told = adopt(&stage, &["--write"]).expect(0);
    // What is to be looked at comes first, and what is not there has nothing to look at.
    let place = |text: &str| told.stdout.find(text).unwrap();
    assert!(place("hand/other ") < place("hand/same ") && place("hand/same ") < place("hand/new "));
    assert!(!told.stdout.contains("hand/new:"), "{}", told.stdout);

    let shown = run(&stage, &["preview"]).expect(0);
    let sentence = "1 stack is taken over as it runs: only the owner annotation is added, to 1 object.";
    assert!(shown.stdout.contains(sentence), "{}", shown.stdout);
    assert!(!shown.stdout.contains("hand/other"), "{}", shown.stdout);
    stage
        .monorepo
        .write("konverge.adopt.yaml", "stacks: [hand/same, hand/other]\n");
    let refused = run(&stage, &["preview"]).expect(1);
    assert!(
        refused.stdout.contains("takes over stacks as they run"),
        "{}",
        refused.stdout
    );

    let applied = run(&stage, &["apply", "--pending", "--yes"]).expect(0);
    assert!(
        applied.stderr.contains("3 stacks were never applied: left alone"),
        "{}",
        applied.stderr
    );
    // Without a stack and without a change there is nothing to do, and the way to the rest is said.
    let nothing = run(&stage, &["apply", "--yes"]).expect(0);
    assert!(
        nothing.stderr.contains("`konverge apply --pending`"),
        "{}",
        nothing.stderr
    );
    assert_eq!(owner(&stage, "hand-same").await, None);
    assert_eq!(stage.value("hand-other").await.as_deref(), Some("by hand"));
    assert_eq!(stage.value("hand-new").await, None);
    run(&stage, &["apply", "hand/other", "--yes"]).expect(0);
    assert_eq!(stage.value("hand-other").await.as_deref(), Some("two"));
    // One that is recorded is pending as ever.
    stage.stack("hand/other", &[("hand-other", "three"), ("hand-more", "one")]);
    run(&stage, &["apply", "--pending", "--yes"]).expect(0);
    assert_eq!(stage.value("hand-other").await.as_deref(), Some("three"));
    assert_eq!(stage.value("hand-new").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_that_would_change_cannot_be_taken_over() {
    let mut stage = running("refuse").await;
    stage.straight_to_main(|stage| {
        stage.monorepo.write("konverge.adopt.yaml", "stacks: []\n");
    });
    // By hand: the file names a stack that would change.
    stage.monorepo.branch("all");
    stage.monorepo.write(
        "konverge.adopt.yaml",
        "stacks: [refuse/same, refuse/other, refuse/none]\n",
    );
    stage.monorepo.commit("all");
    let ran = stage.pull_request(7, "all", "opened");
    ran.outcome.check(1);
    assert!(
        ran.outcome.stderr.contains("`refuse/none`, which is not a stack"),
        "{}",
        ran.outcome.stderr
    );
    let comment = stage.comments().pop().unwrap().1;
    assert!(comment.contains("takes over stacks as they run"), "{comment}");
    // Merged all the same: the unchanged one alone.
    stage.merge(7, "all").outcome.check(0);
    assert_eq!(owner(&stage, "refuse-same").await.as_deref(), Some("refuse/same"));
    assert_eq!(owner(&stage, "refuse-other").await, None);
    assert_eq!(stage.value("refuse-other").await.as_deref(), Some("by hand"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_slips_in_between_stops_the_stack() {
    let mut stage = running("slip").await;
    stage.straight_to_main(|stage| {
        stage.monorepo.write("konverge.adopt.yaml", "stacks: []\n");
    });
    stage.reviewed(7, "take-over", |stage| {
        stage
            .monorepo
            .write("konverge.adopt.yaml", "stacks: [slip/same]\n");
    });
    runs_already(&stage, "slip-same", "slipped in").await;
    let merged = stage.merge(7, "take-over");
    merged.outcome.check(3);
    assert!(
        merged
            .outcome
            .stdout
            .contains("stopped before anything was changed"),
        "{}",
        merged.outcome.stdout
    );
    assert_eq!(owner(&stage, "slip-same").await, None);
    assert_eq!(stage.value("slip-same").await.as_deref(), Some("slipped in"));
}

/// The command of the guide that collects the digests of what is left, as it stands there.
fn digests_of_the_rest(stage: &Stage) -> String {
    let page = std::fs::read_to_string(root().join("docs/guides/adopt.md")).unwrap();
    let command = page.lines().find(|line| line.starts_with("digests=")).unwrap();
    let programs = binary().parent().unwrap().to_owned();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let typed = Konverge::of(
        Path::new("/bin/sh"),
        ["-e", "-c", &format!("{command}\nprintf %s \"$digests\"")],
    );
    typed
        .with_kcl()
        .dir(stage.monorepo.path())
        .env("PATH", path)
        .env("KUBECONFIG", stage.cluster.kubeconfig())
        .env("XDG_STATE_HOME", stage.scratch.path())
        .run()
        .expect(0)
        .stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn the_remaining_stacks_are_brought_in_by_one_run() {
    let mut stage = Stage::small("").await;
    let map_of = |at: usize| format!("bootstrap-{at:02}");
    for at in 0..24 {
        let map = map_of(at);
        // Half of them run with another value, the others are new.
        if at % 2 == 0 {
            runs_already(&stage, &map, "by hand").await;
        }
        stage.stack(&format!("{map}/prod"), &[(&map, "one")]);
    }
    let first = stage.straight_to_main(|stage| {
        stage.monorepo.write("konverge.adopt.yaml", "stacks: []\n");
    });
    first.outcome.check(0);
    let digests = digests_of_the_rest(&stage);
    assert_eq!(digests.split(',').count(), 24, "{digests}");

    // Of one the plan is no longer what was read, and of another one the live value: these two are left alone, and that
    // is said.
    stage.by_hand(&map_of(0), None).await;
    runs_already(&stage, &map_of(2), "by another hand").await;
    let ran = stage.approve(&digests);
    ran.outcome.check(0);
    let said = &ran.outcome.stderr;
    let (_, note) = said
        .split_once("found no plan, no finding and no drift with the digest ")
        .unwrap();
    let unmatched = note.split(", so nothing").next().unwrap();
    assert_eq!(unmatched.split(", ").count(), 2, "{said}");
    assert_eq!(stage.value(&map_of(0)).await, None);
    assert_eq!(stage.value(&map_of(2)).await.as_deref(), Some("by another hand"));
    for at in [1].into_iter().chain(3..24) {
        assert_eq!(stage.value(&map_of(at)).await.as_deref(), Some("one"), "{at}");
    }
    let receipt = stage.receipt("bootstrap-07/prod");
    assert_eq!(receipt["agreedBy"], json!(["dev"]));
    assert_eq!(receipt["why"], "the vendor fixes it by May");

    // The run has announced the two and applied nothing of them, so they are still to be taken over: they are listed,
    // and a push leaves them alone.
    let listed = |stage: &Stage| {
        let found = adopt(stage, &["--output", "json"]).expect(0).json();
        let stacks = found["stacks"].as_array().unwrap().iter();
        stacks.map(|s| text(&s["id"]).to_owned()).collect::<Vec<_>>()
    };
    let left = ["bootstrap-00/prod", "bootstrap-02/prod"];
    assert_eq!(listed(&stage), left);
    let pushed = stage.straight_to_main(|_| {});
    pushed.outcome.check(0);
    assert!(
        pushed.outcome.stdout.contains("2 stacks were never applied"),
        "{}",
        pushed.outcome.stdout
    );
    let digests = digests_of_the_rest(&stage);
    stage.approve(&digests).outcome.check(0);
    for at in [0, 2] {
        assert_eq!(stage.value(&map_of(at)).await.as_deref(), Some("one"), "{at}");
    }
    assert_eq!(listed(&stage), [""; 0]);
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}
