use super::super::{HashKey, Secrets};
use super::*;
use serde_json::json;

fn secrets() -> Secrets {
    Secrets::new(HashKey::derive("k"))
}

fn object(secrets: &Secrets, object: &Value) -> Value {
    let map = object.as_object().expect("an object");
    Value::Object(mask_object(secrets, map).into_owned())
}

fn terraform(secrets: &Secrets, kind: &str, body: &Value) -> Value {
    let map = body.as_object().expect("an object");
    Value::Object(mask_terraform(secrets, kind, map).into_owned())
}

#[test]
fn the_configuration_of_a_provider_is_masked_with_its_resource() {
    let secrets = secrets();
    let resource = Resource {
        id: "hashicorp:random:random_pet:a".parse().expect("an id"),
        runtime: RuntimeKind::Terraform,
        attributes: Map::new(),
        depends_on: Vec::new(),
        extensions: json!({"providerMeta": {"password": "hunter2222"}, "resourceType": "random_pet"})
            .as_object()
            .expect("an object")
            .clone(),
        sharing: konverge_base::model::spec::Sharing::default(),
    };
    let masked = mask_resource(&secrets, &resource);
    let password = &masked.extensions["providerMeta"]["password"];
    assert!(masked_value::is_secret(password), "{password}");
    assert_eq!(masked.extensions["resourceType"], "random_pet");
}

#[test]
fn secret_data_is_marked_and_learned() {
    let secrets = secrets();
    let given = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{\"data\":1}"}},
        "data": {"a": "aHVudGVyMjIy"}, "stringData": {"b": "hunter222"}});
    let masked = object(&secrets, &given);
    assert_eq!(masked["data"]["a"], masked["stringData"]["b"]);
    let text = masked.to_string();
    assert!(
        !text.contains("hunter222") && !text.contains("aHVudGVyMjIy") && !text.contains("\\\"data\\\""),
        "{text}"
    );
    assert_eq!(secrets.mask("x hunter222 y aHVudGVyMjIy"), "x *** y ***");
    assert_eq!(
        super::super::secret_texts(&given)[1..4],
        ["hunter222", "aHVudGVyMjIy", "hunter222"]
    );
}

#[test]
fn no_mark_hides_a_secret() {
    let spec = json!({"a": {"$unknown": {"password": "hunter222"}}, "b": {"$secret": {"ref": 5, "password": "hunter333"}}});
    let text = object(&secrets(), &json!({"kind": "Database", "spec": spec})).to_string();
    assert!(
        !text.contains("hunter222") && !text.contains("hunter333"),
        "{text}"
    );
}

#[test]
fn a_document_with_something_like_a_mark_hides_no_secret() {
    for document in [
        json!({"password": {"$secret": "Hunter_222"}}),
        json!({"a": {"$secret": {"ref": "x", "password": "Hunter_222"}}}),
        json!([{"kind": "Secret", "stringData": {"$secret": "Hunter_222"}}]),
    ] {
        let text = document.to_string();
        let masked = object(
            &secrets(),
            &json!({"kind": "ConfigMap", "data": {"a.json": text}}),
        )
        .to_string();
        assert!(!masked.contains("Hunter_222"), "{text}: {masked}");
    }
}

#[test]
fn a_secret_inside_something_else_is_one() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "aHVudGVyMjIy"}});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [{"kind": "ConfigMap", "data": {"x": "y"}}, secret]});
    let application = json!({"apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "spec": {"components": [
        {"name": "s", "type": "k8s-objects", "properties": {"objects": [secret]}}]}});
    let in_json = json!({"kind": "ConfigMap", "data": {"manifest.json": secret.to_string()}});
    let in_yaml = json!({"kind": "ConfigMap", "data": {"manifest.yaml":
        "apiVersion: v1\nkind: Secret\nstringData:\n  a: hunter222\n---\nkind: ConfigMap\ndata: {b: shown}\n"}});
    for wrapper in [&list, &application, &in_json, &in_yaml] {
        let secrets = secrets();
        let text = object(&secrets, wrapper).to_string();
        assert!(
            !text.contains("aHVudGVyMjIy") && !text.contains("hunter222"),
            "{text}"
        );
        assert!(text.contains("$secret"), "{text}");
        assert!(
            !super::super::secret_texts(wrapper).is_empty() || text.contains("manifest"),
            "{text}"
        );
    }
    assert_eq!(object(&secrets(), &list)["items"][0]["data"]["x"], "y");
    let text = object(&secrets(), &in_yaml).to_string();
    assert!(text.contains("b: shown"), "the rest can be reviewed: {text}");
}

