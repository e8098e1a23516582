//! The manifests and policies of docs/guides/permissions.md do what the page says, for each kind of login.

use std::path::{Path, PathBuf};

use k8s_openapi::api::{
    authorization::v1::SelfSubjectAccessReview,
    core::v1::{ConfigMap, Pod, ServiceAccount},
};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::{
    meta::docs::{blocks, root},
    support::{
        ci_stage::Stage,
        cluster::Cluster,
        git::Repository,
        process::{Konverge, Outcome},
        s3::S3,
        service::eventually,
        tiny_monorepo,
    },
};

fn page() -> String {
    std::fs::read_to_string(root().join("docs/guides/permissions.md")).unwrap()
}

/// Applies every manifest of the page, in its order.
async fn apply_the_page(cluster: &Cluster) {
    let client = cluster.client().await;
    let manifests: Vec<_> = blocks(&page(), "yaml")
        .iter()
        .flat_map(|block| konverge_base::yaml::documents(block).unwrap())
        .collect();
    assert!(manifests.len() >= 8, "{}", manifests.len());
    for object in manifests {
        let (version, kind) = (
            object["apiVersion"].as_str().unwrap(),
            object["kind"].as_str().unwrap(),
        );
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let of = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &of),
            None => Api::all_with(client.clone(), &of),
        };
        let name = object["metadata"]["name"].as_str().unwrap();
        let applied = api
            .patch(name, &PatchParams::apply("the-page"), &Patch::Apply(&object))
            .await;
        applied.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
    }
}

/// The administrator's kubeconfig with another user.
fn kubeconfig(cluster: &Cluster, folder: &Path, name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    change(&mut config["users"][0]["user"]);
    let path = folder.join(name);
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// A person or a role of a cloud, who has the group and nothing else.
fn of_group(cluster: &Cluster, folder: &Path, group: &str) -> PathBuf {
    kubeconfig(cluster, folder, group, |user| {
        user["as"] = json!(format!("somebody-of-{group}"));
        user["as-groups"] = json!([group, "system:authenticated"]);
    })
}

/// The identity of a job at GKE or AKS, which is a user without a group.
fn of_user(cluster: &Cluster, folder: &Path, name: &str) -> PathBuf {
    kubeconfig(cluster, folder, name, |user| {
        user["as"] = json!(name);
        user["as-groups"] = json!(["system:authenticated"]);
    })
}

/// The service account of the page, by a token of its own.
async fn of_account(cluster: &Cluster, folder: &Path) -> PathBuf {
    use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client().await, "konverge-preview");
    let request = TokenRequest {
        spec: TokenRequestSpec::default(),
        ..TokenRequest::default()
    };
    let made = accounts
        .create_token_request("konverge", &PostParams::default(), &request)
        .await;
    let token = made.unwrap().status.unwrap().token;
    kubeconfig(cluster, folder, "account", |user| {
        *user = json!({ "token": token })
    })
}

fn konverge(repository: &Repository, kubeconfig: &Path, arguments: &[&str]) -> Outcome {
    Konverge::new(arguments)
        .with_kcl()
        .dir(repository.path())
        .env("KUBECONFIG", kubeconfig)
        .env("XDG_STATE_HOME", repository.path().join(".git/test-state"))
        .run()
}

async fn client(kubeconfig: &Path) -> kube::Client {
    let read = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(read, &kube::config::KubeConfigOptions::default()).await;
    kube::Client::try_from(config.unwrap()).unwrap()
}

fn stack_of(namespace: &str, value: &str) -> Repository {
    let repository = tiny_monorepo::monorepo();
    tiny_monorepo::write_stack(&repository, "roles/dev", namespace, value);
    repository.write(
        "konverge.yaml",
        "version: 1\nclusters: {test: {}}\nkcl: {version: 0.13.2}\n",
    );
    repository.commit("A stack");
    repository
}

