//! The cloud stacks of the example: real Terraform validates, plans and applies what they compile to. A provider of our
//! own serves the recorded schemas of the clouds. No cloud is reached.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use konverge_engine::spec;
use konverge_state::{IDENTITY_VARIABLE, Sealer};
use kube::Api;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    cluster::Cluster,
    git::Repository,
    process::{Konverge, Outcome},
    terraform,
};

const STACKS: [&str; 2] = ["appops/photos/alicloud", "appops/photos/aws"];
const PASSWORD: &str = "the-password-of-the-photos-database";

/// The example, whose providers come from a mirror of recorded schemas.
struct Clouds {
    example: Repository,
    folder: TempDir,
    key: Sealer,
}

impl Clouds {
    fn new() -> Self {
        let clouds = Self {
            example: Repository::konfig_example(),
            folder: TempDir::new().unwrap(),
            key: Sealer::generate(),
        };
        let mirror = clouds.folder.path().join("mirror");
        let providers = terraform::recorded_mirror(&mirror);
        for (source, version) in &providers {
            let entry = format!("- source: {source}\n      version: {version}\n");
            assert!(clouds.example.read("konverge.yaml").contains(&entry), "{entry}");
        }
        let settings = json!({
            "version": 1,
            "kcl": {"version": "0.13.2"},
            "state": {"url": format!("file://{}/state", clouds.folder.path().display()), "id": "clouds"},
            "terraform": {
                "binary": terraform::binary(),
                "mirror": mirror,
                "providers": providers
                    .iter()
                    .map(|(source, version)| json!({"source": source, "version": version}))
                    .collect::<Vec<_>>(),
            },
            "secrets": {"stores": {"job": {"kind": "env", "allow": [{"stacks": "appops/photos/*", "paths": "PHOTOS_*"}]}}},
        });
        clouds.example.write("konverge.yaml", settings.to_string());
        clouds.example.commit("Providers from a mirror");
        clouds
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        Konverge::new(arguments)
            .arg_all([
                "--kubeconfig",
                Cluster::shared().kubeconfig().to_str().unwrap(),
                "--context",
                "test",
            ])
            .dir(self.example.path())
            .with_kcl()
            .env(IDENTITY_VARIABLE, self.key.identity().unwrap())
            .env("PHOTOS_DATABASE_PASSWORD", PASSWORD)
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"))
            .run()
    }

    /// `konverge models record` with these arguments.
    fn record(&self, arguments: &[&str]) -> Outcome {
        Konverge::new(["models", "record"])
            .arg_all(arguments)
            .dir(self.example.path())
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"))
            .run()
    }

