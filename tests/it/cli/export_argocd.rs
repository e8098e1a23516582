//! Argo CD 2.14 reads a branch of rendered manifests and syncs it, by its own packages.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use konverge_base::yaml;
use serde_json::{Value, json};

use super::{
    export::{config, document, export, files, resource, spec_file},
    export_targets::{comparable, example_specs, without_secrets},
};
use crate::support::{cluster::Cluster, executable, git::Repository, objects::Objects, process::Konverge};

const WAVE: &str = "argocd.argoproj.io/sync-wave";
/// By which Argo CD knows what it applied.
const INSTANCE: &str = "app.kubernetes.io/instance";

/// A branch of rendered manifests, and the clones of the repo server.
struct Branch {
    repository: Repository,
    clones: tempfile::TempDir,
}

impl Branch {
    fn new() -> Self {
        let repository = Repository::init();
        repository
            .write("README.md", "Rendered by Konverge.\n")
            .commit("Start");
        repository.branch("deploy");
        Self {
            repository,
            clones: tempfile::tempdir().unwrap(),
        }
    }

    fn url(&self) -> String {
        format!("file://{}", self.repository.path().display())
    }

    /// Exports a Spec to the branch, and commits it. Returns the folder of the stack; `None` if it cannot be exported.
    fn export(&self, folder: &Path, name: &str) -> Option<PathBuf> {
        let (file, to, url) = (
            format!("{name}.json"),
            self.repository.path().join("stacks"),
            self.url(),
        );
        let written = export(
            folder,
            &[
                "argocd",
                "--spec",
                &file,
                "--to",
                to.to_str().unwrap(),
                "--source",
                &url,
                "--source-revision",
                "deploy",
                "--path",
                "stacks",
            ],
        )
        .run();
        if written.code != Some(0) {
            // Values that only a chart can ask for.
            assert!(
                written.stderr.contains("that only an apply knows"),
                "{}",
                written.stderr
            );
            return None;
        }
        self.repository.commit(name);
        Some(to.join(format!("spec-{name}")))
    }

    /// Runs Argo CD's packages with the Application of a stack.
    fn argocd(&self, command: &str, stack: &Path, kubeconfig: Option<&Path>) -> String {
        let mut run = Command::new(executable("argocd-branch", "argocd-branch"));
        run.arg(command)
            .arg(stack.join("delivery/application.yaml"))
            .arg(self.clones.path());
        if let Some(kubeconfig) = kubeconfig {
            run.env("KUBECONFIG", kubeconfig);
        }
        let output = run.output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command} {stack:?}: {err}\n{out}");
        out
    }

    /// What the repo server reads, without the label that it adds.
    fn manifests(&self, stack: &Path) -> Vec<Value> {
        let name = stack.file_name().unwrap().to_str().unwrap();
        let lines = self.argocd("manifests", stack, None);
        let objects = lines.lines().map(|line| {
            let mut object: Value = serde_json::from_str(line).unwrap();
            if object["kind"] != "CustomResourceDefinition" {
                let label = take(&mut object, "labels", INSTANCE);
                assert_eq!(label, Some(json!(name)), "{object}");
            }
            object
        });
        objects.collect()
    }
}

/// Takes a label or an annotation away.
fn take(object: &mut Value, part: &str, key: &str) -> Option<Value> {
    let metadata = object["metadata"].as_object_mut().unwrap();
    let map = metadata.get_mut(part)?.as_object_mut()?;
    let taken = map.remove(key);
    if map.is_empty() {
        metadata.remove(part);
    }
    taken
}

/// An object by its identity.
fn identity(object: &Value) -> String {
    let metadata = &object["metadata"];
    format!(
        "{} {} {} {}",
        object["apiVersion"], object["kind"], metadata["namespace"], metadata["name"]
    )
}