/// The refusal of the policy, not of RBAC.
fn is_denied<T: std::fmt::Debug>(answer: Result<T, kube::Error>, what: &str) {
    let refusal = answer.expect_err(what).to_string();
    assert!(
        refusal.contains("a preview may only ask what would happen"),
        "{what}: {refusal}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_asks_and_any_write_of_it_fails() {
    let cluster = Cluster::start();
    apply_the_page(&cluster).await;
    let folder = tempfile::tempdir().unwrap();
    let namespace = cluster.namespace("roles").await;
    let repository = stack_of(&namespace, "one");
    let admin = cluster.kubeconfig();
    konverge(&repository, &admin, &["apply", "--yes", "roles/dev"]).expect(0);
    tiny_monorepo::write_stack(&repository, "roles/dev", &namespace, "two");

    let applies = json!({"metadata": {"name": "applies"}});
    let applies: ServiceAccount = serde_json::from_value(applies).unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client().await, &namespace);
    accounts.create(&PostParams::default(), &applies).await.unwrap();

    for (path, object) in [
        (
            format!("/api/v1/namespaces/{namespace}/pods"),
            json!({
                "metadata": {"name": "runs"},
                "spec": {"serviceAccountName": "applies", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]},
            }),
        ),
        (
            format!("/api/v1/namespaces/{namespace}/services"),
            json!({"metadata": {"name": "serves"}, "spec": {"ports": [{"port": 80}]}}),
        ),
        (
            "/api/v1/nodes".to_owned(),
            json!({"metadata": {"name": "of-roles"}}),
        ),
    ] {
        let request = http::Request::post(&path)
            .header("Content-Type", "application/json")
            .body(object.to_string().into_bytes());
        let made = cluster.client().await.request_text(request.unwrap()).await;
        made.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    let previewers = [
        of_group(&cluster, folder.path(), "konverge-preview"),
        of_account(&cluster, folder.path()).await,
        of_user(
            &cluster,
            folder.path(),
            "konverge-drift@my-project.iam.gserviceaccount.com",
        ),
    ];
    for previewer in &previewers {
        // A policy holds a moment after it is made.
        let maps: Api<ConfigMap> = Api::namespaced(client(previewer).await, &namespace);
        let probe = PostParams::default();
        let map = |name: &str| -> ConfigMap {
            serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
        };
        eventually("the policy holds", std::time::Duration::from_secs(60), || async {
            maps.create(&probe, &map(&format!("probe-{}", uuid::Uuid::new_v4())))
                .await
                .err()
        })
        .await;

        let shown = konverge(
            &repository,
            previewer,
            &["preview", "roles/dev", "--live", "required"],
        )
        .expect(0);
        assert!(
            shown.stdout.contains("level") && shown.stdout.contains("two"),
            "{}",
            shown.stdout
        );
        assert!(!shown.stderr.contains("warning"), "{}", shown.stderr);
        let refused = konverge(&repository, previewer, &["apply", "--yes", "roles/dev"]);
        assert_ne!(refused.code, Some(0), "{}", refused.stdout);

        is_denied(maps.create(&probe, &map("made")).await, "create");
        let patch = Patch::Apply(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"level": "x"}}),
        );
        is_denied(
            maps.patch("settings", &PatchParams::apply("x").force(), &patch)
                .await,
            "patch",
        );
        is_denied(maps.delete("settings", &DeleteParams::default()).await, "delete");
        // What is not an object's own write: a token of another account, and a subresource.
        let accounts: Api<ServiceAccount> = Api::namespaced(client(previewer).await, &namespace);
        let request = serde_json::from_value(json!({"spec": {"audiences": []}})).unwrap();
        is_denied(
            accounts.create_token_request("applies", &probe, &request).await,
            "token",
        );
        let asked = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        maps.create(&asked, &map("asked")).await.unwrap();
        // The server would issue this token as well.
        is_denied(
            accounts.create_token_request("applies", &asked, &request).await,
            "token, as a dry run",
        );
        let inside = format!("/api/v1/namespaces/{namespace}");
        for (method, path) in [
            ("GET", format!("{inside}/pods/runs/exec?command=sh")),
            ("POST", format!("{inside}/pods/runs/exec?command=sh")),
            ("POST", format!("{inside}/pods/runs/attach")),
            ("POST", format!("{inside}/pods/runs/portforward")),
            ("POST", format!("{inside}/pods/runs/proxy/")),
            ("DELETE", format!("{inside}/services/serves/proxy/")),
            ("GET", "/api/v1/nodes/of-roles/proxy/pods".to_owned()),
            ("POST", "/api/v1/nodes/of-roles/proxy/run/x".to_owned()),
            ("POST", format!("{inside}/pods/runs/eviction")),
            ("POST", format!("{inside}/pods/runs/eviction?dryRun=All")),
        ] {
            let body = if path.contains("eviction") {
                r#"{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "runs"}}"#
            } else {
                ""
            };
            let request = http::Request::builder()
                .method(method)
                .uri(&path)
                .header("Content-Type", "application/json")
                .body(body.as_bytes().to_vec());
            let answer = client(previewer).await.request_text(request.unwrap()).await;
            is_denied(answer, &format!("{method} {path}"));
        }
        let pods: Api<Pod> = Api::namespaced(client(previewer).await, &namespace);
        assert!(pods.list(&Default::default()).await.is_ok());
        let mine: Api<SelfSubjectAccessReview> = Api::all(client(previewer).await);
        let asked = json!({"spec": {"resourceAttributes": {"namespace": namespace, "verb": "get", "resource": "secrets"}}});
        let told = mine
            .create(&probe, &serde_json::from_value(asked).unwrap())
            .await
            .unwrap();
        assert!(told.status.unwrap().allowed);
        // Nor does it open the door that keeps it.
        let of = ApiResource::from_gvk(&GroupVersionKind::gvk(
            "admissionregistration.k8s.io",
            "v1",
            "ValidatingAdmissionPolicyBinding",
        ));
        let bindings: Api<DynamicObject> = Api::all_with(client(previewer).await, &of);
        let deleted = bindings
            .delete("konverge-preview-writes-nothing", &DeleteParams::default())
            .await;
        assert!(deleted.unwrap_err().to_string().contains("forbidden"));
    }
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await, &namespace);
    let level = maps.get("settings").await.unwrap().data.unwrap()["level"].clone();
    assert_eq!(level, "one");

    let pods: Api<Pod> = Api::namespaced(cluster.client().await, &namespace);
    assert!(
        pods.get("runs")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_none()
    );

    // The apply writes, by its group or as a user.
    let name = "konverge-apply@my-project.iam.gserviceaccount.com";
    for (value, apply) in [
        ("two", of_group(&cluster, folder.path(), "konverge-apply")),
        ("three", of_user(&cluster, folder.path(), name)),
    ] {
        tiny_monorepo::write_stack(&repository, "roles/dev", &namespace, value);
        konverge(&repository, &apply, &["apply", "--yes", "roles/dev"]).expect(0);
        let level = maps.get("settings").await.unwrap().data.unwrap()["level"].clone();
        assert_eq!(level, value);
    }
}