    fn preview(&self, stacks: &[&str]) -> Value {
        let arguments = [&["preview"], stacks, &["--live=required", "--output=json"]].concat();
        self.run(&arguments).json()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_clouds_are_planned_and_applied() {
    let clouds = Clouds::new();
    let planned = clouds.preview(&STACKS);
    for (stack, kinds) in planned["stacks"].as_array().unwrap().iter().zip([9, 9]) {
        assert_eq!(stack.get("error"), None, "{stack:#}");
        assert_eq!(stack["basis"], "live", "{stack:#}");
        let resources = stack["resources"].as_array().unwrap();
        let of_terraform = resources.iter().filter(|one| one["runtime"] == "Terraform");
        assert_eq!(of_terraform.count(), kinds, "{stack:#}");
        assert!(resources.iter().all(|one| one["action"] == "create"), "{stack:#}");
    }

    let apply = [&["apply"], &STACKS[..], &["--yes", "--no-wait"]].concat();
    clouds.run(&apply).expect(0);
    let client = Cluster::shared().client().await;
    let expected = [
        ("photos-dev", "DATABASE_MAIN_HOST", "aws_db_instance.address"),
        ("photos-dev", "CLUSTER_ENDPOINT", "aws_eks_cluster.endpoint"),
        (
            "photos-dev",
            "METRICS_ENDPOINT",
            "aws_prometheus_workspace.prometheus_endpoint",
        ),
        ("photos-dev", "BUCKET_ORIGINALS", "aws_s3_bucket.id"),
        (
            "photos-staging",
            "DATABASE_MAIN_HOST",
            "alicloud_db_instance.connection_string",
        ),
        (
            "photos-staging",
            "CLUSTER_ID",
            "alicloud_cs_managed_kubernetes.id",
        ),
        (
            "photos-staging",
            "SERVER_IMPORTER_HOST",
            "alicloud_instance.private_ip",
        ),
    ];
    for (namespace, variable, value) in expected {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let data = maps.get("photos-cloud").await.unwrap().data.unwrap();
        assert_eq!(data[variable], value, "{namespace}: {data:?}");
    }
    let secrets: Api<Secret> = Api::namespaced(client, "photos-dev");
    let secret = secrets.get("photos-env").await.unwrap().data.unwrap();
    assert_eq!(secret["DATABASE_MAIN_PASSWORD"].0, PASSWORD.as_bytes());

    let again = clouds.preview(&STACKS);
    for stack in again["stacks"].as_array().unwrap() {
        assert_eq!(stack["resources"], json!([]), "{stack:#}");
    }
}

/// The recorded schemas are what Terraform compares with: it knows what a cloud does not have.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_cloud_does_not_have_is_refused() {
    let clouds = Clouds::new();
    let file = "base/pkg/provision/aws.k";
    for (from, to, said) in [
        ("multi_az = ", "multi_zone = ", "multi_zone"),
        (
            "engine_version = d.version",
            "allocated_disk = \"much\"",
            "allocated_disk",
        ),
        (
            "allocated_storage = d.storage",
            "allocated_storage = \"much\"",
            "allocated_storage",
        ),
        ("        role_arn = p.roles.cluster\n", "", "role_arn"),
    ] {
        let before = clouds.example.read(file);
        clouds.example.replace(file, from, to);
        let refused = clouds.preview(&["appops/photos/aws"]).to_string();
        assert!(refused.contains(said), "{from}: {refused}");
        assert!(refused.contains("\"error\""), "{from}: {refused}");
        clouds.example.write(file, before);
    }
}

/// Terraform prints the schemas that the provider serves, and a record of them is the file that they come from. So the
/// hashes of the files are right, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_a_recorded_provider_is_the_same() {
    let clouds = Clouds::new();
    for (name, provider) in [("aws", "hashicorp/aws"), ("alicloud", "aliyun/alicloud")] {
        let file = format!("schemas/{name}.json");
        let mut committed: Value = serde_json::from_str(&clouds.example.read(&file)).unwrap();
        let (address, version) = (
            committed["recorded"]["address"].clone(),
            committed["recorded"]["version"].clone(),
        );
        let schemas = &committed["provider_schemas"][address.as_str().unwrap()]["resource_schemas"];
        let resources: Vec<String> = schemas.as_object().unwrap().keys().cloned().collect();
        let provider = format!("{provider}@{}", version.as_str().unwrap());
        let resources = resources.iter().map(String::as_str);
        let arguments: Vec<_> = std::iter::once(provider.as_str()).chain(resources).collect();
        clouds.record(&arguments).expect(0);
        let recorded = clouds.example.read(&file);
        committed["recorded"]["source"] = json!("terraform providers schema -json");
        let expected = serde_json::to_string_pretty(&committed).unwrap() + "\n";
        assert_eq!(recorded, expected, "{name}");

        // The same from a file, in another place.
        let from_file = [&arguments[..], &["--from", &file, "--into", "schemas/again.json"]].concat();
        clouds.record(&from_file).expect(0);
        assert_eq!(clouds.example.read("schemas/again.json"), expected, "{name}");
    }
}

