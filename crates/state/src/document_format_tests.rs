use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};

use super::{
    super::fixture::{StoreRequest, WatchedStore, unavailable},
    *,
};
use crate::store::MemoryStore;
use konverge_base::error::chain;

fn envelopes(repository: &str) -> Documents {
    Documents {
        repository: RepositoryId::new(repository),
        writer: DocumentWriter {
            run: "https://ci/1".into(),
            actor: "me".into(),
        },
        sealer: None,
        seal_documents: false,
        accept_unmarked: false,
        skipped: SkippedDocuments::default(),
    }
}

fn letter(body: &Value) -> Vec<u8> {
    envelopes("r")
        .write("state", &place(), Timestamp::UNIX_EPOCH, body)
        .unwrap()
        .bytes
        .to_vec()
}

fn read(repository: &str, bytes: &[u8]) -> Result<Value, StateError> {
    let key = Key::from_components(&["stacks", "a/b", "state", "1"]);
    envelopes(repository)
        .read("state", &key, bytes)
        .map(|(_, body)| body)
}

#[test]
fn comes_back_as_it_was() {
    let body = json!({"a": 0.1, "b": [1, 2]});
    assert_eq!(read("r", &letter(&body)).unwrap(), body);
}

#[test]
fn every_truncation_and_every_changed_byte_is_refused() {
    let bytes = letter(&json!({"replicas": 3}));
    for length in 0..bytes.len() {
        assert!(read("r", &bytes[..length]).is_err(), "cut at {length}");
    }
    for at in 0..bytes.len() {
        let mut edited = bytes.clone();
        edited[at] ^= 1;
        assert!(read("r", &edited).is_err(), "changed at {at}");
    }
}

#[test]
fn foreign_and_future_documents_are_refused_by_name() {
    let bytes = letter(&json!({}));
    assert!(matches!(read("other", &bytes), Err(StateError::Foreign { .. })));
    let future = String::from_utf8(bytes)
        .unwrap()
        .replacen("\"konverge\":1", "\"konverge\":2", 1);
    assert!(matches!(
        read("r", future.as_bytes()),
        Err(StateError::Future { version: 2, .. })
    ));
}

#[test]
fn a_sealed_body_shows_nothing_and_needs_the_key() {
    let mut sealing = envelopes("r");
    sealing.sealer = Some(Sealer::generate());
    sealing.seal_documents = true;
    let letter = sealing
        .write(
            "state",
            &place(),
            Timestamp::UNIX_EPOCH,
            &json!({"word": "hunter222"}),
        )
        .unwrap();
    assert!(!String::from_utf8_lossy(&letter.bytes).contains("hunter222"));
    let key = Key::from_components(&["k"]);
    let (_, back): (_, Value) = sealing.read("state", &key, &letter.bytes).unwrap();
    assert_eq!(back["word"], "hunter222");
    assert!(matches!(
        envelopes("r").read::<Value>("state", &key, &letter.bytes),
        Err(StateError::Sealed { .. })
    ));
}

fn place() -> Key {
    Key::from_components(&["k"])
}

fn sealing(sealer: &Sealer) -> Documents {
    Documents {
        sealer: Some(sealer.clone()),
        seal_documents: true,
        ..envelopes("r")
    }
}

fn bytes(documents: &Documents, kind: &str) -> Bytes {
    let letter = documents.write(kind, &place(), Timestamp::UNIX_EPOCH, &json!({"a": 1}));
    letter.unwrap().bytes
}

#[test]
fn states_journals_and_keys_are_encrypted_and_the_rest_is_marked() {
    let sealer = Sealer::generate();
    let documents = sealing(&sealer);
    for (kind, is_sealed) in [
        ("state", true),
        ("journal", true),
        ("key", true),
        ("lease", false),
        ("review", false),
        ("index", false),
    ] {
        let header = documents.header(&place(), &bytes(&documents, kind)).unwrap();
        let recipients = if is_sealed {
            sealer.recipients()
        } else {
            Vec::new()
        };
        assert_eq!(
            (header.sealed, header.recipients),
            (is_sealed, recipients),
            "{kind}"
        );
        let runtime_data_alone = Documents {
            seal_documents: false,
            ..documents.clone()
        };
        let header = documents
            .header(&place(), &bytes(&runtime_data_alone, kind))
            .unwrap();
        assert!(!header.sealed && header.recipients.is_empty(), "{kind}");
    }
    let without_key = Documents {
        sealer: None,
        ..documents
    };
    assert!(
        without_key
            .write("state", &place(), Timestamp::UNIX_EPOCH, &json!({}))
            .is_err()
    );
    assert!(
        without_key
            .write("lease", &place(), Timestamp::UNIX_EPOCH, &json!({}))
            .is_err(),
        "nobody could check who wrote it"
    );
}

