//! What others read in the files of `konverge export`: Helm, and the API server with the published definitions of
//! KubeVela, Crossplane and Flux.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use konverge_base::{
    model::{
        reference::MARK,
        spec::{Resource, RuntimeKind},
    },
    yaml,
};
use konverge_engine::spec;
use serde_json::{Value, json};

use super::export::{config, document, export, files, resource, spec_file};
use crate::support::{
    self, cluster::Cluster, executable, git::Repository, objects::Objects, process::Konverge,
};

/// The definitions as published, without descriptions: the API server refuses what they do not know.
#[tokio::test]
async fn the_api_server_takes_what_is_written_for_kubevela_crossplane_and_flux() {
    let folder = tempfile::tempdir().unwrap();
    let odd = json!({"braces": "{{ .Values.x }} ${y}", "tab": "\t---\n"});
    let all = [
        resource("v1:ConfigMap:default:a", config("a", odd), &[]),
        resource(
            "v1:ConfigMap:default:b",
            config(
                "b",
                json!({"uid": "$kusion_path.v1:ConfigMap:default:a.metadata.uid"}),
            ),
            &[],
        ),
        resource(
            "v1:ConfigMap:default:c",
            config("c", json!({})),
            &["v1:ConfigMap:default:b"],
        ),
    ];
    spec_file(folder.path(), "all", &all);
    let known = [
        &all[0],
        &resource(
            "v1:ConfigMap:default:c",
            config("c", json!({})),
            &["v1:ConfigMap:default:a"],
        ),
    ]
    .map(Clone::clone);
    spec_file(folder.path(), "known", &known);
    let run = |arguments: &[&str]| drop(export(folder.path(), arguments).run().expect(0));
    run(&["crossplane", "--spec", "all.json", "--to", "crossplane"]);
    run(&["oam", "--spec", "known.json", "--to", "oam"]);
    run(&[
        "flux",
        "--spec",
        "known.json",
        "--to",
        "flux",
        "--source",
        "https://example.com/x",
        "--source-revision",
        "main",
    ]);
    run(&[
        "flux",
        "--spec",
        "known.json",
        "--to",
        "flux-oci",
        "--source",
        "oci://example.com/x",
        "--source-revision",
        "1",
    ]);

    let cluster = Cluster::shared();
    let objects = Objects::of(cluster).await;
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/export");
    let mut plurals = BTreeMap::new();
    for entry in fs::read_dir(fixtures).unwrap() {
        let definition: Value = serde_json::from_slice(&fs::read(entry.unwrap().path()).unwrap()).unwrap();
        objects.create_definition(&definition).await;
        let names = &definition["spec"]["names"];
        plurals.insert(
            names["kind"].as_str().unwrap().to_owned(),
            names["plural"].as_str().unwrap().to_owned(),
        );
    }
    let mut judged = 0;
    for (path, content) in files(folder.path()) {
        if !path.ends_with(".yaml") || path.contains("manifests/") {
            continue;
        }
        for document in yaml::documents(std::str::from_utf8(&content).unwrap()).unwrap() {
            let plural = &plurals[document["kind"].as_str().unwrap()];
            let namespace = document["metadata"]["namespace"].as_str();
            let namespace = namespace
                .map(|name| format!("namespaces/{name}/"))
                .unwrap_or_default();
            let collection = format!(
                "/apis/{}/{namespace}{plural}",
                document["apiVersion"].as_str().unwrap()
            );
            if let Some(name) = document["metadata"]["namespace"]
                .as_str()
                .filter(|name| *name != "default")
            {
                let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
                if objects.get(&namespace).await.is_none() {
                    objects.create(&namespace).await;
                }
            }
            objects
                .create_at(
                    &format!("{collection}?dryRun=All&fieldValidation=Strict"),
                    &document,
                )
                .await;
            judged += 1;
        }
    }
    assert_eq!(judged, 3 + 1 + 3 + 3);
}

