//! A kubeconfig that names `aws`, `gke-gcloud-auth-plugin` or `kubelogin` works where none of them is installed.

use std::{os::unix::fs::PermissionsExt as _, path::PathBuf};

use serde_json::{Value, json};

use crate::support::{
    clouds::Clouds,
    cluster::Cluster,
    identities::User,
    moto::Moto,
    process::Outcome,
    shop_monorepo::{Shop, resource},
};

type Variables = Vec<(&'static str, String)>;

const HOUR: u64 = 3600;
const GKE_SCOPES: &str =
    "https://www.googleapis.com/auth/cloud-platform https://www.googleapis.com/auth/userinfo.email";
const AKS_SCOPE: &str = "6dae42f8-4368-4678-94ff-3960e28e3630/.default";

/// A job with one stack for a cluster, at which it logs in as a plugin would.
struct Job {
    shop: Shop,
    outside: tempfile::TempDir,
}

impl Job {
    /// The kubeconfig has this credentials plugin.
    async fn new(plugin: &Value) -> Self {
        let mut exec = plugin.clone();
        exec["apiVersion"] = json!("client.authentication.k8s.io/v1beta1");
        exec["interactiveMode"] = json!("Never");
        Self::with_user(&json!({ "exec": exec })).await
    }

    async fn with_user(user: &Value) -> Self {
        let cluster = Cluster::shared();
        let shop = Shop::new("version: 1\nclusters: {dev: {kubeconfig_env: DEV}}\n", &[]);
        let metadata = json!({"name": "settings", "namespace": cluster.namespace("cloud").await});
        let data = json!({"note": format!("it holds {}", User::Admin.token())});
        shop.wants(
            "dev",
            &[resource(&json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data,
            }))],
        );
        let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
        let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
        kubeconfig["users"][0]["user"] = user.clone();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        Self { shop, outside }
    }

    fn preview(&self, environment: &[Variables]) -> Outcome {
        let command = self
            .shop
            .konverge(&["preview", "--all", "--live", "required"])
            .env("DEV", self.outside.path().join("kubeconfig"))
            .env("PATH", self.programs());
        let variables = environment.iter().flatten();
        let command = variables.fold(command, |command, (name, value)| command.env(name, value));
        command.run()
    }

    /// A folder with what the test puts there; this machine may have the plugins.
    fn programs(&self) -> PathBuf {
        let folder = self.outside.path().join("bin");
        if std::fs::create_dir(&folder).is_ok() {
            for needed in ["setpriv", "sh", "git"] {
                let program = std::env::split_paths(&std::env::var_os("PATH").unwrap())
                    .map(|folder| folder.join(needed))
                    .find(|program| program.exists())
                    .expect(needed);
                std::os::unix::fs::symlink(program, folder.join(needed)).unwrap();
            }
        }
        folder
    }

    /// The preview reaches the cluster, and the token is shown nowhere.
    fn previews(&self, environment: &[Variables]) {
        let outcome = self.preview(environment).expect(0);
        let told = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(outcome.stdout.contains("settings"), "{told}");
        assert!(outcome.stdout.contains("it holds"), "{told}");
        assert!(!told.contains(&User::Admin.token()), "{told}");
    }
}

fn kubelogin(login: &str) -> Value {
    // As `az aks get-credentials` and `kubelogin convert-kubeconfig` write it.
    let arguments = [
        "get-token",
        "--login",
        login,
        "--server-id",
        "6dae42f8-4368-4678-94ff-3960e28e3630",
        "--client-id",
        "80faf920-1908-4b52-b5ef-a8e7bedfc67a",
        "--tenant-id",
        "another",
        "--environment",
        "AzurePublicCloud",
    ];
    json!({"command": "kubelogin", "args": arguments})
}

fn gke() -> Value {
    json!({"command": "gke-gcloud-auth-plugin", "provideClusterInfo": true})
}

