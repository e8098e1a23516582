//! The parts are there and are the real thing: each shows something that an imitation would not.

use crate::support::cluster::{Cluster, User};
use crate::support::git::Repository;
use crate::support::moto::Moto;
use crate::support::process::Konverge;
use crate::support::s3::{self, S3};
use crate::support::service::{Ports, eventually};
use crate::support::{kcl, octokit, terraform};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use object_store::{ObjectStore, PutMode, PutOptions, PutPayload, path::Path};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn api_server_validates_authorizes_and_audits() {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("parts").await;
    let config_map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "one"}, "data": {"key": "value"}})).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await, &namespace);
    let created = maps.create(&PostParams::default(), &config_map).await.unwrap();
    assert!(created.metadata.uid.is_some());

    // Server-side apply is there, and another manager's field is a conflict.
    let change = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"key": "other"}});
    let conflict = maps
        .patch("one", &PatchParams::apply("konverge"), &Patch::Apply(&change))
        .await;
    assert!(matches!(conflict, Err(kube::Error::Api(status)) if status.code == 409));

    let as_reader: Api<ConfigMap> = Api::namespaced(cluster.client_of(User::Reader).await, &namespace);
    assert_eq!(as_reader.get("one").await.unwrap().data, config_map.data);
    let refused = as_reader.delete("one", &Default::default()).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));
    let as_nobody: Api<ConfigMap> = Api::namespaced(cluster.client_of(User::Nobody).await, &namespace);
    assert!(as_nobody.list(&ListParams::default()).await.is_err());

    let audit: Vec<_> = cluster
        .audit()
        .into_iter()
        .filter(|event| event.is_in(&namespace))
        .collect();
    let seen: Vec<_> = audit
        .iter()
        .map(|event| {
            (
                event.user.username.as_str(),
                event.verb.as_str(),
                event.response_status.as_ref().unwrap().code,
            )
        })
        .filter(|(user, ..)| *user != "system:serviceaccount")
        .collect();
    let expected = [
        ("admin", "create", 201),
        ("admin", "patch", 409),
        ("reader", "get", 200),
        ("reader", "delete", 403),
        ("nobody", "list", 403),
    ];
    assert!(expected.iter().all(|event| seen.contains(event)), "{seen:?}");
}

#[tokio::test]
async fn deployment_becomes_available() {
    let cluster = Cluster::with_controllers();
    let namespace = cluster.namespace("parts").await;
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "example.com/web:1"}]},
            },
        },
    }))
    .unwrap();
    let deployments: Api<Deployment> = Api::namespaced(cluster.client().await, &namespace);
    deployments
        .create(&PostParams::default(), &deployment)
        .await
        .unwrap();
    eventually("the deployment is available", Duration::from_secs(60), || async {
        let status = deployments.get("web").await.unwrap().status?;
        (status.available_replicas == Some(2)).then_some(())
    })
    .await;
}

/// All begin at once, each on a connection of its own: HTTP/1.1 has one request at a time on each.
#[tokio::test(flavor = "multi_thread")]
async fn s3_lets_one_of_64_creators_win() {
    let server = S3::shared();
    let store: Arc<dyn ObjectStore> = Arc::new(server.client(&server.bucket("parts")));
    for round in 0..8 {
        let key = Path::from(format!("state/{round}"));
        let start = Arc::new(tokio::sync::Barrier::new(64));
        let attempts = (0..64).map(|writer| {
            let (store, key, start) = (store.clone(), key.clone(), start.clone());
            tokio::spawn(async move {
                start.wait().await;
                (writer, create(&*store, &key, writer).await)
            })
        });
        let mut winners = Vec::new();
        for attempt in futures::future::join_all(attempts).await {
            let (writer, created) = attempt.unwrap();
            winners.extend(created.then_some(writer));
        }
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        assert_eq!(read(&*store, &key).await, format!("writer {}", winners[0]));
    }
}

#[tokio::test]
async fn moto_refuses_to_create_again() {
    let moto = Moto::shared();
    let store = s3::client(moto.endpoint(), &moto.bucket("parts").await);
    let key = Path::from("state/1");
    assert!(create(&store, &key, 1).await);
    assert!(!create(&store, &key, 2).await);
    assert_eq!(read(&store, &key).await, "writer 1");
}

/// Whether this writer made the key.
async fn create(store: &dyn ObjectStore, key: &Path, writer: u32) -> bool {
    let payload = PutPayload::from(format!("writer {writer}"));
    match store
        .put_opts(key, payload, PutOptions::from(PutMode::Create))
        .await
    {
        Ok(_) => true,
        Err(object_store::Error::AlreadyExists { .. }) => false,
        Err(error) => panic!("writer {writer}: {error}"),
    }
}