/// The items of such a list have no kind of their own, as the API server writes them.
#[test]
fn the_items_of_a_list_of_secrets_are_secrets() {
    let secrets = secrets();
    let mark = |text: &str| secrets.mark(&json!(text));
    let given = json!({"kind": "SecretList", "apiVersion": "v1", "items": [
        {"metadata": {"name": "a"}, "data": {"p": "aHVudGVyMjIy"}},
        {"kind": "Secret", "metadata": {"name": "b"}, "data": {"p": "aHVudGVyMzMz"}},
        {"kind": "ConfigMap", "data": {"p": "shown"}}, 5]});
    let masked = json!({"kind": "SecretList", "apiVersion": "v1", "items": [
        {"metadata": {"name": "a"}, "data": {"p": mark("hunter222")}},
        {"kind": "Secret", "metadata": {"name": "b"}, "data": {"p": mark("hunter333")}},
        {"kind": "ConfigMap", "data": {"p": "shown"}}, 5]});
    assert_eq!(object(&secrets, &given), masked);
    let other = json!({"kind": "ConfigMapList", "items": [{"data": {"p": "shown"}}]});
    assert_eq!(object(&secrets, &other), other);
    let inside = json!({"kind": "ConfigMap", "data": {"list.json": given.to_string()}});
    let text = object(&secrets, &inside).to_string();
    assert!(!text.contains("aHVudGVy") && text.contains("shown"), "{text}");
}

#[test]
fn data_of_any_shape_is_secret() {
    for odd in [
        json!({"kind": "Secret", "stringData": "hunter222"}),
        json!({"kind": "Secret", "stringData": ["hunter222", {"a": ["hunter222"]}]}),
        json!({"kind": "Secret", "data": {"a": {"b": "aHVudGVyMjIy"}}}),
        json!({"kind": "SopsSecret", "spec": {"secretTemplates": [{"stringData": {"a": "hunter222"}}]}}),
        json!({"kind": "Secret", "data": "aHVudGVyMjIy"}),
    ] {
        let text = object(&secrets(), &odd).to_string();
        assert!(
            !text.contains("aHVudGVyMjIy") && !text.contains("hunter222"),
            "{text}"
        );
    }
}

#[test]
fn names_of_attributes_say_what_is_secret() {
    let secrets = secrets();
    let body = json!({"account_name": "root", "account_password": "Kusion123456", "pin_password": 123_456,
        "settings": [{"auth_token": "hunter2222"}], "private_key": "x1y2z3", "secret_name": "shown",
        "token_ttl": 60, "password": "$kusion_path.a.b", "passwords": {"admin": "hunter3333"},
        "address": "mysql://root:hunter4444@db/x", "empty": {"password": ""}});
    let masked = terraform(&secrets, "alicloud_db_account", &body);
    let text = masked.to_string();
    for secret in [
        "Kusion123456",
        "123456",
        "hunter2222",
        "x1y2z3",
        "hunter3333",
        "hunter4444",
    ] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    for shown in ["account_name", "root", "secret_name", "token_ttl", "address"] {
        assert_eq!(
            text.matches(&format!("\"{shown}\"")).count(),
            1,
            "{shown} in {text}"
        );
    }
    assert_eq!(masked["secret_name"], "shown");
    assert_eq!(masked["password"], "$kusion_path.a.b");
    assert_eq!(masked["empty"]["password"], "");
    assert_eq!(secrets.mask("says Kusion123456"), "says ***");
    let secret = json!({"data": {"a": "hunter5555"}, "metadata": {"name": "n"}});
    let masked = terraform(&secrets, "kubernetes_secret_v1", &secret);
    assert!(masked["data"]["a"].get("$secret").is_some() && masked["metadata"]["name"] == "n");
}

