use std::sync::Arc;

use super::{
    super::{
        Sealer,
        fixture::{self, NamedService},
    },
    *,
};
use crate::store::{MemoryStore, Store};
use konverge_base::error::chain;
use konverge_cloud::secret_stores::KeyService;

/// A run whose services are these.
fn run(store: &Arc<dyn Store>, services: &[&Arc<NamedService>]) -> StateStore {
    let services = services.iter().map(|service| service.named());
    fixture::states(store, &Arc::default()).with_key_services(services.collect())
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

/// The recipients of the keys, the newest first.
fn recipients(keys: &DataKeys) -> Vec<String> {
    let publics = keys.identities().map(|key| key.to_public().to_string());
    publics.collect()
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn each_service_opens_the_key_that_all_of_them_wrap() {
    let (store, a, b) = (memory(), NamedService::new("a"), NamedService::new("b"));
    let both = run(&store, &[&b, &a]);
    assert!(both.has_key_services());
    assert!(!run(&store, &[]).has_key_services());
    assert!(both.open_data_keys().await.unwrap().is_none());
    assert_eq!(both.try_key_services().await.unwrap(), []);
    assert_eq!(both.list_data_keys().await.unwrap(), []);
    let made = both.make_data_key(None).await.unwrap();
    assert_eq!(
        (made.number, made.wrapped_by()),
        (1, strings(&["a", "b"]).as_slice())
    );
    assert_eq!(recipients(&made).len(), 1);
    for service in [&a, &b] {
        let opened = run(&store, &[service]).open_data_keys().await.unwrap().unwrap();
        assert_eq!((opened.number, recipients(&opened)), (1, recipients(&made)));
        assert_eq!(opened.wrapped_by(), strings(&["a", "b"]));
    }
    a.set_away(true);
    let opened = run(&store, &[&a, &b]).open_data_keys().await.unwrap().unwrap();
    assert_eq!(recipients(&opened), recipients(&made));
    // Who makes the first key at the same time gets the one that is there.
    a.set_away(false);
    let second = both.make_data_key(None).await.unwrap();
    assert_eq!((second.number, recipients(&second)), (1, recipients(&made)));
}

#[tokio::test]
async fn a_key_is_compared_with_the_services_of_the_run() {
    let store = memory();
    let [a, b, c] = ["a", "b", "c"].map(NamedService::new);
    let keys = run(&store, &[&b, &a]).make_data_key(None).await.unwrap();
    for (services, is_wrapped_by_all, former) in [
        (vec![&a, &b], true, vec![]),
        (vec![&b, &a], true, vec![]),
        (vec![&a], false, vec!["b"]),
        (vec![&a, &c], false, vec!["b"]),
        (vec![&a, &b, &c], false, vec![]),
        (vec![], false, vec!["a", "b"]),
    ] {
        let run = run(&store, &services);
        assert_eq!(run.is_wrapped_by_all(&keys), is_wrapped_by_all, "{former:?}");
        assert_eq!(run.former_services(keys.wrapped_by()), strings(&former));
    }
}

#[tokio::test]
async fn a_new_key_encloses_the_earlier_ones() {
    let (store, service) = (memory(), NamedService::new("a"));
    let run = run(&store, &[&service]);
    let mut made: Vec<DataKeys> = Vec::new();
    for _ in 0..3 {
        made.push(run.make_data_key(made.last()).await.unwrap());
    }
    let opened = run.open_data_keys().await.unwrap().unwrap();
    assert_eq!(opened.number, 3);
    let newest_first: Vec<_> = made.iter().rev().map(|keys| recipients(keys).remove(0)).collect();
    assert_eq!(recipients(&opened), newest_first);
    let listed = run.list_data_keys().await.unwrap();
    let row = |(number, recipient): (usize, &String)| WrappedDataKey {
        place: format!("keys/data/000000000{}", number + 1),
        recipient: recipient.clone(),
        by: strings(&["a"]),
    };
    let expected: Vec<_> = newest_first.iter().rev().enumerate().map(row).collect();
    assert_eq!(listed, expected);
    // What was encrypted to the first key is decrypted by a run that opened the newest alone.
    let first = Sealer::with_data_keys(&[], None, &made[0]).unwrap();
    let newest = Sealer::with_data_keys(&[], None, &opened).unwrap();
    assert_eq!(newest.open(&first.seal(b"x").unwrap()).unwrap(), b"x");
    assert!(first.open(&newest.seal(b"x").unwrap()).is_err());
}

#[tokio::test]
async fn after_a_loss_the_next_key_starts_anew() {
    let store = memory();
    let [lost, other] = ["lost", "other"].map(NamedService::new);
    let old = run(&store, &[&lost]);
    let first = old.make_data_key(None).await.unwrap();
    old.make_data_key(Some(&first)).await.unwrap();
    let new = run(&store, &[&other]);
    assert!(new.open_data_keys().await.is_err());
    let made = new.make_data_key_after_loss().await.unwrap();
    assert_eq!((made.number, recipients(&made).len()), (3, 1));
    let opened = new.open_data_keys().await.unwrap().unwrap();
    assert_eq!(recipients(&opened), recipients(&made));
    let at_first = run(&memory(), &[&other])
        .make_data_key_after_loss()
        .await
        .unwrap();
    assert_eq!(at_first.number, 1);
}

#[tokio::test]
async fn what_each_service_says_is_told() {
    let store = memory();
    let [a, b, c] = ["a", "b", "c"].map(NamedService::new);
    let maker = run(&store, &[&a, &b]);
    maker.make_data_key(None).await.unwrap();
    b.set_away(true);
    let tried = run(&store, &[&a, &b, &c]).try_key_services().await.unwrap();
    let trial = |service: &str, failure: Option<&str>| KeyServiceTrial {
        service: service.to_owned(),
        failure: failure.map(str::to_owned),
    };
    let expected = [
        trial("a", None),
        trial("b", Some("does not answer: it is away")),
        trial("c", Some("does not wrap `keys/data/0000000001`")),
    ];
    assert_eq!(tried, expected);
    let error = run(&store, &[&c, &b]).open_data_keys().await.unwrap_err();
    assert_eq!(
        chain(&error),
        "`keys/data/0000000001` cannot be unwrapped: `c` does not wrap the data key; `b`: does not answer: it is away"
    );
    let error = maker.make_data_key_after_loss().await.unwrap_err();
    assert_eq!(
        chain(&error),
        "`keys/data/0000000002` cannot be created: `b`: does not answer: it is away"
    );
    assert_eq!(
        maker.list_data_keys().await.unwrap().len(),
        1,
        "nothing was written"
    );
}

#[tokio::test]
async fn a_wrapped_key_is_valid_at_its_place_of_its_repository() {
    let (store, service) = (memory(), NamedService::new("a"));
    let run = run(&store, &[&service]);
    assert_eq!(run.context(2), "acme/infra keys/data/0000000002");
    run.make_data_key(None).await.unwrap();
    let moved = store.get(&place(1)).await.unwrap().unwrap();
    store.create(&place(2), moved).await.unwrap();
    let error = run.open_data_keys().await.unwrap_err();
    assert!(matches!(error, StateError::KeyService { .. }), "{error}");
}

#[tokio::test]
async fn a_key_document_that_says_another_recipient_or_encloses_nothing_readable_is_damaged() {
    let service = NamedService::new("a");
    let key = age::x25519::Identity::generate();
    let secret = key.to_string().expose_secret().to_owned();
    let public = key.to_public().to_string();
    let other = age::x25519::Identity::generate();
    let enclosed = |to: &age::x25519::Identity| Some(enclose(to, std::slice::from_ref(&other)).unwrap());
    for (secret, recipient, older, damage) in [
        (secret.as_str(), public.clone(), None, None),
        (secret.as_str(), public.clone(), enclosed(&key), None),
        ("no key", public.clone(), None, Some("not an age identity")),
        (
            secret.as_str(),
            other.to_public().to_string(),
            None,
            Some("not that of the key"),
        ),
        (
            secret.as_str(),
            public.clone(),
            enclosed(&other),
            Some("cannot be decrypted"),
        ),
        (
            secret.as_str(),
            public.clone(),
            Some("?".to_owned()),
            Some("cannot be decrypted"),
        ),
    ] {
        let store = memory();
        let run = run(&store, &[&service]);
        let wrapped = service
            .wrap_key(secret.as_bytes(), &run.context(1))
            .await
            .unwrap();
        let by = "a".to_owned();
        let has_older = older.is_some();
        let document = DataKeyDocument {
            recipient,
            wrapped: vec![WrappedBy { by, key: wrapped }],
            known_by: Vec::new(),
            older,
        };
        let letter = run.letter("data-key", &place(1), &document).unwrap();
        store.create(&place(1), letter.bytes).await.unwrap();
        match (run.open_data_keys().await, damage) {
            (Ok(opened), None) => {
                assert_eq!(opened.unwrap().identities().count(), 1 + usize::from(has_older))
            }
            (Err(error), Some(damage)) => assert!(chain(&error).contains(damage), "{error}"),
            (Ok(_), Some(damage)) => panic!("it was read: {damage}"),
            (Err(error), None) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_key_of_the_folder_without_a_number_is_passed_over() {
    let (store, service) = (memory(), NamedService::new("a"));
    let run = run(&store, &[&service]);
    run.make_data_key(None).await.unwrap();
    store.create(&folder().child("stray"), "x".into()).await.unwrap();
    assert_eq!(run.list_data_keys().await.unwrap().len(), 1);
}
