//! Plans and applies stacks on a runtime in memory: the order, what continues after a failure, what stops, and what the
//! journal knows.

use serde_json::json;

use super::{
    memory_runtime::{Faults, after, id, reference, resource},
    memory_stack::{MemoryStack, result},
};
use crate::runtime::Granularity;
use konverge_base::{
    error::ErrorKind,
    model::{
        apply_result::{ResourceResult, StackResult},
        event::RunEvent,
        masked_value,
        plan::Action,
        state::{JournalEntry, Replacement},
    },
};

fn started(stack: &MemoryStack) -> Vec<usize> {
    let events = stack.events().into_iter();
    let counts = events.filter_map(|event| match event {
        RunEvent::ApplyStarted { resources, .. } => Some(resources),
        _ => None,
    });
    counts.collect()
}

#[tokio::test]
async fn resources_are_written_in_order_and_a_second_apply_writes_nothing() {
    let mut stack = MemoryStack::new();
    let wanted = [
        after(resource("c", json!({})), "b"),
        after(resource("b", json!({})), "a"),
        resource("a", json!({})),
    ];
    let outcome = stack.apply_all(&wanted).await;
    assert_eq!(outcome.result, StackResult::Applied);
    assert_eq!(stack.writes(), ["create a", "create b", "create c"]);
    let recorded = stack.state.resources.iter().find(|r| r.id == id("c")).unwrap();
    assert_eq!(recorded.depends_on, [id("b")]);
    assert!(
        stack.journal().iter().any(
            |entry| matches!(entry, JournalEntry::Runtime { key, value } if key == "clusters" && *value == json!(["main"]))
        ),
        "the clusters are recorded before something is written to them"
    );

    let again = stack.apply_all(&wanted).await;
    assert_eq!(again.result, StackResult::Unchanged);
    assert!(again.resources.is_empty(), "{again:?}");
    assert_eq!(stack.writes(), [""; 0]);
    assert_eq!(started(&stack), [3, 0]);
}

#[tokio::test]
async fn deletions_come_last_and_in_the_reverse_order() {
    let mut stack = MemoryStack::new();
    let old = [resource("a", json!({})), after(resource("b", json!({})), "a")];
    stack.apply_all(&old).await;
    stack.writes();
    stack.apply_all(&[resource("c", json!({}))]).await;
    assert_eq!(stack.writes(), ["create c", "delete b", "delete a"]);
    assert_eq!(stack.state.resources.len(), 1);
}

#[tokio::test]
async fn a_stack_is_emptied_only_if_that_is_allowed() {
    let mut stack = MemoryStack::new();
    stack.apply_all(&[resource("a", json!({}))]).await;
    let plan = stack.plan(&[]).await;
    let refused = stack.apply(plan).await;
    assert_eq!(refused.result, StackResult::Stopped);
    assert!(refused.error.unwrap().message.contains("would be deleted"));
    assert!(stack.object("a").is_some());
    let plan = stack.plan(&[]).await;
    let allowed = stack.apply_allowing(plan, true).await;
    assert_eq!(allowed.result, StackResult::Applied);
    assert!(stack.object("a").is_none() && stack.state.resources.is_empty());
}

#[tokio::test]
async fn a_failure_skips_what_depends_on_it_and_nothing_else() {
    let mut stack = MemoryStack::new();
    let unchanged = after(resource("same", json!({})), "a");
    stack
        .apply_all(&[resource("a", json!({})), unchanged.clone()])
        .await;
    stack.writes();
    stack.set_faults(Faults {
        broken: ["a"].into(),
        ..Faults::default()
    });
    let wanted = [
        resource("a", json!({"text": "new"})),
        unchanged,
        after(resource("b", json!({})), "a"),
        after(resource("c", json!({})), "b"),
        resource("d", json!({})),
    ];
    let plan = stack.plan(&wanted).await;
    let outcome = stack.apply(plan).await;
    assert_eq!(outcome.result, StackResult::Failed);
    let message = outcome.error.as_ref().unwrap().message.as_str();
    assert!(message.contains("a cannot be written"), "{message}");
    assert_eq!(stack.writes(), ["create d"]);
    let failed = result(&outcome, "a").unwrap();
    assert_eq!(failed, (ResourceResult::Failed, "a cannot be written"));
    let blamed = format!("not tried: `{}` failed", id("a"));
    for skipped in ["b", "c"] {
        let expected = (ResourceResult::Skipped, blamed.as_str());
        assert_eq!(result(&outcome, skipped), Some(expected));
    }
    assert_eq!(result(&outcome, "same"), None, "nothing was to be done to it");
    let untouched = stack.journal().into_iter().find_map(|entry| match entry {
        JournalEntry::Untouched { ids } => Some(ids),
        _ => None,
    });
    assert_eq!(untouched.unwrap(), [id("b"), id("c")]);
}

