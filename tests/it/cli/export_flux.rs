//! Flux's own packages read the artifacts of `konverge export`.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use konverge_base::yaml;
use serde_json::Value;

use super::{
    export::{document, export, files, spec_file},
    export_targets::{Creation, check_order, comparable, example_specs, without_secrets},
};
use crate::support::{
    cluster::Cluster, executable, git::Repository, objects::Objects, process::Konverge, stores::Registry,
};

/// A command of Flux's own packages.
fn flux(arguments: &[&str], kubeconfig: Option<&Path>) -> String {
    let mut command = Command::new(executable("flux-artifact", "flux-artifact"));
    command.args(arguments);
    if let Some(kubeconfig) = kubeconfig {
        command.env("KUBECONFIG", kubeconfig);
    }
    let output = command.output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{arguments:?}: {err}\n{out}");
    out.into_owned()
}

/// Flux's own packages also pull the artifact of `export argocd`: the same objects, besides the waves.
fn check_argo_artifact(folder: &Path, file: &str, url: &str, flux_files: &Path) {
    let url = url.replace("/acme/", "/argo/");
    export(folder, &["argocd", "--spec", file, "--to", &url])
        .run()
        .expect(0);
    let to = tempfile::tempdir().unwrap();
    flux(&["pull", &url, to.path().to_str().unwrap()], None);
    assert_eq!(document(to.path())["target"], "argocd");
    let read = |folder: &Path| -> BTreeMap<String, Value> {
        let objects = files(&folder.join("manifests"))
            .into_iter()
            .map(|(path, content)| {
                let text = std::str::from_utf8(&content).unwrap();
                let mut object: Value = yaml::from_long_str(text).unwrap();
                let metadata = object["metadata"].as_object_mut().unwrap();
                if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                    annotations.remove("argocd.argoproj.io/sync-wave");
                    if annotations.is_empty() {
                        metadata.remove("annotations");
                    }
                }
                (path, object)
            });
        objects.collect()
    };
    assert_eq!(read(to.path()), read(flux_files));
}

/// Flux's own packages pull what was pushed, and apply it level by level: the objects are those of an apply, and each
/// edge that is called kept holds in their creation. What needs the value of a Secret is left out: an artifact never
/// carries it.
#[tokio::test]
#[ignore = "needs the part `flux-artifact`: make test-all"]
async fn flux_pulls_and_applies_what_an_apply_writes() {
    let folder = tempfile::tempdir().unwrap();
    let example = Repository::konfig_example();
    let registry = Registry::start();
    let (ours, theirs) = (Cluster::start(), Cluster::start());
    let (our_objects, their_objects) = (Objects::of(&ours).await, Objects::of(&theirs).await);
    let (mut compared, mut kept, mut exact) = (0, 0, 0);
    for (name, mut resources) in example_specs(&example) {
        without_secrets(&mut resources);
        if resources.is_empty() {
            continue;
        }
        let file = format!("{name}.json");
        spec_file(folder.path(), &name, &resources);
        let url = format!("oci://{}/acme/{name}:1", registry.host());
        let pushed = export(folder.path(), &["flux", "--spec", &file, "--to", &url]).run();
        if pushed.code != Some(0) {
            // Other values that only a chart can ask for.
            assert!(
                pushed.stderr.contains("that only an apply knows"),
                "{}",
                pushed.stderr
            );
            continue;
        }
        let digest = pushed.stdout.trim_end().rsplit_once('@').unwrap().1.to_owned();
        let to = folder.path().join("pulled").join(&name);
        fs::create_dir_all(&to).unwrap();
        let pulled: Value = serde_json::from_str(&flux(&["pull", &url, to.to_str().unwrap()], None)).unwrap();
        assert!(pulled.to_string().contains(&digest), "{pulled}");
        assert_eq!(document(&to)["stack"], format!("spec/{name}"));
        check_argo_artifact(folder.path(), &file, &url, &to);

        let kubeconfig = ours.kubeconfig();
        Konverge::new(["apply", "--yes", "--no-wait", "--spec", &file, "--kubeconfig"])
            .arg(&kubeconfig)
            .dir(folder.path())
            .env("XDG_STATE_HOME", folder.path().join("state"))
            .run()
            .expect(0);
        let document = document(&to);
        let mut created: BTreeMap<String, Creation> = BTreeMap::new();
        // A Kustomization for each level waits for the one before it.
        for level in document["levels"].as_array().unwrap() {
            let files: Vec<_> = level.as_array().unwrap().iter().collect();
            let folder = to.join(files[0]["file"].as_str().unwrap());
            let folder = folder.parent().unwrap().to_str().unwrap();
            flux(&["apply", folder], Some(&theirs.kubeconfig()));
            for one in files {
                let path = one["file"].as_str().unwrap();
                let text = fs::read_to_string(to.join(path)).unwrap();
                let object: Value = yaml::from_long_str(&text).unwrap();
                let get = async |objects: &Objects| {
                    let found = objects.get(&object).await;
                    found.unwrap_or_else(|| panic!("{name}/{path} is missing"))
                };
                let (by_flux, by_us) = (get(&their_objects).await, get(&our_objects).await);
                let id = one["id"].as_str().unwrap().to_owned();
                created.insert(id, Creation::read(&by_flux));
                assert_eq!(comparable(by_flux), comparable(by_us), "{name}/{path}");
                compared += 1;
            }
        }
        let order = check_order(&document, &created);
        kept += order.kept;
        exact += order.exact;
    }
    assert!(
        compared > 60 && kept > 40 && exact > 20,
        "{compared} objects, {kept} edges, {exact} of them by the version"
    );
}
