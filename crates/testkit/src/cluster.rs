//! A real Kubernetes API server, and on request the controllers, the scheduler and a fake node on which pods become
//! ready: a Deployment then really becomes available.

pub use super::audit::AuditEvent;
pub use super::identities::User;
use super::identities::{kubeconfig, write_identities, write_kubeconfig};
use super::service::{Ports, Service, eventually, folder};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DynamicObject, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What a plugin says that gives its token, in a shell script.
pub const TOKEN_OF_PLUGIN: &str = r#"echo "{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \"status\": {\"token\": \"$THE_TOKEN\"}}""#;

/// A running API server on its own etcd.
pub struct Cluster {
    folder: PathBuf,
    url: String,
    controllers: OnceLock<Vec<Service>>,
    https: OnceLock<(Service, Ports)>,
    api_server: Service,
    etcd: Service,
    ports: Ports,
}

impl Cluster {
    /// The one of this test process: the API server alone, so nothing but the tests changes an object. Tests keep
    /// apart by their namespaces.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Another one of this test process, with controllers, scheduler and the fake node.
    pub fn with_controllers() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| {
            let cluster = Self::start();
            cluster.start_controllers();
            cluster
        })
    }

    /// One of one's own, for a test that needs to see or end all of it.
    pub fn start() -> Self {
        Self::start_with("", &[])
    }

    /// As [`Cluster::start`], with more feature gates (`,Gate=true`) and flags for the API server.
    pub fn start_with(gates: &str, flags: &[&str]) -> Self {
        let folder = folder("cluster");
        let ports = Ports::claim();
        write_identities(&folder);
        let (etcd_client, etcd_peer, secure) = (ports.nth(1), ports.nth(2), ports.nth(3));

        let mut command = Command::new(super::executable("etcd", "etcd"));
        command
            .arg("--data-dir")
            .arg(folder.join("etcd"))
            .args([
                "--unsafe-no-fsync",
                "--log-level=warn",
                "--quota-backend-bytes=2147483648",
            ])
            .arg(format!("--listen-client-urls=http://127.0.0.1:{etcd_client}"))
            .arg(format!("--advertise-client-urls=http://127.0.0.1:{etcd_client}"))
            .arg(format!("--listen-peer-urls=http://127.0.0.1:{etcd_peer}"))
            .arg(format!(
                "--initial-advertise-peer-urls=http://127.0.0.1:{etcd_peer}"
            ))
            .arg(format!("--initial-cluster=default=http://127.0.0.1:{etcd_peer}"));
        let mut etcd = Service::start("etcd", &command, &folder);
        etcd.wait_for_port(etcd_client, Duration::from_secs(60));

        let mut command = Command::new(super::executable("control-plane", "kube-apiserver"));
        let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
        command
            .arg(format!("--etcd-servers=http://127.0.0.1:{etcd_client}"))
            .arg(format!("--secure-port={secure}"))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            .args([
                "--service-cluster-ip-range=10.0.0.0/16",
                "--authorization-mode=RBAC",
            ])
            .args([
                "--service-account-issuer=https://kubernetes.default.svc",
                "--profiling=false",
            ])
            .args([
                "--endpoint-reconciler-type=none",
                "--watch-cache=true",
                "--shutdown-delay-duration=0s",
            ])
            .arg(file("tls-cert-file", "server.crt"))
            .arg(file("tls-private-key-file", "server.key"))
            .arg(file("token-auth-file", "tokens.csv"))
            .arg(file("service-account-key-file", "accounts.pub"))
            .arg(file("service-account-signing-key-file", "accounts.key"))
            .arg(file("audit-policy-file", "audit-policy.yaml"))
            .arg(file("audit-log-path", "audit.log"))
            .args(["--audit-log-mode=blocking", "--allow-privileged=true"])
            // With it the server refuses a watch from "any version" on an etcd below 3.5, which cannot tell how far a
            // watch has come. kwok watches so: it would list again, at distances of up to a minute, instead.
            .arg(format!("--feature-gates=WatchList=false{gates}"))
            .args(flags);
        let api_server = Service::start("kube-apiserver", &command, &folder);

        let url = format!("https://127.0.0.1:{secure}");
        let mut cluster = Self {
            folder,
            url,
            controllers: OnceLock::new(),
            https: OnceLock::new(),
            api_server,
            etcd,
            ports,
        };
        for user in User::ALL {
            write_kubeconfig(&cluster.folder, &cluster.url, user);
        }
        let kubeconfig = cluster.kubeconfig();
        let ready = move || {
            let kubeconfig = kubeconfig.clone();
            block_on(async move {
                let client = client_from(&kubeconfig).await;
                let mut answer = None;
                // The second comes a moment after the first, and says which cluster it is.
                for path in ["/readyz", "/api/v1/namespaces/kube-system"] {
                    let request = http::Request::get(path)
                        .body(Vec::new())
                        .expect("a valid request");
                    answer = Some(client.request_text(request).await.ok()?);
                }
                answer
            })
        };
        cluster.api_server.wait_until(Duration::from_secs(150), ready);
        let kubeconfig = cluster.kubeconfig();
        block_on(async move { grant_rights(client_from(&kubeconfig).await).await });
        cluster
    }

    /// Starts controller manager, scheduler and kwok, and waits for the node; a second call does nothing.
    pub fn start_controllers(&self) {
        self.controllers.get_or_init(|| {
            let kubeconfig = self.kubeconfig_of(User::ControlPlane);
            let start = |part: &str, name: &str, arguments: &[String]| {
                let mut command = Command::new(super::executable(part, name));
                command.arg("--kubeconfig").arg(&kubeconfig).args(arguments);
                Service::start(name, &command, &self.folder)
            };
            let text = |arguments: &[&str]| {
                arguments
                    .iter()
                    .map(|&argument| argument.to_owned())
                    .collect::<Vec<_>>()
            };
            let mut manager = text(&[
                "--leader-elect=false",
                "--secure-port=0",
                "--use-service-account-credentials=false",
            ]);
            manager.extend(text(&["--kube-api-qps=500", "--kube-api-burst=1000"]));
            // kwok renews the node's lease in its own time. A node that is late for once would be taken for lost, and
            // its pods, once not ready, are never made ready again.
            manager.extend(text(&["--node-monitor-grace-period=3600s"]));
            manager.push(format!(
                "--service-account-private-key-file={}",
                self.path("accounts.key").display()
            ));
            manager.push(format!("--root-ca-file={}", self.path("ca.crt").display()));
            let scheduler = text(&[
                "--leader-elect=false",
                "--secure-port=0",
                "--kube-api-qps=500",
                "--kube-api-burst=1000",
            ]);
            let stages = self.path("stages.yaml");
            std::fs::write(&stages, stages_of_kwok()).expect("the stages can be written");
            let mut kwok = text(&[
                "--manage-all-nodes",
                "--node-lease-duration-seconds=40",
                "--config",
            ]);
            kwok.push(stages.display().to_string());
            let services = vec![
                start("control-plane", "kube-controller-manager", &manager),
                start("control-plane", "kube-scheduler", &scheduler),
                start("control-plane", "kwok", &kwok),
            ];
            let admin = self.kubeconfig();
            block_on(async move { add_node(client_from(&admin).await).await });
            services
        });
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig_of(User::Admin)
    }

    /// The kubeconfig of `user`; its only context is `test`.
    pub fn kubeconfig_of(&self, user: User) -> PathBuf {
        kubeconfig(&self.folder, user)
    }

    /// The administrator's kubeconfig, whose token is asked of a program: a shell script in `folder`, which has it as
    /// `THE_TOKEN`.
    pub fn kubeconfig_with_plugin(&self, folder: &Path, script: &str) -> PathBuf {
        let (plugin, kubeconfig) = (folder.join("plugin"), folder.join("kubeconfig"));
        std::fs::write(&plugin, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
        let text = std::fs::read_to_string(self.kubeconfig()).unwrap();
        let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
        let token = config["users"][0]["user"]["token"].as_str().unwrap().to_owned();
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": plugin, "interactiveMode": "Never",
            "env": [{"name": "THE_TOKEN", "value": token}]});
        config["users"][0]["user"] = json!({ "exec": exec });
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        kubeconfig
    }

    /// The administrator's client, bound to the runtime that asks.
    pub async fn client(&self) -> kube::Client {
        self.client_of(User::Admin).await
    }

    /// The client of `user`.
    pub async fn client_of(&self, user: User) -> kube::Client {
        client_from(&self.kubeconfig_of(user)).await
    }

    /// Makes a namespace that no other test has and gives its name.
    pub async fn namespace(&self, subject: &str) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{subject}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..Default::default()
            },
            ..Default::default()
        };
        let namespaces: Api<Namespace> = Api::all(self.client().await);
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .expect("the namespace can be made");
        name
    }

    /// Every request answered so far, in order, but for the control plane's own.
    pub fn audit(&self) -> Vec<AuditEvent> {
        let text = std::fs::read_to_string(self.path("audit.log")).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// Puts an object into etcd past the API server, as one that an older server let in.
    pub async fn put_in_etcd(&self, key: &str, object: &serde_json::Value) {
        use base64::Engine as _;
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let url = format!("http://127.0.0.1:{}/v3/kv/put", self.ports.nth(1));
        let body = json!({"key": encode(key), "value": encode(&object.to_string())});
        let answer = reqwest::Client::new()
            .post(url)
            .body(body.to_string())
            .send()
            .await;
        let status = answer.expect("etcd answers").status();
        assert!(status.is_success(), "{status}");
    }

    /// An HTTPS server with the cluster's own certificate: a mutating webhook and a kubelet's logs (`https.py`). Its port,
    /// and the authority by which it is known, in base64.
    pub fn https(&self) -> (u16, String) {
        use base64::Engine as _;
        let (_, ports) = self.https.get_or_init(|| {
            let ports = Ports::claim();
            let mut command = Command::new(super::kcl::interpreter());
            command
                .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/https.py"))
                .arg(ports.nth(1).to_string())
                .args([self.path("server.crt"), self.path("server.key")]);
            let mut service = Service::start("https", &command, &self.folder);
            service.wait_for_port(ports.nth(1), Duration::from_secs(60));
            (service, ports)
        });
        let authority = std::fs::read(self.path("ca.crt")).expect("the authority can be read");
        let authority = base64::engine::general_purpose::STANDARD.encode(authority);
        (ports.nth(1), authority)
    }

    /// Ends the API server as a power cut would; etcd and the kubeconfigs stay.
    pub fn kill_api_server(&mut self) {
        self.api_server.kill();
    }

    /// A file of its folder: certificates, keys, logs.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Runs a future to its end from any thread, also one that a runtime already drives.
fn block_on<T: Send>(future: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| {
        let run = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be made").block_on(future)
        };
        scope
            .spawn(run)
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

async fn client_from(kubeconfig: &Path) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a readable kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    kube::Client::try_from(config.expect("a valid kubeconfig")).expect("a client")
}

async fn grant_rights(client: kube::Client) {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "konverge:reader"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}],
    });
    let binding = |user: User, role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("konverge:{}", user.name())},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user.name()}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        })
    };
    let bindings = "clusterrolebindings";
    create(
        &client,
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        "clusterroles",
        role,
    )
    .await;
    for (user, role) in [(User::Reader, "konverge:reader"), (User::Editor, "edit")] {
        create(
            &client,
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            bindings,
            binding(user, role),
        )
        .await;
    }
}

