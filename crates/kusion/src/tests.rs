//! Specs by the rules of the published modules. The expectations are those of the modules' own unit tests and of
//! Kusion's documentation, as facts.
mod modules;
mod network;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    AppConfigurations, AppStack, ForeignAnswers, Generated, KusionError, Platform, Workspace, generate,
    platform_names,
};
use konverge_base::model::RepoPath;
use konverge_repo::konfig::declared_dependencies;

const MODULES: &str = r#"
[dependencies]
kam = { git = "https://github.com/KusionStack/kam.git", tag = "0.2.2" }
service = { oci = "oci://ghcr.io/kusionstack/service", tag = "0.2.1" }
job = { oci = "oci://ghcr.io/kusionstack/job", tag = "0.2.0" }
network = { oci = "oci://ghcr.io/kusionstack/network", tag = "0.3.0" }
mysql = { oci = "oci://ghcr.io/kusionstack/mysql", tag = "0.2.0" }
"#;

/// A stack `default/dev`.
struct Stack {
    apps: Value,
    modules: String,
    workspace: String,
    namespace: Option<&'static str>,
    answers: ForeignAnswers,
}

impl Stack {
    fn new(apps: Value) -> Self {
        Self {
            apps,
            modules: MODULES.to_owned(),
            workspace: String::new(),
            namespace: None,
            answers: ForeignAnswers::new(),
        }
    }

    /// One application `foo` with a workload.
    fn with_workload(workload: Value) -> Self {
        Self::new(
            json!({"foo": {"_type": "kam.v1.app_configuration.AppConfiguration", "workload": workload}}),
        )
    }

    fn workspace(mut self, text: &str) -> Self {
        self.workspace = text.to_owned();
        self
    }

    fn generate(&self) -> Result<Generated, KusionError> {
        let apps =
            AppConfigurations::recognize(std::slice::from_ref(&self.apps))?.expect("there are applications");
        let dependencies = declared_dependencies(self.modules.as_bytes()).unwrap();
        let names = platform_names(&dependencies);
        let file = RepoPath::normalize("workspaces/dev.yaml").unwrap();
        let platform = match self.workspace.as_str() {
            "" => Platform::default(),
            text => Workspace::parse(&file, text)?.platform("default", &names),
        };
        generate(
            &apps,
            &AppStack {
                project: "default",
                name: "dev",
                namespace: self.namespace,
                dependencies: &dependencies,
                platform: &platform,
            },
            &self.answers,
        )
    }

    fn attributes(&self, id: &str) -> Value {
        let generated = self.generate().unwrap();
        let found = generated
            .spec
            .resources
            .iter()
            .find(|resource| resource.id.as_str() == id);
        let ids: Vec<_> = generated
            .spec
            .resources
            .iter()
            .map(|resource| resource.id.as_str())
            .collect();
        Value::Object(
            found
                .unwrap_or_else(|| panic!("{id} is not in {ids:?}"))
                .attributes
                .clone(),
        )
    }
}

fn service(more: Value) -> Value {
    let mut service = json!({"_type": "service.Service", "containers": {"nginx": {"_type": "service.container.Container", "image": "nginx:v1"}}});
    service
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    service
}

fn platform(module: &str, settings: &str) -> String {
    format!(
        "modules:\n  {module}:\n    path: oci://ghcr.io/kusionstack/{module}\n    version: 0.2.1\n    configs:\n      default: {settings}\n"
    )
}

fn with_files() -> Value {
    service(json!({"containers": {"nginx": {"image": "nginx:v1",
        "files": {"/tmp/example.txt": {"_type": "service.container.FileSpec", "content": "some file contents", "mode": "0777"}}}}}))
}

const DEPLOYMENT: &str = "apps/v1:Deployment:default:default-dev-foo";

/// The resources with an extension.
fn ids_with<'a>(generated: &'a Generated, extension: &str) -> Vec<&'a str> {
    let resources = generated.spec.resources.iter();
    let with_it = resources.filter(|resource| resource.extensions.contains_key(extension));
    with_it.map(|resource| resource.id.as_str()).collect()
}

