//! What a runtime reports during an apply, and what the run does with it.

use serde_json::json;

use super::{
    memory_runtime::{Faults, after, id, reference, resource},
    memory_stack::{MemoryStack, result},
};
use crate::runtime::{Granularity, Needs};
use konverge_base::{
    error::ErrorKind,
    model::{
        apply_result::{ResourceResult, StackResult},
        event::RunEvent,
        plan::Action,
        state::JournalEntry,
    },
};

fn progress(stack: &MemoryStack, name: &str) -> Vec<String> {
    let events = stack.events().into_iter();
    let messages = events.filter_map(|event| match event {
        RunEvent::ResourceProgress { id: of, message, .. } if of == id(name) => Some(message),
        _ => None,
    });
    messages.collect()
}

fn started(stack: &MemoryStack) -> Vec<String> {
    let events = stack.events().into_iter();
    let ids = events.filter_map(|event| match event {
        RunEvent::ResourceStarted { id, .. } => Some(id.to_string()),
        _ => None,
    });
    ids.collect()
}

#[tokio::test]
async fn a_message_that_is_reported_again_is_shown_once() {
    let mut stack = MemoryStack::new();
    stack.apply_all(&[resource("a", json!({}))]).await;
    assert_eq!(progress(&stack, "a"), ["waiting", "ready"]);
}

#[tokio::test]
async fn what_was_written_is_recorded_although_it_does_not_become_ready() {
    let mut stack = MemoryStack::new();
    stack.set_faults(Faults {
        never_ready: ["b"].into(),
        ..Faults::default()
    });
    let wanted = [resource("a", json!({})), after(resource("b", json!({})), "a")];
    let plan = stack.plan(&wanted).await;
    let outcome = stack.apply(plan).await;
    assert_eq!(
        result(&outcome, "b"),
        Some((ResourceResult::Failed, "b does not become ready"))
    );
    // Both are on the cluster: nobody may read that one of two was changed.
    assert_eq!((outcome.changed(), outcome.resources.len()), (2, 2));
    let recorded = stack.state.resources.iter().find(|r| r.id == id("b")).unwrap();
    assert_eq!(recorded.depends_on, [id("a")]);
    let journal = stack.journal();
    assert!(
        journal
            .iter()
            .any(|entry| matches!(entry, JournalEntry::Failed { id: of } if *of == id("b")))
    );
    let data = journal.iter().find_map(|entry| match entry {
        JournalEntry::Runtime { key, value } if key == "last" => Some(value),
        _ => None,
    });
    assert_eq!(data, Some(&json!("b")));
}

#[tokio::test]
async fn an_object_that_is_gone_for_its_replacement_leaves_the_state() {
    for (reported, in_state) in [(true, false), (false, true)] {
        let mut stack = MemoryStack::new();
        stack.apply_all(&[resource("a", json!({"size": 1}))]).await;
        stack.set_faults(Faults {
            half_replaced: ["a"].into(),
            reported_gone: reported.then_some("a").into_iter().collect(),
            ..Faults::default()
        });
        let plan = stack.plan(&[resource("a", json!({"size": 2}))]).await;
        stack.apply(plan).await;
        let known = stack.state.resources.iter().any(|r| r.id == id("a"));
        assert_eq!(known, in_state);
    }
}

#[tokio::test]
async fn a_runtime_asks_whether_the_run_shall_stop() {
    let mut stack = MemoryStack::on(Granularity::Segment);
    stack.set_faults(Faults {
        stops_after: Some("a"),
        ..Faults::default()
    });
    let plan = stack
        .plan(&["a", "b"].map(|name| resource(name, json!({}))))
        .await;
    let outcome = stack.apply(plan).await;
    assert_eq!(stack.writes(), ["create a"]);
    assert_eq!(outcome.result, StackResult::Failed);
    assert_eq!(result(&outcome, "b"), Some((ResourceResult::Failed, "not tried")));
}

#[tokio::test]
async fn an_interrupted_run_that_has_done_everything_succeeds() {
    let mut stack = MemoryStack::new();
    stack.set_faults(Faults {
        stops_after: Some("a"),
        ..Faults::default()
    });
    let plan = stack.plan(&[resource("a", json!({}))]).await;
    let outcome = stack.apply(plan).await;
    assert_eq!(outcome.result, StackResult::Applied);
    assert!(outcome.error.is_none());
}

