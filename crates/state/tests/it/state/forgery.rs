//! Somebody who may write to the store and holds no key edits every field of every document, with a right checksum.
//! With `state.encrypt_to` nothing that they wrote decides anything. `docs/security.md` has the table of the documents.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use konverge_base::model::{
    CommitId, Digest, RepoPath, StackId,
    apply_result::StackResult,
    plan::Basis,
    review::{RecordedComment, ReviewRecord, ReviewedStack},
    rollout::{ClockReading, RolloutPhase, RolloutRecord, RolloutStack},
};
use konverge_state::{
    DriftCheck, DriftHistory, IndexEntry, KnownDrift, RecordedOutcome, ReviewKey, SealScope, Sealer,
    StateStore,
    store::{Key, MemoryStore, Store},
};

use super::fixture::{intent, short, states, with};
use crate::support::forgery::{DocumentLines, forgeries};

const STACKS: [&str; 2] = ["shop/prod", "shop/dev"];

fn id(stack: &str) -> StackId {
    stack.parse().unwrap()
}

fn head() -> CommitId {
    "a".repeat(40).parse().unwrap()
}

fn time(second: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(second).unwrap()
}

/// The states of a run that holds the key, or of one where documents are not marked.
fn run(store: &Arc<MemoryStore>, scope: SealScope, sealer: &Sealer) -> StateStore {
    let store: Arc<dyn Store> = Arc::<MemoryStore>::clone(store);
    states(store, "1").with_sealer(Some(sealer.clone()), scope)
}

/// A store with every kind of document.
async fn filled(scope: SealScope, sealer: &Sealer) -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::default());
    let apply = async |stack: &str, digest: &str| {
        let states = run(&store, scope, sealer);
        let known = states.read_all().await.unwrap();
        states.maintain_index(&known).await.unwrap();
        let lease = states.acquire(&id(stack), short()).await.unwrap();
        lease.journal(vec![intent("web")]).await.unwrap();
        let mut state = with(&["web"], digest);
        state.stack = id(stack);
        state.folder = RepoPath::normalize(&format!("apps/{stack}")).unwrap().into();
        state.commit = Some(head());
        lease.commit(state, &[7]).await.unwrap();
        states.save_index().await.unwrap();
    };
    for stack in STACKS {
        apply(stack, "one").await;
    }
    apply(STACKS[0], "two").await;
    let states = run(&store, scope, sealer);
    states.hash_key().await.unwrap();
    states.note_stopped_apply(&id(STACKS[1]), StackResult::Failed);
    states.save_index().await.unwrap();
    // A run that died in the middle, and one that released the lease without a state.
    let lease = states.acquire(&id(STACKS[1]), short()).await.unwrap();
    lease.journal(vec![intent("db")]).await.unwrap();
    drop(lease);
    let lease = states.acquire(&id(STACKS[0]), short()).await.unwrap();
    lease.release().await.unwrap();
    states.begin_freeze("night").await.unwrap();
    states.end_freeze("morning").await.unwrap();
    states.begin_freeze("another night").await.unwrap();
    let drift = KnownDrift {
        digest: Digest::of_bytes(b"drift"),
        since: time(1),
    };
    let check = DriftCheck {
        at: time(2),
        drift: Some(drift),
        health: None,
        look: None,
    };
    let history = DriftHistory {
        stacks: BTreeMap::from([(id(STACKS[0]), check)]),
        good: Some(time(2)),
        weeks: BTreeMap::new(),
    };
    states.save_drift_history(history, |_| true).await.unwrap();
    review(&states).await;
    for (number, phase) in [(1, RolloutPhase::Applying), (2, RolloutPhase::Gate)] {
        assert!(states.write_rollout(number, &rollout(phase)).await.unwrap());
    }
    let request = states.record_request(&"freeze").await.unwrap();
    let outcome = RecordedOutcome {
        error: Some("no".to_owned()),
    };
    states.record_outcome(&request, &outcome).await.unwrap();
    store
}