#[tokio::test]
async fn what_the_cluster_refuses_stops_the_stack_before_anything_is_written() {
    let mut stack = MemoryStack::new();
    stack.set_faults(Faults {
        refused: ["a", "b"].into(),
        ..Faults::default()
    });
    let wanted = ["a", "b", "c"].map(|name| resource(name, json!({})));
    let plan = stack.plan(&wanted).await;
    let shown = plan.public.error.clone().unwrap();
    assert!(
        shown.message.contains("a is not valid; and 1 more:") && shown.message.contains("b is not valid"),
        "{shown:?}"
    );
    assert_eq!(shown.hints, ["fix it"], "a hint is given once");
    assert!(plan.public.held_back.is_empty(), "the whole stack stops");
    let outcome = stack.apply(plan).await;
    assert_eq!(outcome.result, StackResult::Stopped);
    assert!(outcome.error.unwrap().message.contains("a is not valid"));
    assert_eq!(stack.writes(), [""; 0]);
    assert!(stack.journal().is_empty());
}

#[tokio::test]
async fn a_missing_tool_holds_back_its_dependents_and_all_deletions() {
    let mut stack = MemoryStack::new();
    stack.apply_all(&[resource("old", json!({}))]).await;
    stack.writes();
    stack.set_faults(Faults {
        without_tool: ["a"].into(),
        ..Faults::default()
    });
    let wanted = [
        resource("a", json!({})),
        after(resource("b", json!({})), "a"),
        resource("reader", json!({"from": reference("a", "ip")})),
        resource("d", json!({})),
        after(resource("late", json!({"from": reference("d", "ip")})), "a"),
    ];
    let plan = stack.plan(&wanted).await;
    let held = ["a", "b", "late", "old", "reader"].map(id);
    assert_eq!(plan.public.held_back, held);
    let notes = |name: &str| {
        let mut resources = plan.public.resources.iter();
        resources.find(|r| r.id == id(name)).unwrap().notes.join("; ")
    };
    for dependent in ["b", "late"] {
        assert!(notes(dependent).contains("it depends on"), "{}", notes(dependent));
    }
    assert!(
        notes("old").contains("nothing is deleted while"),
        "{}",
        notes("old")
    );
    assert_eq!(notes("d"), "");
    let reader = plan.public.resources.iter().find(|r| r.id == id("reader"));
    assert!(reader.is_none(), "what it reads is not known");
    let outcome = stack.apply(plan).await;
    assert_eq!(stack.writes(), ["create d"]);
    assert_eq!(outcome.result, StackResult::Failed);
    assert!(
        outcome
            .error
            .as_ref()
            .unwrap()
            .message
            .contains("could not be planned")
    );
    let (failed, message) = result(&outcome, "a").unwrap();
    assert_eq!(failed, ResourceResult::Failed);
    assert!(message.contains("could not be planned"), "{message}");
    for skipped in ["b", "late", "reader", "old"] {
        let (skipped, message) = result(&outcome, skipped).unwrap();
        assert_eq!(skipped, ResourceResult::Skipped);
        assert!(
            message.contains(&format!("`{}` could not be planned", id("a"))),
            "{message}"
        );
    }
    assert!(result(&outcome, "old").unwrap().1.starts_with("not deleted:"));
    assert!(stack.object("old").is_some());
}

