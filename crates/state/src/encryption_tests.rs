use super::*;
use konverge_base::error::chain;

#[test]
fn the_work_factor_of_a_passphrase_does_not_depend_on_the_machine() {
    let text = "correct horse battery";
    let sealer = Sealer::new(&[], Some(text)).unwrap().unwrap();
    assert_eq!(sealer.open(&sealer.seal(b"x").unwrap()).unwrap(), b"x");
    let mut costly = age::scrypt::Recipient::new(SecretString::from(text.to_owned()));
    costly.set_work_factor(SCRYPT_LOG_N + 1);
    let error = sealer.open(&age::encrypt(&costly, b"x").unwrap()).unwrap_err();
    assert!(chain(&error).contains("work parameter"), "{error}");
}

#[test]
fn an_identity_seals_for_itself_alone() {
    let ours = Sealer::generate();
    let value = json!({"password": "hunter222"});
    let sealed = ours.seal_value(&value).unwrap();
    assert!(!sealed.to_string().contains("hunter222"));
    let again = Sealer::new(&[], ours.identity().as_deref()).unwrap().unwrap();
    assert_eq!(again.open_value(&sealed).unwrap(), value);
    assert!(Sealer::generate().open_value(&sealed).is_err());
}

#[test]
fn a_run_that_knows_recipients_alone_seals_and_does_not_open() {
    let reader = age::x25519::Identity::generate();
    let writer = Sealer::new(&[reader.to_public().to_string()], None)
        .unwrap()
        .unwrap();
    let sealed = writer.seal_value(&json!(1)).unwrap();
    assert!(writer.open_value(&sealed).is_err());
    let reader = Sealer::new(&[], Some(reader.to_string().expose_secret()))
        .unwrap()
        .unwrap();
    assert_eq!(reader.open_value(&sealed).unwrap(), json!(1));
}

#[test]
fn a_passphrase_works_and_a_short_one_is_refused() {
    let sealer = Sealer::new(&[], Some("correct horse battery")).unwrap().unwrap();
    assert_eq!(sealer.open(&sealer.seal(b"x").unwrap()).unwrap(), b"x");
    assert!(Sealer::new(&[], Some("short")).is_err());
    assert!(Sealer::new(&[], Some("AGE-SECRET-KEY-1XYZ")).is_err());
    assert!(Sealer::new(&["age1nonsense".to_owned()], None).is_err());
    assert!(Sealer::new(&[], None).unwrap().is_none());
}

fn public(identity: &age::x25519::Identity) -> String {
    identity.to_public().to_string()
}

fn secret(identity: &age::x25519::Identity) -> String {
    identity.to_string().expose_secret().to_owned()
}

fn data_keys(newest: &age::x25519::Identity, older: &[&age::x25519::Identity]) -> DataKeys {
    DataKeys {
        newest: newest.clone(),
        older: older.iter().map(|key| (*key).clone()).collect(),
        number: 1,
        wrapped_by: Vec::new(),
        known_by: Vec::new(),
    }
}

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts
}

#[test]
fn a_passphrase_has_twelve_characters_or_more_without_the_white_space_around_it() {
    for (text, is_taken) in [
        ("elevenchars", false),
        ("twelve chars", true),
        ("äöüäöüäöüäö", false),
        ("äöüäöüäöüäöü", true),
        (" elevenchars ", false),
    ] {
        assert_eq!(Sealer::new(&[], Some(text)).is_ok(), is_taken, "{text}");
    }
    assert!(Sealer::new(&[], Some("  ")).unwrap().is_none());
}

#[test]
fn the_recipients_of_a_run_are_those_to_whom_it_encrypts() {
    let [own, one, two, newest, older] = std::array::from_fn(|_| age::x25519::Identity::generate());
    let named = [public(&one), public(&two)];
    let new = |recipients: &[String], identity: Option<&str>| {
        Sealer::new(recipients, identity).unwrap().unwrap().recipients()
    };
    let own_text = secret(&own);
    assert_eq!(new(&[], Some(&own_text)), [public(&own)]);
    assert_eq!(new(&[], Some("correct horse battery")), ["passphrase"]);
    assert_eq!(new(&named, Some(&own_text)), sorted(named.to_vec()));
    let keys = data_keys(&newest, &[&older]);
    let with_keys = |recipients: &[String]| {
        Sealer::with_data_keys(recipients, Some(&own_text), &keys)
            .unwrap()
            .recipients()
    };
    assert_eq!(with_keys(&[]), [public(&newest)]);
    assert_eq!(
        with_keys(&named[..1]),
        sorted(vec![public(&one), public(&newest)])
    );
}