async fn review(states: &StateStore) {
    let record = ReviewRecord {
        version: 1,
        pull_request: 7,
        head: head(),
        base: "b".repeat(40).parse().unwrap(),
        power: Some("c".repeat(40).parse().unwrap()),
        run: "https://ci.example/1".to_owned(),
        findings: BTreeSet::from([Digest::of_bytes(b"finding")]),
        stacks: vec![ReviewedStack {
            id: id(STACKS[0]),
            basis: Basis::Live,
            digest: Digest::of_bytes(b"plan"),
            spec_digest: Some(Digest::of_bytes(b"spec")),
            claims: Default::default(),
            units: Vec::new(),
        }],
        comment: None,
    };
    assert!(states.reviews().save(&record, 9, 1, None).await.unwrap());
    let place = ReviewKey {
        pull_request: 7,
        head: head(),
        run: 9,
        attempt: 1,
        share: None,
    };
    let comment = RecordedComment {
        digest: Digest::of_bytes(b"comment"),
        written: time(3),
    };
    states.reviews().save_comment(&place, &comment).await.unwrap();
}

fn rollout(phase: RolloutPhase) -> RolloutRecord {
    let clock = ClockReading {
        local: time(4),
        server: Some(time(4)),
    };
    let stack = RolloutStack {
        folder: RepoPath::normalize("apps/shop/prod").unwrap(),
        input: Some(Digest::of_bytes(b"two")),
        before: Some(1),
    };
    RolloutRecord {
        rollout: "shop".to_owned(),
        commit: head(),
        rules: Digest::of_bytes(b"rules"),
        waves: vec![BTreeMap::from([(id(STACKS[0]), stack)]), BTreeMap::new()],
        wave: 0,
        phase,
        paused: true,
        since: clock,
        why: "because".to_owned(),
        approved: BTreeMap::from([(id(STACKS[0]), Digest::of_bytes(b"plan"))]),
        approvals: BTreeSet::from([Digest::of_bytes(b"plan")]),
        planned: BTreeMap::new(),
        begun_waves: 1,
        ready: BTreeSet::from([id(STACKS[0])]),
        unready_since: BTreeMap::new(),
        held: BTreeSet::new(),
        measured: BTreeMap::from([("errors".to_owned(), "0".to_owned())]),
    }
}

/// What the store tells a run that may decide.
async fn told(store: &Arc<MemoryStore>, scope: SealScope, sealer: &Sealer) -> Vec<(&'static str, String)> {
    let states = run(store, scope, sealer);
    let known = states.read_all().await;
    // The summary of a row is encrypted anew each time.
    let without_summary = |(id, entry): (&StackId, &IndexEntry)| {
        let entry = IndexEntry {
            summary: None,
            ..entry.clone()
        };
        (id.clone(), entry)
    };
    let known = known.map(|known| {
        let entries: Vec<_> = known.entries.iter().map(without_summary).collect();
        (entries, known.drift.clone(), known.stopped.clone())
    });
    let mut told = vec![
        ("index", format!("{known:?}")),
        ("freeze", format!("{:?}", states.freeze().await)),
        ("rollouts", format!("{:?}", states.rollouts().await)),
        (
            "review",
            format!("{:?}", states.reviews().latest(7, &head()).await),
        ),
        ("drift", format!("{:?}", states.drift_history().await)),
        (
            "requests",
            format!(
                "{:?}",
                states.recorded_requests::<String>(10).await.map(|read| read.0)
            ),
        ),
        (
            "key",
            format!(
                "{:?}",
                states
                    .existing_hash_key()
                    .await
                    .map(|key| key.map(|key| key.to_bytes()))
            ),
        ),
    ];
    for stack in STACKS {
        let read = states.inspect(&id(stack)).await.unwrap();
        let (state, lease) = match read.documents {
            Ok(documents) => {
                // A holder that nobody marked has the time of this look.
                let holder = documents.holder;
                let holder =
                    holder.map(|holder| holder.map(|holder| (holder.id, holder.epoch, holder.writer)));
                (format!("{:?}", documents.newest), format!("{holder:?}"))
            }
            Err(error) => (format!("Err({error})"), format!("Err({error})")),
        };
        told.extend([("state", state), ("lease", lease)]);
    }
    told
}

