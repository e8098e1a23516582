//! Nothing is made twice where the state, the cluster or the owner is not the one that was: what the records prove.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::support::{
    ci_stage::Stage, cluster::Cluster, objects::Objects, spec_runs::SpecRuns, stack::id, terraform,
    tiny_monorepo,
};

fn map(ns: &str, name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": ns}, "data": data})
}

/// The name of a cluster leads to another one: nothing is compared or written there before somebody says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_stack_does_not_follow_its_clusters_name_to_another_cluster() {
    let (here, there) = (Cluster::shared(), Cluster::start());
    let ns = here.namespace("rebound").await;
    Objects::of(&there)
        .await
        .create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}}))
        .await;
    let runs = SpecRuns::on_s3("rebound", "").await;
    let wanted = map(&ns, "c", json!({"a": "1"}));
    let spec = json!({"resources": [{"id": id(&wanted), "type": "Kubernetes", "attributes": wanted}]});
    std::fs::write(runs.repository.path().join("c.json"), spec.to_string()).unwrap();
    runs.apply("c.json", "shop/prod").run().expect(0);
    let on = |arguments: &[&str]| {
        runs.konverge(arguments)
            .arg("--kubeconfig")
            .arg(there.kubeconfig())
    };
    let apply = ["apply", "--yes", "--spec", "c.json", "--stack", "shop/prod"];
    let uid = async |cluster: &Cluster| {
        let system = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}});
        let live = Objects::of(cluster).await.get(&system).await.unwrap();
        live["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let stopped = on(&apply).run();
    let said = format!("{}{}", stopped.stdout, stopped.stderr);
    assert_eq!(stopped.code, Some(3), "{said}");
    assert!(
        said.contains(&uid(here).await) && said.contains(&uid(&there).await),
        "{said}"
    );
    assert!(said.contains("konverge state rebind shop/prod"), "{said}");
    assert!(Objects::of(&there).await.get(&wanted).await.is_none());

    runs.konverge(&["state", "rebind", "shop/prod", "--cluster", "default"])
        .run()
        .expect(0);
    on(&apply).run().expect(0);
    assert!(Objects::of(&there).await.get(&wanted).await.is_some());
    let back = runs.apply("c.json", "shop/prod").run();
    assert_eq!(back.code, Some(3), "{}", back.stdout);
}

/// The documents of a state are gone, the index is not: nothing is created a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_whose_documents_are_gone_stops_the_stack() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}/state", folder.path().display());
    let runs = SpecRuns::at("vanished", &url, "").await;
    runs.spec("v.json", &["a", "b"]);
    runs.apply("v.json", "shop/prod").run().expect(0);
    let pulled = runs.konverge(&["state", "pull", "shop/prod"]).run().expect(0);
    std::fs::write(runs.repository.path().join("pulled.json"), &pulled.stdout).unwrap();
    let remove = || {
        let mut removed = 0;
        for stack in std::fs::read_dir(folder.path().join("state/stacks")).unwrap() {
            removed += usize::from(std::fs::remove_dir_all(stack.unwrap().path().join("state")).is_ok());
        }
        assert_eq!(removed, 1);
    };
    remove();
    for command in [
        vec!["apply", "--yes", "--spec", "v.json", "--stack", "shop/prod"],
        vec!["preview", "--spec", "v.json", "--stack", "shop/prod"],
    ] {
        let stopped = runs.on_cluster(&command).run();
        let said = format!("{}{}", stopped.stdout, stopped.stderr);
        assert_ne!(stopped.code, Some(0), "{said}");
        assert!(
            said.contains("the state of stack `shop/prod` is gone: serial 1 was written"),
            "{said}"
        );
    }
    runs.konverge(&["state", "push", "shop/prod", "pulled.json"])
        .run()
        .expect(0);
    assert_eq!(runs.recorded("shop/prod").await.len(), 2);
    runs.apply("v.json", "shop/prod").run().expect(0);
    remove();
    runs.konverge(&["state", "forget", "shop/prod", "--yes"])
        .run()
        .expect(0);
    runs.apply("v.json", "shop/prod").run().expect(0);
    assert_eq!(runs.recorded("shop/prod").await, runs.made("shop/prod").await);
}

