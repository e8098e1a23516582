//! Hooks of stacks on a runtime in memory: when they run, what a failure holds back, and what is shown.

use serde_json::{Value, json};

use super::{
    memory_runtime::{Faults, resource},
    memory_stack::MemoryStack,
};
use konverge_base::model::{
    apply_result::{ResourceResult, StackOutcome, StackResult},
    hook::HookPurpose,
    plan::{Action, ResourcePlan},
    spec::Resource,
    state::JournalEntry,
};

fn workload(name: &str, image: &str) -> Resource {
    let template = json!({"spec": {"containers": [{"name": "app", "image": image}]}});
    resource(name, json!({"spec": {"template": template}}))
}

fn hook(name: &str, annotations: Value) -> Resource {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "job", "image": "a"}]});
    let metadata = json!({"name": name, "namespace": "shop", "annotations": annotations});
    resource(
        name,
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}}}),
    )
}

fn pre(name: &str) -> Resource {
    hook(name, json!({"konverge/hook": "pre"}))
}

fn post(name: &str) -> Resource {
    hook(name, json!({"konverge/hook": "post"}))
}

fn planned<'a>(plan: &'a crate::EnginePlan, name: &str) -> Option<&'a ResourcePlan> {
    let suffix = format!(":{name}");
    let mut resources = plan.public.resources.iter();
    resources.find(|one| one.id.as_str().ends_with(&suffix))
}

fn results(outcome: &StackOutcome) -> Vec<(&str, ResourceResult)> {
    let name = |id: &'_ konverge_base::model::ResourceId| id.as_str().rfind(':').map_or(0, |at| at + 1);
    outcome
        .resources
        .iter()
        .map(|one| (&one.id.as_str()[name(&one.id)..], one.result))
        .collect()
}

fn faulty(broken: &'static str) -> Faults {
    Faults {
        broken: [broken].into(),
        ..Faults::default()
    }
}

#[tokio::test]
async fn hooks_run_around_a_change_and_once_for_each() {
    let mut stack = MemoryStack::new();
    let version = |image: &str| {
        [
            post("smoke"),
            workload("web", image),
            workload("api", "x"),
            pre("migrate"),
        ]
    };
    let outcome = stack.apply_all(&version("1")).await;
    assert_eq!(outcome.result, StackResult::Applied);
    assert_eq!(
        stack.writes(),
        ["run migrate", "create web", "create api", "run smoke"]
    );
    assert_eq!(
        stack.apply_all(&version("1")).await.result,
        StackResult::Unchanged
    );
    assert!(stack.writes().is_empty());

    let plan = stack.plan(&version("2")).await;
    let run = planned(&plan, "migrate").unwrap();
    assert_eq!(
        (run.action, plan.public.summary.run, plan.public.summary.update),
        (Action::Run, 2, 1)
    );
    assert_eq!(
        run.notes[0],
        "it runs before ConfigMap `shop/web`, because it changes"
    );
    assert_eq!(
        planned(&plan, "smoke").unwrap().notes[0],
        "it runs after ConfigMap `shop/web`, because it changes"
    );
    assert!(run.replace.is_empty() && !run.data_loss, "no alarm");
    stack.apply(plan).await;
    assert_eq!(stack.writes(), ["run migrate", "update web", "run smoke"]);
}

#[tokio::test]
async fn nothing_behind_a_failed_pre_hook_is_touched() {
    let mut stack = MemoryStack::new();
    stack
        .apply_all(&[workload("web", "1"), resource("old", json!({}))])
        .await;
    stack.writes();
    let wanted = [
        workload("web", "2"),
        post("smoke"),
        pre("migrate"),
        resource("free", json!({})),
    ];
    stack.set_faults(faulty("migrate"));
    let outcome = stack.apply(stack.plan(&wanted).await).await;
    assert_eq!(outcome.result, StackResult::Failed);
    let expected = [
        ("free", ResourceResult::Done),
        ("migrate", ResourceResult::Failed),
        ("old", ResourceResult::Skipped),
        ("smoke", ResourceResult::Skipped),
        ("web", ResourceResult::Skipped),
    ];
    assert_eq!(results(&outcome), expected, "{outcome:?}");
    assert_eq!(stack.writes(), ["create free"]);

    stack.set_faults(Faults::default());
    stack.apply_all(&wanted).await;
    assert_eq!(
        stack.writes(),
        ["run migrate", "update web", "run smoke", "delete old"]
    );
}