#[test]
fn a_document_is_current_if_it_is_encrypted_to_the_recipients_of_the_run() {
    let [ours, other] = [Sealer::generate(), Sealer::generate()];
    let is_current = |documents: &Documents, bytes: &Bytes| documents.is_current(&place(), bytes).unwrap();
    let documents = sealing(&ours);
    let written = bytes(&documents, "state");
    assert!(is_current(&documents, &written));
    assert!(!is_current(&documents, &bytes(&sealing(&other), "state")));
    assert!(!is_current(&documents, &bytes(&envelopes("r"), "state")));
    assert!(!is_current(&envelopes("r"), &written));
    let without_marks = without_marks(&written);
    assert!(
        !is_current(&documents, &without_marks),
        "nobody knows who wrote it"
    );
}

/// A document as a version before the marks wrote it.
fn without_marks(bytes: &Bytes) -> Bytes {
    let text = std::str::from_utf8(bytes).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let mut first: Value = serde_json::from_str(first).unwrap();
    first.as_object_mut().unwrap().remove("marks").unwrap();
    format!("{first}\n{rest}").into()
}

/// What somebody may put into the store who knows the recipients and holds no key.
#[test]
fn a_document_of_who_holds_no_key_is_refused_and_during_a_migration_read() {
    let key = Sealer::generate();
    let documents = sealing(&key);
    let accepting = Documents {
        accept_unmarked: true,
        ..documents.clone()
    };
    let stranger = Sealer::new(
        &[key.recipients(), Sealer::generate().recipients()].concat(),
        Sealer::generate().identity().as_deref(),
    );
    assert!(
        stranger
            .unwrap()
            .is_some_and(|stranger| stranger.mark(&place(), b"x").is_err())
    );
    for kind in ["state", "journal", "key"] {
        let (plain, sealed) = (bytes(&envelopes("r"), kind), bytes(&documents, kind));
        let moved = documents.read::<Value>(kind, &Key::from_components(&["other"]), &sealed);
        assert!(
            matches!(moved, Err(StateError::Damaged { .. })),
            "{kind}: it is of another place"
        );
        for forged in [plain, without_marks(&sealed)] {
            let read = documents.read::<Value>(kind, &place(), &forged);
            let error = chain(&read.unwrap_err());
            assert!(error.contains("holds no key"), "{kind}: {error}");
            assert!(accepting.read::<Value>(kind, &place(), &forged).is_ok(), "{kind}");
        }
        assert!(documents.read::<Value>(kind, &place(), &sealed).is_ok(), "{kind}");
    }
    for kind in [
        "lease",
        "review",
        "index",
        "freeze",
        "rollout",
        "looks",
        "portal-request",
    ] {
        let (plain, marked) = (bytes(&envelopes("r"), kind), bytes(&documents, kind));
        let moved = Key::from_components(&["other"]);
        for (place, forged) in [
            (place(), plain),
            (place(), without_marks(&marked)),
            (moved, marked.clone()),
        ] {
            let read = documents.read::<Value>(kind, &place, &forged);
            assert!(matches!(read, Err(StateError::Unmarked { .. })), "{kind}");
            assert!(
                documents
                    .read_marked::<Value>(kind, &place, &forged)
                    .unwrap()
                    .is_none()
            );
            assert!(accepting.read::<Value>(kind, &place, &forged).is_ok(), "{kind}");
        }
        assert!(documents.read::<Value>(kind, &place(), &marked).is_ok(), "{kind}");
        let without_key = Documents {
            sealer: None,
            ..documents.clone()
        };
        let read = without_key.read::<Value>(kind, &place(), &marked);
        assert!(matches!(read, Err(StateError::Sealed { .. })), "{kind}");
    }
    assert!(
        documents
            .read::<Value>("data-key", &place(), &bytes(&documents, "data-key"))
            .is_ok()
    );
}

