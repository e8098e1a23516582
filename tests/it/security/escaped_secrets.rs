//! Secrets inside documents inside documents: no output of `build` and `preview` shows one, however often it was
//! escaped.

use konverge_base::{
    model::{
        plan::{Action, ChangeOrigin},
        spec::Resource,
    },
    yaml,
};
use konverge_engine::spec;
use konverge_report::{COMMENT_BUDGET, escape, html, json as document, markdown, terminal};
use konverge_secrets::{HashKey, Secrets, redact};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{process::Konverge, sample_plans};

/// In every secret. No encoder escapes it, so it is found in an output whatever happened to the rest.
const NEEDLE: &str = "n33dle";

/// How a text stands in another one.
#[derive(Debug, Clone, Copy)]
enum Wrap {
    JsonString,
    JsonMember,
    JsonItem,
    /// As PHP and Go write JSON.
    JsonOfOthers,
    Yaml,
    YamlInSingleQuotes,
    Base64,
}

impl Wrap {
    fn around(self, text: &str) -> String {
        use base64::Engine as _;
        match self {
            Self::JsonString => json!(text).to_string(),
            Self::JsonMember => json!({"note": text, "n": 1}).to_string(),
            Self::JsonItem => format!("{:#}", json!(["a", text])),
            Self::JsonOfOthers => {
                let text = json!(text).to_string().replace('/', "\\/");
                text.replace('<', "\\u003c")
                    .replace('&', "\\u0026")
                    .replace('é', "\\u00e9")
            }
            Self::Yaml => yaml::to_string(&json!({"settings": {"note": text, "n": 1}})),
            Self::YamlInSingleQuotes => {
                format!("note: '{}'\n", text.replace('\'', "''").replace('\n', "\n\n  "))
            }
            Self::Base64 => base64::engine::general_purpose::STANDARD.encode(text),
        }
    }
}

fn secret() -> impl Strategy<Value = String> {
    let awkward = prop::sample::select(vec![
        "\"", "\\", "'", "/", "<", "&", "é", "%", ":", "#", " ", "\n", "\t", "w\\n", "''", "{", "x9",
    ]);
    prop::collection::vec(awkward, 1..5).prop_map(|parts| format!("{NEEDLE}{}{NEEDLE}", parts.concat()))
}

/// How a secret that a Secret holds stands elsewhere.
fn wraps() -> impl Strategy<Value = Vec<Wrap>> {
    use Wrap::{Base64, JsonItem, JsonMember, JsonOfOthers, JsonString, Yaml, YamlInSingleQuotes};
    let wrap = prop::sample::select(vec![
        JsonString,
        JsonMember,
        JsonItem,
        JsonOfOthers,
        Yaml,
        YamlInSingleQuotes,
        Base64,
    ]);
    prop::collection::vec(wrap, 0..4)
}

/// How a document stands whose names alone say what is secret.
fn json_wraps() -> impl Strategy<Value = Vec<Wrap>> {
    let wrap = prop::sample::select(vec![
        Wrap::JsonString,
        Wrap::JsonMember,
        Wrap::JsonItem,
        Wrap::JsonOfOthers,
    ]);
    prop::collection::vec(wrap, 0..4)
}

fn wrapped(text: &str, wraps: &[Wrap]) -> String {
    wraps
        .iter()
        .fold(text.to_owned(), |text, wrap| wrap.around(&text))
}

/// A Spec with a text at every kind of place, and the Secret that says what is secret.
fn resources(secret: Option<&str>, text: &str) -> Vec<Resource> {
    let meta = |name: &str| json!({"name": name, "namespace": "shop"});
    let kubernetes = |kind: &str, attributes: Value| json!({"id": format!("v1:{kind}:shop:a"), "type": "Kubernetes", "attributes": attributes});
    let mut all = vec![
        kubernetes(
            "ConfigMap",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop", "annotations": {"example.com/settings": text}}, "data": {"whole": text, "within": format!("# settings\n{text}\n")}}),
        ),
        kubernetes(
            "Pod",
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta("a"), "spec": {"containers": [{"name": "a", "image": "a", "args": ["--settings", text], "env": [{"name": "SETTINGS", "value": text}]}]}}),
        ),
        json!({"id": "hashicorp:local:local_file:a", "type": "Terraform", "attributes": {"filename": "a", "content": text, "list": [{"content": text}]},
            "extensions": {"provider": "registry.terraform.io/hashicorp/local/2.5.1", "resourceType": "local_file", "providerMeta": {"note": text}}}),
    ];
    if let Some(secret) = secret {
        all.push(kubernetes(
            "Secret",
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta("a"), "stringData": {"a": secret}}),
        ));
    }
    let text = json!({ "resources": all }).to_string();
    spec::read_text(&text, "a test").expect("a Spec").resources
}