/// The Specs of the example without their Terraform resources, each object in one stack. Each value of a Secret and of
/// a Terraform resource is one in clear, as after an apply.
pub(super) fn example_specs(example: &Repository) -> Vec<(String, Vec<Value>)> {
    let mut taken = BTreeSet::new();
    let mut stacks = Vec::new();
    for (path, golden) in support::compiler::folder(example.path()) {
        let Some(folder) = path.as_str().strip_suffix("/ci-test/stdout.golden.yaml") else {
            continue;
        };
        let mut spec = spec::read_text(std::str::from_utf8(&golden).unwrap(), folder).unwrap();
        let is_ours = |one: &Resource| one.runtime == RuntimeKind::Kubernetes;
        let others = spec.resources.iter().filter(|one| !is_ours(one));
        let others: Vec<_> = others.map(|one| format!("{MARK}{}", one.id)).collect();
        spec.resources
            .retain(|one| is_ours(one) && taken.insert(one.id.clone()));
        let own: BTreeSet<_> = spec.resources.iter().map(|one| one.id.clone()).collect();
        let mut resources = Vec::new();
        for mut one in spec.resources {
            one.depends_on.retain(|id| own.contains(id));
            let values = one.attributes.values_mut();
            values.for_each(|value| set_references(value, &others));
            if one.attributes.get("kind").is_some_and(|kind| kind == "Secret") {
                for (place, value) in [
                    ("stringData", "resolved".to_owned()),
                    ("data", STANDARD.encode("resolved")),
                ] {
                    let values = one.attributes.get_mut(place).and_then(Value::as_object_mut);
                    values
                        .into_iter()
                        .flatten()
                        .for_each(|(_, text)| *text = value.clone().into());
                }
            }
            resources.push(serde_json::to_value(&one).unwrap());
        }
        if !resources.is_empty() {
            stacks.push((folder.replace('/', "-"), resources));
        }
    }
    let of = |project: &str| stacks.iter().any(|(name, _)| name.contains(project));
    assert!(
        stacks.len() >= 15 && of("photos") && of("uploads"),
        "{} stacks",
        stacks.len()
    );
    stacks
}

/// Puts a value in the place of each text that refers to one of these resources.
fn set_references(value: &mut Value, resources: &[String]) {
    match value {
        Value::String(text) if resources.iter().any(|id| text.contains(id)) => {
            *text = "resolved".to_owned();
        }
        Value::Array(items) => items.iter_mut().for_each(|item| set_references(item, resources)),
        Value::Object(map) => map.values_mut().for_each(|item| set_references(item, resources)),
        _ => {}
    }
}

/// Removes the Secrets, which only a chart can carry, and what needs them.
pub(super) fn without_secrets(resources: &mut Vec<Value>) {
    resources.retain(|one| one["attributes"]["kind"] != "Secret");
    let left: Vec<Value> = resources.iter().map(|one| one["id"].clone()).collect();
    for one in resources {
        let after = one["dependsOn"].as_array_mut().into_iter();
        after.for_each(|after| after.retain(|id| left.contains(id)));
    }
}

/// The values that a chart needs, as the Spec has them.
pub(super) fn values(document: &Value, resources: &[Value]) -> Value {
    let mut values = json!({});
    for value in document["values"].as_array().into_iter().flatten() {
        let place = format!(
            "{}{}",
            value["id"].as_str().unwrap(),
            value["path"].as_str().unwrap()
        );
        // A copy of data of a Secret takes the value of the Secret.
        if value["group"] == "secrets" && value["name"] != place.as_str() {
            continue;
        }
        let owner = resources.iter().find(|one| one["id"] == value["id"]).unwrap();
        let text = owner["attributes"]
            .pointer(value["path"].as_str().unwrap())
            .unwrap();
        let group = value["group"].as_str().unwrap();
        values[group][value["name"].as_str().unwrap()] = text.clone();
    }
    values
}

/// The charts of an export, definitions first, then by number.
pub(super) fn charts(stack: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(stack).unwrap().map(|entry| entry.unwrap().path());
    let mut charts: Vec<_> = entries.filter(|path| path.is_dir()).collect();
    charts.sort_by_key(|chart| (!chart.display().to_string().ends_with("-crds"), chart.clone()));
    charts
}

pub(super) fn helm(part: &str, folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(executable(part, part));
    command.args(arguments).current_dir(folder).env_clear();
    let output = command
        .env("HOME", folder)
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{part} {arguments:?}: {err}\n{out}");
    out.into_owned()
}