/// The statements of a policy, by the name of the file that the page gives it.
fn statements(name: &str) -> Vec<Value> {
    let page = page();
    let (_, rest) = page
        .split_once(&format!("`{name}`"))
        .unwrap_or_else(|| panic!("no {name}"));
    let policy: Value = serde_json::from_str(&blocks(rest, "json").remove(0)).unwrap();
    assert_eq!(policy["Version"], "2012-10-17", "{name}");
    policy["Statement"].as_array().unwrap().clone()
}

/// The resources on which a policy allows an action.
fn allowed(name: &str, action: &str) -> Vec<String> {
    let all = |value: &Value| -> Vec<String> {
        match value {
            Value::String(one) => vec![one.clone()],
            many => many
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one.as_str().unwrap().to_owned())
                .collect(),
        }
    };
    let of_action = statements(name)
        .into_iter()
        .filter(|statement| all(&statement["Action"]).iter().any(|one| one == action));
    of_action
        .flat_map(|statement| all(&statement["Resource"]))
        .collect()
}

#[test]
fn the_policies_of_the_bucket_allow_what_the_jobs_do() {
    let below = |folder: &str| format!("arn:aws:s3:::my-bucket/konverge/{folder}");
    assert_eq!(allowed("preview-store.json", "s3:GetObject"), [below("*")]);
    assert_eq!(
        allowed("preview-store.json", "s3:PutObject"),
        ["reviews/*", "cache/*", "keys/*", "probe/*"].map(below)
    );
    assert_eq!(
        allowed("preview-store.json", "s3:DeleteObject"),
        [below("probe/*")]
    );
    for action in ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"] {
        assert_eq!(allowed("apply-store.json", action), [below("*")], "{action}");
    }
    assert_eq!(
        allowed("drift-store.json", "s3:PutObject"),
        ["looks/*", "index/delta/*", "cache/*"].map(below)
    );
    assert_eq!(allowed("drift-store.json", "s3:DeleteObject"), [below("looks/*")]);
    for name in ["preview-store.json", "apply-store.json", "drift-store.json"] {
        assert_eq!(allowed(name, "s3:ListBucket"), ["arn:aws:s3:::my-bucket"]);
        // Nothing is overwritten.
        for statement in statements(name)
            .iter()
            .filter(|one| one["Action"] == "s3:PutObject")
        {
            assert_eq!(statement["Condition"]["Null"]["s3:if-none-match"], "false");
        }
    }
    for (name, subject) in [
        ("preview-trust.json", "repo:acme/konfig:pull_request"),
        ("apply-trust.json", "repo:acme/konfig:ref:refs/heads/main"),
    ] {
        let [trust] = &statements(name)[..] else {
            panic!("{name}")
        };
        let equals = &trust["Condition"]["StringEquals"];
        assert_eq!(equals["token.actions.githubusercontent.com:sub"], subject);
        assert_eq!(
            equals["token.actions.githubusercontent.com:aud"],
            "sts.amazonaws.com"
        );
        assert_eq!(trust["Action"], "sts:AssumeRoleWithWebIdentity");
    }
}