/// Every form in which `build` and `preview` print resources.
fn outputs(resources: &[Resource], secrets: &Secrets) -> Vec<(&'static str, String)> {
    let built = redact::resources(resources, secrets);
    let objects: Vec<_> = built
        .iter()
        .map(|resource| escape::yaml(&resource.attributes))
        .collect();
    let mut outputs = vec![
        ("build -o yaml", escape::yaml(&json!({ "resources": built }))),
        (
            "build -o json",
            document::document(&json!({ "resources": built })),
        ),
        ("build -o manifests", objects.join("---\n")),
    ];
    let changes = resources.iter().map(|resource| {
        let attributes = konverge_secrets::mask_resource(secrets, resource).attributes;
        let change = sample_plans::change("", None, Some(Value::Object(attributes)), ChangeOrigin::Change);
        sample_plans::resource("shop/dev", resource.id.as_str(), Action::Create, vec![change])
    });
    let mut sample = sample_plans::shop();
    sample.plan.stacks = vec![sample_plans::stack("shop/dev", changes.collect())];
    redact::plan(&mut sample.plan, secrets);
    let style = terminal::Style { color: false };
    outputs.extend([
        ("preview", terminal::plan(&sample.plan, style)),
        ("preview -o json", document::document(&sample.plan)),
        (
            "preview -o markdown",
            markdown::comment(&sample.input(COMMENT_BUDGET)).body,
        ),
        ("preview -o html", html::report(&sample.input(0))),
    ]);
    outputs
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// What a Secret holds is found at any place, behind up to three layers of JSON, YAML and base64.
    #[test]
    fn a_known_secret_is_shown_nowhere(secret in secret(), wraps in wraps()) {
        let secrets = Secrets::new(HashKey::derive("k"));
        let text = wrapped(&secret, &wraps);
        for (what, output) in outputs(&resources(Some(&secret), &text), &secrets) {
            prop_assert!(!output.contains(NEEDLE), "{what} shows {secret:?} in {text}:\n{output}");
            prop_assert!(output.contains("***") || output.contains("$secret") || output.contains("secret"));
        }
    }

    /// A value that is secret by its name alone is found in JSON in JSON.
    #[test]
    fn a_named_secret_in_a_document_is_shown_nowhere(secret in secret(), wraps in json_wraps()) {
        let secrets = Secrets::new(HashKey::derive("k"));
        let text = wrapped(&json!({"user": "rooty", "password": secret}).to_string(), &wraps);
        let mut resources = resources(None, &text);
        // Behind other words it is no document.
        resources[0].attributes["data"].as_object_mut().unwrap().remove("within");
        for (what, output) in outputs(&resources, &secrets) {
            prop_assert!(!output.contains(NEEDLE), "{what} shows {secret:?} in {text}:\n{output}");
        }
        let shown = redact::resources(&resources, &secrets);
        let whole = shown[0].attributes["data"]["whole"].as_str().unwrap_or_default();
        prop_assert!(whole.contains("rooty"), "the rest can be reviewed: {whole}");
    }
}

/// A quote and line breaks, in single quotes of YAML, in other documents: the layout is undone however often it was
/// done.
#[test]
fn layouts_in_documents_are_undone_together() {
    use Wrap::{JsonString, YamlInSingleQuotes};
    for (within, wraps) in [
        ("'\n", &[YamlInSingleQuotes, JsonString, JsonString][..]),
        ("\n", &[YamlInSingleQuotes, YamlInSingleQuotes, JsonString]),
        ("\n\n", &[YamlInSingleQuotes, YamlInSingleQuotes]),
        ("\n\n'", &[YamlInSingleQuotes, JsonString]),
    ] {
        let secret = format!("{NEEDLE}{within}{NEEDLE}");
        let secrets = Secrets::new(HashKey::derive("k"));
        let text = wrapped(&secret, wraps);
        for (what, output) in outputs(&resources(Some(&secret), &text), &secrets) {
            assert!(
                !output.contains(NEEDLE),
                "{what} shows {secret:?} in {text}:\n{output}"
            );
        }
    }
}