#[test]
fn names_of_secrets_stay_readable() {
    let secrets = secrets();
    let pod = json!({"kind": "Deployment", "spec": {"imagePullSecrets": [{"name": "pull"}], "existingSecret": "grafana-admin",
        "automountServiceAccountToken": true, "env": [
            {"name": "DB_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}},
            {"name": "PATH_TO_TOKEN", "value": "$(DIR)/token"}]}});
    assert_eq!(object(&secrets, &pod), pod);
    let clear = json!({"kind": "Deployment", "env": [{"name": "DB_PASSWORD", "value": "long-forgotten-words"}],
        "oidc": {"clientSecret": "abc"}});
    let masked = object(&secrets, &clear);
    assert!(masked["env"][0]["value"].get("$secret").is_some(), "{masked}");
    assert!(
        masked["oidc"]["clientSecret"].get("$secret").is_some(),
        "{masked}"
    );
    // It may be a name: elsewhere it stays readable.
    assert_eq!(secrets.mask("long-forgotten-words"), "long-forgotten-words");
}

/// The type of a Terraform resource says whether its content is secret, and a name of a provider's setting.
#[test]
fn plain_resources_and_settings_stay_as_they_are() {
    let secrets = secrets();
    let body = json!({"value": "plain words", "data": "more of them"});
    assert_eq!(terraform(&secrets, "acme_setting", &body), body);
    assert_ne!(terraform(&secrets, "acme_secret_version", &body), body);
    let content = json!({"content": "plain words", "filename": "a"});
    assert_eq!(terraform(&secrets, "local_file", &content), content);
    let masked = terraform(&secrets, "local_sensitive_file", &content);
    assert_eq!(
        (masked["content"].get("$secret").is_some(), &masked["filename"]),
        (true, &json!("a"))
    );
    let parameter = json!({"type": "String", "value": "plain words"});
    assert_ne!(terraform(&secrets, "aws_ssm_parameter", &parameter), parameter);
    let configuration = json!({"region": "eu-central-1", "access_key": "words"});
    let masked = mask_provider(&secrets, &configuration);
    assert_eq!(masked["region"], "eu-central-1");
    assert!(masked["access_key"].get("$secret").is_some(), "{masked}");
}

#[test]
fn only_data_is_decoded() {
    let secrets = secrets();
    let of = |part: &str| {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", part: {"a": "aHVudGVyMg=="}});
        object(&secrets, &secret)[part]["a"].clone()
    };
    let clear = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"a": "hunter2"}});
    assert_eq!(of("data"), object(&secrets, &clear)["stringData"]["a"]);
    assert_ne!(of("stringData"), of("data"));
}

/// The stand-in for a secret in a text.
fn stand_in(secrets: &Secrets, secret: &str) -> String {
    format!("$secret:{}", secrets.hash(secret.as_bytes()))
}

/// A text in a ConfigMap, as it is shown.
fn shown(secrets: &Secrets, text: &str) -> Value {
    object(secrets, &json!({"kind": "ConfigMap", "data": {"a": text}}))["data"]["a"].clone()
}

#[test]
fn marks_stay_wherever_they_stand() {
    let secrets = secrets();
    let mark = json!({"$secret": "0123456789abcdef"});
    let reference = json!({"$secret": {"ref": "db:x", "version": "7"}});
    for given in [
        mark.clone(),
        json!({"password": mark, "passwords": [reference]}),
        json!({"kind": "Secret", "data": {"a": mark}, "stringData": {"a": reference, "b": {"$unknown": true}}}),
        json!({"spec": {"a": mark, "b": [reference]}}),
    ] {
        assert_eq!(object(&secrets, &given), given);
        assert_eq!(terraform(&secrets, "acme", &given), given);
        assert_eq!(mask_provider(&secrets, &given), given);
    }
}

#[test]
fn every_value_of_a_secret_is_masked_but_null() {
    let secrets = secrets();
    let given = json!({"kind": "Secret", "data": {"a": null, "n": 5, "r": "ref+db://a#/k", "x": "?"}, "stringData": {"r": "ref+db://a#/k"}});
    let reference = json!({"$secret": {"ref": "db:a#/k"}});
    let masked = json!({"kind": "Secret",
        "data": {"a": null, "n": secrets.marked(&json!(5)), "r": reference, "x": secrets.marked(&json!("?"))},
        "stringData": {"r": reference}});
    assert_eq!(object(&secrets, &given), masked);
    let encoded = json!({"kind": "Secret", "data": {"a": "cmVmK2RiOi8vYSMvaw=="}});
    assert_eq!(object(&secrets, &encoded)["data"]["a"], reference);
}

