use super::*;
use serde_json::json;

#[test]
fn what_is_masked_stays_as_it_is_and_lists_are_masked_item_by_item() {
    let secrets = Secrets::new(HashKey::derive("k"));
    let once = crate::mask_provider(&secrets, &json!({"password": "Kusion123456"}));
    assert!(once["password"].get("$secret").is_some(), "{once}");
    assert_eq!(crate::mask_provider(&secrets, &once), once);
    let object = json!({"kind": "Secret", "stringData": {"a": ["hunter6666", "x1y2z3w4"]}});
    let masked = crate::mask_object(&secrets, object.as_object().expect("an object"));
    assert!(
        masked["stringData"]["a"][1].get("$secret").is_some(),
        "{masked:?}"
    );
}

#[test]
fn a_marker_stays_the_same_whatever_its_hash_contains() {
    let secrets = Secrets::new(HashKey::derive("k"));
    let marker = secrets.marked(&json!("hunter2222"));
    let hash = masked_value::as_secret(&marker).expect("it is a marker");
    secrets.learn(&hash[..hash.len() - 1]);
    assert_ne!(secrets.mask(hash), hash);
    assert_eq!(
        secrets.mask_value(&json!({"a": [marker]})),
        json!({"a": [marker]})
    );
}

#[test]
fn every_form_is_masked() {
    use base64::Engine as _;
    let secrets = Secrets::new(HashKey::derive("k"));
    let secret = "p\"ss <word>";
    secrets.learn(secret);
    let base64 = base64::engine::general_purpose::STANDARD.encode(secret);
    let hexadecimal = hex::encode(secret);
    let json = json!({"x": secret}).to_string();
    let json_in_json = json!({"y": json}).to_string();
    let by_go = json.replace('<', "\\u003c").replace('>', "\\u003e");
    let text = format!("{secret}, {base64}, {hexadecimal}, p%22ss%20%3Cword%3E, p%22ss+%3cword%3e, {by_go}");
    assert_eq!(secrets.mask(&text), r#"***, ***, ***, ***, ***, {"x":"***"}"#);
    assert_eq!(secrets.mask(&json_in_json), r#"{"y":"{\"x\":\"***\"}"}"#);
    assert_eq!(secrets.mask_finished(&text), secrets.mask(&text));
}

#[test]
fn a_part_never_uncovers_the_whole() {
    let secrets = Secrets::new(HashKey::derive("k"));
    secrets.learn("secret");
    secrets.learn("secret-and-more");
    assert_eq!(secrets.mask("secret-and-more"), "***");
}

#[test]
fn a_value_is_masked_in_messages_and_values_and_a_credential_everywhere() {
    let secrets = Secrets::new(HashKey::derive("k"));
    secrets.learn("token-1234");
    let mark = secrets.mark(&json!("shop:v7x9"));
    assert_eq!(secrets.mask("shop:v7x9 token-1234"), "*** ***");
    assert_eq!(secrets.mask_finished("shop:v7x9 token-1234"), "shop:v7x9 ***");
    let value = json!({"shop:v7x9": ["shop:v7x9", "a shop:v7x9 b", "***", 7, mark]});
    let masked = json!({"shop:v7x9": [mark, "a *** b", "***", 7, mark]});
    assert_eq!(secrets.mask_value(&value), masked);
}

#[test]
fn words_and_short_lines_are_no_secrets() {
    let secrets = Secrets::new(HashKey::derive("k"));
    let file = "apiVersion: v1\nkind: Config\nclusters:\ntoken: a-very-long-one\n";
    for text in ["postgres", "Production", "us-east-1", "10.0.12.3", file] {
        secrets.mark(&json!(text));
        assert!(text == file || secrets.mask(text) == text, "{text}");
    }
    for secret in ["hunter22", "paSSword", "correcthorsebattery", "Tr&il'<9x>zQ"] {
        secrets.mark(&json!(secret));
        assert_eq!(secrets.mask(secret), "***");
    }
    assert_eq!(secrets.mask("kind: Config"), "kind: Config");
    assert_eq!(secrets.mask("a token: a-very-long-one"), "a ***");
    secrets.mark(&json!("s3cret-of-a-file\n"));
    assert_eq!(secrets.mask("is s3cret-of-a-file."), "is ***.");
    // The user of the program decides what a credential is.
    secrets.learn("postgres");
    assert_eq!(secrets.mask_finished("postgres"), "***");
}

#[test]
fn hashes_tell_changed_from_same_and_depend_on_the_key() {
    let one = Secrets::new(HashKey::derive("one"));
    let two = Secrets::new(HashKey::derive("two"));
    assert_eq!(one.mark(&json!("abc")), one.mark(&json!("abc")));
    assert_ne!(one.mark(&json!("abc")), one.mark(&json!("abd")));
    assert_ne!(one.mark(&json!("abc")), two.mark(&json!("abc")));
}

#[test]
fn a_text_of_mixed_letters_is_no_word() {
    for word in ["postgres", "Postgres", "us-east-1", "10.0.0.1"] {
        assert!(is_made_of_words(word), "{word}");
    }
    for text in ["qXzWvT", "x1y2z3w4", "1234", "9aaaa"] {
        assert!(!is_made_of_words(text), "{text}");
    }
}

fn masks(secret: &str, text: &str) -> String {
    let secrets = Secrets::new(HashKey::derive("k"));
    secrets.learn(secret);
    secrets.mask(text)
}

#[test]
fn a_secret_and_a_line_of_it_have_a_minimum_length() {
    assert_eq!(masks("a1b2c", "a1b2c"), "a1b2c");
    assert_eq!(masks("a1b2c3", "a1b2c3"), "***");
    assert_eq!(masks("a1b2c3\n", "a1b2c3."), "***.");
    let lines = "first\n 0123456789abcdef\n0123456789ABCDE\n";
    assert_eq!(
        masks(lines, "0123456789abcdef 0123456789ABCDE first"),
        "*** 0123456789ABCDE first"
    );
}

#[test]
fn a_word_has_a_maximum_length_and_small_numbers() {
    assert!(is_word("abcdefghijkl") && !is_word("abcdefghijklm"));
    for (text, is_made) in [
        ("a-123", true),
        ("a-1234", false),
        ("Abc def", true),
        ("aBc", false),
        ("a1", false),
        ("a_b.c:d/e", true),
        ("a,b", false),
        ("", true),
    ] {
        assert_eq!(is_made_of_words(text), is_made, "{text}");
    }
}

#[test]
fn what_is_a_word_is_learned_only_as_a_credential() {
    for (text, of_value, of_name) in [
        ("postgres", false, false),
        ("long-forgotten-words", true, false),
        ("x1y2z3w4", true, true),
    ] {
        type Learn = fn(&Secrets, &str);
        let all: [(Learn, bool); 4] = [
            (Secrets::learn, true),
            (Secrets::learn_unless_word, of_value),
            (Secrets::learn_value, of_value),
            (Secrets::learn_named, of_name),
        ];
        for (at, (learn, is_learned)) in all.into_iter().enumerate() {
            let secrets = Secrets::new(HashKey::derive("k"));
            learn(&secrets, text);
            assert_eq!(secrets.mask(text) == "***", is_learned, "{text} {at}");
            assert_eq!(
                secrets.mask_finished(text) == "***",
                is_learned && at < 2,
                "{text} {at}"
            );
        }
    }
}

#[test]
fn a_mark_is_made_once_and_learns_every_text_below() {
    let secrets = Secrets::new(HashKey::derive("k"));
    for mark in [json!({"$secret": "x1y2z3w4"}), json!({"$unknown": true})] {
        assert_eq!(secrets.mark(&mark), mark);
    }
    assert_eq!(secrets.mask("x1y2z3w4"), "x1y2z3w4");
    let value = json!({"a": ["x1y2z3w4", {"b": "q9w8e7r6"}], "n": 5});
    assert_eq!(secrets.mark(&value), secrets.marked(&value));
    assert_eq!(secrets.mask("x1y2z3w4 q9w8e7r6"), "*** ***");
    let hash = secrets.hash(b"abc");
    assert_eq!(hash.len(), 16);
    assert_eq!(secrets.marked(&json!("abc")), json!({"$secret": hash}));
    assert_eq!(secrets.marked(&json!(5)), json!({"$secret": secrets.hash(b"5")}));
}

#[test]
fn a_key_is_kept_as_bytes_and_a_registry_shares_what_it_learned() {
    assert_eq!(HashKey::from_bytes([7; 32]).to_bytes(), [7; 32]);
    let (one, two) = (HashKey::random().to_bytes(), HashKey::random().to_bytes());
    assert!(one[..16] != two[..16] && one[16..] != two[16..] && one[..16] != one[16..]);
    let first = Secrets::new(HashKey::derive("one"));
    let second = first.with_key(HashKey::derive("two"));
    first.learn("x1y2z3w4");
    assert_eq!(second.mask("x1y2z3w4"), "***");
    assert_eq!(second.hash(b"a"), Secrets::new(HashKey::derive("two")).hash(b"a"));
}

/// A resource of a Spec: a Service with a name, and a text that has it too.
fn service(name: &str) -> Resource {
    Resource {
        id: format!("v1:Service:shop:{name}").parse().unwrap(),
        runtime: konverge_base::model::spec::RuntimeKind::Kubernetes,
        attributes: json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "annotations": {"name": name}},
            "spec": {"externalName": name, "selector": {"app": name}}})
        .as_object()
        .unwrap()
        .clone(),
        depends_on: Vec::new(),
        extensions: serde_json::Map::new(),
        sharing: konverge_base::model::spec::Sharing::default(),
    }
}

