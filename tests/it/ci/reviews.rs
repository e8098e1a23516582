//! The review contract end to end, where the order of events matters: what becomes known only on the way, who merged
//! when, what is removed. GitHub is played by the fake, the API server is real.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use crate::support::{
    ci_stage::{Ran, Stage},
    payloads, tiny_monorepo,
};

/// A Service, whose address only the API server knows.
pub fn service(name: &str) -> String {
    format!(
        "    {{id = \"v1:Service:default:{name}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"Service\", metadata = {{name = \"{name}\", namespace = \"default\"}}, spec = {{ports = [{{port = 80}}]}}}}}}\n"
    )
}

/// A ConfigMap with further lines of KCL, for example `immutable = True`.
pub fn map(name: &str, value: &str, more: &str) -> String {
    format!(
        "    {{id = \"v1:ConfigMap:default:{name}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{name}\", namespace = \"default\"}}, data = {{value = \"{value}\"}}{more}}}}}\n"
    )
}

pub fn program(stage: &Stage, id: &str, resources: &[String]) {
    let program = format!("resources = [\n{}]\n", resources.concat());
    tiny_monorepo::write_program(&stage.monorepo, id, &program);
}

async fn uid(stage: &Stage, name: &str) -> String {
    let maps: Api<ConfigMap> = Api::namespaced(stage.cluster.client().await, "default");
    maps.get(name).await.unwrap().metadata.uid.unwrap()
}

/// A reviewer who saw "some value, known after apply" did not agree to the object being deleted and recreated.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_known_after_apply_does_not_replace_unseen() {
    let mut stage = Stage::small("").await;
    let (name, more) = ("unseen-map", ", immutable = True");
    stage.reviewed(7, "first", |stage| {
        program(stage, "unseen/dev", &[map(name, "one", more)])
    });
    stage.merge(7, "first").outcome.check(0);
    let before = uid(&stage, name).await;

    let address = "$kusion_path.v1:Service:default:unseen-service.spec.clusterIP";
    stage.reviewed(8, "reads", |stage| {
        program(
            stage,
            "unseen/dev",
            &[service("unseen-service"), map(name, address, more)],
        );
    });
    let merged = stage.merge(8, "reads");
    merged.outcome.check(1);
    assert_eq!(uid(&stage, name).await, before, "it was deleted and recreated");
    let said = &merged.outcome.stdout;
    assert!(said.contains("replace v1:ConfigMap:default:unseen-map"), "{said}");
    // What could be agreed to now is in the next run's plan, with its own digest.
    assert!(said.contains("Completed changes are recorded"), "{said}");
    assert!(!said.contains("approve: "), "{said}");

    let again = stage.again();
    again.outcome.check(3);
    assert_eq!(uid(&stage, name).await, before);
    stage.approve(&again.digest()).outcome.check(0);
    assert_ne!(uid(&stage, name).await, before);
}

/// Someone who agreed to a plan by its digest agreed to what of it only the apply knows, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_approved_by_its_digest_goes_to_its_end() {
    let mut stage = Stage::small("").await;
    let address = "$kusion_path.v1:Service:default:agreed-service.spec.clusterIP";
    let stopped = stage.straight_to_main(|stage| {
        program(
            stage,
            "agreed/dev",
            &[service("agreed-service"), map("agreed-map", address, "")],
        );
    });
    stopped.outcome.check(3);
    stage.approve(&stopped.digest()).outcome.check(0);
    let value = stage.value("agreed-map").await.unwrap();
    assert!(value.parse::<std::net::IpAddr>().is_ok(), "{value}");
}

/// A pull request that is merged before the run of another's merge has begun is the next run's: this one's head does
/// not hold it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_merged_later_is_not_used_up_before() {
    let mut stage = Stage::small("").await;
    stage.reviewed(7, "early", |stage| {
        stage.stack("queue/dev", &[("queue-web", "one")]);
    });
    let (before, first) = stage.press_merge(7, "early");
    stage.reviewed(8, "late", |stage| {
        stage.stack("queue/dev", &[("queue-web", "one"), ("queue-worker", "one")]);
    });
    let (_, second) = stage.press_merge(8, "late");

    stage.push(&before, &first).outcome.check(0);
    assert_eq!(stage.value("queue-web").await.as_deref(), Some("one"));
    assert_eq!(stage.value("queue-worker").await, None);
    stage.push(&first, &second).outcome.check(0);
    assert_eq!(stage.value("queue-worker").await.as_deref(), Some("one"));
    let receipt = stage.receipt("queue/dev");
    assert_eq!(receipt["pullRequests"][0]["number"], 8, "{receipt}");
}

