//! Review records: saved once, and the shares of one run are one review.

use std::{collections::BTreeSet, sync::Arc};

use konverge_base::model::{
    CommitId, Digest,
    plan::Basis,
    review::{ReviewRecord, ReviewedStack},
};
use konverge_state::store::MemoryStore;

use super::fixture::states;

#[tokio::test]
async fn reviews_are_saved_once_and_the_last_one_counts() {
    let states = states(Arc::new(MemoryStore::default()), "1");
    let head: CommitId = "a".repeat(40).parse().unwrap();
    let record = |run: &str| ReviewRecord {
        version: 1,
        pull_request: 12,
        head: head.clone(),
        base: "b".repeat(40).parse().unwrap(),
        power: None,
        run: run.to_owned(),
        findings: BTreeSet::new(),
        stacks: Vec::new(),
        comment: None,
    };
    assert!(states.reviews().save(&record("nine"), 9, 1, None).await.unwrap());
    assert!(states.reviews().save(&record("ten"), 10, 1, None).await.unwrap());
    assert!(
        !states
            .reviews()
            .save(&record("forged"), 10, 1, None)
            .await
            .unwrap()
    );
    assert_eq!(states.reviews().latest(12, &head).await.unwrap()[0].run, "ten");
    assert_eq!(states.reviews().list().await.unwrap().len(), 2);
    for place in states.reviews().list().await.unwrap() {
        states.reviews().forget(&place).await.unwrap();
    }
    assert_eq!(states.reviews().latest(12, &head).await.unwrap(), []);
}

/// Of a preview that was split the last attempt of each share counts, of the last run alone; what a share did not
/// record is not there.
#[tokio::test]
async fn the_shares_of_a_run_are_one_review() {
    let states = states(Arc::new(MemoryStore::default()), "1");
    let head: CommitId = "a".repeat(40).parse().unwrap();
    let save = async |run: u64, attempt: u32, share: Option<&str>, stack: &str| {
        let record = ReviewRecord {
            version: 1,
            pull_request: 12,
            head: head.clone(),
            base: "b".repeat(40).parse().unwrap(),
            power: None,
            run: String::new(),
            findings: BTreeSet::new(),
            stacks: vec![ReviewedStack {
                id: stack.parse().unwrap(),
                basis: Basis::Live,
                digest: Digest::of_bytes(b""),
                spec_digest: None,
                claims: Default::default(),
                units: Vec::new(),
            }],
            comment: None,
        };
        let share = share.map(|text| text.parse().unwrap());
        states.reviews().save(&record, run, attempt, share).await.unwrap()
    };
    let latest = async || -> Vec<String> {
        let latest = states.reviews().latest(12, &head).await.unwrap();
        let stacks = latest.iter().flat_map(|record| &record.stacks);
        stacks.map(|stack| stack.id.to_string()).collect()
    };
    assert!(save(9, 1, None, "p/old").await);
    assert!(save(10, 1, Some("2/2"), "p/b").await);
    assert_eq!(latest().await, ["p/b"], "the other share recorded nothing");
    assert!(save(10, 1, Some("1/2"), "p/a").await);
    assert_eq!(latest().await, ["p/a", "p/b"]);
    // Only the job that failed was started again.
    assert!(save(10, 2, Some("1/2"), "p/again").await);
    assert!(!save(10, 2, Some("1/2"), "p/forged").await);
    assert_eq!(latest().await, ["p/again", "p/b"]);
    assert_eq!(states.reviews().list().await.unwrap().len(), 4);
}