#[test]
fn a_document_that_is_encrypted_anew_keeps_its_header_and_has_the_changed_body() {
    let documents = Documents {
        accept_unmarked: true,
        ..sealing(&Sealer::generate())
    };
    let before = bytes(&envelopes("r"), "state");
    let change = |body: &mut Value| {
        body["a"] = json!(2);
        Ok(())
    };
    let after = documents.reseal(&place(), &place(), &before, change).unwrap();
    let (header, body): (_, Value) = documents.read("state", &place(), &after).unwrap();
    assert_eq!(body, json!({"a": 2}));
    let old = documents.header(&place(), &before).unwrap();
    assert_eq!(
        (header.nonce, header.time, header.kind),
        (old.nonce, old.time, old.kind)
    );
    assert!(documents.is_current(&place(), &after).unwrap());
}

#[test]
fn a_document_of_another_kind_or_of_format_zero_is_damaged() {
    let lease = bytes(&envelopes("r"), "lease");
    let error = read("r", &lease).unwrap_err();
    assert!(chain(&error).contains("of kind `lease`, not `state`"), "{error}");
    let zero = String::from_utf8(letter(&json!({}))).unwrap();
    let zero = zero.replacen("\"konverge\":1", "\"konverge\":0", 1);
    let error = read("r", zero.as_bytes()).unwrap_err();
    assert!(chain(&error).contains("format 0 does not exist"), "{error}");
}

/// A store that does something at its first requests to create, by their number from 0.
fn unsure(
    at_create: impl Fn(usize, &MemoryStore, &Key, &Bytes) -> Result<(), StoreError> + Send + Sync + 'static,
) -> Arc<dyn Store> {
    let creates = AtomicUsize::new(0);
    WatchedStore::shared(move |objects, request| match request {
        StoreRequest::Create(key, content) => {
            let number = creates.fetch_add(1, Ordering::SeqCst);
            at_create(number, objects, key, content)
        }
        _ => Ok(()),
    })
}

async fn put_one(store: &dyn Store) -> Result<CreateResult, StateError> {
    let letter = envelopes("r")
        .write("state", &place(), Timestamp::UNIX_EPOCH, &json!({}))
        .unwrap();
    put(store, &place(), &letter).await
}

#[tokio::test]
async fn a_create_whose_answer_was_lost_is_ours() {
    let store = unsure(|number, objects, key, content| match number {
        0 => {
            objects.overwrite(key, content.clone());
            Err(unavailable(key))
        }
        _ => Ok(()),
    });
    assert!(matches!(put_one(&*store).await, Ok(CreateResult::Ours)));
}

#[tokio::test]
async fn a_place_that_another_writer_took_is_theirs() {
    let theirs = bytes(&envelopes("r"), "state");
    let written = theirs.clone();
    let store = unsure(move |_, objects, key, _| {
        objects.overwrite(key, written.clone());
        Ok(())
    });
    assert!(matches!(put_one(&*store).await, Ok(CreateResult::Theirs(there)) if there == theirs));
    let store = unsure(|_, objects, key, _| {
        objects.overwrite(key, "no document".into());
        Ok(())
    });
    assert!(matches!(put_one(&*store).await, Ok(CreateResult::Theirs(_))));
}

#[tokio::test]
async fn a_create_is_repeated_while_the_store_does_not_answer_and_not_when_it_refuses() {
    let fails = |times: usize| {
        unsure(move |number, _, key, _| {
            if number < times {
                Err(unavailable(key))
            } else {
                Ok(())
            }
        })
    };
    let most = UNCLEAR_CREATES as usize;
    assert!(matches!(put_one(&*fails(most - 1)).await, Ok(CreateResult::Ours)));
    let failed = put_one(&*fails(most)).await;
    assert!(matches!(
        failed,
        Err(StateError::Store(StoreError::Unavailable { .. }))
    ));
    let refuses = unsure(|number, _, key, _| match number {
        0 => Err(StoreError::Denied {
            url: "memory:".to_owned(),
            key: key.to_string(),
            why: "no".into(),
        }),
        _ => Ok(()),
    });
    let refused = put_one(&*refuses).await;
    assert!(matches!(
        refused,
        Err(StateError::Store(StoreError::Denied { .. }))
    ));
}

#[test]
fn the_nonce_of_a_document_is_in_its_second_line() {
    let letter = envelopes("r")
        .write("state", &place(), Timestamp::UNIX_EPOCH, &json!({}))
        .unwrap();
    assert_eq!(nonce_of(&letter.bytes), Some(letter.nonce));
    assert_eq!(nonce_of(b"{}"), None);
    assert_eq!(nonce_of(b"{}\n{}\n"), None);
}
