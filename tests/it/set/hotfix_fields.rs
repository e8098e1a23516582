//! `--keep` after `kubectl scale`, `kubectl set image` and `kubectl edit` of random fields: the right line is edited,
//! or the message says why none is; never a wrong one. `KONVERGE_HOTFIXES` sets how many fields are edited,
//! `KONVERGE_SEED` repeats a run.

use std::collections::BTreeSet;

use konverge_kcl::literal;
use serde_json::{Value, json};

use crate::support::{
    ci_stage::Stage,
    objects::Objects,
    random::{Random, setting},
    tiny_monorepo,
};

const STACK: &str = "hotfix/dev";
const MAIN: &str = "appops/hotfix/dev/main.k";
/// The most fields that are edited between two checks.
const AT_ONCE: usize = 4;

/// What the program sets. Several have the same value; `spare` and `idle` make no field, `shared` makes two, and
/// `title` is a part of a text.
const SETTINGS: [(&str, &str); 18] = [
    ("replicas", "2"),
    ("revisions", "2"),
    ("spare", "2"),
    ("image", "\"ghcr.io/acme/web:1.0\""),
    ("proxy", "\"ghcr.io/acme/web:1.0\""),
    ("level", "\"info\""),
    ("mode", "\"info\""),
    ("idle", "\"info\""),
    ("cpu", "\"100m\""),
    ("grace", "30"),
    ("ready", "30"),
    ("probe", "8080"),
    ("target", "8080"),
    ("automount", "True"),
    ("shared", "\"blue\""),
    ("title", "\"shop\""),
    ("words", "\"one\\ntwo\""),
    ("tier", "\"front\""),
];

/// A field of a live object: how a person changes it, and which attribute makes it. `None`: no single one does.
struct Field {
    name: &'static str,
    object: usize,
    /// What a value is like.
    sample: Sample,
    /// The patch of the object, for a value.
    patch: fn(&Value) -> Value,
    /// The attribute that makes this field alone.
    made_by: Option<&'static str>,
}

#[derive(Clone, Copy)]
enum Sample {
    Text,
    Image,
    Number,
    Quantity,
    Switch,
}

const DEPLOYMENT: usize = 0;
const MAP: usize = 1;
const SERVICE: usize = 2;

fn in_pod(pod: Value) -> Value {
    json!({"spec": {"template": {"spec": pod}}})
}

fn in_container(name: &str, field: &str, value: &Value) -> Value {
    in_pod(json!({"containers": [{"name": name, field: value}]}))
}

fn variable(name: &str, value: &Value) -> Value {
    in_container("web", "env", &json!([{"name": name, "value": value}]))
}

fn data(key: &str, value: &Value) -> Value {
    json!({"data": {key: value}})
}

fn fields() -> Vec<Field> {
    let field = |name, object, sample, patch, made_by| Field {
        name,
        object,
        sample,
        patch,
        made_by,
    };
    use Sample::{Image, Number, Quantity, Switch, Text};
    vec![
        field(
            "replicas",
            DEPLOYMENT,
            Number,
            |value| json!({"spec": {"replicas": value}}),
            Some("replicas"),
        ),
        field(
            "revisions",
            DEPLOYMENT,
            Number,
            |value| json!({"spec": {"revisionHistoryLimit": value}}),
            Some("revisions"),
        ),
        field(
            "ready",
            DEPLOYMENT,
            Number,
            |value| json!({"spec": {"minReadySeconds": value}}),
            Some("ready"),
        ),
        field(
            "grace",
            DEPLOYMENT,
            Number,
            |value| in_pod(json!({"terminationGracePeriodSeconds": value})),
            Some("grace"),
        ),
        field(
            "automount",
            DEPLOYMENT,
            Switch,
            |value| in_pod(json!({"automountServiceAccountToken": value})),
            Some("automount"),
        ),
        field(
            "image",
            DEPLOYMENT,
            Image,
            |value| in_container("web", "image", value),
            Some("image"),
        ),
        field(
            "proxy",
            DEPLOYMENT,
            Image,
            |value| in_container("proxy", "image", value),
            Some("proxy"),
        ),
        field(
            "cpu",
            DEPLOYMENT,
            Quantity,
            |value| in_container("web", "resources", &json!({"limits": {"cpu": value}})),
            Some("cpu"),
        ),
        field(
            "probe",
            DEPLOYMENT,
            Number,
            |value| in_container("web", "readinessProbe", &json!({"httpGet": {"port": value}})),
            Some("probe"),
        ),
        field(
            "level",
            DEPLOYMENT,
            Text,
            |value| variable("LEVEL", value),
            Some("level"),
        ),
        field(
            "mode",
            DEPLOYMENT,
            Text,
            |value| variable("MODE", value),
            Some("mode"),
        ),
        field("title", DEPLOYMENT, Text, |value| variable("TITLE", value), None),
        field(
            "tier",
            DEPLOYMENT,
            Text,
            |value| json!({"metadata": {"annotations": {"acme.example/tier": value}}}),
            Some("tier"),
        ),
        field("first-shared", MAP, Text, |value| data("first", value), None),
        field(
            "second-shared",
            SERVICE,
            Text,
            |value| json!({"metadata": {"annotations": {"second": value}}}),
            None,
        ),
        field("words", MAP, Text, |value| data("words", value), Some("words")),
        // Written where it stands in the list of resources, which has no attribute.
        field("direct", MAP, Text, |value| data("direct", value), None),
        field(
            "target",
            SERVICE,
            Number,
            |value| json!({"spec": {"ports": [{"port": 80, "targetPort": value}]}}),
            Some("target"),
        ),
    ]
}