#[test]
fn what_is_encrypted_to_recipients_or_to_a_data_key_is_closed_for_the_identity_of_the_writer() {
    let [own, reader, key] = std::array::from_fn(|_| age::x25519::Identity::generate());
    let own_text = secret(&own);
    let alone =
        |identity: &age::x25519::Identity| Sealer::new(&[], Some(&secret(identity))).unwrap().unwrap();
    let writer = Sealer::new(&[public(&reader)], Some(&own_text)).unwrap().unwrap();
    let cipher = writer.seal(b"x").unwrap();
    assert_eq!(alone(&reader).open(&cipher).unwrap(), b"x");
    assert!(alone(&own).open(&cipher).is_err());

    let keys = data_keys(&key, &[]);
    let writer = Sealer::with_data_keys(&[public(&reader)], Some(&own_text), &keys).unwrap();
    let cipher = writer.seal(b"x").unwrap();
    for opener in [&reader, &key] {
        assert_eq!(alone(opener).open(&cipher).unwrap(), b"x");
    }
    assert!(alone(&own).open(&cipher).is_err());
    // A run without an identity opens what its data keys open, and a run with one opens that as well.
    let unnamed = Sealer::with_data_keys(&[], None, &keys).unwrap();
    assert_eq!(unnamed.open(&cipher).unwrap(), b"x");
    assert_eq!(writer.open(&alone(&own).seal(b"y").unwrap()).unwrap(), b"y");
}

#[test]
fn a_run_without_any_key_says_so() {
    let reader = age::x25519::Identity::generate();
    let writer = Sealer::new(&[public(&reader)], None).unwrap().unwrap();
    let error = writer.open(&writer.seal(b"x").unwrap()).unwrap_err();
    assert!(chain(&error).contains("this run has no age identity"), "{error}");
    assert_eq!((writer.identity(), writer.age_identities()), (None, Vec::new()));
}

#[test]
fn a_passphrase_is_an_identity_and_no_age_identity() {
    let own = age::x25519::Identity::generate();
    let sealer = Sealer::new(&[], Some(&secret(&own))).unwrap().unwrap();
    assert_eq!(sealer.identity(), Some(secret(&own)));
    assert_eq!(sealer.age_identities(), [secret(&own)]);
    let sealer = Sealer::new(&[], Some(" correct horse battery "))
        .unwrap()
        .unwrap();
    assert_eq!(sealer.identity().as_deref(), Some("correct horse battery"));
    assert!(sealer.age_identities().is_empty());
}

#[test]
fn every_encrypted_value_in_a_document_is_encrypted_anew() {
    let [own, reader] = std::array::from_fn(|_| age::x25519::Identity::generate());
    let before = Sealer::new(&[], Some(&secret(&own))).unwrap().unwrap();
    let now = Sealer::new(&[public(&reader)], Some(&secret(&own)))
        .unwrap()
        .unwrap();
    let value = |word: &str| before.seal_value(&json!(word)).unwrap();
    let mut document = json!({
        "plain": "text",
        "list": [value("one"), 2, {"deep": value("two")}],
        "field": value("three"),
    });
    now.reseal_values(&mut document).unwrap();
    let opener = Sealer::new(&[], Some(&secret(&reader))).unwrap().unwrap();
    for (place, word) in [("/list/0", "one"), ("/list/2/deep", "two"), ("/field", "three")] {
        let sealed = document.pointer(place).unwrap();
        assert_eq!(opener.open_value(sealed).unwrap(), word);
        assert!(before.open_value(sealed).is_err());
    }
    assert_eq!(
        (&document["plain"], &document["list"][1]),
        (&json!("text"), &json!(2))
    );
    let mut unreadable = json!({"field": Sealer::generate().seal_value(&json!(1)).unwrap()});
    assert!(now.reseal_values(&mut unreadable).is_err());
}

#[test]
fn a_value_that_is_not_encrypted_is_not_opened() {
    let sealer = Sealer::generate();
    for value in [json!("text"), json!({"$age": 1}), json!({"$age": "?"}), json!({})] {
        let error = sealer.open_value(&value).unwrap_err();
        assert!(chain(&error).contains("the value is not sealed"), "{error}");
    }
}