/// A part of the page, by its heading.
fn section(heading: &str) -> String {
    let page = page();
    let (_, rest) = page.split_once(&format!("\n### {heading}\n")).unwrap();
    rest.split("\n##").next().unwrap().to_owned()
}

/// At every cloud the drift check is somebody of its own, whom the subject of its job may be, and nobody else's
/// subject.
#[test]
fn the_drift_check_has_an_identity_of_its_own_at_every_cloud() {
    let branch = "repo:acme/konfig:ref:refs/heads/main";
    let page = page();
    let table = page.lines().find(|line| line.starts_with("| drift | `repo:"));
    assert!(
        table
            .unwrap()
            .starts_with(&format!("| drift | `{branch}`, whether or not"))
    );
    for (cloud, trusts) in [
        (
            "Google Cloud",
            "konverge-JOB@my-project.iam.gserviceaccount.com --role roles/iam.workloadIdentityUser --member $pool/",
        ),
        ("Azure", "trust $JOB "),
    ] {
        let commands = section(cloud);
        for (job, subject) in [
            ("preview", "repo:acme/konfig:pull_request"),
            ("apply", branch),
            ("drift", branch),
        ] {
            let trusted = trusts.replace("JOB", job);
            let subjects: Vec<_> = commands
                .lines()
                .filter_map(|line| Some(line.split_once(&trusted)?.1))
                .collect();
            assert_eq!(subjects, [subject], "{cloud}: {job}");
        }
        // It writes where the drift check of AWS writes.
        let rights: Vec<_> = commands
            .lines()
            .filter(|line| line.starts_with("grant drift ") || line.starts_with("grant $drift "))
            .collect();
        let rights = rights.join("\n");
        for folder in ["looks", "cache", "index/delta"] {
            assert!(rights.contains(folder), "{cloud}: {folder}: {rights}");
        }
        for folder in ["reviews", "keys", "probe", "stacks"] {
            assert!(!rights.contains(folder), "{cloud}: {folder}: {rights}");
        }
    }
    let alibaba: Vec<Value> = blocks(&section("Alibaba Cloud"), "json")
        .iter()
        .map(|block| serde_json::from_str(block).unwrap())
        .collect();
    let [trust, store] = alibaba.as_slice() else {
        panic!("a trust and a policy")
    };
    let equals = &trust["Statement"][0]["Condition"]["StringEquals"];
    assert_eq!(equals["oidc:sub"], branch);
    assert_eq!(equals["oidc:aud"], "sts.aliyuncs.com");
    let written = &store["Statement"][2];
    assert_eq!(written["Action"], "oss:PutObject");
    let below = |folder: &str| json!(format!("acs:oss:*:*:my-bucket/konverge/{folder}/*"));
    let folders = ["looks", "index/delta", "cache"];
    assert_eq!(written["Resource"], json!(folders.map(below)));
    assert_eq!(store["Statement"][3]["Resource"], below("looks"));
}