#[test]
fn a_name_of_the_spec_stays_and_a_text_does_not() {
    let secrets = Secrets::new(HashKey::derive("k"));
    let name = "wordpress-database-host";
    secrets.learn_value(name);
    let resource = service(name);
    let attributes = Value::Object(resource.attributes.clone());
    // Not in the Spec yet: masked everywhere.
    let masked = secrets.mask_value(&attributes);
    assert!(masked_value::is_secret(&masked["metadata"]["name"]), "{masked}");
    secrets.learn_names(&[resource]);
    let masked = secrets.mask_value(&attributes);
    assert_eq!(masked["metadata"]["name"], name);
    assert_eq!(masked["spec"], attributes["spec"]);
    assert!(
        masked_value::is_secret(&masked["metadata"]["annotations"]["name"]),
        "{masked}"
    );
    assert_eq!(
        secrets.mask_value_at(&"/spec/selector/app".into(), &json!(name)),
        name
    );
    assert!(masked_value::is_secret(
        &secrets.mask_value_at(&"/spec/image".into(), &json!(name))
    ));
    assert!(!secrets.hides(&"/metadata/name".into(), name) && secrets.hides(&"/data/name".into(), name));
    // A longer name that holds it is another name.
    assert_eq!(
        secrets.mask_value_at(&"/metadata/name".into(), &json!(format!("{name}-x"))),
        "***-x"
    );
    assert_eq!(secrets.mask(&format!("no host {name}")), "no host ***");
}

#[test]
fn what_was_fetched_and_what_the_run_logs_in_with_is_masked_in_names_too() {
    for learn in [Secrets::learn_fetched, Secrets::learn] {
        let secrets = Secrets::new(HashKey::derive("k"));
        let name = "wordpress-database-host";
        learn(&secrets, name);
        secrets.learn_value(name);
        let resource = service(name);
        let attributes = Value::Object(resource.attributes.clone());
        secrets.learn_names(&[resource]);
        assert!(!secrets.mask_value(&attributes).to_string().contains(name));
        assert!(secrets.hides(&"/metadata/name".into(), name));
    }
}