async fn create(
    client: &kube::Client,
    api_version: &str,
    kind: &str,
    plural: &str,
    object: serde_json::Value,
) {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = kube::core::ApiResource::from_gvk_with_plural(
        &kube::core::GroupVersionKind::gvk(group, version, kind),
        plural,
    );
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    let created = Api::<DynamicObject>::all_with(client.clone(), &resource)
        .create(&PostParams::default(), &object)
        .await;
    created.unwrap_or_else(|error| panic!("{kind} cannot be created: {error}"));
}

/// The label of a pod of a Job that the node evicts, whatever its value.
pub const EVICTED: &str = "konverge.test/evicted";

/// The stage of those pods. Its weight makes it the one that comes, where another one could.
fn eviction() -> String {
    format!(
        r#"apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: pod-evicted
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  selector:
    matchExpressions:
    - key: '.metadata.deletionTimestamp'
      operator: 'DoesNotExist'
    - key: '.status.phase'
      operator: 'In'
      values: ['Running']
    - key: '.metadata.labels["{EVICTED}"]'
      operator: 'Exists'
  weight: 1000
  next:
    statusTemplate: |
      phase: Failed
      reason: Evicted
      message: "The node was low on resource: memory."
"#
    )
}

/// The stages that kwok publishes for nodes and pods, and one of ours, in one file.
fn stages_of_kwok() -> String {
    let folder = super::installed("control-plane", super::cache().join("kwok"));
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the stages can be read")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read_to_string(file).expect("a stage"))
        .chain([eviction()])
        .collect::<Vec<_>>()
        .join("\n---\n")
}

async fn add_node(client: kube::Client) {
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "node-0",
            "labels": {"kubernetes.io/hostname": "node-0", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
        },
    });
    create(&client, "v1", "Node", "nodes", node).await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client);
    eventually(
        "the fake node is ready and takes pods",
        Duration::from_secs(60),
        || async {
            let node = nodes.get("node-0").await.ok()?;
            let ready = node
                .status?
                .conditions?
                .iter()
                .any(|one| one.type_ == "Ready" && one.status == "True");
            let taken = node
                .spec
                .and_then(|spec| spec.taints)
                .is_none_or(|taints| taints.is_empty());
            (ready && taken).then_some(())
        },
    )
    .await;
}