/// The commands of the page are a shell's.
#[test]
fn the_commands_of_the_clouds_are_read_by_a_shell() {
    for cloud in ["Google Cloud", "Azure"] {
        for commands in blocks(&section(cloud), "text") {
            let read = std::process::Command::new("bash")
                .args(["-n", "-c", &commands])
                .output()
                .unwrap();
            assert!(
                read.status.success(),
                "{cloud}: {}",
                String::from_utf8_lossy(&read.stderr)
            );
        }
    }
}

/// A policy of the page for a bucket. The server knows no condition on the header, so that one is left out.
fn policy_for(name: &str, bucket: &str) -> Value {
    let mut statements = statements(name);
    for statement in &mut statements {
        statement.as_object_mut().unwrap().remove("Condition");
    }
    let policy = json!({"Version": "2012-10-17", "Statement": statements}).to_string();
    serde_json::from_str(&policy.replace("my-bucket", bucket)).unwrap()
}

/// The server holds the jobs to the policies: they suffice, and the preview's does not apply.
#[tokio::test(flavor = "multi_thread")]
async fn the_policies_of_the_bucket_suffice_and_a_preview_cannot_apply_with_its_own() {
    let mut stage = Stage::with("guide-policies", tiny_monorepo::monorepo(), "").await;
    let preview = policy_for("preview-store.json", &stage.bucket);
    let apply = policy_for("apply-store.json", &stage.bucket);
    let drift = policy_for("drift-store.json", &stage.bucket);
    let preview = S3::shared().credentials(&preview).await;
    let drift = S3::shared().credentials(&drift).await;
    let apply = S3::shared().credentials(&apply).await;

    stage.env = preview.to_vec();
    stage.reviewed(7, "first", |stage| {
        stage.stack("policies/dev", &[("policies-web", "one")])
    });
    stage.env = apply.to_vec();
    stage.merge(7, "first").outcome.check(0);
    assert_eq!(stage.value("policies-web").await.as_deref(), Some("one"));

    stage.env = preview.to_vec();
    stage.reviewed(8, "second", |stage| {
        stage.stack("policies/dev", &[("policies-web", "two")])
    });
    let merged = stage.merge(8, "second");
    assert_ne!(merged.outcome.code, Some(0), "{}", merged.outcome.stdout);
    assert_eq!(stage.value("policies-web").await.as_deref(), Some("one"));
    stage.env = apply.to_vec();
    stage.again().outcome.check(0);
    assert_eq!(stage.value("policies-web").await.as_deref(), Some("two"));

    // The drift check looks with its own, reports and remembers, and cannot apply.
    stage.by_hand("policies-web", Some("by hand")).await;
    stage.env = drift.to_vec();
    let looked = stage.schedule();
    looked.outcome.check(0);
    assert!(
        !looked.outcome.stderr.contains("warning"),
        "{}",
        looked.outcome.stderr
    );
    assert_eq!(stage.github.world(|world| world.issues.len()), 1);
    let looks = stage.keys().await;
    assert!(looks.iter().any(|key| key.contains("looks/")), "{looks:?}");
    let applied = stage.straight_to_main(|stage| {
        stage.stack("policies/dev", &[("policies-web", "three")]);
    });
    assert_ne!(applied.outcome.code, Some(0), "{}", applied.outcome.stdout);
    assert_eq!(stage.value("policies-web").await.as_deref(), Some("by hand"));
}