#[tokio::test]
async fn nothing_is_written_without_the_lease() {
    let mut stack = MemoryStack::new();
    stack.set_faults(Faults {
        lease_lost: true,
        ..Faults::default()
    });
    let plan = stack
        .plan(&["a", "b"].map(|name| resource(name, json!({}))))
        .await;
    let outcome = stack.apply(plan).await;
    assert_eq!(stack.writes(), [""; 0]);
    assert_eq!(outcome.error.as_ref().unwrap().kind, ErrorKind::Store);
}

#[tokio::test]
async fn a_resource_knows_which_of_its_dependencies_this_run_changed() {
    let mut stack = MemoryStack::new();
    let mut wanted = [
        resource("a", json!({})),
        after(resource("b", json!({})), "a"),
        after(resource("reader", json!({"from": reference("a", "ip")})), "b"),
    ];
    stack.apply_all(&wanted).await;
    let done = |names: &[&str]| Needs::Done(names.iter().map(|name| id(name)).collect());
    assert_eq!(stack.needs("a"), done(&[]));
    assert_eq!(stack.needs("b"), done(&["a"]));
    let Needs::Done(mut needs) = stack.needs("reader") else {
        panic!("it is applied");
    };
    needs.sort();
    assert_eq!(needs, [id("a"), id("b")]);
    wanted[1].attributes.insert("text".to_owned(), json!("new"));
    stack.apply_all(&wanted).await;
    assert_eq!(stack.needs("b"), done(&[]));
}

#[tokio::test]
async fn only_what_changes_is_started() {
    let mut stack = MemoryStack::on(Granularity::Segment);
    let mut wanted = ["a", "b"].map(|name| resource(name, json!({})));
    stack.apply_all(&wanted).await;
    wanted[1].attributes.insert("text".to_owned(), json!("new"));
    stack.apply_all(&wanted).await;
    let ids = ["a", "b", "b"].map(|name| id(name).to_string());
    assert_eq!(started(&stack), ids);
}

#[tokio::test]
async fn what_was_planned_again_is_intended_before_it_is_written() {
    let mut stack = MemoryStack::new();
    stack.set_faults(Faults {
        broken: ["reader"].into(),
        ..Faults::default()
    });
    let wanted = [
        resource("a", json!({})),
        resource("reader", json!({"ip": reference("a", "ip")})),
    ];
    let plan = stack.plan(&wanted).await;
    stack.apply(plan).await;
    let intended = stack.journal().into_iter().find_map(|entry| match entry {
        JournalEntry::Intent {
            recorded,
            action: Action::Create,
        } if recorded.id == id("reader") => Some(recorded),
        _ => None,
    });
    assert_eq!(intended.unwrap().attributes["ip"], "10.0.0.1");
}

#[tokio::test]
async fn a_record_is_written_again_only_if_it_differs() {
    let mut stack = MemoryStack::new();
    let mut wanted = ["a", "b"].map(|name| resource(name, json!({})));
    stack.apply_all(&wanted).await;
    let entries = stack.journal().len();
    stack.apply_all(&wanted).await;
    assert_eq!(stack.journal().len(), entries);
    wanted[1].depends_on.push(id("a"));
    stack.apply_all(&wanted).await;
    let journal = stack.journal();
    let [JournalEntry::Done { recorded }] = &journal[entries..] else {
        panic!("one record");
    };
    assert_eq!(
        (&recorded.id, &recorded.depends_on[..]),
        (&id("b"), &[id("a")][..])
    );
}

#[tokio::test]
async fn one_object_is_wanted_once() {
    let stack = MemoryStack::new();
    let mut newer = resource("a", json!({"apiVersion": "v1beta1"}));
    newer.id = "v1beta1:ConfigMap:shop:a".parse().unwrap();
    let Err(error) = stack.try_plan(&[resource("a", json!({})), newer]).await else {
        panic!("each would undo the other");
    };
    assert_eq!(
        error.message,
        "`v1:ConfigMap:shop:a` and `v1beta1:ConfigMap:shop:a` are the same object"
    );
}