#[test]
fn a_service_with_a_file_is_a_deployment_and_a_config_map() {
    let labels = json!({"app.kubernetes.io/name": "foo", "app.kubernetes.io/part-of": "default", "service-workload-type": "Deployment"});
    let selector = json!({"app.kubernetes.io/name": "foo", "app.kubernetes.io/part-of": "default"});
    let stack = Stack::with_workload(with_files()).workspace(&platform(
        "service",
        "{replicas: 4, labels: {service-workload-type: Deployment}}",
    ));
    assert_eq!(
        stack.attributes(DEPLOYMENT),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"creationTimestamp": null, "labels": labels, "name": "default-dev-foo", "namespace": "default"},
            "spec": {
                "replicas": 4,
                "selector": {"matchLabels": selector},
                "strategy": {},
                "template": {
                    "metadata": {"creationTimestamp": null, "labels": labels},
                    "spec": {
                        "containers": [{"image": "nginx:v1", "name": "nginx", "resources": {},
                            "volumeMounts": [{"mountPath": "/tmp", "name": "default-dev-foo-nginx-0"}]}],
                        "volumes": [{"configMap": {"defaultMode": 511, "name": "default-dev-foo-nginx-0"}, "name": "default-dev-foo-nginx-0"}],
                    },
                },
            },
            "status": {},
        })
    );
    assert_eq!(
        stack.attributes("v1:ConfigMap:default:default-dev-foo-nginx-0"),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"creationTimestamp": null, "name": "default-dev-foo-nginx-0", "namespace": "default"},
            "data": {"example.txt": "some file contents"},
        })
    );
}

#[test]
fn the_workload_is_known_although_it_comes_with_config_maps() {
    let generated = Stack::with_workload(with_files()).generate().unwrap();
    assert_eq!(ids_with(&generated, "kusion.io/is-workload"), [DEPLOYMENT]);
    // It waits for what it mounts.
    let deployment = generated
        .spec
        .resources
        .iter()
        .find(|resource| resource.id.as_str() == DEPLOYMENT)
        .unwrap();
    let waits: Vec<_> = deployment.depends_on.iter().map(ToString::to_string).collect();
    assert_eq!(
        waits,
        [
            "v1:Namespace:default",
            "v1:ConfigMap:default:default-dev-foo-nginx-0"
        ]
    );
}

#[test]
fn the_platform_may_ask_for_a_colla_set() {
    let settings = "{type: CollaSet, labels: {service-workload-type: CollaSet}, annotations: {service-workload-type: CollaSet}}";
    let stack =
        Stack::with_workload(service(json!({"replicas": 2}))).workspace(&platform("service", settings));
    let set = stack.attributes("apps.kusionstack.io/v1alpha1:CollaSet:default:default-dev-foo");
    assert_eq!(set["spec"]["replicas"], 2);
    assert_eq!(
        (&set["spec"]["scaleStrategy"], &set["spec"]["updateStrategy"]),
        (&json!({}), &json!({}))
    );
    assert_eq!(
        set["metadata"]["annotations"],
        json!({"service-workload-type": "CollaSet"})
    );
    assert_eq!(
        set["spec"]["template"]["metadata"]["annotations"],
        json!({"service-workload-type": "CollaSet"})
    );
    assert_eq!(set["status"], json!({}));
    let wrong =
        Stack::with_workload(service(json!({}))).workspace(&platform("service", "{type: StatefulSet}"));
    assert!(wrong.generate().unwrap_err().to_string().contains("StatefulSet"));
}