#[tokio::test]
async fn a_run_that_is_asked_to_stop_starts_nothing_more() {
    let mut stack = MemoryStack::new();
    stack.set_faults(Faults {
        stops_after: Some("a"),
        ..Faults::default()
    });
    let wanted = [
        resource("a", json!({})),
        after(resource("b", json!({})), "a"),
        resource("c", json!({})),
    ];
    let plan = stack.plan(&wanted).await;
    let outcome = stack.apply(plan).await;
    assert_eq!(stack.writes(), ["create a"]);
    assert_eq!(outcome.result, StackResult::Failed);
    assert_eq!(outcome.error.as_ref().unwrap().kind, ErrorKind::Interrupted);
    assert_eq!(result(&outcome, "a").unwrap().0, ResourceResult::Done);
    for skipped in ["b", "c"] {
        let expected = (ResourceResult::Skipped, "not tried: the run was interrupted");
        assert_eq!(result(&outcome, skipped), Some(expected));
    }
}

#[tokio::test]
async fn nothing_is_written_that_the_journal_does_not_take() {
    let mut stack = MemoryStack::new();
    stack.set_faults(Faults {
        journal_ends_after: Some("a"),
        ..Faults::default()
    });
    let wanted = [
        resource("a", json!({})),
        after(resource("b", json!({})), "a"),
        resource("c", json!({})),
    ];
    let plan = stack.plan(&wanted).await;
    let outcome = stack.apply(plan).await;
    assert_eq!(stack.writes(), ["create a"]);
    assert_eq!(outcome.error.as_ref().unwrap().message, "the lease is lost");
    let intents = stack.journal();
    let intended = |name: &str| {
        intents
            .iter()
            .any(|entry| matches!(entry, JournalEntry::Intent { recorded, action: Action::Create } if recorded.id == id(name)))
    };
    assert!(intended("a"), "it may exist, and the journal says so");
}

#[tokio::test]
async fn a_value_that_only_the_server_knows_is_planned_again_and_held_against_the_review() {
    let mut stack = MemoryStack::new();
    let wanted = [
        resource(
            "reader",
            json!({"url": format!("http://{}/", reference("a", "ip"))}),
        ),
        resource("a", json!({})),
    ];
    let plan = stack.plan(&wanted).await;
    let mut shown = plan.public.resources.iter();
    let shown = shown.find(|r| r.id == id("reader")).unwrap();
    assert!(
        masked_value::is_unknown(&shown.changes[0].to.as_ref().unwrap()["url"]),
        "{shown:?}"
    );
    assert_eq!(stack.pending("reader"), ["a"], "the plan knows what comes before");
    stack.apply(plan).await;
    assert_eq!(stack.object("reader").unwrap()["url"], "http://10.0.0.1/");
    let reviewed = stack.reviewed();
    assert_eq!(reviewed.len(), 1, "{reviewed:?}");
    assert_eq!(
        reviewed[0].changes[0].to.as_ref().unwrap()["url"],
        "http://10.0.0.1/"
    );

    let known = stack.plan(&wanted).await;
    assert!(known.public.resources.is_empty(), "{:?}", known.public.resources);
    assert_eq!(stack.pending("reader"), [""; 0], "nothing changes before it");

    let mut stack = MemoryStack::new();
    stack.refuse_late_plans();
    let plan = stack.plan(&wanted).await;
    let outcome = stack.apply(plan).await;
    assert_eq!(stack.writes(), ["create a"]);
    let refused = result(&outcome, "reader").unwrap();
    assert_eq!(refused, (ResourceResult::Failed, "nobody reviewed this"));
}

#[tokio::test]
async fn an_object_that_another_stack_took_during_the_apply_is_left_to_it() {
    let mut stack = MemoryStack::new();
    let wanted = [
        resource("a", json!({})),
        resource("reader", json!({"ip": reference("a", "ip")})),
    ];
    let plan = stack.plan(&wanted).await;
    stack.set_faults(Faults {
        foreign: ["reader"].into(),
        ..Faults::default()
    });
    let outcome = stack.apply(plan).await;
    assert_eq!(stack.writes(), ["create a"]);
    let refused = result(&outcome, "reader").unwrap();
    assert_eq!(
        refused,
        (ResourceResult::Failed, "reader belongs to another stack")
    );
}