fn program(namespace: &str) -> String {
    let settings: String = SETTINGS
        .iter()
        .map(|(name, value)| format!("    {name} = {value}\n"))
        .collect();
    format!(
        r#"_s = {{
{settings}}}
resources = [
    {{
        apiVersion = "apps/v1"
        kind = "Deployment"
        metadata = {{name = "web", namespace = "{namespace}", annotations = {{"acme.example/tier" = _s.tier}}}}
        spec = {{
            replicas = _s.replicas
            revisionHistoryLimit = _s.revisions
            minReadySeconds = _s.ready
            selector.matchLabels.app = "web"
            template = {{
                metadata.labels.app = "web"
                spec = {{
                    terminationGracePeriodSeconds = _s.grace
                    automountServiceAccountToken = _s.automount
                    containers = [
                        {{
                            name = "web"
                            image = _s.image
                            resources.limits.cpu = _s.cpu
                            readinessProbe.httpGet = {{path = "/", port = _s.probe}}
                            env = [
                                {{name = "LEVEL", value = _s.level}}
                                {{name = "MODE", value = _s.mode}}
                                {{name = "TITLE", value = "the ${{_s.title}}"}}
                            ]
                        }}
                        {{name = "proxy", image = _s.proxy}}
                    ]
                }}
            }}
        }}
    }}
    {{
        apiVersion = "v1"
        kind = "ConfigMap"
        metadata = {{name = "web", namespace = "{namespace}"}}
        data = {{first = _s.shared, words = _s.words, direct = "written here"}}
    }}
    {{
        apiVersion = "v1"
        kind = "Service"
        metadata = {{name = "web", namespace = "{namespace}", annotations = {{second = _s.shared}}}}
        spec = {{selector.app = "web", ports = [{{port = 80, targetPort = _s.target}}]}}
    }}
]
"#
    )
}

fn objects(namespace: &str) -> [Value; 3] {
    [("apps/v1", "Deployment"), ("v1", "ConfigMap"), ("v1", "Service")].map(|(version, kind)| {
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": "web", "namespace": namespace}})
    })
}

/// Another value, with letters that KCL reads in its own way.
fn other(random: &mut Random, sample: Sample) -> Value {
    let number = 3 + random.below(90);
    match sample {
        Sample::Number => json!(number),
        Sample::Quantity => json!(format!("{number}m")),
        Sample::Switch => json!(false),
        Sample::Image => json!(format!("ghcr.io/acme/web:{number}")),
        Sample::Text => {
            let ends = [
                "",
                "\"",
                "\\",
                "${_s.image}",
                "'''",
                " # comment",
                "\n    replicas = 9\n",
                "é\u{1F600}",
                "{}",
            ];
            json!(format!("hand-{number}{}", random.pick(&ends)))
        }
    }
}

/// As a person does it: `kubectl scale`, `kubectl set image` or `kubectl edit`.
async fn by_hand(hands: &Objects, objects: &[Value; 3], field: &Field, value: &Value) {
    let object = &objects[field.object];
    match (field.name, value.as_u64()) {
        ("replicas", Some(replicas)) => {
            let replicas = u32::try_from(replicas).unwrap();
            hands.scale(object, "kubectl", replicas).await;
        }
        ("image" | "proxy", _) => {
            hands
                .strategic_merge(object, "kubectl-set", &(field.patch)(value))
                .await;
        }
        _ => {
            hands
                .strategic_merge(object, "kubectl-edit", &(field.patch)(value))
                .await;
        }
    }
}