/// The commands themselves print no value, in any form.
#[test]
fn no_output_of_build_and_preview_shows_an_escaped_secret() {
    let secret = format!("{NEEDLE}\"ss\\word{NEEDLE}");
    let twice = json!({"a": json!({"password": secret.replace("ss", "2")}).to_string()}).to_string();
    let string = json!(json!({"password": secret.replace("ss", "3")}).to_string()).to_string();
    let deep = json!({"a": json!({"b": json!({"note": secret}).to_string()}).to_string()}).to_string();
    let object = |kind: &str, rest: Value| {
        let mut attributes = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", "namespace": "shop", "annotations": {"a": deep}}});
        attributes
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        json!({"id": format!("v1:{kind}:shop:a"), "type": "Kubernetes", "attributes": attributes})
    };
    let terraform = |kind: &str, attributes: Value| {
        json!({"id": format!("hashicorp:local:{kind}:a"), "type": "Terraform", "attributes": attributes,
            "extensions": {"provider": "registry.terraform.io/hashicorp/local/2.5.1", "resourceType": kind}})
    };
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{NEEDLE}-of-a-list"));
    let kubernetes = [
        object("Secret", json!({"stringData": {"a": secret}})),
        object(
            "ConfigMap",
            json!({"data": {"twice": twice, "string": string, "deep": deep}}),
        ),
        object(
            "List",
            json!({"items": [{"kind": "Secret", "data": {"a": encoded}}]}),
        ),
        object(
            "SecretList",
            json!({"items": [{"metadata": {"name": "b"}, "data": {"a": encoded}}]}),
        ),
    ];
    let terraform = [
        terraform(
            "local_file",
            json!({"filename": "a", "sensitive_content": format!("{NEEDLE} x1")}),
        ),
        terraform(
            "local_sensitive_file",
            json!({"filename": "a", "content": format!("{NEEDLE} x2")}),
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, resources: &[Value]| {
        let file = folder.path().join(name);
        std::fs::write(&file, json!({ "resources": resources }).to_string()).unwrap();
        file
    };
    let all = write("all.json", &[&kubernetes[..], &terraform].concat());
    let run = |command: &str, output: &str| {
        let run = Konverge::new([command, "--spec"]).dir(folder.path()).arg(&all);
        let run = run.arg_all(["--output", output]);
        match command {
            "preview" => run.arg("--live=never").run().expect(0),
            _ => run.run().expect(0),
        }
    };
    let commands = ["yaml", "json", "manifests"].map(|output| ("build", output));
    let previews = ["text", "json", "markdown", "html", "plan"].map(|output| ("preview", output));
    for (command, output) in commands.into_iter().chain(previews) {
        let outcome = run(command, output);
        for text in [&outcome.stdout, &outcome.stderr] {
            assert!(!text.contains(NEEDLE), "{command} -o {output}: {text}");
            assert!(!text.contains(&encoded), "{command} -o {output}: {text}");
        }
        assert!(
            outcome.stdout.contains("ConfigMap"),
            "{command} -o {output}: {}",
            outcome.stdout
        );
    }
}

/// Letters that look like nothing are written out in all that a person reads.
#[test]
fn no_output_has_a_letter_that_looks_like_nothing() {
    let hidden = [
        '\u{2800}',
        '\u{115f}',
        '\u{1160}',
        '\u{3164}',
        '\u{ffa0}',
        '\u{1d159}',
        '\u{16fe4}',
        '\u{13441}',
    ];
    let text: String = hidden.iter().map(|c| format!("a{c}b\n")).collect();
    let secrets = Secrets::new(HashKey::derive("k"));
    let mut resources = resources(None, &text);
    let labels: Value = hidden
        .iter()
        .map(|c| (format!("a{c}b"), json!(c)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    resources[0].attributes["metadata"]["labels"] = labels;
    for (what, output) in outputs(&resources, &secrets) {
        let shown: Vec<_> = hidden.iter().filter(|c| output.contains(**c)).collect();
        assert!(shown.is_empty(), "{what} has {shown:?}: {output}");
        assert!(output.contains("2800"), "{what}: {output}");
    }
}