/// The documents of one half of a store, with their bytes.
fn documents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(documents(&path));
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

/// Yesterday's states beside today's index, and yesterday's index beside today's states: whoever looks is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_half_put_back_is_told() {
    // Enough objects for an entry of the index. Where documents are encrypted, one is enough.
    let names: Vec<_> = (0..25).map(|n| format!("put-back-{n}")).collect();
    let maps: Vec<_> = names.iter().map(|name| (name.as_str(), "one")).collect();
    for (half, is_newer) in [("stacks", true), ("index", false)] {
        let stage = Stage::small("").await;
        let id = format!("put-back-{half}/dev");
        let run = |arguments: &[&str]| stage.konverge(arguments.iter().copied()).run();
        let apply = |maps: &[(&str, &str)]| {
            stage.stack(&id, maps);
            stage.monorepo.commit("maps");
            run(&["apply", "--yes", &id]).expect(0);
        };
        apply(&maps[..1]);
        let half = stage.scratch.path().join("store").join(half);
        let yesterday = documents(&half);
        apply(&maps);
        std::fs::remove_dir_all(&half).unwrap();
        for (path, bytes) in yesterday {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        let doctored = run(&["state", "doctor"]);
        let said = format!("{}{}", doctored.stdout, doctored.stderr);
        let differs = format!("differs from the states for {id}");
        assert!(said.contains(&differs), "{half:?}: {said}");
        // An index that is behind may be that of a run which is about to write it.
        let looked = run(&["drift"]).stderr;
        let is_told = looked.contains("the store may have been restored from a backup");
        assert_eq!(is_told, is_newer, "{half:?}: {looked}");
        for name in &names {
            let map = map("default", name, Value::Null);
            Objects::of(stage.cluster).await.delete(&map).await;
        }
    }
}

/// What another stack records is not created, also where the object is not there any more.
#[tokio::test(flavor = "multi_thread")]
async fn what_another_stack_records_is_told_before_the_write() {
    let runs = SpecRuns::on_s3("recorded", "").await;
    runs.spec("r.json", &["a"]);
    runs.apply("r.json", "first/prod").run().expect(0);
    Objects::of(runs.cluster)
        .await
        .delete(&map(&runs.namespace, "a", json!({})))
        .await;
    let told = runs
        .on_cluster(&["preview", "--spec", "r.json", "--stack", "second/prod"])
        .run();
    let said = format!("{}{}", told.stdout, told.stderr);
    assert!(
        said.contains("stack `first/prod` still manages the same object"),
        "{said}"
    );
}

