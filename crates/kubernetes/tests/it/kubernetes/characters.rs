//! Every character that a text may hold reaches the cluster as it is.

use konverge_base::model::plan::Action;
use serde_json::{Map, Value, json};

use super::three_way::config_map;
use crate::support::{
    cluster::Cluster,
    objects::Objects,
    stack::{TestStack, action},
};

/// The number of characters in one value.
const IN_A_VALUE: usize = 0x1000;
/// The number of values in one ConfigMap: about 800 KB of the 1 MiB that it may have.
const IN_A_MAP: usize = 50;

/// The data of ConfigMaps that together hold every Unicode scalar. In the basic plane each one stands between spaces,
/// because YAML folds spaces around a line break.
fn every_scalar() -> Vec<Map<String, Value>> {
    let scalars: Vec<char> = (0..=u32::from(char::MAX)).filter_map(char::from_u32).collect();
    let text = |block: &[char]| -> String {
        let one = |c: &char| {
            if *c < '\u{10000}' {
                format!(" {c} .")
            } else {
                c.to_string()
            }
        };
        block.iter().map(one).collect()
    };
    let blocks: Vec<_> = scalars.chunks(IN_A_VALUE).collect();
    let map = |blocks: &[&[char]]| -> Map<String, Value> {
        let value = |block: &&[char]| (format!("from-{:x}", u32::from(block[0])), json!(text(block)));
        blocks.iter().map(value).collect()
    };
    blocks.chunks(IN_A_MAP).map(map).collect()
}

/// The same data with another beginning of each value.
fn begun_with(data: &Map<String, Value>, beginning: &str) -> Value {
    let begin = |(key, text): (&String, &Value)| {
        (
            key.clone(),
            json!(format!("{beginning}{}", text.as_str().unwrap())),
        )
    };
    Value::Object(data.iter().map(begin).collect())
}

#[tokio::test]
async fn every_character_is_written_as_it_is() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("characters").await, Objects::of(cluster).await);
    let mut stack = TestStack::new("characters", cluster.kubeconfig());
    for (number, data) in every_scalar().iter().enumerate() {
        let of = |name: &str, data: Value| config_map(&ns, &format!("{name}-{number}"), data);
        let found = of("found", json!({"theirs": "1", "from-0": "2"}));
        objects.create(&found).await;
        let first = [of("made", begun_with(data, "")), found.clone()];
        stack.apply(&first[..1]).await;
        let second = [
            of("made", begun_with(data, "2")),
            of("found", begun_with(data, "")),
        ];
        for wanted in [&first[..1], &second[..]] {
            stack.apply(wanted).await;
            for object in wanted {
                let live = objects.get(object).await.unwrap();
                for (key, text) in object["data"].as_object().unwrap() {
                    assert!(
                        live["data"][key] == *text,
                        "{number} {key}: {}",
                        first_difference(&live["data"][key], text)
                    );
                }
            }
            let again = stack.plan_well(wanted).await;
            assert_eq!(again.public.summary.unchanged, wanted.len(), "{number}");
        }
        stack.apply(&[]).await;
    }
}

fn first_difference(found: &Value, wanted: &Value) -> String {
    let [found, wanted] = [found, wanted].map(|text| text.as_str().unwrap_or_default().chars());
    let pair = found.zip(wanted).find(|(found, wanted)| found != wanted);
    format!("{pair:?}")
}

/// The characters that YAML treats specially, and one of each other kind.
const AWKWARD: [char; 16] = [
    '\0',
    '\t',
    '\n',
    '"',
    '\\',
    '\u{7f}',
    '\u{80}',
    '\u{85}',
    '\u{9f}',
    '\u{a0}',
    '\u{2028}',
    '\u{2029}',
    '\u{feff}',
    '\u{fffe}',
    '\u{ffff}',
    '\u{1f600}',
];

#[tokio::test]
async fn keys_are_written_as_they_are_too() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("awkward-keys").await,
        Objects::of(cluster).await,
    );
    let spec = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "words.characters.example.com"},
        "spec": {"group": "characters.example.com", "scope": "Namespaced", "names": {"kind": "Word", "plural": "words", "singular": "word"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}});
    objects.create_definition(&definition).await;
    let mut stack = TestStack::new("awkward-keys", cluster.kubeconfig());
    let word = |value: &str| {
        let spec: Map<String, Value> = AWKWARD
            .iter()
            .map(|c| (format!("a{c} b"), json!(value)))
            .collect();
        json!({"apiVersion": "characters.example.com/v1", "kind": "Word", "metadata": {"name": "w", "namespace": ns}, "spec": spec})
    };
    for value in ["1", "2"] {
        let object = word(value);
        stack.apply(std::slice::from_ref(&object)).await;
        assert_eq!(objects.get(&object).await.unwrap()["spec"], object["spec"]);
        let again = stack.plan_well(std::slice::from_ref(&object)).await;
        assert_eq!(action(&again, &object), Action::Unchanged);
    }
}