/// The value of a field as the program makes it.
fn applied(field: &Field) -> Value {
    let text = match field.name {
        "title" => return json!("the shop"),
        "direct" => return json!("written here"),
        "first-shared" | "second-shared" => "shared",
        name => name,
    };
    let (_, value) = SETTINGS.iter().find(|(name, _)| *name == text).unwrap();
    match *value {
        "True" => json!(true),
        value => serde_json::from_str(value).unwrap(),
    }
}

async fn stage() -> (Stage, Objects, [Value; 3]) {
    let stage = Stage::small("").await;
    let namespace = stage.cluster.namespace("hotfix").await;
    let hands = Objects::of(stage.cluster).await;
    stage.monorepo.checkout("main");
    tiny_monorepo::write_program(&stage.monorepo, STACK, &program(&namespace));
    stage.monorepo.commit("A stack");
    stage
        .konverge(["apply", STACK, "--yes", "--no-wait"])
        .run()
        .expect(0);
    (stage, hands, objects(&namespace))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_random_hotfix_finds_its_line_or_says_why_not() {
    let (seed, wanted) = (
        setting("KONVERGE_SEED", 20_260_041),
        setting("KONVERGE_HOTFIXES", 50),
    );
    println!("KONVERGE_SEED={seed} KONVERGE_HOTFIXES={wanted}");
    let mut random = Random::of(seed);
    let (stage, hands, objects) = stage().await;
    let fields = fields();
    let before = stage.monorepo.read(MAIN);
    let (mut edited, mut kept, mut refused) = (0, BTreeSet::new(), BTreeSet::new());
    while edited < wanted {
        let mut chosen: Vec<(usize, Value)> = Vec::new();
        for _ in 0..=random.below(AT_ONCE) {
            let at = random.below(fields.len());
            if chosen.iter().all(|(known, _)| *known != at) {
                chosen.push((at, other(&mut random, fields[at].sample)));
            }
        }
        // What one attribute makes twice is sometimes changed at both places, to the same value.
        let shared: Vec<_> = ["first-shared", "second-shared"]
            .map(|name| fields.iter().position(|field| field.name == name).unwrap())
            .into();
        let both = chosen.iter().any(|(at, _)| *at == shared[0]) && random.once_in(2);
        if both {
            let (_, value) = chosen.iter().find(|(at, _)| *at == shared[0]).unwrap();
            let value = value.clone();
            chosen.retain(|(at, _)| *at != shared[1]);
            chosen.push((shared[1], value));
        }
        edited += chosen.len() as u64;
        for (at, value) in &chosen {
            by_hand(&hands, &objects, &fields[*at], value).await;
        }
        let what: Vec<_> = chosen
            .iter()
            .map(|(at, value)| format!("{} = {value}", fields[*at].name))
            .collect();
        let checked = stage.konverge(["drift", STACK, "--output", "json"]).run();
        let drift = checked.expect(0).json()["stacks"][0].clone();
        let digest = drift["digest"].as_str().unwrap();
        let ended = stage.konverge(["set", STACK, "--keep", digest]).run();
        // Which attributes the edits stand for, if each of them stands for one.
        let mut expected = Some(before.clone());
        for (at, value) in &chosen {
            let is_shared = both && shared.contains(at);
            let made_by = fields[*at].made_by.or(is_shared.then_some("shared"));
            expected = expected.and_then(|text| {
                let name = made_by?;
                let (_, old) = SETTINGS.iter().find(|(known, _)| *known == name)?;
                let (from, to) = (format!("    {name} = {old}\n"), literal(value)?);
                Some(text.replace(&from, &format!("    {name} = {to}\n")))
            });
        }
        let context = format!("seed {seed}: {what:?}: {}", ended.stderr);
        match expected {
            Some(expected) => {
                assert_eq!(ended.code, Some(0), "{context}");
                assert_eq!(stage.monorepo.read(MAIN), expected, "{context}");
                kept.extend(chosen.iter().map(|(at, _)| fields[*at].name));
            }
            None => {
                assert_eq!(ended.code, Some(1), "{context}");
                assert!(ended.stderr.contains("nothing was written"), "{context}");
                assert_eq!(stage.monorepo.read(MAIN), before, "{context}");
                refused.extend(chosen.iter().map(|(at, _)| fields[*at].name));
            }
        }
        assert_eq!(
            stage.monorepo.git(["status", "--porcelain"]).lines().count(),
            usize::from(ended.code == Some(0)),
            "{context}"
        );
        stage.monorepo.git(["checkout", "--quiet", "."]);
        for (at, _) in &chosen {
            by_hand(&hands, &objects, &fields[*at], &applied(&fields[*at])).await;
        }
    }
    println!("kept {kept:?}, refused {refused:?}");
    if wanted >= 50 {
        assert!(kept.len() >= 10 && refused.len() >= 3, "{kept:?} {refused:?}");
    }
}