#[test]
fn each_line_that_is_no_comment_is_an_identity() {
    let [old, new, other] = std::array::from_fn(|_| age::x25519::Identity::generate());
    let both = format!("# of today\n{}\n\n  {}\n", secret(&new), secret(&old));
    let both = Sealer::new(&[], Some(&both)).unwrap().unwrap();
    let alone = |key: &age::x25519::Identity| Sealer::new(&[], Some(&secret(key))).unwrap().unwrap();
    assert_eq!(both.age_identities(), [secret(&new), secret(&old)]);
    assert_eq!(both.recipients(), sorted(vec![public(&new), public(&old)]));
    // Each job reads what the others write, whether it has the new one yet or the old one still.
    for key in [&old, &new] {
        assert_eq!(both.open(&alone(key).seal(b"x").unwrap()).unwrap(), b"x");
        assert_eq!(alone(key).open(&both.seal(b"y").unwrap()).unwrap(), b"y");
    }
    assert!(alone(&other).open(&both.seal(b"z").unwrap()).is_err());
    // A line that is none is not passed over.
    let broken = format!("{}\ncorrect horse battery", secret(&new));
    assert!(Sealer::new(&[], Some(&broken)).is_err());
}

fn a_place() -> Key {
    Key::from_components(&["stacks", "a", "state", "1"])
}

#[test]
fn what_a_holder_of_a_recipient_wrote_is_accepted_by_all_others_and_by_nobody_else() {
    let [one, two, stranger] = std::array::from_fn(|_| age::x25519::Identity::generate());
    let named = [public(&one), public(&two)];
    let run = |key: &age::x25519::Identity| Sealer::new(&named, Some(&secret(key))).unwrap().unwrap();
    let marks = run(&one).mark(&a_place(), b"text").unwrap();
    for reader in [&one, &two] {
        assert_eq!(run(reader).check_marks(&a_place(), b"text", &marks), Ok(()));
        assert!(run(reader).check_marks(&a_place(), b"other", &marks).is_err());
        assert!(run(reader).check_marks(&a_place(), b"text", &[]).is_err());
    }
    assert!(run(&stranger).check_marks(&a_place(), b"text", &marks).is_err());
    // Who knows the recipients alone can mark nothing.
    assert!(run(&stranger).mark(&a_place(), b"text").is_err());
    assert!(
        Sealer::new(&named, None)
            .unwrap()
            .unwrap()
            .mark(&a_place(), b"text")
            .is_err()
    );
    // With a key of their own they mark for the recipients what these do not accept.
    let with_theirs = [public(&one), public(&two), public(&stranger)];
    let forger = Sealer::new(&with_theirs, Some(&secret(&stranger)))
        .unwrap()
        .unwrap();
    let forged = forger.mark(&a_place(), b"text").unwrap();
    assert!(run(&two).check_marks(&a_place(), b"text", &forged).is_err());
}

#[test]
fn the_holder_of_a_data_key_is_accepted_where_the_key_is_known() {
    let [own, key, unknown] = std::array::from_fn(|_| age::x25519::Identity::generate());
    let named = [public(&own)];
    let service = Sealer::with_data_keys(&named, None, &data_keys(&key, &[])).unwrap();
    let marks = service.mark(&a_place(), b"text").unwrap();
    let by_age = |known: &[&age::x25519::Identity]| {
        let known = known.iter().map(|key| public(key)).collect();
        Sealer::with_known_data_keys(&named, Some(&secret(&own)), known)
            .unwrap()
            .unwrap()
    };
    assert_eq!(by_age(&[&key]).check_marks(&a_place(), b"text", &marks), Ok(()));
    for known in [vec![], vec![&unknown]] {
        assert!(by_age(&known).check_marks(&a_place(), b"text", &marks).is_err());
    }
    // The service accepts what the age identity wrote meanwhile, and a later data key what this one wrote.
    let back = by_age(&[]).mark(&a_place(), b"text").unwrap();
    assert!(
        service.check_marks(&a_place(), b"text", &back).is_err(),
        "the identity alone does not write for a data key that it does not have"
    );
    let later = Sealer::with_data_keys(&named, None, &data_keys(&unknown, &[&key])).unwrap();
    assert_eq!(later.check_marks(&a_place(), b"text", &marks), Ok(()));
}