#[test]
fn what_the_developer_wrote_wins_over_the_platform() {
    let stack = Stack::with_workload(service(json!({"replicas": 2, "labels": {"a": "mine"}}))).workspace(
        &platform("service", "{replicas: 7, labels: {a: theirs, b: theirs}}"),
    );
    let deployment = stack.attributes(DEPLOYMENT);
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert_eq!(deployment["metadata"]["labels"]["a"], "mine");
    assert_eq!(deployment["metadata"]["labels"]["b"], "theirs");
    // The selector holds neither.
    assert_eq!(
        deployment["spec"]["selector"]["matchLabels"]
            .as_object()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn probes_and_hooks_are_those_of_kubernetes() {
    let container = json!({"image": "nginx:v1",
        "readinessProbe": {"_type": "service.container.probe.Probe", "probeHandler": {"_type": "service.container.probe.Tcp", "url": "localhost:8888"}, "periodSeconds": 10},
        "lifecycle": {"_type": "service.container.lifecycle.Lifecycle", "postStart": {"_type": "service.container.probe.Exec", "command": ["/bin/true"]}}});
    let deployment =
        Stack::with_workload(service(json!({"containers": {"nginx": container}}))).attributes(DEPLOYMENT);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container["readinessProbe"],
        json!({"tcpSocket": {"host": "localhost", "port": 8888}, "periodSeconds": 10})
    );
    assert_eq!(
        container["lifecycle"],
        json!({"postStart": {"exec": {"command": ["/bin/true"]}}})
    );
}

#[test]
fn a_job_with_a_schedule_is_a_cron_job() {
    let job = |more: Value| {
        let mut job = json!({"_type": "job.Job", "containers": {"pi": {"image": "perl"}}});
        job.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        Stack::with_workload(job)
    };
    let once = job(json!({})).attributes("batch/v1:Job:default:default-dev-foo");
    assert_eq!(once["spec"]["template"]["spec"]["restartPolicy"], "Never");
    let cron = job(json!({"schedule": "0 * * * *"})).attributes("batch/v1:CronJob:default:default-dev-foo");
    assert_eq!(cron["spec"]["schedule"], "0 * * * *");
    assert_eq!(
        cron["spec"]["jobTemplate"]["metadata"],
        json!({"creationTimestamp": null})
    );
    assert_eq!(
        cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["image"],
        "perl"
    );
    let notes = job(json!({"replicas": 3})).generate().unwrap().notes;
    assert!(
        notes.iter().any(|note| note.contains("`replicas` has no effect")),
        "{notes:?}"
    );
}

#[test]
fn what_a_probe_loses_of_its_url_is_said() {
    let handler = |url: &str| json!({"probeHandler": {"_type": "service.container.probe.Http", "url": url}});
    let hook = json!({"_type": "service.container.probe.Http", "url": "http://localhost:80/stop?now=1#x"});
    let container = json!({"image": "nginx:v1",
        "livenessProbe": handler("http://user:hunter2@localhost:80/live?full=1"),
        "readinessProbe": handler("http://localhost:80/ready"),
        "lifecycle": {"preStop": hook}});
    let stack = Stack::with_workload(service(json!({"containers": {"nginx": container}})));
    let generated = stack.generate().unwrap();
    let lost: Vec<_> = generated
        .notes
        .iter()
        .map(|note| note.split(" of the container").next().unwrap())
        .collect();
    assert_eq!(
        lost,
        [
            "`foo`: the query of the URL of `preStop`",
            "`foo`: the fragment of the URL of `preStop`",
            "`foo`: the user of the URL of `livenessProbe`",
            "`foo`: the query of the URL of `livenessProbe`",
        ]
    );
    assert!(!format!("{generated:?}").contains("hunter2"));
}

#[test]
fn secrets_are_made_beside_the_modules() {
    let secrets = json!({
        "db": {"_type": "service.secret.Secret", "type": "basic", "data": {"username": "u", "password": "p", "other": "x"}},
        "api": {"type": "opaque", "data": {"key": "v"}, "immutable": true},
    });
    let mut stack = Stack::with_workload(service(json!({"secrets": secrets})));
    stack.namespace = Some("team-a");
    let db = stack.attributes("v1:Secret:team-a:db");
    assert_eq!(db["type"], "kubernetes.io/basic-auth");
    assert_eq!(db["data"], json!({"password": "cA==", "username": "dQ=="}));
    assert_eq!(db["immutable"], false);
    let generated = stack.generate().unwrap();
    assert!(
        generated.notes.iter().any(|note| note.contains("no key `other`")),
        "{:?}",
        generated.notes
    );
    let order: Vec<_> = generated
        .spec
        .resources
        .iter()
        .map(|resource| resource.id.as_str())
        .collect();
    assert_eq!(
        order,
        [
            "v1:Namespace:team-a",
            "v1:Secret:team-a:api",
            "v1:Secret:team-a:db",
            DEPLOYMENT
        ]
    );
    // The published module ignores the extension, and that is said.
    assert!(
        generated
            .notes
            .iter()
            .any(|note| note.contains("namespace `default`")),
        "{:?}",
        generated.notes
    );
}

#[test]
fn a_missing_value_is_made_once_and_an_external_one_keeps_its_reference() {
    let secret = |secret: Value| Stack::with_workload(service(json!({"secrets": {"s": secret}})));
    let missing = secret(json!({"type": "basic", "data": {"username": "u"}}));
    let data = missing.attributes("v1:Secret:default:s")["data"].clone();
    assert_eq!(data["username"], "dQ==");
    // `ref+generated://foo/s#/password`: the Spec is the same each time.
    assert_eq!(
        data["password"],
        STANDARD.encode("ref+generated://foo/s#/password")
    );
    let token = secret(json!({"type": "token", "data": {"token": ""}}));
    assert_eq!(
        token.attributes("v1:Secret:default:s")["data"],
        json!({"token": STANDARD.encode("ref+generated://foo/s#/token")})
    );
    let external = secret(json!({"type": "external", "data": {"k": "ref://a/b"}}));
    let literal = secret(json!({"type": "external", "data": {"k": "hunter2"}})).generate();
    let literal = literal.unwrap_err().to_string();
    assert!(
        literal.contains("`k` is not a reference") && !literal.contains("hunter2"),
        "{literal}"
    );
    let list = Stack::with_workload(service(json!({"secrets": [{"type": "token"}]}))).generate();
    assert!(
        list.unwrap_err()
            .to_string()
            .contains("must be a dictionary of secrets")
    );
    let external = external.workspace("secretStore: {provider: {vault: {server: x}}}\n");
    let attributes = external.attributes("v1:Secret:default:s");
    assert_eq!(attributes["data"], json!({"k": "cmVmOi8vYS9i"}));
    let notes = external.generate().unwrap().notes;
    assert!(
        notes.iter().any(|note| note.contains("secrets.stores")),
        "{notes:?}"
    );
}

#[test]
fn variables_stand_as_each_era_of_kusion_gives_them() {
    let env = json!({"HOST": "h", "URL10": "$(HOST)", "URL2": "b", "DBNAME": "n", "DB_HOST": "d"});
    let container = json!({"image": "nginx:v1", "env": env});
    for (version, expected) in [
        ("0.1.0", ["HOST", "URL10", "URL2", "DBNAME", "DB_HOST"]),
        ("0.2.1", ["DB_HOST", "DBNAME", "HOST", "URL2", "URL10"]),
    ] {
        let mut stack = Stack::with_workload(service(json!({"containers": {"nginx": container}})));
        stack.modules = MODULES.replace("0.2.1", version);
        let deployment = stack.attributes(DEPLOYMENT);
        let variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array();
        let names = variables
            .unwrap()
            .iter()
            .map(|variable| variable["name"].as_str().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), expected, "{version}");
    }
}

