use super::*;
use proptest::prelude::*;

fn labels(text: &str) -> Vec<String> {
    let template = SecretTemplate::parse(text).unwrap();
    let references = template.iter().flat_map(SecretTemplate::references);
    references
        .map(|reference| format!("{} [{reference}]", reference.label()))
        .collect()
}

#[test]
fn both_ways_to_write_a_reference_are_read() {
    for (text, label) in [
        ("ref+vault://pay/db#/password", "vault:pay/db#/password"),
        ("secretref+vault://pay/db#/password+", "vault:pay/db#/password"),
        ("ref+awsssm:///prod/db?version=3", "awsssm:/prod/db"),
        ("ref+db://pay?version=7&as=version", "db:pay"),
        ("ref://pay/password?version=7", "default:pay#/password"),
        ("ref://pay", "default:pay"),
        ("ref+k8s://v1/Secret/ns/name/key", "k8s:v1/Secret/ns/name/key"),
    ] {
        let template = SecretTemplate::parse(text).unwrap().unwrap();
        assert_eq!(template.whole().unwrap().label(), label, "{text}");
    }
    let versions = SecretTemplate::parse("ref+db://pay?version=7&as=version")
        .unwrap()
        .unwrap();
    assert!(versions.is_plain());
    assert_eq!(versions.whole().unwrap().version.as_deref(), Some("7"));
}

#[test]
fn without_a_store_there_is_no_reference() {
    for text in ["ref+://pay", "see ref+://pay and ref+vault:/pay"] {
        assert!(SecretTemplate::parse(text).unwrap().is_none(), "{text}");
    }
}

#[test]
fn references_stand_inside_a_longer_text() {
    let text = "postgres://app:ref+vault://pay#/password+@host/ref+env://NAME+?x=1";
    let template = SecretTemplate::parse(text).unwrap().unwrap();
    assert_eq!(
        labels(text),
        [
            "vault:pay#/password [ref+vault://pay#/password]",
            "env:NAME [ref+env://NAME]"
        ]
    );
    assert!(template.whole().is_none());
    assert_eq!(template.to_string(), text);
    assert_eq!(
        labels("{\"a\":\"ref+vault://x#/a\",\"b\":\"ref+vault://x#/b\"}").len(),
        2
    );
}

#[test]
fn other_texts_contain_none() {
    for text in [
        "href://a",
        "see ref://a",
        "ref+",
        "ref+ vault://x",
        "prefer+1",
        "ref+vault:x",
        "ref",
    ] {
        assert_eq!(SecretTemplate::parse(text), Ok(None), "{text}");
    }
}

