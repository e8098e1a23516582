//! A real Kubernetes API server, on request with the controllers, the scheduler and a fake node on which pods become
//! ready, so that a Deployment really becomes available.

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

/// The line of a shell script with which a credentials plugin prints its token.
pub const TOKEN_OF_PLUGIN: &str = r#"echo "{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \"status\": {\"token\": \"$THE_TOKEN\"}}""#;

/// A running API server with its own etcd.
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
    /// Returns the cluster of this test process: the API server alone, so nothing but the tests changes an object.
    /// Tests use namespaces of their own.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Returns another cluster of this test process, with controllers, scheduler and the fake node.
    pub fn with_controllers() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| {
            let cluster = Self::start();
            cluster.start_controllers();
            cluster
        })
    }

    /// Starts a separate cluster, for a test that looks at all of it or stops it.
    pub fn start() -> Self {
        Self::start_with("", &[])
    }

    /// Starts a cluster as [`Cluster::start`] does, with more feature gates (`,Gate=true`) and flags for the API
    /// server.
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
            // With this gate the server refuses a watch from "any version" on an etcd below 3.5, which does not report
            // the progress of a watch. kwok would then list again, at intervals of up to a minute.
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
                // The namespace appears a moment after `/readyz`, and its uid identifies the cluster.
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

    /// Starts the controller manager, the scheduler and kwok, and waits for the node. A second call does nothing.
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
            // kwok renews the node's lease only now and then. A late lease would mark the node as lost, and its pods as
            // not ready for ever.
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

    /// Returns the address, `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig_of(User::Admin)
    }

    /// Returns the path of the kubeconfig of `user`, with the single context `test`.
    pub fn kubeconfig_of(&self, user: User) -> PathBuf {
        kubeconfig(&self.folder, user)
    }

    /// Writes a kubeconfig of the administrator with a credentials plugin: a shell script in `folder` that finds the
    /// token in `THE_TOKEN`.
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

    /// Returns the administrator's client, for the runtime of the caller.
    pub async fn client(&self) -> kube::Client {
        self.client_of(User::Admin).await
    }

    /// Returns the client of `user`.
    pub async fn client_of(&self, user: User) -> kube::Client {
        client_from(&self.kubeconfig_of(user)).await
    }

    /// Creates a namespace that no other test uses, and returns its name.
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

    /// Returns every answered request so far, in order, without those of the control plane.
    pub fn audit(&self) -> Vec<AuditEvent> {
        let text = std::fs::read_to_string(self.path("audit.log")).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// Writes an object into etcd past the API server, such as one that an older server accepted.
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

    /// Starts an HTTPS server with the cluster's own certificate: a mutating webhook and a kubelet's logs (`https.py`).
    /// Returns its port, and the certificate of its authority in base64.
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

    /// Kills the API server, as a power cut would. The etcd and the kubeconfigs stay.
    pub fn kill_api_server(&mut self) {
        self.api_server.kill();
    }

    /// Returns the path of a file in the cluster's folder: certificates, keys, logs.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Runs a future to its end from any thread, even from a thread of a runtime.
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

/// The label of a Job's pod that the node evicts. Its value does not matter.
pub const EVICTED: &str = "konverge.test/evicted";

/// Returns the stage for such pods. Its weight makes kwok prefer it to other stages.
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

/// Returns the stages that kwok publishes for nodes and pods, with the eviction stage, in one file.
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