/// An object without what each applier writes for itself, and what the server chooses.
pub(super) fn comparable(mut object: Value) -> Value {
    const OWN: [&str; 5] = [
        "konverge/stack",
        "meta.helm.sh/release-name",
        "meta.helm.sh/release-namespace",
        "helm.sh/resource-policy",
        "deployment.kubernetes.io/revision",
    ];
    // The labels of a Job hold its own uid.
    let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
    object = serde_json::from_str(&object.to_string().replace(&uid, "UID")).unwrap();
    let whole = object.as_object_mut().unwrap();
    whole.remove("status");
    let metadata = whole["metadata"].as_object_mut().unwrap();
    for key in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
        "generation",
    ] {
        metadata.remove(key);
    }
    let mut prune = |part: &str, names: &[&str]| {
        let Some(map) = metadata.get_mut(part).and_then(Value::as_object_mut) else {
            return;
        };
        names.iter().for_each(|name| drop(map.remove(*name)));
        if map.is_empty() {
            metadata.remove(part);
        }
    };
    prune("annotations", &OWN);
    prune("labels", &["app.kubernetes.io/managed-by"]);
    if whole["kind"] == "Service" {
        let spec = whole["spec"].as_object_mut().unwrap();
        for key in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
            spec.remove(key);
        }
        for port in spec["ports"].as_array_mut().into_iter().flatten() {
            port.as_object_mut().unwrap().remove("nodePort");
        }
    }
    object
}

