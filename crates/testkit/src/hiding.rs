//! Objects that a pull request may add to make Konverge mask a text, and so hide it from rules: a Secret with the text,
//! or a field whose name looks secret.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::random::Random;

/// Returns an object of this name with the text: as a whole, in part, encoded, or inside another text.
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

/// Returns a random text that an author may choose where Kubernetes allows any string.
pub fn text(random: &mut Random) -> String {
    let letters: Vec<char> = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.:_=+@é"
        .chars()
        .collect();
    let length = 4 + random.below(36);
    let middle = (0..length).map(|_| *random.pick(&letters));
    // The letters around it make it neither a number nor a date, and more than dots.
    format!("r{}x", middle.collect::<String>())
}
