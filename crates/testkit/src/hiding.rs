//! What a pull request adds to hide a text from rules: a Secret with it, or a name that speaks of a secret.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::random::Random;

/// An object of this name that holds the text: as a whole, in part, encoded, or among others.
pub fn object(text: &str, name: &str, namespace: &str, random: &mut Random) -> Value {
    let chars: Vec<char> = text.chars().collect();
    let (from, to) = (random.below(chars.len()), random.below(chars.len()));
    let part: String = chars[from.min(to)..=from.max(to)].iter().collect();
    let value = match random.below(4) {
        0 => part,
        1 => STANDARD.encode(text),
        2 => format!("{text}\n{part}"),
        _ => text.to_owned(),
    };
    let of = |version: &str, kind: &str, key: &str, value: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, key: value});
    match random.below(5) {
        0 => of("v1", "Secret", "stringData", json!({"a": value})),
        1 => of("v1", "ConfigMap", "data", json!({"account_password": value})),
        2 => {
            let containers = json!([{"name": "a", "image": "example.com/a:1", "env": [{"name": "API_TOKEN", "value": value}]}]);
            of(
                "v1",
                "PodTemplate",
                "template",
                json!({"spec": {"containers": containers}}),
            )
        }
        3 => {
            let manifest = format!("kind: Secret\nstringData: {{a: {}}}\n", json!(value));
            of("v1", "ConfigMap", "data", json!({"manifest": manifest}))
        }
        _ => of("v1", "Secret", "data", json!({"a": STANDARD.encode(value)})),
    }
}

/// A text that an author may choose where Kubernetes takes any name.
pub fn text(random: &mut Random) -> String {
    let letters: Vec<char> = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.:_=+@é"
        .chars()
        .collect();
    let length = 4 + random.below(36);
    let middle = (0..length).map(|_| *random.pick(&letters));
    // Neither a number nor a date, and more than dots.
    format!("r{}x", middle.collect::<String>())
}