#[tokio::test]
async fn a_secret_that_is_read_through_a_reference_is_shown_and_recorded_as_its_hash() {
    let mut stack = MemoryStack::new();
    let password = "correct horse";
    let wanted = [
        resource("secret", json!({"password": password, "host": "db.shop"})),
        resource(
            "reader",
            json!({
                "urls": [format!("db://{}@db", reference("secret", "password"))],
                "host": reference("secret", "host"),
            }),
        ),
    ];
    let url = json!(format!("db://{password}@db"));
    let plan = stack.plan(&wanted).await;
    let mut shown = plan.public.resources.iter();
    let shown = shown.find(|r| r.id == id("reader")).unwrap();
    let hidden = stack.secrets.mark(&url);
    assert_eq!(shown.changes[0].to.as_ref().unwrap()["urls"], json!([hidden]));
    let desired = plan.desired();
    let desired = desired.iter().find(|desired| desired.id == id("reader")).unwrap();
    assert_eq!(
        (desired.kind.as_str(), &desired.attributes["urls"]),
        ("ConfigMap", &json!([hidden]))
    );
    stack.apply(plan).await;
    assert_eq!(
        stack.object("reader").unwrap()["urls"],
        json!([url]),
        "the server gets the value"
    );
    let recorded = stack
        .state
        .resources
        .iter()
        .find(|r| r.id == id("reader"))
        .unwrap();
    assert_eq!(recorded.attributes["urls"], json!([hidden]));
    assert_eq!(recorded.attributes["host"], "db.shop", "this is not a secret");

    // The old value stays hidden when the reference is replaced by a text.
    let plain = [wanted[0].clone(), resource("reader", json!({"urls": ["none"]}))];
    let plan = stack.plan(&plain).await;
    let shown = &plan.public.resources[0].changes[0];
    assert_eq!(shown.from.as_ref().unwrap()["urls"], json!([hidden]));
}

#[tokio::test]
async fn the_rest_of_a_replacement_is_what_was_agreed_to_unless_the_object_changed_since() {
    let mut stack = MemoryStack::new();
    stack.apply_all(&[resource("a", json!({"size": 1}))]).await;
    stack.set_faults(Faults {
        half_replaced: ["a"].into(),
        ..Faults::default()
    });
    let wanted = [resource("a", json!({"size": 2}))];
    let plan = stack.plan(&wanted).await;
    let agreed = plan.public.resources[0].clone();
    assert_eq!(agreed.action, Action::Replace);
    stack.apply(plan).await;
    assert!(stack.object("a").is_none());
    let begun = &stack.state.begun[&id("a")];
    assert_eq!(begun.changes, agreed.changes);

    stack.set_faults(Faults::default());
    let other = stack.plan(&[resource("a", json!({"size": 3}))]).await;
    assert_eq!(other.public.resources[0].action, Action::Create);
    let rest = stack.plan(&wanted).await;
    let shown = &rest.public.resources[0];
    assert_eq!((shown.action, &shown.changes), (Action::Replace, &agreed.changes));
    assert_eq!(shown.digest, agreed.digest, "its review counts");
    assert_eq!(shown.notes, [Replacement::REST]);
    assert_eq!(shown.cluster, agreed.cluster);
    assert_eq!(shown.replace, ["/size"], "what forces it is known from the begin");
    stack.apply(rest).await;
    assert_eq!(stack.object("a").unwrap()["size"], 2);
    assert!(stack.state.begun.is_empty());
}

#[tokio::test]
async fn policies_see_what_the_spec_wants_and_what_is_deleted_by_its_record() {
    let mut stack = MemoryStack::new();
    stack
        .apply_all(&[resource("old", json!({})), resource("same", json!({}))])
        .await;
    let wanted = [
        resource("same", json!({})),
        resource("reader", json!({"ip": reference("new", "ip")})),
        resource("new", json!({})),
    ];
    let plan = stack.plan(&wanted).await;
    let desired = plan.desired();
    let seen: Vec<_> = desired
        .iter()
        .map(|desired| (desired.id.clone(), desired.known_before_write))
        .collect();
    assert_eq!(
        seen,
        [
            (id("same"), false),
            (id("reader"), true),
            (id("new"), false),
            (id("old"), false)
        ]
    );
    let old = desired.iter().find(|desired| desired.id == id("old")).unwrap();
    assert_eq!(old.kind, "ConfigMap");
}