#[test]
fn what_could_lead_out_of_a_path_is_refused() {
    for text in [
        "ref+vault://",
        "ref+vault://a/../b",
        "ref+vault://a/./b",
        "ref+vault://a//b",
        "ref+vault://a/",
        "ref+vault://a%2Fb",
        "ref+vault://a*",
        "ref+vault://a#/x%2Fy",
        "ref+vault://a#/x//y",
        "ref+vault://a?version=",
        "ref+vault://a?version=1/../2",
        "ref+vault://a?as=value",
        "ref://../a",
        "ref://",
    ] {
        assert!(SecretTemplate::parse(text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_fail_and_a_template_is_read_back_as_itself(text in ".*") {
        if let Ok(Some(template)) = SecretTemplate::parse(&text) {
            let again = SecretTemplate::parse(&template.to_string());
            prop_assert_eq!(again.unwrap().unwrap().to_string(), template.to_string());
        }
    }

    #[test]
    fn a_path_never_leaves_its_components(path in "[a-z./%*]{1,12}") {
        if let Ok(Some(template)) = SecretTemplate::parse(&format!("ref+vault://{path}#/k")) {
            for reference in template.references() {
                let path = reference.path.trim_start_matches('/');
                prop_assert!(path.split('/').all(|part| !part.is_empty() && part != "." && part != ".."));
            }
        }
    }
}

#[test]
fn a_generated_reference_has_the_names_it_was_given() {
    let made = SecretReference::generated("shop/db", "password").unwrap();
    assert_eq!(
        (made.path.as_str(), made.keys.as_slice()),
        ("shop/db", ["password".to_owned()].as_slice())
    );
    for (path, key) in [
        ("shop/db", "a/b"),
        ("shop?version=1", "password"),
        ("shop db", "password"),
    ] {
        assert_eq!(SecretReference::generated(path, key), None, "{path} {key}");
    }
}

#[test]
fn a_reference_is_written_as_it_was_read() {
    for text in [
        "ref+env://N",
        "a ref+env://N",
        "ref+env://N+b",
        "ref+a://x+ref+b://y",
        "ref+my-store_2:///x:y#/a/b",
        "ref+db://pay?version=7&as=version&at=hash:8&x=#/k",
        "ref://pay/password?version=7",
        "ref://pay",
    ] {
        let template = SecretTemplate::parse(text).unwrap().unwrap();
        assert_eq!(template.to_string(), text);
        assert_eq!(
            SecretTemplate::from_stand_in(&template.json_stand_in()),
            Some(template.clone())
        );
        assert_eq!(
            SecretTemplate::from_stand_in(&template.to_string()),
            Some(template)
        );
    }
    let long = SecretTemplate::parse("x secretref+env://N").unwrap().unwrap();
    assert_eq!(long.to_string(), "x ref+env://N");
    let two = SecretTemplate::parse("ref+a://x+ref+b://y").unwrap().unwrap();
    assert_eq!((two.parts.len(), two.whole()), (2, None));
    assert!(
        !SecretTemplate::parse("ref+a://x?as=version+ref+b://y")
            .unwrap()
            .unwrap()
            .is_plain()
    );
}

#[test]
fn a_label_names_the_store_the_keys_and_a_version_of_the_author() {
    for (text, label, pinned, is_generated) in [
        (
            "ref+db://a?version=7#/k/l",
            "db:a#/k/l",
            "db:a?version=7#/k/l",
            false,
        ),
        ("ref+db://a?at=7#k", "db:a#/k", "db:a#/k", false),
        (
            "ref://a/k?version=7",
            "default:a#/k",
            "default:a?version=7#/k",
            false,
        ),
        ("ref+generated://a#/k", "generated:a#/k", "generated:a#/k", true),
    ] {
        let template = SecretTemplate::parse(text).unwrap().unwrap();
        let reference = template.whole().unwrap();
        assert_eq!(
            (reference.label(), reference.pinned_label()),
            (label.to_owned(), pinned.to_owned())
        );
        assert_eq!(reference.is_generated(), is_generated, "{text}");
        assert_eq!(reference.as_written().at, None);
    }
}

#[test]
fn a_broken_rule_is_told_with_the_reference_alone() {
    for (text, reference) in [
        ("a ref+db://x* b", "ref+db://x*"),
        ("a secretref+db://x?at= b", "secretref+db://x?at="),
        ("ref+db://x?at=1/2", "ref+db://x?at=1/2"),
        ("ref+db://x?version=a:b", "ref+db://x?version=a:b"),
        ("ref+db:////x", "ref+db:////x"),
        ("ref+db://x#/a?b", "ref+db://x#/a?b"),
        ("ref+db://x#/a#b", "ref+db://x#/a#b"),
        (" ref://a/b\u{1}c", "ref://a/b\\u{1}c"),
        ("ref://a/b%c", "ref://a/b%c"),
    ] {
        assert_eq!(SecretTemplate::parse(text).unwrap_err().text, reference, "{text}");
    }
    let long = format!("ref+db://*{}", "x".repeat(200));
    assert_eq!(SecretTemplate::parse(&long).unwrap_err().text, long[..120]);
}