async fn documents(store: &MemoryStore) -> Vec<(Key, Bytes)> {
    let mut documents = Vec::new();
    for key in store.list(&Key::from_listing("")).await.unwrap() {
        let bytes = store.get(&key).await.unwrap().unwrap();
        documents.push((key, bytes));
    }
    documents
}

/// By kind of document, the edits that change an answer of the store, and the number of all edits. Of each row of
/// documents every field of the newest is edited; of the others the mark is missing.
async fn deciding_fields(scope: SealScope) -> BTreeMap<String, (BTreeSet<String>, usize)> {
    let sealer = Sealer::generate();
    let store = filled(scope, &sealer).await;
    let documents = documents(&store).await;
    let row = |key: &Key, kind: &str| {
        let folders: Vec<_> = key.as_str().split('/').take(2).map(str::to_owned).collect();
        (kind.to_owned(), folders)
    };
    let newest: BTreeMap<_, _> = documents
        .iter()
        .map(|(key, bytes)| (row(key, DocumentLines::parse(bytes).kind()), key.clone()))
        .collect();
    let mut found: BTreeMap<String, (BTreeSet<String>, usize)> = BTreeMap::new();
    for (key, genuine) in &documents {
        let kind = DocumentLines::parse(genuine).kind().to_owned();
        let is_newest = newest[&row(key, &kind)] == *key;
        let (deciding, edited) = found.entry(kind).or_default();
        let mut as_it_was = None;
        for forged in forgeries(genuine) {
            store.overwrite(key, forged.bytes.into());
            let told = told(&store, scope, &sealer).await;
            // The first one is not edited: it has no mark, where documents have one.
            let before = as_it_was.get_or_insert_with(|| told.clone());
            *edited += 1;
            if is_decided(before, &told) {
                deciding.insert(format!("{key}: {}", forged.edit));
            }
            if !is_newest {
                break;
            }
        }
        store.overwrite(key, genuine.clone());
    }
    found
}

/// Returns true if one of the answers is another one. An error is none: it stops who asked.
fn is_decided(before: &[(&'static str, String)], told: &[(&'static str, String)]) -> bool {
    let mut answers = before.iter().zip(told);
    answers.any(|((_, before), (_, now))| {
        let answer = |text: &str| {
            if text.contains("Err(") {
                None
            } else {
                Some(text.to_owned())
            }
        };
        let now = answer(now);
        now.is_some() && now != answer(before)
    })
}

/// The kinds in the table of `docs/security.md`.
fn documented_kinds() -> BTreeSet<String> {
    let page = std::fs::read_to_string(crate::support::root().join("docs/security.md")).unwrap();
    let table = page.split("| document |").nth(1).expect("the table of documents");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let kinds = rows.flat_map(|row| {
        let cell = row.split('|').nth(2).unwrap_or_default();
        cell.split(',')
            .map(|kind| kind.trim().trim_matches('`').to_owned())
            .collect::<Vec<_>>()
    });
    kinds.collect()
}

#[tokio::test]
async fn no_field_of_a_document_that_nobody_marked_decides_anything() {
    let marked = deciding_fields(SealScope::Documents).await;
    let plain = deciding_fields(SealScope::Values).await;
    for (kind, (deciding, edited)) in &marked {
        assert!(deciding.is_empty(), "{kind}: {deciding:#?}");
        assert!(*edited > 10, "{kind}: {edited}");
        // Where nothing is marked, the same edits decide: they are real ones.
        assert!(!plain[kind].0.is_empty(), "{kind}: no edit changes anything");
    }
    let kinds: BTreeSet<_> = marked.into_keys().chain(["data-key".to_owned()]).collect();
    assert_eq!(kinds, documented_kinds(), "the table in docs/security.md");
}
