use std::sync::Arc;

use serde_json::json;

use super::{
    super::{DriftCheck, DriftHistory, KnownDrift, LeaseOptions, SealScope, Sealer, fixture},
    *,
};
use crate::{
    keys,
    store::{Key, MemoryStore, Store},
};
use konverge_base::model::{
    Digest,
    apply_record::ApplyRecord,
    authorization::Authorization,
    state::{JournalEntry, StackState},
};

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

/// A run of its own, as another process would read.
fn run(store: &Arc<dyn Store>) -> StateStore {
    fixture::states(store, &Arc::default())
}

/// A state with a Deployment, two containers of which have an image that is text.
fn with_images(stack: &StackId) -> StackState {
    let mut state = fixture::state(stack, &[]);
    let mut deployment = fixture::recorded("web");
    deployment.id = "apps/v1:Deployment:shop:web".parse().unwrap();
    deployment.runtime = RuntimeKind::Kubernetes;
    let pod = json!({"spec": {"template": {"spec": {
        "containers": [{"name": "web", "image": "nginx:1"}, {"name": "x", "image": {"$secret": "ab"}}],
        "initContainers": [{"name": "init", "image": "busybox:2"}],
    }}}});
    deployment.attributes = Arc::new(pod.as_object().unwrap().clone());
    state.put(deployment);
    state
}

async fn apply(states: &StateStore, stack: &StackId, result: StackResult) {
    let lease = states.acquire(stack, LeaseOptions::default()).await.unwrap();
    let state = with_images(stack);
    let recorded = state.resources[0].clone();
    lease
        .journal(vec![JournalEntry::Done { recorded }])
        .await
        .unwrap();
    let record = ApplyRecord {
        digest: Digest::of_bytes(b"plan"),
        commit: Some("b".repeat(40).parse().unwrap()),
        merged: None,
        result,
        grounds: Authorization::default(),
    };
    lease
        .conclude(WriteReason::Apply, state, &[], record, None)
        .await
        .unwrap();
    states.save_index().await.unwrap();
}

async fn read(states: &StateStore, stack: &StackId) -> Option<StackSummary> {
    let known = states.read_all().await.unwrap();
    states.summary(stack, &known.entries[stack])
}

#[tokio::test]
async fn the_index_says_what_stands_and_by_whom_without_reading_a_state() {
    let (store, stack) = (memory(), fixture::stack("shop/prod"));
    apply(&run(&store), &stack, StackResult::Failed).await;
    // Nothing of the stack itself is there to be read.
    for key in store.list(&keys::stack(&stack)).await.unwrap() {
        store.delete(&key).await.unwrap();
    }
    let summary = read(&run(&store), &stack).await.unwrap();
    assert_eq!((summary.serial, summary.result), (1, Some(StackResult::Failed)));
    assert_eq!(summary.writer.actor, run(&store).envelopes.writer.actor);
    assert_eq!(summary.names["apps/v1:Deployment"], ["shop:web"]);
    assert_eq!(
        summary.images.iter().collect::<Vec<_>>(),
        ["busybox:2", "nginx:1"]
    );
    assert_eq!(
        (summary.attempted.unwrap().as_str(), summary.more),
        ("b".repeat(40).as_str(), 0)
    );
}

#[tokio::test]
async fn a_row_of_an_earlier_version_is_read_and_its_summary_comes_from_the_state() {
    let (store, stack) = (memory(), fixture::stack("shop/prod"));
    let states = run(&store);
    apply(&states, &stack, StackResult::Applied).await;
    let known = run(&store).read_all().await.unwrap();
    let mut old = serde_json::to_value(&known.entries[&stack]).unwrap();
    assert!(old.as_object_mut().unwrap().remove("summary").is_some());
    let entry: IndexEntry = serde_json::from_value(old).unwrap();
    assert_eq!(states.summary(&stack, &entry), None);
    let read = states.read_stack_summary(&stack).await.unwrap();
    assert_eq!(read, states.summary(&stack, &known.entries[&stack]));
    // A new run that rebuilds the index writes the row.
    let rebuilt = states.rebuild_index().await.unwrap();
    assert_eq!(states.summary(&stack, &rebuilt.entries[&stack]), read);
    assert_eq!(
        states
            .read_stack_summary(&fixture::stack("no/such"))
            .await
            .unwrap(),
        None
    );
}

#[tokio::test]
async fn where_states_are_encrypted_the_row_is_too_and_nobody_puts_another_there() {
    let (store, stack, sealer) = (memory(), fixture::stack("shop/prod"), Sealer::generate());
    let sealing = || run(&store).with_sealer(Some(sealer.clone()), SealScope::Documents);
    apply(&sealing(), &stack, StackResult::Applied).await;
    for key in store.list(&Key::from_components(&["index"])).await.unwrap() {
        let bytes = store.get(&key).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            !text.contains("nginx") && !text.contains("Deployment"),
            "{key}: {text}"
        );
    }
    assert_eq!(read(&sealing(), &stack).await.unwrap().names.len(), 1);
    let known = sealing().read_all().await.unwrap();
    let entry = &known.entries[&stack];
    let other = run(&store).with_sealer(Some(Sealer::generate()), SealScope::Documents);
    assert_eq!(other.summary(&stack, entry), None, "encrypted to others");
    assert_eq!(run(&store).summary(&stack, entry), None, "no key");
    assert_eq!(
        sealing().summary(&fixture::stack("shop/dev"), entry),
        None,
        "of another stack"
    );
    let older = IndexEntry {
        serial: 0,
        ..entry.clone()
    };
    assert_eq!(sealing().summary(&stack, &older), None, "of a later serial");
    let plain = run(&store)
        .envelopes
        .write_summary(&sealing().summary(&stack, entry).unwrap())
        .unwrap();
    let plain = IndexEntry {
        summary: Some(plain),
        ..entry.clone()
    };
    assert_eq!(sealing().summary(&stack, &plain), None, "in clear");
    assert!(sealing().accepting_unmarked().summary(&stack, &plain).is_some());
    assert!(
        run(&store)
            .with_sealer(None, SealScope::Documents)
            .envelopes
            .write_summary(&sealing().summary(&stack, entry).unwrap())
            .is_err()
    );
}

