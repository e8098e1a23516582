//! Leases: takeover after the term, fencing of the old holder, and leases that cannot be read.

use std::{sync::Arc, time::Duration};

use konverge_base::model::state::JournalEntry;
use konverge_state::{
    Holder, LeaseOptions, LeaseWatch, StateError, WaitVerdict, WriteReason,
    store::{Key, MemoryStore, Store},
};

use super::fixture::{id, intent, short, stack, states, with};
use crate::support::timeline::Timeline;

#[tokio::test]
async fn a_dead_run_is_taken_over_after_its_term_and_its_journal_counts() {
    Timeline::simulate(|timeline| async move {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let dead = states(Arc::clone(&store), "dead").with_clock(timeline.clone());
        let lease = dead.acquire(&stack(), short()).await.unwrap();
        lease.commit(with(&["old"], "one"), &[]).await.unwrap();
        let lease = dead.acquire(&stack(), short()).await.unwrap();
        lease.journal(vec![intent("a"), intent("b")]).await.unwrap();
        lease
            .journal(vec![JournalEntry::Runtime {
                key: "tf".into(),
                value: serde_json::json!(1),
            }])
            .await
            .unwrap();
        drop(lease);
        // A preview sees what may exist, without any lease.
        let loaded = dead.load(&stack()).await.unwrap().unwrap();
        assert_eq!(loaded.pending, [id("a"), id("b")]);
        assert_eq!(loaded.state.resources.len(), 3);
        let started = timeline.now();
        let next = states(Arc::clone(&store), "next").with_clock(timeline.clone());
        let lease = next.acquire(&stack(), short()).await.unwrap();
        assert!(timeline.now() - started >= Duration::from_secs(30));
        let prior = lease.prior().unwrap();
        assert_eq!((prior.serial, prior.state.input_digest), (2, None));
        assert_eq!(prior.pending, [id("a"), id("b")]);
        assert_eq!(prior.state.runtime["tf"], 1);
        assert_eq!(
            lease.commit(with(&["a", "b", "old"], "two"), &[]).await.unwrap(),
            3
        );
        assert_eq!(
            next.history(&stack()).await.unwrap()[1]
                .document
                .as_ref()
                .unwrap()
                .reason,
            WriteReason::Takeover
        );
    })
    .await;
}

#[tokio::test]
async fn an_old_holder_can_write_nothing_after_a_takeover() {
    Timeline::simulate(|timeline| async move {
        struct Over;
        #[async_trait::async_trait]
        impl LeaseWatch for Over {
            async fn waiting(&self, holder: &Holder, _: Duration) -> WaitVerdict {
                assert_eq!(holder.writer.run, "https://ci.example/old");
                WaitVerdict::HolderIsOver
            }
        }
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let old = states(Arc::clone(&store), "old")
            .with_clock(timeline.clone())
            .acquire(&stack(), short())
            .await
            .unwrap();
        old.journal(vec![intent("a")]).await.unwrap();
        let options = LeaseOptions {
            watch: Some(Arc::new(Over)),
            ..short()
        };
        let new = states(store, "new")
            .with_clock(timeline.clone())
            .acquire(&stack(), options)
            .await
            .unwrap();
        assert!(matches!(
            old.journal(vec![intent("b")]).await,
            Err(StateError::Lost { .. })
        ));
        assert!(matches!(old.check(), Err(StateError::Lost { .. })));
        assert!(matches!(
            old.commit(with(&["a"], "one"), &[]).await,
            Err(StateError::Lost { .. })
        ));
        assert_eq!(new.prior().unwrap().pending, [id("a")]);
        new.commit(with(&["a"], "one"), &[]).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_live_holder_keeps_its_lease_and_is_named_to_who_waits() {
    Timeline::simulate(|timeline| async move {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let holder = states(Arc::clone(&store), "long")
            .with_clock(timeline.clone())
            .acquire(&stack(), short())
            .await
            .unwrap();
        let waiting = states(store, "waiting").with_clock(timeline.clone());
        let Err(StateError::Held { holder: seen, .. }) = waiting.acquire(&stack(), short()).await else {
            panic!("two hold one lease");
        };
        assert_eq!(
            (seen.id.as_str(), seen.writer.run.as_str()),
            (holder.id(), "https://ci.example/long")
        );
        // It was renewed all the while, far beyond its term.
        holder.check().unwrap();
        assert!(matches!(
            waiting.unlock(&stack(), "1-wrong", "test").await,
            Err(StateError::Missing(_))
        ));
        waiting.unlock(&stack(), holder.id(), "test").await.unwrap();
        let next = waiting.acquire(&stack(), short()).await.unwrap();
        assert!(matches!(
            holder.commit(with(&[], "x"), &[]).await,
            Err(StateError::Lost { .. })
        ));
        next.release().await.unwrap();
        waiting.acquire(&stack(), short()).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn an_unreadable_document_is_written_over_after_its_leases_term() {
    Timeline::simulate(|timeline| async move {
        let store = Arc::new(MemoryStore::default());
        let states = states(Arc::clone(&store) as Arc<dyn Store>, "1").with_clock(timeline.clone());
        for digest in ["one", "two"] {
            let lease = states.acquire(&stack(), short()).await.unwrap();
            lease.commit(with(&["a"], digest), &[]).await.unwrap();
        }
        let newest = Key::from_components(&["stacks", "shop/prod", "state", "0000000002"]);
        store.overwrite(&newest, bytes::Bytes::from_static(b"garbage"));
        assert!(matches!(
            states.load(&stack()).await,
            Err(StateError::Damaged { .. })
        ));
        assert!(matches!(
            states.acquire(&stack(), short()).await,
            Err(StateError::Damaged { .. })
        ));
        let options = LeaseOptions {
            over_damaged: true,
            ..short()
        };
        let lease = states.acquire(&stack(), options).await.unwrap();
        assert_eq!(lease.prior().unwrap().state, with(&["a"], "one"));
        let serial = lease.commit(with(&["a", "b"], "three"), &[]).await.unwrap();
        assert!(serial > 2);
        assert_eq!(
            states.load(&stack()).await.unwrap().unwrap().state,
            with(&["a", "b"], "three")
        );
    })
    .await;
}

#[tokio::test]
async fn a_lease_that_can_not_be_read_is_ended_by_pushing_over_it() {
    Timeline::simulate(|timeline| async move {
        let store = Arc::new(MemoryStore::default());
        let states = states(Arc::clone(&store) as Arc<dyn Store>, "1").with_clock(timeline.clone());
        let lease = states.acquire(&stack(), short()).await.unwrap();
        lease.commit(with(&["a"], "one"), &[]).await.unwrap();
        let held = states.acquire(&stack(), short()).await.unwrap();
        let place = Key::from_components(&["stacks", "shop/prod", "lease", "0000000002", "0000000000"]);
        store.overwrite(&place, bytes::Bytes::from_static(b"garbage"));
        assert!(matches!(
            states.acquire(&stack(), short()).await,
            Err(StateError::Damaged { .. })
        ));
        let options = LeaseOptions {
            over_damaged: true,
            ..short()
        };
        let started = timeline.now();
        let lease = states.acquire(&stack(), options).await.unwrap();
        // Its holder, if it lives, had the time to stop by itself, and its next write collides.
        assert!(timeline.now() - started >= Duration::from_secs(20));
        assert!(matches!(
            held.commit(with(&[], "x"), &[]).await,
            Err(StateError::Lost { .. })
        ));
        lease.commit(with(&["a"], "two"), &[]).await.unwrap();
        states.acquire(&stack(), short()).await.unwrap();
    })
    .await;
}