/// Someone who may start a preview again would else show themselves what nobody agreed to.
#[tokio::test(flavor = "multi_thread")]
async fn a_preview_after_the_merge_is_no_review() {
    let mut stage = Stage::small("").await;
    stage.monorepo.branch("unseen");
    stage.stack("unseen/dev", &[("unseen-web", "one")]);
    stage.monorepo.commit("Nobody previews it");
    let (payload, trial) = stage.opened(7, "unseen", "opened", "acme/konfig");
    stage.merge(7, "unseen").outcome.check(3);
    let late = stage.preview(7, &payload, &trial);
    late.outcome.check(0);
    assert!(
        late.outcome
            .stderr
            .contains("the preview is not recorded as reviewed"),
        "{}",
        late.outcome.stderr
    );
    stage.again().outcome.check(3);
    assert_eq!(stage.value("unseen-web").await, None);
}

/// A stack's own rules hold for its end, too, though its code is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_stack_keeps_its_rules() {
    let rules = "policy: {approvals: 0}\nstacks:\n- {match: '**/prod', policy: {approvals: 2}}\n";
    let mut stage = Stage::small(rules).await;
    stage.github.world(|world| {
        world.collaborators.insert("dev".into(), "write");
    });
    let (head, _) = stage.reviewed(7, "make", |stage| {
        stage.stack("ruled/prod", &[("ruled-web", "one")]);
    });
    for login in ["ada", "grace", "linus"] {
        stage.approved_by(7, login, &head);
    }
    stage.merge(7, "make").outcome.check(0);
    let (head, previewed) = stage.reviewed(8, "remove", |stage| {
        stage.monorepo.git(["rm", "-rq", "appops/ruled"]);
    });
    let said = &previewed.summary;
    assert!(said.contains("0 of 2 required approvals"), "{said}");
    let merged = stage.merge(8, "remove");
    merged.outcome.check(3);
    let said = &merged.outcome.stdout;
    assert!(
        said.contains("policy.approvals: 0 of 2 required approvals"),
        "{said}"
    );
    assert_eq!(stage.value("ruled-web").await.as_deref(), Some("one"));
    for login in ["grace", "linus"] {
        stage.approved_by(8, login, &head);
    }
    stage.again().outcome.check(0);
    assert_eq!(stage.value("ruled-web").await, None);
}

/// The pull requests of which records are kept.
async fn recorded(stage: &Stage) -> Vec<u64> {
    let states = stage.states().await;
    let mut numbers: Vec<_> = states.reviews().list().await.unwrap();
    numbers.dedup_by_key(|place| place.pull_request);
    numbers.into_iter().map(|place| place.pull_request).collect()
}

/// A record is deleted when no stack in it needs it any more, and not before.
#[tokio::test(flavor = "multi_thread")]
async fn records_that_are_used_up_are_deleted() {
    let mut stage = Stage::small("stacks:\n- {match: 'kept/prod', policy: {approvals: 1}}\n").await;
    stage.github.world(|world| {
        world.collaborators.insert("dev".into(), "write");
    });
    // Too old to be found, closed unmerged, still open, merged: only what is open or not found is kept afterwards.
    for (number, branch) in [(4, "old"), (5, "closed"), (6, "open")] {
        stage.reviewed(number, branch, |stage| {
            stage.stack(&format!("{branch}/dev"), &[("kept-never", "one")]);
        });
    }
    stage.github.world(|world| {
        world.pulls.remove(0);
        world.pulls[0].closed = true;
    });
    let (head, _) = stage.reviewed(7, "kept", |stage| {
        stage.stack("kept/dev", &[("kept-dev", "one")]);
        stage.stack("kept/prod", &[("kept-prod", "one")]);
    });
    assert_eq!(recorded(&stage).await, [4, 5, 6, 7]);
    // One stack of two has been applied: the other still needs it.
    let merged = stage.merge(7, "kept");
    merged.outcome.check(3);
    let said = &merged.outcome.stderr;
    assert!(said.contains("their reviews do not count: #4\n"), "{said}");
    assert_eq!(stage.value("kept-dev").await.as_deref(), Some("one"));
    assert_eq!(recorded(&stage).await, [4, 6, 7]);
    stage.approved_by(7, "grace", &head);
    stage.again().outcome.check(0);
    assert_eq!(stage.value("kept-prod").await.as_deref(), Some("one"));
    assert_eq!(recorded(&stage).await, [4, 6]);
    let receipt = stage.receipt("kept/prod");
    assert_eq!(receipt["pullRequests"][0]["number"], 7, "{receipt}");
}