#[tokio::test]
async fn a_failed_post_hook_fails_the_stack_and_runs_again() {
    let mut stack = MemoryStack::new();
    let wanted = [workload("web", "1"), post("smoke")];
    stack.set_faults(faulty("smoke"));
    let outcome = stack.apply(stack.plan(&wanted).await).await;
    assert_eq!(outcome.result, StackResult::Failed);
    assert!(outcome.error.unwrap().message.contains("smoke"));
    stack.set_faults(Faults::default());
    stack.writes();
    let plan = stack.plan(&wanted).await;
    assert_eq!(
        planned(&plan, "smoke").unwrap().notes[0],
        "no run of this version has succeeded yet"
    );
    stack.apply(plan).await;
    assert_eq!(stack.writes(), ["run smoke"]);
}

#[tokio::test]
async fn a_workload_that_is_not_ready_holds_a_post_hook_back() {
    let mut stack = MemoryStack::new();
    stack.set_faults(Faults {
        waiting: ["web"].into(),
        ..Faults::default()
    });
    let outcome = stack
        .apply(stack.plan(&[workload("web", "1"), post("smoke")]).await)
        .await;
    assert_eq!(outcome.result, StackResult::Waiting);
    assert_eq!(stack.writes(), ["create web"]);
}

#[tokio::test]
async fn a_failed_hook_runs_after_a_failure_and_changes_nothing_of_the_result() {
    let failed = || hook("tell", json!({"konverge/hook": "failed"}));
    let mut stack = MemoryStack::new();
    let wanted = [failed(), workload("web", "1")];
    let plan = stack.plan(&wanted).await;
    assert_eq!(
        planned(&plan, "tell").unwrap().action,
        Action::Run,
        "it may run, so it is reviewed"
    );
    let outcome = stack.apply(plan).await;
    assert_eq!(
        (outcome.result, results(&outcome)),
        (StackResult::Applied, vec![("web", ResourceResult::Done)])
    );
    let withdrawn = |entry: &JournalEntry| matches!(entry, JournalEntry::Untouched { ids } if ids[0].as_str().ends_with("tell"));
    assert!(stack.journal().iter().any(withdrawn));
    assert_eq!(
        stack.plan(&wanted).await.public.summary.changed(),
        0,
        "beside no change it is none"
    );

    for also_broken in [false, true] {
        let mut broken = faulty("web");
        if also_broken {
            broken.broken.insert("tell");
        }
        stack.set_faults(broken);
        stack.writes();
        let outcome = stack
            .apply(stack.plan(&[failed(), workload("web", "2")]).await)
            .await;
        assert_eq!(outcome.result, StackResult::Failed);
        let error = outcome.error.clone().unwrap().message;
        assert!(error.contains("web cannot be written"), "{error}");
        let expected = if also_broken {
            ResourceResult::Failed
        } else {
            ResourceResult::Done
        };
        assert_eq!(
            results(&outcome),
            [("tell", expected), ("web", ResourceResult::Failed)]
        );
    }
}

#[tokio::test]
async fn a_hook_that_always_runs_does_so_once_for_each_apply() {
    let mut stack = MemoryStack::new();
    let wanted = [
        workload("web", "1"),
        hook(
            "check",
            json!({"konverge/hook": "post", "konverge/hook-on": "always"}),
        ),
    ];
    stack.hooks.serial = Some(4);
    stack.apply_all(&wanted).await;
    assert_eq!(
        stack.plan(&wanted).await.public.summary.changed(),
        0,
        "a second round of the same apply"
    );
    stack.hooks.serial = Some(5);
    let plan = stack.plan(&wanted).await;
    let note = &planned(&plan, "check").unwrap().notes[0];
    assert!(note.contains("every apply"), "{note}");
    stack.writes();
    stack.apply(plan).await;
    assert_eq!(stack.writes(), ["run check"]);
}