#[test]
fn only_a_name_of_a_credential_is_one() {
    for name in [
        "key_name",
        "passphrase",
        "API-Token",
        "Private",
        "credentials",
        "dsn",
    ] {
        assert!(is_credential_name(name), "{name}");
    }
    for name in ["region", "host", ""] {
        assert!(!is_credential_name(name), "{name}");
    }
}

#[test]
fn all_below_a_credential_of_a_provider_is_masked() {
    let secrets = secrets();
    let given = json!({"token": {"n": 5, "b": true, "list": ["words"], "none": null, "r": "ref+db://a#/k"},
        "region": "eu", "n": 5, "url": "https://me:s3cret@host"});
    let masked = json!({
        "token": {"n": secrets.marked(&json!(5)), "b": secrets.marked(&json!(true)),
            "list": [secrets.marked(&json!("words"))], "none": null, "r": {"$secret": {"ref": "db:a#/k"}}},
        "region": "eu", "n": 5, "url": format!("https://me:{}@host", stand_in(&secrets, "s3cret"))});
    assert_eq!(mask_provider(&secrets, &given), masked);
}

#[test]
fn the_name_and_the_runtime_decide_about_a_value() {
    let secrets = secrets();
    let mark = |value: Value| secrets.marked(&value);
    let is_kubernetes = true;
    for (runs_in_kubernetes, given, masked) in [
        (
            is_kubernetes,
            json!({"token": 5, "password": 5}),
            json!({"token": 5, "password": mark(json!(5))}),
        ),
        (
            is_kubernetes,
            json!({"dbSecret": "an-object"}),
            json!({"dbSecret": "an-object"}),
        ),
        (
            is_kubernetes,
            json!({"dbSecret": "No_Object"}),
            json!({"dbSecret": mark(json!("No_Object"))}),
        ),
        (
            !is_kubernetes,
            json!({"dbSecret": "an-object"}),
            json!({"dbSecret": mark(json!("an-object"))}),
        ),
        (
            is_kubernetes,
            json!({"clientSecret": "an-object"}),
            json!({"clientSecret": mark(json!("an-object"))}),
        ),
        (
            is_kubernetes,
            json!({"passwords": {"a": "some words"}}),
            json!({"passwords": {"a": "some words"}}),
        ),
        (
            !is_kubernetes,
            json!({"passwords": {"a": "some words", "user": "root"}}),
            json!({"passwords": {"a": mark(json!("some words")), "user": "root"}}),
        ),
        (
            !is_kubernetes,
            json!({"passwords": ["some words", {"note": "plain words"}]}),
            json!({"passwords": [mark(json!("some words")), {"note": "plain words"}]}),
        ),
        (
            !is_kubernetes,
            json!({"set_sensitive": [{"name": "a.b", "value": "some words"}]}),
            json!({"set_sensitive": [{"name": "a.b", "value": mark(json!("some words"))}]}),
        ),
        (
            !is_kubernetes,
            json!({"sensitive_content": "some words", "secure_boot": "some words"}),
            json!({"sensitive_content": mark(json!("some words")), "secure_boot": "some words"}),
        ),
        (
            is_kubernetes,
            json!({"name": "DB_PASSWORD", "image": "plain words", "value": "some words"}),
            json!({"name": "DB_PASSWORD", "image": "plain words", "value": mark(json!("some words"))}),
        ),
        (
            is_kubernetes,
            json!({"name": "DB_SECRET", "value": "words"}),
            json!({"name": "DB_SECRET", "value": mark(json!("words"))}),
        ),
        (
            is_kubernetes,
            json!({"key": "api_token", "value": "words"}),
            json!({"key": "api_token", "value": mark(json!("words"))}),
        ),
        (
            is_kubernetes,
            json!({"name": "COLOR", "value": "words"}),
            json!({"name": "COLOR", "value": "words"}),
        ),
        (
            is_kubernetes,
            json!({"value": "words"}),
            json!({"value": "words"}),
        ),
        (is_kubernetes, json!({"password": ""}), json!({"password": ""})),
        (
            is_kubernetes,
            json!({"password": "${X}"}),
            json!({"password": "${X}"}),
        ),
        (
            is_kubernetes,
            json!({"password": true}),
            json!({"password": true}),
        ),
    ] {
        let shown = if runs_in_kubernetes {
            object(&secrets, &given)
        } else {
            terraform(&secrets, "acme", &given)
        };
        assert_eq!(shown, masked, "{given}");
    }
    let reference = object(&secrets, &json!({"password": "a ref+db://a#/k+ b"}));
    assert_eq!(reference["password"]["$secret"]["ref"], "db:a#/k");
}