#[test]
fn the_workload_of_kusion_0_12_0_follows_the_namespace_extension() {
    let mut stack = Stack::with_workload(service(json!({})));
    stack.modules = MODULES.replace("0.2.1", "0.1.0");
    stack.namespace = Some("team-a");
    let generated = stack.generate().unwrap();
    let ids: Vec<_> = generated
        .spec
        .resources
        .iter()
        .map(|resource| resource.id.as_str())
        .collect();
    assert_eq!(
        ids,
        ["v1:Namespace:team-a", "apps/v1:Deployment:team-a:default-dev-foo"]
    );
    assert_eq!(generated.notes, Vec::<String>::new());
    assert!(
        !generated.spec.resources[1]
            .extensions
            .contains_key("kusion.io/is-workload")
    );
}

#[test]
fn what_kusion_loses_or_cannot_do_is_an_error() {
    let network = json!({"_type": "network.Network", "ports": []});
    let apps = |accessories: Value| {
        Stack::new(json!({"foo": {"workload": service(json!({})), "accessories": accessories}}))
            .generate()
            .unwrap_err()
    };
    let twice = apps(json!({"a": network, "b": network}));
    assert!(
        matches!(&twice, KusionError::Twice { first, second, .. } if first.contains("`a`") && second.contains("`b`")),
        "{twice}"
    );
    let plain = apps(json!({"a": {"ports": []}}));
    assert!(matches!(plain, KusionError::NoModule { .. }), "{plain}");
    let own = apps(json!({"a": {"_type": "MyNetwork"}}));
    assert!(matches!(own, KusionError::NoModule { .. }), "{own}");
    let unknown = apps(json!({"a": {"_type": "redis.Redis"}}));
    assert!(
        matches!(&unknown, KusionError::NotADependency { module, .. } if module == "redis"),
        "{unknown}"
    );
    let foreign = apps(json!({"a": {"_type": "mysql.MySQL"}}));
    assert!(
        foreign
            .to_string()
            .contains("oci://ghcr.io/kusionstack/mysql 0.2.0"),
        "{foreign}"
    );
    let typo = Stack::with_workload(service(json!({"replica": 2})))
        .generate()
        .unwrap_err();
    assert!(typo.to_string().contains("`replica`"), "{typo}");
}

