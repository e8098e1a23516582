use super::*;

fn finder(ids: &[&str]) -> ValueFinder {
    let ids: Vec<ResourceId> = ids.iter().map(|id| id.parse().unwrap()).collect();
    ValueFinder::new(
        ids.iter(),
        &Digest::of_bytes(b"spec"),
        SecretCopies::find(&[]),
        &[],
    )
}

fn fill(finder: &mut ValueFinder, id: &str, body: Value) -> Result<FilledObject, Vec<ExportRefusal>> {
    finder.fill(&id.parse().unwrap(), body.as_object().unwrap().clone())
}

fn names(filled: &FilledObject) -> Vec<(&str, &str)> {
    let values = filled.places.iter().flat_map(ValuePlace::values);
    values
        .map(|value| (value.group.key(), value.name.as_str()))
        .collect()
}

#[test]
fn what_the_spec_says_is_filled_in_and_the_rest_is_a_value() {
    let mut finder = finder(&["v1:Service:ns:web", "v1:ConfigMap:ns:c", "aws:b"]);
    let service = json!({"spec": {"ports": [{"port": 80}], "clusterIP": "$kusion_path.aws:b.ip"}});
    let service = fill(&mut finder, "v1:Service:ns:web", service).unwrap();
    assert_eq!(names(&service), [("references", "aws:b.ip")]);
    let config = json!({"data": {
        "port": "$kusion_path.v1:Service:ns:web.spec.ports[0].port",
        "url": "http://x:$kusion_path.v1:Service:ns:web.spec.ports[0].port/",
        "ip": "$kusion_path.v1:Service:ns:web.spec.clusterIP",
        "both": "$kusion_path.v1:Service:ns:web.status.ip:$kusion_path.v1:Service:ns:web.spec.ports[0].port",
        "store": "a ref+vault://db#/p b",
        "other": "a preference, ${x} {{ y }}",
    }});
    let config = fill(&mut finder, "v1:ConfigMap:ns:c", config).unwrap();
    let data = &config.body["data"];
    assert_eq!(
        (&data["port"], &data["url"]),
        (&json!(80), &json!("http://x:80/"))
    );
    assert_eq!(data["other"], "a preference, ${x} {{ y }}");
    assert_eq!(
        names(&config),
        [
            ("references", "v1:Service:ns:web.spec.clusterIP"),
            ("references", "v1:Service:ns:web.status.ip"),
            ("references", "ref+vault://db#/p"),
        ]
    );
    let both = &config.places[1];
    assert_eq!((both.path.as_str(), both.parts.len()), ("/data/both", 3));
    assert_eq!(data["both"], both.token.as_str());
    assert_eq!(both.parts[2], ValuePart::Text("80".to_owned()));
}

#[test]
fn data_of_a_secret_is_never_in_the_text_and_not_in_a_reference_to_it() {
    let mut finder = finder(&["v1:Secret:ns:s", "x:Sealed:ns:t", "v1:ConfigMap:ns:c"]);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "aHVudGVyMg==", "empty": ""},
        "stringData": {"b": "hunter2", "c": "ref+vault://x#/y"}, "metadata": {"name": "s"}});
    let secret = fill(&mut finder, "v1:Secret:ns:s", secret).unwrap();
    let text = Value::Object(secret.body.clone()).to_string();
    assert!(
        !text.contains("hunter2") && !text.contains("aHVudGVyMg"),
        "{text}"
    );
    assert_eq!(secret.body["data"]["empty"], "");
    assert_eq!(
        names(&secret),
        [
            ("secrets", "v1:Secret:ns:s/data/a"),
            ("secrets", "v1:Secret:ns:s/stringData/b"),
            ("secrets", "v1:Secret:ns:s/stringData/c"),
        ]
    );
    let inside = json!({"apiVersion": "x.io/v1", "kind": "Sealed", "spec": {"template":
        {"apiVersion": "v1", "kind": "Secret", "stringData": {"p": "hunter2"}}}});
    let inside = fill(&mut finder, "x:Sealed:ns:t", inside).unwrap();
    assert_eq!(
        names(&inside),
        [("secrets", "x:Sealed:ns:t/spec/template/stringData/p")]
    );
    let copy = json!({"data": {"p": "$kusion_path.v1:Secret:ns:s.stringData.b"}});
    let copy = fill(&mut finder, "v1:ConfigMap:ns:c", copy).unwrap();
    assert_eq!(names(&copy), [("references", "v1:Secret:ns:s.stringData.b")]);
}

#[test]
fn what_no_reader_of_texts_sees_is_refused() {
    let mut finder = finder(&["a", "b", "c"]);
    let last = "kubectl.kubernetes.io/last-applied-configuration";
    for (body, expected) in [
        (
            json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": 5}}),
            Why::NotText("/data/a".into()),
        ),
        (
            json!({"metadata": {"annotations": {last: "{}"}}}),
            Why::Annotation(last.to_owned()),
        ),
    ] {
        let refusals = fill(&mut finder, "a", body).err().unwrap();
        assert_eq!(refusals[0].why, expected);
    }
    for text in ["$kusion_path.none.x", "ref+vault://../x"] {
        let refusals = fill(&mut finder, "a", json!({"x": text})).err().unwrap();
        assert!(matches!(&refusals[0].why, Why::Reference(_)), "{text}");
    }
}