#[tokio::test]
async fn a_summary_that_cannot_be_parsed_harms_nothing_else() {
    let (store, stack) = (memory(), fixture::stack("shop/prod"));
    apply(&run(&store), &stack, StackResult::Applied).await;
    let known = run(&store).read_all().await.unwrap();
    for text in [
        "",
        "{",
        "age:%%",
        "age:",
        r#"{"stack":"shop/prod","serial":1,"later":{}}"#,
    ] {
        let mut entry = serde_json::to_value(&known.entries[&stack]).unwrap();
        entry["summary"] = json!(text);
        let entry: IndexEntry = serde_json::from_value(entry).unwrap();
        assert_eq!(run(&store).summary(&stack, &entry), None, "{text}");
        assert_eq!(entry.serial, 1);
    }
}

#[tokio::test]
async fn a_run_that_works_on_a_stack_keeps_what_was_known() {
    let (store, stack) = (memory(), fixture::stack("shop/prod"));
    apply(&run(&store), &stack, StackResult::Applied).await;
    let lease = run(&store)
        .acquire(&stack, LeaseOptions::default())
        .await
        .unwrap();
    lease.journal(fixture::created("b")).await.unwrap();
    let known = run(&store).read_all().await.unwrap();
    assert!(known.entries[&stack].open);
    assert_eq!(
        run(&store)
            .summary(&stack, &known.entries[&stack])
            .unwrap()
            .serial,
        1
    );
}

#[tokio::test]
async fn an_apply_that_wrote_no_state_is_in_the_index_and_survives_a_compaction() {
    let (store, stack) = (memory(), fixture::stack("shop/prod"));
    let states = run(&store);
    states.note_stopped_apply(&stack, StackResult::Stopped);
    states.save_index().await.unwrap();
    states.save_index().await.unwrap();
    let rebuilt = states.rebuild_index().await.unwrap();
    assert_eq!(rebuilt.stopped[&stack].result, StackResult::Stopped);
    states.maintain_index(&rebuilt).await.unwrap();
    let known = run(&store).read_all().await.unwrap();
    assert!(!known.is_rebuilt());
    assert_eq!(known.stopped[&stack].result, StackResult::Stopped);
    assert!(
        !known.entries.contains_key(&stack),
        "it is not a record of a state"
    );
}

#[tokio::test]
async fn the_index_knows_the_drift_that_the_history_does() {
    let (store, stack) = (memory(), fixture::stack("shop/prod"));
    let states = run(&store);
    let check = |second, drifted: bool| DriftCheck {
        at: Timestamp::from_second(second).unwrap(),
        drift: drifted.then(|| KnownDrift {
            digest: Digest::of_bytes(b"drift"),
            since: Timestamp::from_second(5).unwrap(),
        }),
        health: None,
        look: None,
    };
    assert_eq!(
        states.read_all().await.unwrap().drift,
        Some(BTreeMap::new()),
        "rebuilt from the history"
    );
    for (second, drifted) in [(10, true), (30, false), (20, true)] {
        let history = DriftHistory {
            stacks: BTreeMap::from([(stack.clone(), check(second, drifted))]),
            good: None,
            weeks: BTreeMap::new(),
        };
        run(&store).save_drift_history(history, |_| true).await.unwrap();
    }
    let rebuilt = run(&store).rebuild_index().await.unwrap();
    run(&store).maintain_index(&rebuilt).await.unwrap();
    let known = run(&store).read_all().await.unwrap();
    assert!(!known.is_rebuilt());
    assert_eq!(
        known.drift.as_ref().unwrap()[&stack],
        check(30, false),
        "the later check counts"
    );
}

#[test]
fn of_a_large_stack_the_first_resources_are_named_and_all_are_counted() {
    let stack = fixture::stack("shop/prod");
    let names: Vec<_> = (0..10_000).map(|n| format!("r{n:05}")).collect();
    let mut state = fixture::state(&stack, &[]);
    state.resources = names.iter().map(|name| fixture::recorded(name)).collect();
    let document = StateDocument {
        serial: 1,
        reason: WriteReason::Apply,
        epoch: 1,
        closes_lease: true,
        journal: super::super::state_document::JournalPlace::default(),
        retired: false,
        applied_reviews: BTreeSet::new(),
        note: None,
        receipt: None,
        activity: Vec::new(),
        idle: Vec::new(),
        state,
    };
    let writer = DocumentWriter {
        run: "r".to_owned(),
        actor: "a".to_owned(),
    };
    let summary = StackSummary::from_document(&document, &writer, Timestamp::UNIX_EPOCH);
    let named: usize = summary.names.values().map(Vec::len).sum();
    assert_eq!((named, summary.more), (NAMED, 10_000 - NAMED));
}