#[tokio::test]
async fn an_object_that_is_not_ready_is_waited_for_though_nothing_changes() {
    let mut stack = MemoryStack::new();
    let wanted = ["a", "b"].map(|name| resource(name, json!({})));
    stack.apply_all(&wanted).await;
    stack.set_faults(Faults {
        unready: ["a"].into(),
        ..Faults::default()
    });
    stack.batches();
    let outcome = stack.apply_all(&wanted).await;
    assert_eq!(stack.batches(), [["a"]]);
    assert_eq!(outcome.result, StackResult::Unchanged);
}

#[tokio::test]
async fn a_runtime_of_batches_gets_them_whole_and_resolves_what_is_read_inside() {
    let mut stack = MemoryStack::on(Granularity::Segment);
    let inside = reference("a", "ip");
    let mut wanted = vec![
        resource("a", json!({})),
        resource("reader", json!({"ip": inside})),
        resource("c", json!({})),
    ];
    stack.apply_all(&wanted).await;
    assert_eq!(stack.batches(), [["a", "reader", "c"]]);
    assert!(stack.reviewed().is_empty(), "nothing is planned again");
    assert_eq!(
        stack.object("reader").unwrap()["ip"],
        "10.0.0.2",
        "the server has its own"
    );
    let recorded = stack
        .state
        .resources
        .iter()
        .find(|r| r.id == id("reader"))
        .unwrap();
    assert_eq!(recorded.attributes["ip"], inside);
    assert_eq!(recorded.depends_on, [id("a")]);

    stack.set_faults(Faults::default());
    wanted.truncate(1);
    wanted.push(resource("c", json!({})));
    stack.apply_all(&wanted).await;
    assert_eq!(stack.batches(), [["reader"]], "the others do not change");
    wanted[0] = resource("a", json!({"text": "new"}));
    stack.apply_all(&wanted).await;
    assert_eq!(
        stack.batches(),
        [["a", "c"]],
        "a batch goes to its runtime as a whole"
    );
    stack.apply_all(&wanted).await;
    assert_eq!(stack.batches(), Vec::<Vec<String>>::new());
}

#[tokio::test]
async fn a_resource_is_found_under_the_id_that_its_runtime_gives_it() {
    let mut stack = MemoryStack::new();
    let mut short = resource("a", json!({}));
    short.id = "v1:ConfigMap:a".parse().unwrap();
    let mut dependent = resource("b", json!({}));
    dependent.depends_on.push(short.id.clone());
    let reader = resource("reader", json!({"from": "$kusion_path.v1:ConfigMap:a.ip"}));
    stack.apply_all(&[reader, dependent, short]).await;
    let depends_on = |name: &str| {
        let mut resources = stack.state.resources.iter();
        resources.find(|r| r.id == id(name)).unwrap().depends_on.clone()
    };
    assert_eq!(depends_on("b"), [id("a")]);
    assert_eq!(depends_on("reader"), [id("a")]);
    assert_eq!(stack.object("reader").unwrap()["from"], "10.0.0.1");
}

#[tokio::test]
async fn an_object_in_another_version_of_its_kind_is_not_deleted() {
    let mut stack = MemoryStack::new();
    stack.apply_all(&[resource("a", json!({}))]).await;
    let mut newer = resource("a", json!({"apiVersion": "v1beta1"}));
    newer.id = "v1beta1:ConfigMap:shop:a".parse().unwrap();
    let plan = stack.plan(&[newer]).await;
    let old = plan.public.resources.iter().find(|r| r.id == id("a")).unwrap();
    assert_eq!(old.action, Action::Forget);
    assert_eq!(old.notes, ["it is the same object as `v1beta1:ConfigMap:shop:a`"]);
}

#[tokio::test]
async fn a_plan_keeps_the_expected_value_of_what_is_read_alone() {
    let stack = MemoryStack::new();
    let wanted = [
        resource("a", json!({"host": "db"})),
        resource("reader", json!({"from": reference("a", "host")})),
    ];
    let plan = stack.plan(&wanted).await;
    assert_eq!(plan.expected_object(&id("a")).unwrap()["host"], "db");
    assert_eq!(plan.expected_object(&id("reader")), None);
}