#[test]
fn a_part_of_a_text_is_masked_and_a_whole_token_is_a_mark() {
    let secrets = secrets();
    let token = format!("ghp_{}", "x1".repeat(9));
    assert_eq!(shown(&secrets, &token), secrets.marked(&json!(token)));
    let address = "postgres://me:s3cret@host a://b:w0rd@c";
    let masked = format!(
        "postgres://me:{}@host a://b:{}@c",
        stand_in(&secrets, "s3cret"),
        stand_in(&secrets, "w0rd")
    );
    assert_eq!(shown(&secrets, address), masked);
    assert_eq!(shown(&secrets, "plain words"), "plain words");
}

#[test]
fn only_the_secrets_of_a_document_are_replaced() {
    let secrets = secrets();
    let hash = |secret: &str| stand_in(&secrets, secret);
    for (text, masked) in [
        (
            r#"{"password":"hunter_222","user":"rooty","empty":""}"#.to_owned(),
            format!(
                r#"{{"password":"{}","user":"rooty","empty":""}}"#,
                hash("hunter_222")
            ),
        ),
        (
            r#"{"password":123456,"port":8080}"#.to_owned(),
            format!(r#"{{"password":{},"port":8080}}"#, hash("123456")),
        ),
        (
            r#" [{"password":"hunter_222"}]"#.to_owned(),
            format!(r#" [{{"password":"{}"}}]"#, hash("hunter_222")),
        ),
        (
            r#"{"stringData":{"a":"hunter222","b":"hunter333","c":"hunter222","d":""}}"#.to_owned(),
            format!(
                r#"{{"stringData":{{"a":"{0}","b":"{1}","c":"{0}","d":""}}}}"#,
                hash("hunter222"),
                hash("hunter333")
            ),
        ),
        (
            r#"{"stringData":{"a":"x\"y","b":"hunter222 and","c":"hunter222"}}"#.to_owned(),
            format!(
                r#"{{"stringData":{{"a":"{}","b":"{}","c":"{}"}}}}"#,
                hash("x\"y"),
                hash("hunter222 and"),
                hash("hunter222")
            ),
        ),
        (
            "stringData:\n  a: hunter222\n".to_owned(),
            format!("stringData:\n  a: {}\n", hash("hunter222")),
        ),
        (
            "kind: Secret\ndata:\n  a: hunter_222\n".to_owned(),
            format!("kind: Secret\ndata:\n  a: {}\n", hash("hunter_222")),
        ),
        (
            "kind: Config\npassword: hunter_222\n".to_owned(),
            "kind: Config\npassword: hunter_222\n".to_owned(),
        ),
        (
            "{password: hunter_222}".to_owned(),
            "{password: hunter_222}".to_owned(),
        ),
        (
            "a Secret\npassword: hunter_222\n".to_owned(),
            "a Secret\npassword: hunter_222\n".to_owned(),
        ),
    ] {
        assert_eq!(shown(&secrets, &text), masked, "{text}");
    }
}

#[test]
fn a_document_in_a_document_is_masked_in_its_parts() {
    let secrets = secrets();
    let (one, two) = ("ot\"her\\word", "n0t\nthis\u{7f}");
    let inner = json!({"password": one, "user": "rooty", "list": [{"token": two}]});
    let mut text = inner.to_string();
    for level in 0..6 {
        let masked = shown(&secrets, &text);
        let mut read = masked.as_str().expect("a text").to_owned();
        for _ in 0..level {
            read = serde_json::from_str::<String>(&read).expect("a JSON string");
        }
        let expected = json!({"password": stand_in(&secrets, one), "user": "rooty", "list": [{"token": stand_in(&secrets, two)}]});
        assert_eq!(read, expected.to_string(), "{level}");
        text = json!(text).to_string();
    }
    let within = json!({"note": "a", "inner": inner.to_string(), "address": "a://b:w0rd@c"}).to_string();
    let masked = shown(&secrets, &within).to_string();
    assert!(
        masked.contains("rooty") && !masked.contains("her\\") && !masked.contains("w0rd"),
        "{masked}"
    );
    // The same secret, written in two ways.
    let twice = r#"{"password": "p/a1", "token": "p\/a1"}"#;
    let hash = stand_in(&secrets, "p/a1");
    assert_eq!(
        shown(&secrets, twice),
        format!(r#"{{"password": "{hash}", "token": "{hash}"}}"#)
    );
}

/// Each level is read once: otherwise the time doubles with each.
#[test]
fn documents_in_many_documents_take_no_time() {
    let secrets = secrets();
    let mut text = json!({"password": "hunter_222"}).to_string();
    for _ in 0..17 {
        text = json!(text).to_string();
    }
    assert!(
        text.len() < LARGEST_DOCUMENT && text.len() > LARGEST_DOCUMENT / 4,
        "{}",
        text.len()
    );
    assert!(!shown(&secrets, &text).to_string().contains("hunter_222"));
}

#[test]
fn a_document_in_which_a_secret_is_not_found_again_is_masked_as_a_whole() {
    let secrets = secrets();
    let number = "kind: Secret\nstringData:\n  a: 0x1F2\n";
    assert_eq!(shown(&secrets, number), secrets.marked(&json!(number)));
    let folded = "kind: Secret\nstringData:\n  a: >-\n    hunter222\n    hunter333\n";
    let hash = stand_in(&secrets, "hunter222 hunter333");
    assert_eq!(
        shown(&secrets, folded),
        format!("kind: Secret\nstringData:\n  a: >-\n    {hash}\n")
    );
}

#[test]
fn a_document_has_a_maximum_size() {
    let secrets = secrets();
    let document = r#"{"password":"hunter_222"}"#;
    for (size, is_masked) in [(LARGEST_DOCUMENT, true), (LARGEST_DOCUMENT + 1, false)] {
        let text = format!("{document}{}", " ".repeat(size - document.len()));
        let masked = shown(&secrets, &text).to_string();
        assert_eq!(!masked.contains("hunter_222"), is_masked, "{size}");
    }
}

#[test]
fn the_type_of_a_resource_is_in_its_extensions_or_its_id() {
    let resource = |runtime: RuntimeKind, extensions: Value| Resource {
        id: "hashicorp:acme:acme_secret_version:a".parse().expect("an id"),
        runtime,
        attributes: json!({"value": "plain words", "dbSecret": "an-object", "x": "ref+db://a#/k"})
            .as_object()
            .expect("an object")
            .clone(),
        depends_on: Vec::new(),
        extensions: extensions.as_object().expect("an object").clone(),
        sharing: konverge_base::model::spec::Sharing::default(),
    };
    let typed = json!({"resourceType": "acme_setting"});
    assert_eq!(
        type_of(&resource(RuntimeKind::Terraform, typed.clone())),
        "acme_setting"
    );
    assert_eq!(
        type_of(&resource(RuntimeKind::Terraform, json!({}))),
        "acme_secret_version"
    );
    let secrets = secrets();
    let masked = |runtime, extensions| mask_resource(&secrets, &resource(runtime, extensions)).attributes;
    let words = secrets.marked(&json!("plain words"));
    assert_eq!(masked(RuntimeKind::Terraform, json!({}))["value"], words);
    let setting = masked(RuntimeKind::Terraform, typed);
    assert_eq!(setting["value"], "plain words");
    assert_eq!(setting["dbSecret"], secrets.marked(&json!("an-object")));
    let object = masked(RuntimeKind::Kubernetes, json!({}));
    assert_eq!(
        (&object["value"], &object["dbSecret"]),
        (&json!("plain words"), &json!("an-object"))
    );
    assert_eq!(object["x"], json!({"$secret": {"ref": "db:a#/k"}}));
}
