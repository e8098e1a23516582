//! `konverge ci --tests`: stack tests in a job of their own, their check run and their comment.

use serde_json::Value;

use crate::support::{
    audit::AuditObject,
    ci_stage::{Ran, Stage},
    cluster::Cluster,
    objects::Objects,
};

const RULE: &str = "ops/policy/maps.rego";
const SETS: &str = "policy: {sets: [{name: maps, path: ops/policy, input: objects}]}\n";

/// A stage whose cluster allows tests, with a rule that no ConfigMap holds `bad`.
async fn stage() -> Stage {
    let mut stage = Stage::small("").await;
    stage.cluster = Cluster::with_controllers();
    let config = format!(
        "version: 1\nstate: {{id: live-tests, url: 'file://{}'}}\nclusters: {{test: {{tests: true}}}}\n{SETS}",
        stage.scratch.path().join("store").display()
    );
    let rule = "package main\n\ndeny contains \"bad\" if {\n\tinput.kind == \"ConfigMap\"\n\tinput.data.value == \"bad\"\n}\n";
    stage
        .monorepo
        .write("konverge.yaml", config)
        .write(RULE, rule)
        .commit("A cluster that allows tests");
    stage
}

/// The stack `web/dev` with this value, an offline test, and a live test that expects `expected`.
fn propose(stage: &Stage, branch: &str, namespace: &str, value: &str, expected: &str) -> String {
    stage.monorepo.checkout("main").branch(branch);
    stage.stack("web/dev", &[(namespace, value)]);
    let offline = format!("name: offline\nassert: [{{kind: ConfigMap, name: {namespace}}}]\n");
    let live = format!(
        "name: \"live @octocat <img src=x> ```\"\nsteps:\n- apply: {{}}\n- assert: [{{kind: ConfigMap, has: {{data: {{value: {expected}}}}}}}]\n"
    );
    stage
        .monorepo
        .write("appops/web/dev/test/offline.test.yaml", offline)
        .write("appops/web/dev/test/live.test.yaml", live)
        .commit(branch)
}

/// The job with the tests, in the run of a pull request from `from`.
fn tests(stage: &mut Stage, number: u64, branch: &str, from: &str) -> Ran {
    let (payload, trial) = stage.opened(number, branch, "synchronize", from);
    stage.env = vec![("KONVERGE_TESTS", "true".to_owned())];
    let ran = stage.preview(number, &payload, &trial);
    stage.env.clear();
    ran
}

/// The comment with the tests of a pull request.
fn comment(stage: &Stage) -> Option<String> {
    let comments = stage.comments().into_iter().map(|(_, body)| body);
    let mut found: Vec<_> = comments
        .filter(|body| body.contains("### Konverge tests:"))
        .collect();
    assert!(found.len() <= 1, "{found:?}");
    found.pop()
}

fn check(stage: &Stage) -> (String, Value) {
    let check = stage.check("konverge/test").expect("a check run");
    (
        check["conclusion"].as_str().unwrap().to_owned(),
        check["output"].clone(),
    )
}

