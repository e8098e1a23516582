use std::{collections::BTreeSet, sync::Arc};

use super::{
    super::{LeaseOptions, fixture},
    *,
};
use crate::store::{MemoryStore, Store};
use konverge_base::error::chain;
use konverge_base::model::{Digest, claim::Marks, plan::Basis};

fn states() -> StateStore {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    fixture::states(&store, &Arc::default())
}

fn head(letter: &str) -> CommitId {
    letter.repeat(40).parse().unwrap()
}

fn shard(text: &str) -> Option<Shard> {
    Some(text.parse().unwrap())
}

/// The record of a preview of one stack of pull request 7.
fn record(head_letter: &str, stack: &str) -> ReviewRecord {
    ReviewRecord {
        version: 1,
        pull_request: 7,
        head: head(head_letter),
        base: head("0"),
        power: None,
        run: "https://ci.example/1".to_owned(),
        findings: BTreeSet::new(),
        stacks: vec![ReviewedStack {
            id: fixture::stack(stack),
            basis: Basis::Live,
            digest: Digest::of_bytes(stack.as_bytes()),
            spec_digest: None,
            claims: Marks::default(),
            units: Vec::new(),
        }],
        comment: None,
    }
}

/// The stacks of records.
fn stacks(records: &[ReviewRecord]) -> Vec<&str> {
    let stacks = records.iter().flat_map(|record| &record.stacks);
    stacks.map(|stack| stack.id.as_str()).collect()
}

/// Saves records: the head, the run, the attempt, the shard, and the stack.
async fn save(states: &StateStore, rows: &[(&str, u64, u32, Option<Shard>, &str)]) {
    for (head, run, attempt, share, stack) in rows {
        let (reviews, record) = (states.reviews(), record(head, stack));
        assert!(reviews.save(&record, *run, *attempt, *share).await.unwrap());
    }
}

#[test]
fn a_place_is_named_by_run_attempt_and_shard_and_read_back() {
    for (share, name) in [(None, "12-3"), (shard("2/8"), "12-3-2of8")] {
        let key = ReviewKey {
            pull_request: 7,
            head: head("a"),
            run: 12,
            attempt: 3,
            share,
        };
        assert_eq!(
            key.place().as_str(),
            format!("reviews/7/{}/{name}", "a".repeat(40))
        );
        assert_eq!(ReviewKey::parse(&key.place()), Some(key));
    }
    let a = "a".repeat(40);
    for stray in [
        format!("reviews/x/{a}/12-3"),
        "reviews/7/x/12-3".to_owned(),
        format!("reviews/7/{a}/12"),
        format!("reviews/7/{a}/12-3-9of8"),
        format!("other/7/{a}/12-3"),
    ] {
        assert_eq!(
            ReviewKey::parse(&Key::from_listing(stray.clone())),
            None,
            "{stray}"
        );
    }
}

#[tokio::test]
async fn the_first_record_of_a_place_stays_until_it_is_forgotten() {
    let states = states();
    let reviews = states.reviews();
    assert!(reviews.save(&record("a", "one/dev"), 1, 1, None).await.unwrap());
    assert!(!reviews.save(&record("a", "two/dev"), 1, 1, None).await.unwrap());
    let mut other = record("b", "other/dev");
    other.pull_request = 70;
    assert!(reviews.save(&other, 1, 1, None).await.unwrap());
    let places = reviews.list_for_pull_request(7).await.unwrap();
    assert_eq!(places.len(), 1);
    assert_eq!(
        reviews.load(&places[0]).await.unwrap(),
        Some(record("a", "one/dev"))
    );
    assert_eq!(reviews.list().await.unwrap().len(), 2);
    reviews.forget(&places[0]).await.unwrap();
    assert_eq!(reviews.load(&places[0]).await.unwrap(), None);
    let left: Vec<_> = reviews
        .list()
        .await
        .unwrap()
        .iter()
        .map(|key| key.pull_request)
        .collect();
    assert_eq!(left, [70]);
}