/// The repo server reads exactly the objects of the bundle from the branch: neither `konverge.json` nor the
/// Application, which are beside them, nor another stack. Applied, they are what `konverge apply` writes, field by
/// field.
#[tokio::test]
#[ignore = "needs the part `argocd-branch`: make test-all"]
async fn argo_cd_2_14_reads_from_a_branch_what_an_apply_writes() {
    let folder = tempfile::tempdir().unwrap();
    let (example, branch) = (Repository::konfig_example(), Branch::new());
    let (ours, theirs) = (Cluster::start(), Cluster::start());
    let (our_objects, their_objects) = (Objects::of(&ours).await, Objects::of(&theirs).await);
    let mut compared = 0;
    for (name, mut resources) in example_specs(&example) {
        without_secrets(&mut resources);
        if resources.is_empty() {
            continue;
        }
        spec_file(folder.path(), &name, &resources);
        let Some(stack) = branch.export(folder.path(), &name) else {
            continue;
        };
        let mut written: BTreeMap<_, _> = files(&stack.join("manifests"))
            .values()
            .map(|text| {
                let object: Value = yaml::from_long_str(std::str::from_utf8(text).unwrap()).unwrap();
                (identity(&object), object)
            })
            .collect();
        let mut objects = branch.manifests(&stack);
        for object in &objects {
            assert_eq!(written.remove(&identity(object)).as_ref(), Some(object), "{name}");
        }
        assert!(written.is_empty(), "{name}: {:?}", written.keys());

        Konverge::new(["apply", "--yes", "--no-wait", "--spec"])
            .arg(format!("{name}.json"))
            .arg("--kubeconfig")
            .arg(ours.kubeconfig())
            .dir(folder.path())
            .env("XDG_STATE_HOME", folder.path().join("state"))
            .run()
            .expect(0);
        objects.sort_by_key(|object| {
            let first = ["Namespace", "CustomResourceDefinition"].iter();
            (
                !first.clone().any(|kind| object["kind"] == *kind),
                identity(object),
            )
        });
        for mut object in objects {
            take(&mut object, "annotations", WAVE);
            if object["kind"] == "CustomResourceDefinition" {
                their_objects.create_definition(&object).await
            } else {
                their_objects.apply_as(&object, "argocd-controller").await
            }
            let get = async |objects: &Objects| {
                let found = objects.get(&object).await;
                comparable(found.unwrap_or_else(|| panic!("{name}: {} is missing", identity(&object))))
            };
            assert_eq!(get(&their_objects).await, get(&our_objects).await, "{name}");
            compared += 1;
        }
    }
    assert!(compared > 60, "{compared}");
}

/// Argo CD's own sync obeys the waves: each edge that is called kept holds in the times at which the objects were made,
/// two seconds apart. Hostile text arrives as it is.
#[tokio::test]
#[ignore = "needs the part `argocd-branch`: make test-all"]
async fn argo_cd_2_14_syncs_a_branch_in_the_order_that_is_called_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (branch, cluster) = (Branch::new(), Cluster::start());
    let objects = Objects::of(&cluster).await;
    let id = |name: &str| format!("v1:ConfigMap:default:{name}");
    let odd = json!({"braces": "{{ .Values.x }} ${y} {% z %}", "lines": "a\n---\nb: \t\u{e9}\n"});
    // The names are in another order than the edges, so that only the waves can keep them.
    let chain = [("z", None), ("m", Some("z")), ("a", Some("m"))];
    let resources: Vec<Value> = chain
        .iter()
        .map(|(name, after)| {
            let after: Vec<String> = after.iter().map(|after| id(after)).collect();
            let after: Vec<&str> = after.iter().map(String::as_str).collect();
            resource(&id(name), config(name, odd.clone()), &after)
        })
        .collect();
    spec_file(folder.path(), "chain", &resources);
    let stack = branch.export(folder.path(), "chain").unwrap();
    branch.argocd("sync", &stack, Some(&cluster.kubeconfig()));
    let mut created = BTreeMap::new();
    for one in &resources {
        let live = objects.get(&one["attributes"]).await.unwrap();
        assert_eq!(live["data"], odd);
        let managers = live["metadata"]["managedFields"].as_array().unwrap();
        assert!(
            managers
                .iter()
                .any(|entry| entry["manager"] == "argocd-controller"),
            "{managers:?}"
        );
        let time = live["metadata"]["creationTimestamp"].as_str().unwrap().to_owned();
        created.insert(one["id"].as_str().unwrap().to_owned(), time);
    }
    let document = document(&stack);
    let kept = document["kept"].as_array().unwrap();
    assert_eq!(kept.len(), 2, "{document}");
    for edge in kept {
        let time = |end: &str| &created[edge[end].as_str().unwrap()];
        assert!(time("from") < time("to"), "{edge} {created:?}");
    }
}