/// The objects of live tests in the cluster.
async fn left(stage: &Stage) -> Vec<Value> {
    let objects = Objects::of(stage.cluster).await;
    let all = objects.list("/api/v1/configmaps").await;
    let is_ours = |object: &Value| {
        object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .starts_with("ci-live")
    };
    all.into_iter().filter(is_ours).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn live_tests_run_after_the_policy_sets_passed() {
    let mut stage = stage().await;
    let head = propose(&stage, "good", "ci-live-one", "good", "good");
    // Nobody has previewed this commit.
    let early = tests(&mut stage, 1, "good", "acme/konfig");
    early.outcome.check(1);
    let (conclusion, output) = check(&stage);
    assert_eq!(conclusion, "failure", "{output}");
    let said = comment(&stage).unwrap();
    assert!(
        said.contains("this commit has no status `konverge/preview`"),
        "{said}"
    );
    assert!(said.contains("1 passed, live tests not run"), "{said}");

    stage.pull_request(1, "good", "opened").outcome.check(0);
    let ran = tests(&mut stage, 1, "good", "acme/konfig");
    ran.outcome.check(0);
    let (conclusion, output) = check(&stage);
    assert_eq!(conclusion, "success", "{output}");
    assert_eq!(output["title"], "2 passed");
    let said = comment(&stage).unwrap();
    assert!(said.contains("### Konverge tests: 2 passed"), "{said}");
    assert!(written(&stage, "ci-live-one") > 0);
    assert!(
        ran.summary.contains("### Konverge tests: 2 passed"),
        "{}",
        ran.summary
    );
    assert!(
        ran.outcome.stdout.contains("2 tests in 1 stack: 2 passed"),
        "{}",
        ran.outcome.stdout
    );
    // The preview of the run is as it was.
    assert!(
        stage
            .status(&head, "konverge/preview")
            .unwrap()
            .contains("success")
    );
    assert_eq!(left(&stage).await, Vec::<Value>::new());

    // A failed test, whose name is hostile, and a file that is not a test: it is a result once.
    propose(&stage, "wrong", "ci-live-one", "good", "other");
    stage
        .monorepo
        .write("appops/web/dev/test/no.test.yaml", "name: 1\nsteps: 2\n")
        .commit("A file that is not a test");
    stage.pull_request(2, "wrong", "opened").outcome.check(0);
    stage.github.world(|world| world.comments.clear());
    let ran = tests(&mut stage, 2, "wrong", "acme/konfig");
    ran.outcome.check(1);
    // As annotations too: the log of the job has them where no check run is written.
    for command in [
        "::error file=appops/web/dev/test/live.test.yaml,line=4,title=stack test::",
        "::error file=appops/web/dev/test/no.test.yaml",
    ] {
        let said = &ran.outcome.stderr;
        assert!(
            said.lines().any(|line| line.starts_with(command)),
            "{command}: {said}"
        );
    }
    let (conclusion, output) = check(&stage);
    assert_eq!(
        (conclusion.as_str(), &output["title"]),
        ("failure", &Value::from("1 failed, 1 not run, 1 passed"))
    );
    assert_eq!(
        output["annotations"][0]["path"],
        "appops/web/dev/test/live.test.yaml"
    );
    let said = comment(&stage).unwrap();
    assert!(
        said.contains("data.value: expected \"other\", found \"good\""),
        "{said}"
    );
    let name = said.lines().find(|line| line.contains("@octocat")).unwrap();
    assert!(name.contains("```` live @octocat <img src=x> ``` ````"), "{name}");
    assert_eq!(left(&stage).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_policy_set_denies_is_not_tested_on_a_cluster() {
    let mut stage = stage().await;
    propose(&stage, "denied", "ci-live-two", "bad", "bad");
    stage.pull_request(1, "denied", "opened").outcome.check(0);
    tests(&mut stage, 1, "denied", "acme/konfig").outcome.check(1);
    let (conclusion, output) = check(&stage);
    assert_eq!(conclusion, "failure");
    let said = output["text"].as_str().unwrap();
    assert!(
        said.contains("a policy set denies the plan of this commit"),
        "{said}"
    );
    assert_eq!(written(&stage, "ci-live-two"), 0);
}

/// How often an object of this name was written.
fn written(stage: &Stage, name: &str) -> usize {
    let audit = stage.cluster.audit();
    let named = |object: &AuditObject| object.name == name;
    let writes = audit.iter().filter(|event| event.writes());
    writes
        .filter(|event| event.object_ref.as_ref().is_some_and(named))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_from_outside_runs_offline_tests_alone() {
    let mut stage = stage().await;
    propose(&stage, "outside", "ci-live-three", "good", "good");
    let ran = tests(&mut stage, 9, "outside", "mallory/konfig");
    ran.outcome.check(0);
    assert!(
        ran.outcome.stderr.contains("the pull request comes from outside"),
        "{}",
        ran.outcome.stderr
    );
    assert!(
        ran.outcome.stdout.contains("1 test in 1 stack: 1 passed"),
        "{}",
        ran.outcome.stdout
    );
    assert_eq!((comment(&stage), stage.check("konverge/test")), (None, None));
    // Another event has nothing to test.
    let main = stage.monorepo.rev("main");
    stage.env = vec![("KONVERGE_TESTS", "true".to_owned())];
    let pushed = stage.push(&main, &main);
    pushed.outcome.check(64);
    assert!(
        pushed
            .outcome
            .stderr
            .contains("stack tests run on `pull_request`"),
        "{}",
        pushed.outcome.stderr
    );
    stage.env = vec![("KONVERGE_TESTS", "yes".to_owned())];
    stage.push(&main, &main).outcome.check(64);
    // A shard is not dropped in silence, right or wrong.
    let (payload, trial) = stage.opened(9, "outside", "synchronize", "acme/konfig");
    for (shard, why) in [
        ("1/2", "KONVERGE_TESTS and a shard exclude each other"),
        ("2/1", "`2/8` previews the second of eight shards"),
    ] {
        let variables = [("KONVERGE_TESTS", "true"), ("KONVERGE_SHARD", shard)];
        stage.env = variables.map(|(name, value)| (name, value.to_owned())).into();
        let refused = stage.preview(9, &payload, &trial);
        refused.outcome.check(64);
        let said = &refused.outcome.stderr;
        assert!(said.contains(why), "{shard}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_named() {
    let mut stage = stage().await;
    propose(&stage, "good", "ci-live-four", "good", "good");
    stage.pull_request(1, "good", "opened").outcome.check(0);
    for (key, line) in [
        ("checks", "checks: write"),
        ("pull_requests", "pull-requests: write"),
    ] {
        let before = stage.github.world(|world| {
            let permissions = &mut world.tokens.get_mut("ghs_token").unwrap().permissions;
            let before = permissions.clone();
            permissions.remove(key);
            // A comment needs one of two permissions.
            permissions.remove("issues");
            before
        });
        let ran = tests(&mut stage, 1, "good", "acme/konfig");
        ran.outcome.check(0);
        assert!(
            ran.outcome
                .stderr
                .contains(&format!("`permissions:` with `{line}`")),
            "{}",
            ran.outcome.stderr
        );
        let commands = ran.outcome.stderr.lines();
        let mut warnings = commands.filter(|line| line.starts_with("::warning title=konverge::"));
        assert!(
            warnings.any(|command| command.contains(line)),
            "{}",
            ran.outcome.stderr
        );
        stage
            .github
            .world(|world| world.tokens.get_mut("ghs_token").unwrap().permissions = before);
    }
}