#[tokio::test]
async fn a_record_in_the_place_of_another_is_damaged() {
    let states = states();
    let reviews = states.reviews();
    save(&states, &[("a", 1, 1, None, "one/dev")]).await;
    let place = reviews.list().await.unwrap().remove(0);
    let letter = states.store.get(&place.place()).await.unwrap().unwrap();
    for moved in [
        ReviewKey {
            pull_request: 8,
            ..place.clone()
        },
        ReviewKey {
            head: head("b"),
            ..place
        },
    ] {
        states.store.create(&moved.place(), letter.clone()).await.unwrap();
        let error = reviews.load(&moved).await.unwrap_err();
        assert!(
            chain(&error).contains("a review of pull request 7 at aaaa"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn the_latest_preview_is_the_last_attempt_of_each_shard_of_the_last_run() {
    let states = states();
    let latest = async |head_letter: &str| {
        let records = states.reviews().latest(7, &head(head_letter)).await.unwrap();
        stacks(&records).join(" ")
    };
    assert_eq!(latest("a").await, "");
    save(
        &states,
        &[
            ("a", 9, 1, None, "nine/one"),
            ("a", 9, 2, None, "nine/two"),
            ("b", 99, 1, None, "other/head"),
        ],
    )
    .await;
    assert_eq!(latest("a").await, "nine/two");
    save(
        &states,
        &[
            ("a", 10, 1, shard("1/2"), "ten/first"),
            ("a", 10, 1, shard("2/2"), "ten/second"),
            ("a", 10, 2, shard("2/2"), "ten/second-again"),
        ],
    )
    .await;
    assert_eq!(latest("a").await, "ten/first ten/second-again");
    assert_eq!(latest("b").await, "other/head");
    assert_eq!(latest("c").await, "");
}

#[tokio::test]
async fn the_earlier_preview_is_the_last_one_of_another_head_before_this_run() {
    let states = states();
    save(
        &states,
        &[
            ("a", 1, 1, None, "a/one"),
            ("b", 2, 1, None, "b/two"),
            ("c", 3, 1, None, "c/three"),
            ("d", 5, 1, None, "d/five"),
        ],
    )
    .await;
    for (head_letter, run, expected) in [
        ("c", 3, "b/two"),
        ("c", 2, "a/one"),
        ("e", 4, "c/three"),
        ("e", 5, "c/three"),
        ("e", 6, "d/five"),
        ("b", 3, "a/one"),
        ("a", 1, ""),
        ("a", 2, ""),
    ] {
        let earlier = states
            .reviews()
            .earlier(7, &head(head_letter), run)
            .await
            .unwrap();
        assert_eq!(stacks(&earlier).join(" "), expected, "{head_letter} {run}");
    }
}

#[tokio::test]
async fn the_other_shards_are_those_of_the_same_run_and_head() {
    let states = states();
    save(
        &states,
        &[
            ("a", 4, 1, shard("2/3"), "of/another-run"),
            ("b", 5, 1, shard("2/3"), "of/another-head"),
            ("a", 5, 1, None, "of/no-shard"),
            ("a", 5, 1, shard("1/3"), "first/dev"),
            ("a", 5, 1, shard("2/3"), "second/dev"),
            ("a", 5, 2, shard("2/3"), "second/again"),
            ("a", 5, 1, shard("3/3"), "third/dev"),
        ],
    )
    .await;
    for (share, expected) in [
        ("1/3", "second/again third/dev"),
        ("2/3", "first/dev third/dev"),
        ("3/3", "first/dev second/again"),
    ] {
        let share: Shard = share.parse().unwrap();
        let others = states
            .reviews()
            .other_shares(7, &head("a"), 5, share)
            .await
            .unwrap();
        let others: Vec<_> = others.iter().map(|stack| stack.id.as_str()).collect();
        assert_eq!(others.join(" "), expected);
    }
}

#[tokio::test]
async fn a_merged_pull_request_is_unapplied_until_its_review_is_used_on_the_stack() {
    let states = states();
    let stack = fixture::stack("shop/prod");
    let lease = states.acquire(&stack, LeaseOptions::default()).await.unwrap();
    lease
        .commit(fixture::state(&stack, &["a"]), &[2, 4])
        .await
        .unwrap();
    let read = states.load(&stack).await.unwrap().unwrap();
    let unapplied = [1, 2, 3, 4].into_iter();
    let unapplied: Vec<_> = unapplied
        .filter(|number| !read.applied_reviews.contains(number))
        .collect();
    assert_eq!(unapplied, [1, 3]);
}

/// The comment lies beside its record, is not a record, and goes with it.
#[tokio::test]
async fn the_comment_of_a_preview_is_known_with_its_findings() {
    let states = states();
    let reviews = states.reviews();
    let (plain, mut denied) = (record("a", "shop/dev"), record("b", "shop/dev"));
    denied.findings = BTreeSet::from([Digest::of_bytes(b"finding")]);
    let key = |record: &ReviewRecord| ReviewKey {
        pull_request: 7,
        head: record.head.clone(),
        run: 9,
        attempt: 1,
        share: None,
    };
    let comment = RecordedComment {
        digest: Digest::of_bytes(b"text"),
        written: "2026-11-25T10:00:00Z".parse().unwrap(),
    };
    for record in [&plain, &denied] {
        reviews.save(record, 9, 1, None).await.unwrap();
        assert_eq!(reviews.load(&key(record)).await.unwrap().unwrap().comment, None);
        reviews.save_comment(&key(record), &comment).await.unwrap();
    }
    // It is asked for only where a review may refer to it.
    let loaded = async |record: &ReviewRecord| reviews.load(&key(record)).await.unwrap().unwrap().comment;
    assert_eq!(loaded(&plain).await, None);
    assert_eq!(loaded(&denied).await, Some(comment));
    assert_eq!(reviews.list().await.unwrap().len(), 2);
    reviews.forget(&key(&denied)).await.unwrap();
    let left = states
        .store
        .list(&Key::from_components(&["reviews"]))
        .await
        .unwrap();
    assert_eq!(left.len(), 2, "{left:?}");
}