#[tokio::test]
async fn a_restore_runs_no_hook() {
    let mut stack = MemoryStack::new();
    stack.hooks.purpose = HookPurpose::Restore;
    stack.apply_all(&[workload("web", "1"), pre("migrate")]).await;
    assert_eq!(stack.writes(), ["create web"]);
}

#[tokio::test]
async fn a_rollback_runs_or_passes_a_pre_hook_only_if_it_is_reversible() {
    let reversible = || {
        hook(
            "migrate",
            json!({"konverge/hook": "pre", "konverge/hook-reversible": "true"}),
        )
    };
    let cases: [(Resource, Option<Resource>, Option<&str>); 5] = [
        (pre("migrate"), Some(pre("migrate")), Some("would run")),
        (pre("migrate"), None, Some("would go back past")),
        (reversible(), None, None),
        (reversible(), Some(reversible()), None),
        (post("migrate"), Some(post("migrate")), None),
    ];
    for (newer, older, refused) in cases {
        let mut stack = MemoryStack::new();
        stack.apply_all(&[workload("web", "2"), newer]).await;
        stack.hooks.purpose = HookPurpose::Rollback;
        let mut wanted = vec![workload("web", "1")];
        wanted.extend(older);
        let plan = stack.try_plan(&wanted).await;
        match (plan, refused) {
            (Ok(_), None) => {}
            (Err(failure), Some(part)) => assert!(failure.message.contains(part), "{failure}"),
            (plan, refused) => panic!("{refused:?}: {:?}", plan.err()),
        }
    }
    // What has run for the version that is wanted is neither run nor passed.
    let mut stack = MemoryStack::new();
    stack.apply_all(&[workload("web", "1"), pre("migrate")]).await;
    stack.hooks.purpose = HookPurpose::Rollback;
    assert!(
        stack
            .try_plan(&[workload("web", "1"), pre("migrate")])
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn a_bad_hook_stops_the_plan_and_names_the_folder() {
    let mut stack = MemoryStack::new();
    stack.hooks.service_accounts.clear();
    let failure = stack
        .try_plan(&[workload("web", "1"), pre("migrate")])
        .await
        .err()
        .unwrap();
    assert!(
        failure.location.is_some() && failure.message.contains("`default`"),
        "{failure}"
    );
}

#[tokio::test]
async fn a_pre_destroy_hook_runs_from_its_record_before_anything_is_deleted() {
    let leave = || hook("goodbye", json!({"konverge/hook": "pre-destroy"}));
    let mut stack = MemoryStack::new();
    let wanted = [workload("web", "1"), leave(), resource("access", json!({}))];
    stack.apply_all(&wanted).await;
    assert_eq!(stack.writes(), ["create web", "create access"]);
    assert_eq!(stack.apply_all(&wanted).await.result, StackResult::Unchanged);
    let plan = stack.plan(&[]).await;
    let run = planned(&plan, "goodbye").unwrap();
    assert_eq!((run.action, plan.public.summary.delete), (Action::Run, 2));
    assert_eq!(
        run.notes[0],
        "it runs before ConfigMap `shop/access` and 1 more, because it is deleted"
    );
    stack.set_faults(faulty("goodbye"));
    let outcome = stack.apply_allowing(plan, true).await;
    assert_eq!(outcome.result, StackResult::Failed);
    assert!(stack.writes().is_empty(), "nothing is deleted");
    stack.set_faults(Faults::default());
    let outcome = stack.apply_allowing(stack.plan(&[]).await, true).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    assert_eq!(stack.writes(), ["run goodbye", "delete access", "delete web"]);
}

#[tokio::test]
async fn a_pre_destroy_hook_with_secret_values_stops_the_destruction() {
    let mut leave = hook("goodbye", json!({"konverge/hook": "pre-destroy"}));
    leave.attributes["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "A", "value": {"$secret": "0123456789ab"}}]);
    let mut stack = MemoryStack::new();
    stack.apply_all(&[workload("web", "1"), leave]).await;
    let failure = stack.try_plan(&[]).await.err().unwrap();
    assert!(failure.message.contains("secret values"), "{failure}");
}