fn grant(what: &str, detail: &str) -> Vec<String> {
    let own = format!("{what} {detail}");
    match what {
        "entra" => vec!["job".to_owned(), own],
        "account" => vec!["job".to_owned(), "trade".to_owned(), own],
        _ => vec![own],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_logs_in_at_aks() {
    let clouds = Clouds::start(&User::Admin.token(), HOUR).await;
    let job = Job::new(&kubelogin("devicecode")).await;
    job.previews(&[clouds.job(), clouds.azure()]);
    assert_eq!(clouds.granted(), grant("entra", AKS_SCOPE));
    // With the token in a file, as AKS gives it to a pod.
    let file = job.outside.path().join("token");
    std::fs::write(&file, "job-token-for:api://AzureADTokenExchange\n").unwrap();
    let by_file = vec![("AZURE_FEDERATED_TOKEN_FILE", file.display().to_string())];
    job.previews(&[clouds.azure(), by_file]);
    assert_eq!(clouds.granted(), grant("entra", AKS_SCOPE)[1..]);
    let secret = |text: &str| vec![("AZURE_CLIENT_SECRET", text.to_owned())];
    job.previews(&[clouds.azure(), secret("the-secret-of-the-application")]);
    assert_eq!(clouds.granted(), grant("entra", AKS_SCOPE)[1..]);
    // What was sent is not shown, though the server quotes it.
    let refused = job
        .preview(&[clouds.azure(), secret("another-5ecret-Value")])
        .expect(1);
    let told = format!("{}{}", refused.stdout, refused.stderr);
    assert!(
        told.contains("a token of Entra could not be obtained: 401 Unauthorized: not trusted"),
        "{told}"
    );
    assert!(!told.contains("another-5ecret-Value"), "{told}");
    let nobody = job.preview(&[]).expect(1);
    assert!(
        nobody.stdout.contains("set AZURE_CLIENT_ID and AZURE_TENANT_ID"),
        "{}",
        nobody.stdout
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_logs_in_at_gke() {
    let clouds = Clouds::start(&User::Admin.token(), HOUR).await;
    let job = Job::new(&gke()).await;
    job.previews(&[vec![clouds.google_federation()]]);
    assert_eq!(clouds.granted(), grant("account", GKE_SCOPES));
    job.previews(&[vec![clouds.google_key()]]);
    assert_eq!(clouds.granted(), grant("key", GKE_SCOPES));
    let host = clouds.url.trim_start_matches("http://").to_owned();
    job.previews(&[vec![("GCE_METADATA_HOST", host)]]);
    assert_eq!(clouds.granted(), ["machine"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_renewed_before_its_end() {
    let job = Job::new(&kubelogin("devicecode")).await;
    let mut logins = Vec::new();
    for lifetime in [HOUR, 100] {
        let clouds = Clouds::start(&User::Admin.token(), lifetime).await;
        job.previews(&[clouds.job(), clouds.azure()]);
        logins.push(clouds.granted().len() / 2);
    }
    assert_eq!(logins[0], 1, "one serves all requests");
    assert!(logins[1] > 1, "one that ends soon does not: {logins:?}");
}

/// Where the plugin is installed it serves as it serves `kubectl`, but for the token that only Konverge can use.
#[tokio::test(flavor = "multi_thread")]
async fn an_installed_plugin_is_run() {
    let clouds = Clouds::start(&User::Admin.token(), HOUR).await;
    let job = Job::new(&kubelogin("workloadidentity")).await;
    let plugin = job.programs().join("kubelogin");
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential",
        "status": {"token": User::Admin.token()},
    });
    let log = job.outside.path().join("log");
    let script = format!("#!/bin/sh\necho run >>{}\necho '{credential}'\n", log.display());
    std::fs::write(&plugin, script).unwrap();
    std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
    let secret = vec![("AZURE_CLIENT_SECRET", "the-secret-of-the-application".to_owned())];
    job.previews(&[clouds.azure(), secret]);
    assert!(log.exists() && clouds.granted().is_empty());
    std::fs::remove_file(&log).unwrap();
    // This kind of login names the application itself.
    let refused = job.preview(&[clouds.job(), clouds.azure()]).expect(1);
    assert!(refused.stdout.contains("a token of Entra"), "{}", refused.stdout);
    assert!(!log.exists());
}

/// The kubeconfig of `aws eks update-kubeconfig` on a server that records who asks.
#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_of_aws_needs_no_aws() {
    let job = Job::new(&json!({
        "command": "aws",
        "args": ["--region", "eu-central-1", "eks", "get-token", "--cluster-name", "prod", "--output", "json"],
    }))
    .await;
    let keys = |region: &str| {
        vec![
            ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE".to_owned()),
            (
                "AWS_SECRET_ACCESS_KEY",
                "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            ),
            ("AWS_REGION", region.to_owned()),
        ]
    };
    // The API server does not know the token, which is all that it can say.
    let refused = job.preview(&[keys("us-east-1")]).expect(1);
    assert!(
        refused.stdout.contains("the credentials are not accepted"),
        "{}",
        refused.stdout
    );
}

/// What the guide shows works as it stands, but for the cluster's address and the clouds'.
#[tokio::test(flavor = "multi_thread")]
async fn the_kubeconfigs_of_the_guide_work() {
    let page = crate::meta::docs::root().join("docs/guides/oidc.md");
    let text = std::fs::read_to_string(page).unwrap();
    let mut seen = Vec::new();
    for block in crate::meta::docs::blocks(&text, "yaml") {
        let workflow = konverge_base::yaml::from_str::<Value>(&block).unwrap();
        let job = &workflow["jobs"]["apply"];
        let steps = job["steps"].as_array().cloned().unwrap_or_default();
        let Some(step) = steps.iter().find(|step| step["with"]["kubeconfig"].is_string()) else {
            continue;
        };
        assert_eq!(job["permissions"]["id-token"], "write");
        let kubeconfig = step["with"]["kubeconfig"].as_str().unwrap();
        let kubeconfig: Value = konverge_base::yaml::from_str(kubeconfig).unwrap();
        let user = &kubeconfig["users"][0]["user"];
        let job = Job::with_user(user).await;
        let clouds = Clouds::start(&User::Admin.token(), HOUR).await;
        let known = ["AWS_REGION", "AWS_ROLE_ARN", "AZURE_TENANT_ID", "AZURE_CLIENT_ID"];
        let variables: Variables = known
            .into_iter()
            .filter_map(|name| Some((name, step["env"][name].as_str()?.to_owned())))
            .collect();
        let command = user["exec"]["command"].as_str().unwrap().to_owned();
        match command.as_str() {
            "aws" => {
                let sts = vec![("AWS_ENDPOINT_URL_STS", Moto::shared().endpoint().to_owned())];
                let outcome = job.preview(&[variables, clouds.job(), sts]).expect(1);
                assert!(
                    outcome.stdout.contains("the credentials are not accepted"),
                    "{}",
                    outcome.stdout
                );
                assert_eq!(clouds.granted(), ["job"]);
            }
            "kubelogin" => {
                let authority = vec![("AZURE_AUTHORITY_HOST", clouds.url.clone())];
                job.previews(&[variables, clouds.job(), authority]);
            }
            // The address of Google is fixed; a unit test holds that exchange to its documentation.
            _ => {
                assert!(step["env"]["GOOGLE_WORKLOAD_IDENTITY_PROVIDER"].is_string());
                job.previews(&[vec![clouds.google_federation()]]);
            }
        }
        seen.push(command);
    }
    assert_eq!(seen, ["aws", "gke-gcloud-auth-plugin", "kubelogin"]);
}