fn check_template(part: &str) {
    let folder = tempfile::tempdir().unwrap();
    let example = Repository::konfig_example();
    let mut stacks = example_specs(&example);
    let awkward = [
        "{{ .Values.x }}{{",
        "a\n---\nb\n",
        "${x} $(y)",
        "\ta\n",
        "a\r\nb",
        "last\n",
        "\u{85}\u{2028}\u{feff}",
        "é世😀\u{7f}",
        "0123",
        "yes",
        " a \n \n",
        "\\n\"'#: -",
        "konverge-value-0-",
        "a\n\n\n",
    ];
    let mut odd: Vec<_> = awkward
        .iter()
        .enumerate()
        .map(|(at, text)| {
            let name = format!("c{at}");
            resource(
                &format!("v1:ConfigMap:default:{name}"),
                config(&name, json!({"text": text})),
                &[],
            )
        })
        .collect();
    let large = "{{ x }} ${y}\t---\n".repeat(900 * 1024 / 17);
    odd.push(resource(
        "v1:ConfigMap:default:large",
        config("large", json!({"text": large})),
        &[],
    ));
    odd.push(resource(
        "v1:ConfigMap:default:both",
        config(
            "both",
            json!({
                "tab": "\t'",
                "uid": "$kusion_path.v1:ConfigMap:default:c0.metadata.uid",
                "text": "<$kusion_path.v1:ConfigMap:default:c0.metadata.uid>\n---\n{{ ref+vault://db#/p }}\t",
            }),
        ),
        &[],
    ));
    stacks.push(("odd".to_owned(), odd));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"},
        "stringData": {"p": "correct-horse-9 {{ x }}"}, "data": {"q": STANDARD.encode("battery\nstaple-7")}});
    let copies = json!({"p": "correct-horse-9 {{ x }}", "p64": STANDARD.encode("correct-horse-9 {{ x }}"),
        "q": "battery\nstaple-7", "q64": STANDARD.encode("battery\nstaple-7")});
    let copies = [
        resource("v1:Secret:default:s", secret, &[]),
        resource("v1:ConfigMap:default:copies", config("copies", copies), &[]),
    ];
    stacks.push(("copies".to_owned(), copies.into()));
    let mut compared = 0;
    for (name, resources) in stacks {
        spec_file(folder.path(), &name, &resources);
        export(
            folder.path(),
            &["helm", "--spec", &format!("{name}.json"), "--to", "out"],
        )
        .run()
        .expect(0);
        let stack = folder.path().join("out").join(format!("spec-{name}"));
        let mut given = values(&document(&stack), &resources);
        if name == "odd" {
            given = json!({"references": {"v1:ConfigMap:default:c0.metadata.uid": 17, "ref+vault://db#/p": "a\n---\n{{ \"<&>\" }}"}});
        }
        fs::write(folder.path().join("values.json"), given.to_string()).unwrap();
        let mut printed = BTreeMap::new();
        for chart in charts(&stack) {
            let chart = chart.to_str().unwrap();
            let lint = helm(part, folder.path(), &["lint", "--strict", chart]);
            assert!(
                lint.contains("0 chart(s) failed")
                    && !lint.contains("[WARNING]")
                    && !lint.contains("[ERROR]"),
                "{lint}"
            );
            let text = helm(
                part,
                folder.path(),
                &["template", "r", chart, "--values", "values.json"],
            );
            for document in yaml::documents(&text).unwrap() {
                let key = (
                    document["kind"].to_string(),
                    document["metadata"]["namespace"].to_string(),
                    document["metadata"]["name"].to_string(),
                );
                printed.insert(key, document);
            }
        }
        for resource in &resources {
            let mut expected = resource["attributes"].clone();
            if name == "odd" && expected["metadata"]["name"] == "both" {
                expected["data"] =
                    json!({"tab": "\t'", "uid": 17, "text": "<17>\n---\n{{ a\n---\n{{ \"<&>\" }} }}\t"});
            }
            let found = printed.iter().find(|((kind, _, object), document)| {
                let namespaces = [
                    &document["metadata"]["namespace"],
                    &expected["metadata"]["namespace"],
                ];
                expected["kind"] == *kind.trim_matches('"')
                    && expected["metadata"]["name"] == *object.trim_matches('"')
                    && (namespaces[0] == namespaces[1] || namespaces[1].is_null())
            });
            let (_, found) = found.unwrap_or_else(|| panic!("{name}: {} is not printed", resource["id"]));
            let mut found = found.clone();
            if expected["metadata"]["namespace"].is_null() {
                found["metadata"].as_object_mut().unwrap().remove("namespace");
            }
            if expected["kind"] == "CustomResourceDefinition" {
                found["metadata"]["annotations"]
                    .as_object_mut()
                    .unwrap()
                    .remove("helm.sh/resource-policy");
                found["metadata"]
                    .as_object_mut()
                    .unwrap()
                    .retain(|_, value| *value != json!({}));
            }
            assert_eq!(found, expected, "{name}");
            compared += 1;
        }
        let first = charts(&stack).into_iter().next_back().unwrap();
        if given != json!({}) {
            let mut command = Command::new(executable(part, part));
            let refused = command
                .args(["template", "r", first.to_str().unwrap()])
                .output()
                .unwrap();
            assert!(
                !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("is required"),
                "a value is missing"
            );
        }
    }
    assert!(compared > 80, "{compared}");
}

#[test]
#[ignore = "needs the part `helm`: make test-all"]
fn helm_4_prints_what_the_spec_has() {
    check_template("helm");
}

#[test]
#[ignore = "needs the part `helm3`: make test-all"]
fn helm_3_prints_what_the_spec_has() {
    check_template("helm3");
}