/// What Terraform made is given up wholly: the sealed document does not hold it any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_terraform_resource_is_given_up() {
    let mut runs = SpecRuns::on_s3("forgotten", "").await;
    runs.env
        .push(("KONVERGE_AGE_IDENTITY", "correct horse battery staple".to_owned()));
    let config = runs.repository.read("konverge.yaml");
    let binary = terraform::binary();
    runs.repository.write(
        "konverge.yaml",
        format!("{config}terraform: {{binary: '{}'}}\n", binary.display()),
    );
    let thing = |name: &str| json!({"id": format!("terraform:builtin:terraform_data:{name}"), "type": "Terraform", "attributes": {"input": name}});
    let spec = json!({"resources": [thing("kept"), thing("given-up")]});
    std::fs::write(runs.repository.path().join("t.json"), spec.to_string()).unwrap();
    let stack = ["--spec", "t.json", "--stack", "shop/prod"];
    let run = |arguments: &[&str]| runs.konverge(arguments).arg_all(stack);
    run(&["apply", "--yes"]).run().expect(0);
    let given_up = "terraform:builtin:terraform_data:given-up";
    runs.konverge(&["state", "forget", "shop/prod", given_up])
        .run()
        .expect(0);
    let plan = run(&["preview", "--output", "json"]).run().expect(0).json();
    let planned: Vec<_> = plan["stacks"][0]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|resource| {
            (
                resource["id"].as_str().unwrap(),
                resource["action"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(planned, [(given_up, "create")]);
    let unknown = runs.konverge(&["state", "forget", "shop/prod", given_up]).run();
    assert_ne!(unknown.code, Some(0), "it is recorded nowhere any more");
}

/// Two stacks of one change that create the same object: `check` finds it in the Specs, the preview of the pull request
/// says it in both, and so does that of two Terraform resources which take over one object.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_object_in_two_stacks_is_told_before_anything_is_applied() {
    let mut stage = Stage::small("").await;
    stage.monorepo.checkout("main").branch("twice");
    stage.stack("twice-a/dev", &[("twice", "one"), ("a-alone", "one")]);
    stage.stack("twice-b/dev", &[("twice", "two")]);
    stage.monorepo.commit("twice");
    let checked = stage.konverge(["check", "--all", "--output", "json", "--skip", "format"]);
    let checked = checked.dir(stage.monorepo.path()).run();
    let remarks = checked.json()["remarks"].as_array().unwrap().clone();
    let remark = remarks
        .iter()
        .find(|remark| remark["rule"] == "ownership")
        .expect("it is found");
    let message = remark["message"].as_str().unwrap();
    assert!(
        message.contains("`v1:ConfigMap:default:twice`: in stack `twice-a/dev` too"),
        "{message}"
    );
    let ran = stage.pull_request(1, "twice", "opened");
    assert_ne!(ran.outcome.code, Some(0));
    for other in ["twice-a/dev", "twice-b/dev"] {
        let told = format!("stack `{other}` would create or adopt the same object");
        assert!(ran.summary.contains(&told), "{}", ran.summary);
    }
}

/// A stack that does not compile holds back deletions that lose data, until somebody answers for it by name.
#[tokio::test(flavor = "multi_thread")]
async fn a_stack_that_does_not_compile_can_be_left_out_by_name() {
    let stage = Stage::small("").await;
    let definition = "{id = \"apiextensions.k8s.io/v1:CustomResourceDefinition:things.without.example.com\", type = \"Kubernetes\", attributes = {\
        apiVersion = \"apiextensions.k8s.io/v1\", kind = \"CustomResourceDefinition\", metadata = {name = \"things.without.example.com\"}, \
        spec = {group = \"without.example.com\", scope = \"Namespaced\", names = {plural = \"things\", kind = \"Thing\"}, versions = [{name = \"v1\", \
        served = True, storage = True, schema = {openAPIV3Schema = {type = \"object\"}}}]}}}";
    let write = |resources: &str| {
        tiny_monorepo::write_program(
            &stage.monorepo,
            "without-a/dev",
            &format!("resources = [\n    {resources}\n]\n"),
        );
    };
    let apply = |more: &[&str]| {
        let konverge = stage.konverge(
            ["apply", "without-a/dev", "--yes"]
                .into_iter()
                .chain(more.iter().copied()),
        );
        konverge.dir(stage.monorepo.path()).run()
    };
    write(definition);
    stage.monorepo.commit("A definition");
    apply(&[]).check(0);
    tiny_monorepo::write_program(&stage.monorepo, "without-b/dev", "resources = [ this is no KCL\n");
    write("");
    stage.monorepo.commit("One is gone, the other broken");
    let refused = apply(&["--allow-empty"]);
    let said = format!("{}{}", refused.stdout, refused.stderr);
    assert_ne!(refused.code, Some(0), "{said}");
    assert!(said.contains("--without without-b/dev"), "{said}");
    apply(&["--allow-empty", "--without", "without-b/dev"]).check(0);
    let live = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.without.example.com"}});
    assert!(Objects::of(stage.cluster).await.get(&live).await.is_none());
}