async fn read(store: &dyn ObjectStore, key: &Path) -> String {
    let bytes = store
        .get_opts(key, Default::default())
        .await
        .unwrap()
        .bytes()
        .await
        .unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn kcl_core_compiles() {
    let program = r#"
import importlib.metadata, json, kcl_lib.api as api
arguments = api.ExecProgramArgs(k_filename_list=["main.k"], k_code_list=["schema A:\n    n: int = 1 + 1\na = A {}"])
result = json.loads(api.API().exec_program(arguments).json_result)
print(json.dumps({"version": importlib.metadata.version("kcl_lib"), "result": result}))
"#;
    let outcome = Konverge::of(&kcl::interpreter(), ["-c", program]).run().expect(0);
    let expected = json!({"version": konverge_kcl::DEFAULT_VERSION, "result": {"a": {"n": 2}}});
    assert_eq!(
        outcome.json(),
        expected,
        "tests/parts/kcl pins what `konverge kcl install` installs"
    );
}

#[test]
fn terraform_applies_a_local_file_without_a_network() {
    let folder = tempfile::tempdir().unwrap();
    let written = folder.path().join("written");
    let configuration = json!({
        "terraform": {"required_providers": {"local": {"source": "hashicorp/local", "version": terraform::LOCAL_PROVIDER}}},
        "resource": {"local_file": {"one": {"filename": written, "content": "by terraform"}}},
    });
    std::fs::write(folder.path().join("main.tf.json"), configuration.to_string()).unwrap();
    let config = terraform::cli_config(folder.path());
    let run = |arguments: &[&str]| {
        Konverge::of(&terraform::binary(), arguments)
            .dir(folder.path())
            .env("TF_CLI_CONFIG_FILE", &config)
            .run()
    };
    run(&["init", "-input=false", "-no-color"]).expect(0);
    run(&["apply", "-input=false", "-no-color", "-auto-approve"]).expect(0);
    assert_eq!(std::fs::read_to_string(&written).unwrap(), "by terraform");
    // The provider is the real one: it sees that the file went away.
    std::fs::remove_file(&written).unwrap();
    run(&["plan", "-input=false", "-no-color", "-detailed-exitcode"]).expect(2);
}

#[test]
fn github_describes_what_we_use() {
    let openapi = octokit::openapi();
    let body =
        &openapi["paths"]["/repos/{owner}/{repo}/issues/{issue_number}/comments"]["post"]["requestBody"];
    assert_eq!(
        body["content"]["application/json"]["schema"]["required"],
        json!(["body"])
    );
    let pull_requests = octokit::webhooks("pull_request");
    assert!(
        pull_requests
            .iter()
            .any(|payload| payload["pull_request"]["head"]["sha"].is_string())
    );
}

#[test]
fn example_is_cloned_whole() {
    let repository = Repository::konfig_example();
    assert!(
        repository
            .git(["ls-files"])
            .lines()
            .any(|file| file.ends_with("/stack.yaml"))
    );
    assert_eq!(repository.git(["status", "--porcelain"]), "");
}

#[test]
fn same_steps_give_the_same_commits() {
    let history = || {
        let repository = Repository::init();
        repository.write("a/one.k", "a = 1\n").commit("one");
        repository
            .branch("change")
            .rename("a/one.k", "b/two.k")
            .commit("two");
        repository.checkout("main").write("three", "3").commit("three");
        repository.merge("change")
    };
    let merge = history();
    assert_eq!(merge.len(), 40);
    assert_eq!(merge, history());
}

#[test]
fn shallow_clone_lacks_history() {
    let repository = Repository::init();
    let first = repository.write("a", "1").commit("one");
    repository.write("a", "2").commit("two");
    let shallow = repository.clone_with(&["--depth=1"]);
    assert_eq!(shallow.git(["rev-parse", "--is-shallow-repository"]), "true");
    assert_ne!(shallow.git(["rev-list", "HEAD"]), first);
    assert_eq!(shallow.git(["rev-list", "--count", "HEAD"]), "1");
}

#[test]
fn blocks_of_ports_do_not_overlap() {
    let (one, two) = (Ports::claim(), Ports::claim());
    assert!(one.nth(1).abs_diff(two.nth(1)) >= 8);
}

#[test]
fn run_sees_a_clean_environment() {
    let outcome = Konverge::of(std::path::Path::new("/usr/bin/env"), [] as [&str; 0])
        .env("MINE", "1")
        .run()
        .expect(0);
    let mut names: Vec<_> = outcome
        .stdout
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["GIT_CONFIG_NOSYSTEM", "HOME", "LC_ALL", "MINE", "PATH", "TZ"]
    );
}