async fn check_install(part: &str) {
    let folder = tempfile::tempdir().unwrap();
    let example = Repository::konfig_example();
    let (ours, theirs) = (Cluster::start(), Cluster::start());
    let (our_objects, their_objects) = (Objects::of(&ours).await, Objects::of(&theirs).await);
    let (mut compared, mut kept, mut exact) = (0, 0, 0);
    for (name, resources) in example_specs(&example) {
        let file = format!("{name}.json");
        spec_file(folder.path(), &name, &resources);
        let kubeconfig = ours.kubeconfig();
        Konverge::new([
            "apply",
            "--yes",
            "--no-wait",
            "--spec",
            &file,
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
        ])
        .dir(folder.path())
        .env("XDG_STATE_HOME", folder.path().join("state"))
        .run()
        .expect(0);
        export(folder.path(), &["helm", "--spec", &file, "--to", "out"])
            .run()
            .expect(0);
        let stack = folder.path().join("out").join(format!("spec-{name}"));
        let document = document(&stack);
        fs::write(
            folder.path().join("values.json"),
            values(&document, &resources).to_string(),
        )
        .unwrap();
        let kubeconfig = theirs.kubeconfig();
        for (at, chart) in charts(&stack).iter().enumerate() {
            let release = format!("r{at}-{name}");
            let release = &release[..release.len().min(50)].trim_end_matches('-');
            let arguments = [
                "install",
                release,
                chart.to_str().unwrap(),
                "--values",
                "values.json",
                "--namespace",
                "default",
                "--kubeconfig",
                kubeconfig.to_str().unwrap(),
            ];
            helm(part, folder.path(), &arguments);
            if chart.display().to_string().ends_with("-crds") {
                for one in resources
                    .iter()
                    .filter(|one| one["attributes"]["kind"] == "CustomResourceDefinition")
                {
                    their_objects.create_definition(&one["attributes"]).await;
                }
            }
        }
        let mut created: BTreeMap<String, Creation> = BTreeMap::new();
        for resource in &resources {
            let mut object = resource["attributes"].clone();
            let level = document["levels"]
                .as_array()
                .unwrap()
                .iter()
                .flat_map(|level| level.as_array().unwrap());
            let file = level.into_iter().find(|one| one["id"] == resource["id"]).unwrap()["file"]
                .as_str()
                .unwrap();
            let written: Value = yaml::from_long_str(&fs::read_to_string(stack.join(file)).unwrap()).unwrap();
            if let Some(namespace) = written["metadata"].get("namespace") {
                object["metadata"]["namespace"] = namespace.clone();
            }
            let by_us = our_objects
                .get(&object)
                .await
                .unwrap_or_else(|| panic!("{object} is not applied"));
            let by_helm = their_objects
                .get(&object)
                .await
                .unwrap_or_else(|| panic!("{object} is not installed"));
            created.insert(
                resource["id"].as_str().unwrap().to_owned(),
                Creation::read(&by_helm),
            );
            assert_eq!(comparable(by_helm), comparable(by_us), "{}", resource["id"]);
            compared += 1;
        }
        let order = check_order(&document, &created);
        kept += order.kept;
        exact += order.exact;
    }
    assert!(
        compared > 70 && kept > 50 && exact > 20,
        "{compared} objects, {kept} edges, {exact} of them by the version"
    );
}

/// How many edges were checked.
pub(super) struct CheckedOrder {
    /// All that the document calls kept.
    pub(super) kept: usize,
    /// Those of which the version of the cluster tells the order.
    pub(super) exact: usize,
}

/// Checks that each edge that the document calls kept holds in the creation of its objects, by their ids.
pub(super) fn check_order(document: &Value, created: &BTreeMap<String, Creation>) -> CheckedOrder {
    let mut order = CheckedOrder { kept: 0, exact: 0 };
    for edge in document["kept"].as_array().unwrap() {
        let made = |end: &str| &created[edge[end].as_str().unwrap()];
        let (from, to) = (made("from"), made("to"));
        assert!(from.time <= to.time, "{edge}");
        order.kept += 1;
        if let (Some(from), Some(to)) = (from.version, to.version) {
            assert!(from < to, "{edge}");
            order.exact += 1;
        }
    }
    order
}

/// When an object was made.
pub(super) struct Creation {
    /// In whole seconds.
    time: String,
    /// The version of the whole cluster at that write, if nobody has written the object since.
    version: Option<u64>,
}

impl Creation {
    /// The creation of a live object.
    pub(super) fn read(live: &Value) -> Self {
        let metadata = &live["metadata"];
        let writes = metadata["managedFields"].as_array().unwrap();
        let version = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
        Self {
            time: metadata["creationTimestamp"].as_str().unwrap().to_owned(),
            version: (writes.len() == 1).then_some(version),
        }
    }
}

#[tokio::test]
#[ignore = "needs the part `helm`: make test-all"]
async fn helm_4_installs_what_an_apply_writes() {
    check_install("helm").await;
}

#[tokio::test]
#[ignore = "needs the part `helm3`: make test-all"]
async fn helm_3_installs_what_an_apply_writes() {
    check_install("helm3").await;
}
