//! What a plan holds back, and what it shows beside secrets.

use serde_json::json;

use super::{
    memory_runtime::{Faults, after, id, reference, resource},
    memory_stack::MemoryStack,
};
use crate::runtime::Granularity;
use konverge_base::model::{ResourceId, plan::Action, spec::RuntimeKind};

fn without_tool(name: &'static str) -> Faults {
    Faults {
        without_tool: [name].into(),
        ..Faults::default()
    }
}

#[test]
fn a_registry_has_the_runtimes_that_it_was_given() {
    let runtimes = MemoryStack::new().runtimes();
    assert!(runtimes.has(RuntimeKind::Kubernetes));
    assert!(!runtimes.has(RuntimeKind::Terraform));
}

#[tokio::test]
async fn what_does_not_change_is_not_held_back() {
    let mut stack = MemoryStack::new();
    let wanted = [
        resource("a", json!({})),
        after(resource("same", json!({})), "a"),
        after(resource("other", json!({})), "a"),
    ];
    stack.apply_all(&wanted).await;
    stack.set_faults(without_tool("a"));
    let changed = after(resource("other", json!({"text": "new"})), "a");
    let plan = stack.plan(&[wanted[0].clone(), wanted[1].clone(), changed]).await;
    assert_eq!(plan.public.held_back, ["a", "other"].map(id));
    let same = plan.public.resources.iter().find(|r| r.id == id("same"));
    assert!(same.is_none_or(|same| same.notes.is_empty()));
}

#[tokio::test]
async fn a_deletion_is_planned_and_held_back_in_every_granularity() {
    for granularity in [Granularity::Resource, Granularity::Segment] {
        let mut stack = MemoryStack::on(granularity);
        stack.apply_all(&[resource("old", json!({}))]).await;
        stack.set_faults(without_tool("a"));
        let plan = stack.plan(&[resource("a", json!({}))]).await;
        let old = plan.public.resources.iter().find(|r| r.id == id("old")).unwrap();
        assert_eq!(old.action, Action::Delete);
        assert!(
            old.notes[0].starts_with("skipped: nothing is deleted while"),
            "{}",
            old.notes[0]
        );
        assert_eq!(plan.public.held_back, ["a", "old"].map(id));
    }
}

#[tokio::test]
async fn a_change_beside_a_secret_shows_both_of_its_sides() {
    let mut stack = MemoryStack::new();
    let secret = resource("secret", json!({"password": "correct horse", "host": "db"}));
    let reader = |text: &str| {
        resource(
            "reader",
            json!({"url": reference("secret", "password"), "text": text}),
        )
    };
    let other = |text: &str| {
        resource(
            "other",
            json!({"host": reference("secret", "host"), "text": text}),
        )
    };
    stack.apply_all(&[secret.clone(), reader("a"), other("a")]).await;
    let plan = stack.plan(&[secret, reader("b"), other("b")]).await;
    let change = |of: ResourceId| {
        let mut resources = plan.public.resources.iter();
        resources.find(|r| r.id == of).unwrap().changes[0].clone()
    };
    let other = change(id("other"));
    assert_eq!(other.from.unwrap()["text"], "a");
    assert_eq!(other.to.unwrap()["text"], "b");
    let reader = change(id("reader"));
    let hidden = stack.secrets.mark(&json!("correct horse"));
    assert_eq!(reader.to.as_ref().unwrap()["url"], hidden);
    assert_eq!(reader.from.unwrap()["url"], hidden);
}