#[test]
fn what_cannot_be_recorded_is_said() {
    let clouds = Clouds::new();
    let before = clouds.example.read("schemas/aws.json");
    clouds.example.write("x.json", "{}");
    for (arguments, code, said) in [
        ("", 64, "PROVIDER@VERSION"),
        ("hashicorp/aws@6.25.0", 64, "RESOURCE"),
        ("aws aws_lb", 64, "`hashicorp/aws@6.25.0`"),
        ("a/../../b@1 aws_lb", 64, "is not a provider with a version"),
        ("hashicorp/aws@6.26.0 aws_lb", 1, "terraform.providers"),
        ("hashicorp/aws@6.25.0 aws_lbs", 1, "aws_lb"),
        ("hashicorp/aws@6.25.0 aws_lb --from none.json", 64, "none.json"),
        ("hashicorp/aws@6.25.0 aws_lb --from kcl.mod", 1, "kcl.mod"),
        (
            "aliyun/alicloud@1.0.0 alicloud_instance --from schemas/aws.json",
            1,
            "schema of this provider",
        ),
        ("hashicorp/aws@6.25.0 aws_lb --into x.json", 64, "not a record"),
        (
            "hashicorp/aws@6.25.0 aws_lb --into ../x.json",
            64,
            "not in the repository",
        ),
    ] {
        let given: Vec<_> = arguments.split_whitespace().collect();
        let refused = clouds.record(&given);
        assert!(refused.stderr.contains(said), "{arguments}: {}", refused.stderr);
        refused.expect(code);
    }
    assert_eq!(clouds.example.read("schemas/aws.json"), before);
    assert_eq!(clouds.example.read("x.json"), "{}");
}

/// The table of differences is what the witnesses say now: no attribute of a slice is anybody's invention.
#[test]
fn the_slices_are_compared_with_their_witnesses() {
    let root = crate::support::root();
    let compared = std::process::Command::new(root.join("scripts/provider-schemas"))
        .arg("compare")
        .arg(root.join("konfig-example/schemas"))
        .env("KONVERGE_PROVIDER_SCHEMAS", terraform::provider_schemas())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&compared.stderr);
    assert!(compared.status.success(), "{told}");
    let table = String::from_utf8(compared.stdout).unwrap();
    let page = std::fs::read_to_string(root.join("tests/golden/cloud-witnesses.md")).unwrap();
    assert!(
        page.ends_with(&table),
        "tests/golden/cloud-witnesses.md has another table than:\n{table}"
    );
    assert!(table.lines().count() > 40, "{table}");
    // No attribute of a slice is missing in a witness.
    assert!(!table.contains("`-"), "{table}");
}

/// No credential stands in what the stacks compile to. A password is a reference, or the cloud's own work.
#[test]
fn no_credential_stands_in_a_spec() {
    let example = Repository::konfig_example();
    for stack in STACKS {
        // `konverge check` compares this file with what compiles; `konverge build` would mask what the test looks for.
        let golden = example.read(&format!("{stack}/ci-test/stdout.golden.yaml"));
        let mut found = Vec::new();
        for resource in spec::read_text(&golden, stack).unwrap().resources {
            collect_credentials(&Value::Object(resource.attributes.clone()), &mut found);
        }
        assert!(
            found.contains(&"ref+job://PHOTOS_DATABASE_PASSWORD".to_owned()),
            "{found:?}"
        );
        assert!(
            found
                .iter()
                .all(|value| value.starts_with("ref+job://") || ["true", "false"].contains(&value.as_str())),
            "{stack}: {found:?}"
        );
    }
}

/// The values of fields whose name is that of a credential.
fn collect_credentials(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = name.to_lowercase();
                let names_one = ["password", "secret_key", "access_key", "token"]
                    .iter()
                    .any(|word| name.ends_with(word));
                match value {
                    Value::Object(_) | Value::Array(_) => collect_credentials(value, found),
                    _ if names_one => found.push(value.as_str().map_or(value.to_string(), str::to_owned)),
                    _ => {}
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_credentials(item, found)),
        _ => {}
    }
}