/// Previews a fork's pull request in the job of this repository, which compares Specs only, and merges it.
fn from_a_fork(stage: &mut Stage, number: u64, branch: &str, change: impl FnOnce(&Stage)) -> Ran {
    stage.monorepo.checkout("main").branch(branch);
    change(stage);
    let head = stage.monorepo.commit(branch);
    stage.opened(number, branch, "opened", "mallory/konfig");
    let payload = payloads::workflow_run((branch, &head), "mallory/konfig", "mallory");
    let tip = stage.monorepo.rev("main");
    let previewed = stage.ci("workflow_run", &payload, &tip, "refs/heads/main");
    previewed.outcome.check(0);
    stage.merge(number, branch)
}

/// Someone who reviewed a fork's pull request saw Specs, not what is there: of a stack without a state nobody knows
/// that.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_apply_of_a_forks_stack_needs_an_approval_by_digest() {
    let mut stage = Stage::small("").await;
    let merged = from_a_fork(&mut stage, 9, "contribute", |stage| {
        stage.stack("outside/dev", &[("outside-web", "one")]);
    });
    merged.outcome.check(3);
    let said = &merged.outcome.stdout;
    assert!(said.contains("reviewed without a cluster"), "{said}");
    assert_eq!(stage.value("outside-web").await, None);
    stage.approve(&merged.digest()).outcome.check(0);
    assert_eq!(stage.value("outside-web").await.as_deref(), Some("one"));
    // From then on there is a state to be held against.
    let merged = from_a_fork(&mut stage, 10, "again", |stage| {
        stage.stack("outside/dev", &[("outside-web", "two")]);
    });
    merged.outcome.check(0);
    assert_eq!(stage.value("outside-web").await.as_deref(), Some("two"));
}

/// A base moved under what another pull request had shown: what stands there is what we wrote, and nobody else's.
#[tokio::test(flavor = "multi_thread")]
async fn our_last_write_is_no_moved_ground() {
    let mut stage = Stage::small("").await;
    let name = "ground-map";
    let write = |stage: &Stage, value: &str| {
        let text = format!("import base.ground\n\nresources = [\n{}]\n", map(name, value, ""));
        tiny_monorepo::write_program(&stage.monorepo, "ground/dev", &text);
    };
    let ground = |stage: &Stage, value: &str| {
        stage
            .monorepo
            .write("base/ground.k", format!("value = \"{value}\"\n"));
    };
    stage.reviewed(7, "first", |stage| {
        ground(stage, "a");
        write(stage, "${ground.value}");
    });
    stage.merge(7, "first").outcome.check(0);
    // Shown as a change from `a`.
    stage.reviewed(8, "own", |stage| write(stage, "c"));
    stage.reviewed(9, "base", |stage| ground(stage, "b"));
    stage.merge(9, "base").outcome.check(0);
    assert_eq!(stage.value(name).await.as_deref(), Some("b"));

    stage.by_hand(name, Some("x")).await;
    let stopped = stage.merge(8, "own");
    stopped.outcome.check(3);
    let said = &stopped.outcome.stdout;
    assert!(
        said.contains("neither the reviewed value nor the last one that Konverge wrote"),
        "{said}"
    );
    assert_eq!(stage.value(name).await.as_deref(), Some("x"));

    stage.by_hand(name, Some("b")).await;
    stage.again().outcome.check(0);
    assert_eq!(stage.value(name).await.as_deref(), Some("c"));
}