#[tokio::test]
async fn a_failure_names_its_resource_alone() {
    let mut stack = MemoryStack::new();
    stack.apply_all(&[resource("old", json!({}))]).await;
    stack.set_faults(Faults {
        without_tool: ["a"].into(),
        ..Faults::default()
    });
    let plan = stack
        .plan(&[resource("a", json!({})), resource("same", json!({}))])
        .await;
    // What does not change is not held back.
    let outcome = stack.apply(plan).await;
    stack.set_faults(Faults::default());
    assert_eq!(result(&outcome, "a").unwrap().0, ResourceResult::Failed);
    assert!(outcome.error.unwrap().message.contains("could not be planned"));
    let again = stack.plan(&[resource("same", json!({}))]).await;
    assert!(again.public.error.is_none() && again.public.held_back.is_empty());
}

#[tokio::test]
async fn what_disappears_during_the_apply_makes_it_fail() {
    let mut stack = MemoryStack::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| resource(name, json!({})));
    stack.apply_all(&[a.clone(), b.clone()]).await;
    for (writes, goes) in [("c", "a"), ("c", "c")] {
        stack.set_faults(Faults {
            takes_away: [(writes, goes)].into(),
            ..Faults::default()
        });
        let wanted = [a.clone(), b.clone(), c.clone()];
        let outcome = stack.apply(stack.plan(&wanted).await).await;
        assert_eq!(outcome.result, StackResult::Failed, "{outcome:?}");
        let message = outcome.error.unwrap().message;
        assert!(
            message.contains(&format!("`{}` disappeared", id(goes))),
            "{message}"
        );
        stack.apply_all(&wanted).await;
        let without_c = stack.plan(&wanted[..2]).await;
        stack.apply(without_c).await;
    }
}

#[tokio::test]
async fn a_batch_is_planned_again_when_something_in_it_is_replaced() {
    for loses in [true, false] {
        let mut stack = MemoryStack::on(Granularity::Segment);
        let inside = after(resource("inside", json!({})), "holder");
        let wanted = |size: u32| [inside.clone(), resource("holder", json!({ "size": size }))];
        stack.apply_all(&wanted(1)).await;
        let goes = if loses { "inside" } else { "nothing" };
        stack.set_faults(Faults {
            takes_away: [("holder", goes)].into(),
            ..Faults::default()
        });
        let outcome = stack.apply(stack.plan(&wanted(2)).await).await;
        let message = outcome.error.map(|error| error.message).unwrap_or_default();
        assert_eq!(
            message.contains("`v1:ConfigMap:shop:inside` disappeared"),
            loses,
            "{message}"
        );
        assert_eq!(outcome.result == StackResult::Applied, !loses);
    }
}

/// What is written and waits is neither done nor failed: what depends on it and what goes wait too.
#[tokio::test]
async fn a_resource_that_waits_ends_its_stack_as_waiting() {
    let mut stack = MemoryStack::new();
    let old = [resource("old", json!({}))];
    stack.apply_all(&old).await;
    let faults = |waiting: &[&'static str]| Faults {
        waiting: waiting.iter().copied().collect(),
        ..Faults::default()
    };
    stack.set_faults(faults(&["a"]));
    let wanted = [
        resource("a", json!({})),
        after(resource("b", json!({})), "a"),
        resource("c", json!({})),
    ];
    let plan = stack.plan(&wanted).await;
    let outcome = stack.apply(plan).await;
    assert_eq!(
        (outcome.result, &outcome.error),
        (StackResult::Waiting, &None),
        "{outcome:?}"
    );
    assert_eq!(outcome.waiting.unwrap().to_string(), "waits for promotion");
    assert_eq!(
        result(&outcome, "a"),
        Some((ResourceResult::Waiting, "paused, waits for promotion"))
    );
    let message = format!("not tried: `{}` waits for promotion", id("a"));
    assert_eq!(
        result(&outcome, "b"),
        Some((ResourceResult::Skipped, message.as_str()))
    );
    assert_eq!(result(&outcome, "c").unwrap().0, ResourceResult::Done);
    assert!(stack.object("a").is_some() && stack.object("b").is_none() && stack.object("old").is_some());
    assert!(
        stack
            .state
            .resources
            .iter()
            .any(|recorded| recorded.id == id("a"))
    );

    // A failure beside it is the result.
    stack.set_faults(Faults {
        broken: ["b"].into(),
        ..faults(&["d"])
    });
    let plan = stack
        .plan(&[
            resource("a", json!({})),
            resource("b", json!({})),
            resource("d", json!({})),
        ])
        .await;
    let outcome = stack.apply(plan).await;
    assert_eq!(outcome.result, StackResult::Failed, "{outcome:?}");
    assert_eq!(result(&outcome, "d").unwrap().0, ResourceResult::Waiting);
}