#[test]
fn a_version_that_differs_and_an_import_that_is_not_there_are_said() {
    let workspace =
        platform("service", "{importedResources: {'a:b:c:d': cloud-1}}").replace("0.2.1", "0.1.0");
    let stack = Stack::with_workload(service(json!({})))
        .workspace(&(workspace + "context: {KUBECONFIG_PATH: /k, AWS_REGION: eu, mine: 1}\n"));
    let notes = stack.generate().unwrap().notes;
    for says in ["version 0.1.0", "`a:b:c:d`", "KUBECONFIG_PATH", "AWS_REGION"] {
        assert!(notes.iter().any(|note| note.contains(says)), "{says}: {notes:?}");
    }
    assert_eq!(notes.len(), 4);
}

#[test]
fn a_health_policy_goes_to_the_workload() {
    let workspace = platform("service", "{healthPolicy: {health.kcl: assert res.a}}");
    let generated = Stack::with_workload(with_files())
        .workspace(&workspace)
        .generate()
        .unwrap();
    assert_eq!(ids_with(&generated, "healthPolicy"), [DEPLOYMENT]);
}

#[test]
fn a_health_policy_that_names_a_kind_goes_to_objects_of_that_kind() {
    let policy = "{apiVersion: v1, kind: ConfigMap, health.kcl: assert res.a}";
    let stack = Stack::with_workload(with_files());
    let generated = stack.workspace(&platform("service", &format!("{{healthPolicy: {policy}}}")));
    let generated = generated.generate().unwrap();
    let with_policy = ids_with(&generated, "healthPolicy");
    assert!(
        with_policy.iter().any(|id| id.starts_with("v1:ConfigMap:")),
        "{with_policy:?}"
    );
    assert!(
        !with_policy.iter().any(|id| id.starts_with("v1:Namespace:")),
        "{with_policy:?}"
    );
}

#[test]
fn applications_do_not_wait_for_each_other() {
    let one = json!({"workload": service(json!({}))});
    let network =
        json!({"_type": "network.Network", "ports": [{"port": 80, "protocol": "TCP", "public": false}]});
    let two = json!({"workload": service(json!({})), "accessories": {"net": network}});
    let generated = Stack::new(json!({"b": two, "a": one})).generate().unwrap();
    let waits = |id: &str| {
        let found = generated
            .spec
            .resources
            .iter()
            .find(|resource| resource.id.as_str() == id)
            .unwrap();
        found
            .depends_on
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        waits("apps/v1:Deployment:default:default-dev-a"),
        ["v1:Namespace:default"]
    );
    assert_eq!(
        waits("apps/v1:Deployment:default:default-dev-b"),
        ["v1:Namespace:default", "v1:Service:default:default-dev-b-private"]
    );
}
