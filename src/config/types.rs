//! The shape of `konverge.yaml`. The doc comments here are the reference: the JSON Schema and the docs are made of them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;
use crate::model::{ClusterName, NotifyEvent, StackId, stack::SettingsOrder};

/// The KCL core used where `kcl.version` is not given.
pub const DEFAULT_CORE: &str = "0.13.2";

/// konverge.yaml: how Konverge works on this repository. Every key is optional.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The version of this format; 1.
    #[schemars(range(min = 1, max = 1))]
    pub version: Option<u32>,
    /// Globs of folders that hold no stacks, such as `examples/**`; what lies below a folder that matches is left out too.
    /// A glob after `!` takes folders in again, and the last one that matches wins.
    pub exclude: Vec<String>,
    /// Where state is kept and how it is guarded.
    pub state: State,
    /// The clusters by name. Specs and `stack.yaml` may name one of these, never a file.
    #[schemars(with = "BTreeMap<String, ClusterConfig>")]
    pub clusters: BTreeMap<ClusterName, ClusterConfig>,
    /// Rules by stack; for each key the last rule that matches and has the key wins.
    pub stacks: Vec<StackRule>,
    /// How KCL is compiled.
    pub kcl: Kcl,
    /// How Terraform is run.
    pub terraform: TerraformConfig,
    /// How changes are applied.
    pub apply: Apply,
    /// What is allowed.
    pub policy: PolicyConfig,
    /// The scheduled look for drift.
    pub drift: Drift,
    /// Who is told.
    pub notify: Vec<Notify>,
}

/// Where state is kept and how it is guarded.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct State {
    /// The store: `s3://bucket/prefix`, `gs://…`, `az://…`, `oss://…`, `postgres://…`, `mysql://…`, `https://…` or
    /// `file:///folder`. Credentials come from the environment, never from here.
    pub url: Option<String>,
    /// Options of the store, such as `endpoint`, `region`, `path_style`, `ca_file`, `allow_http`.
    pub options: BTreeMap<String, String>,
    /// The repository's id in the store: a state made under another id is refused. Written by `konverge init`;
    /// defaults to the normalised URL of `origin`.
    pub id: Option<String>,
    /// The lease on a stack while it is applied.
    pub lease: LeaseConfig,
    /// How many old states of a stack are kept; default 50.
    pub history: Option<u32>,
    /// age recipients (`age1…`) to which whole state documents are encrypted; the identity to read them is taken from
    /// the environment variable KONVERGE_AGE_IDENTITY.
    pub encrypt_to: Vec<String>,
    /// Work on a store that cannot keep a lease. Two runs may then overwrite each other.
    pub unsafe_no_lock: bool,
}

/// The lease on a stack while it is applied.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LeaseConfig {
    /// How long a lease lives without a renewal; default 60 s.
    pub term: Span,
    /// How long to wait for somebody else's; default 10 minutes.
    pub wait: Span,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self {
            term: Span::seconds(60),
            wait: Span::seconds(600),
        }
    }
}

/// How to reach a cluster.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    /// The environment variable that holds the path of a kubeconfig. Default: KUBECONFIG, else `~/.kube/config`.
    pub kubeconfig_env: Option<String>,
    /// The context in it; default: its current one.
    pub context: Option<String>,
    /// Use the pod's own service account instead.
    pub in_cluster: bool,
    /// Requests under way at once; default 16.
    pub requests: Option<u32>,
}

/// A rule for the stacks whose folder or identity matches.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StackRule {
    /// A glob over the stack's folder or its identity: `appops/*/prod`, `payments/**`.
    #[serde(rename = "match")]
    pub pattern: String,
    /// The identity of the one stack that matches, `[tenant/]<project>/<stack>`, in place of the one that its names give:
    /// for projects that have the same name.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub identity: Option<StackId>,
    /// The cluster, a name under `clusters`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub cluster: Option<ClusterName>,
    /// Globs of stacks that are applied before; if one of them fails, this one is held back.
    #[serde(default)]
    pub after: Option<Vec<String>>,
    /// Required approvals, actors and freezes for these stacks; see `policy`.
    #[serde(default)]
    pub policy: Option<StackPolicy>,
    /// The environment of their GitHub deployments, which stacks may share; default: the stack's identity.
    #[serde(default)]
    pub environment: Option<String>,
    /// Paths of Kubernetes objects that are not compared, as RFC 6901 pointers (`/spec/replicas`; an item of a list by its
    /// key: `/spec/template/spec/containers/name=web/image`). They are set when an object is made, and left alone then.
    #[serde(default)]
    pub ignore: Option<Vec<String>>,
}

/// Who may change a set of stacks.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StackPolicy {
    /// How many approvals the pull request needs.
    pub approvals: Option<u32>,
    /// Teams (`org/team`) or users, one of whom must have approved.
    pub reviewers: Vec<String>,
    /// Who may merge or dispatch an apply; empty: whoever GitHub lets.
    pub actors: Vec<String>,
    /// When nothing is applied.
    pub freeze: Vec<FreezeConfig>,
    /// Resources that one apply may delete or replace in a stack without a consent of its own.
    pub max_delete: Option<u32>,
}

/// A time in which nothing is applied.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FreezeConfig {
    /// From, as RFC 3339: `2026-12-23T00:00:00Z`.
    pub from: String,
    /// Until, as RFC 3339.
    pub until: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// How KCL is compiled.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Kcl {
    /// The official core's version; part of every input digest. Default: the one this Konverge ships with.
    pub version: Option<String>,
    /// Which Kusion's reading of `kcl.yaml` and `ci-test/settings.yaml` the repository follows.
    pub settings: SettingsOrder,
    /// Whether a kernel that lacks a wall stops the run. Default: `required` in `konverge ci` for pull requests, else
    /// `best-effort`.
    pub sandbox: Option<Sandbox>,
    /// Compilers at once; default: the number of cores.
    pub workers: Option<u32>,
    /// Limit of one compile; default 60 s.
    pub timeout: Option<Span>,
    /// Memory limit of one compiler in MiB; default 2048.
    pub memory_mib: Option<u64>,
}

impl Kcl {
    /// The core's version in force.
    pub fn core(&self) -> &str {
        self.version.as_deref().unwrap_or(DEFAULT_CORE)
    }
}

/// Whether a kernel that lacks a wall stops the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// Every wall or no compile.
    Required,
    /// The walls that the kernel has; what is missing is said.
    BestEffort,
}

/// How Terraform is run.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TerraformConfig {
    /// The executable's name or absolute path, outside of the repository; default: `terraform`, else `tofu`, on the PATH.
    pub binary: Option<String>,
    /// Providers that may run. Others are refused before `init`.
    pub providers: Vec<Provider>,
    /// Settings in a Spec's provider configuration that name a command or a file of credentials of the machine that
    /// Konverge runs on (`exec`, `config_path`, `shared_config_files`), and are allowed all the same. Default: none.
    pub credential_settings: Vec<String>,
    /// The absolute path of a folder outside of the repository, laid out as Terraform's filesystem mirror; with it
    /// nothing is downloaded.
    pub mirror: Option<String>,
}

/// A provider that may run.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// `[host/]namespace/name`, as in `registry.terraform.io/hashicorp/aws`.
    pub source: String,
    /// The exact version.
    pub version: String,
    /// Hashes in the lock file's form (`h1:…`, `zh:…`); empty: recorded at first use.
    #[serde(default)]
    pub hashes: Vec<String>,
}

/// How changes are applied.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Apply {
    /// Stacks applied at once; default 4.
    pub stacks: Option<u32>,
    /// Resources of one stack applied at once; default 16.
    pub resources: Option<u32>,
    /// How long a resource may take to become ready, or to be gone; default 10 minutes.
    pub ready_timeout: Option<Span>,
    /// How long a failure that waiting does not remove (an image that does not exist, a pod that the server refuses) must
    /// last before the wait ends early; default 30 s. Any other trouble, such as a crash loop or a pod without a node, may
    /// last for the whole `ready_timeout`.
    pub fail_early_after: Option<Span>,
    /// A folder of the repository with rules of your own for the readiness of Kubernetes objects, laid out as Argo CD's
    /// `resource_customizations`: `<group>/<Kind>/health.lua`, or `health.cel.yaml`, or `health.k`. `konverge health --rules`
    /// tries them.
    pub health_rules: Option<String>,
    /// What happens when another field manager owns a field that the Spec sets; default `restore`.
    pub conflicts: ConflictsConfig,
    /// Whether GitHub is told of each apply as a deployment, which it keeps by environment. Takes
    /// `deployments: write`; at most 20 environments a run.
    pub deployments: bool,
}

/// What happens when another field manager owns a field that the Spec sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConflictsConfig {
    /// A field that the last apply wrote is put back, as `policy.drift` says. Any other field fails the resource, and the
    /// owner is named.
    #[default]
    Restore,
    /// The resource fails, and the owner is named; also for a field that the last apply wrote.
    Stop,
    /// The field is taken over.
    Take,
    /// The field keeps the value of its owner; also one that the last apply wrote.
    Leave,
}

/// What is allowed, for every stack; `stacks[].policy` narrows it.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// What an apply does about fields that somebody changed since our last write; default `restore`.
    pub drift: DriftPolicy,
    /// How many approvals a pull request needs before its changes are applied; default none.
    pub approvals: Option<u32>,
    /// Teams (`org/team`) or users, one of whom must have approved.
    pub reviewers: Vec<String>,
    /// Who may merge or dispatch an apply; empty: whoever GitHub lets.
    pub actors: Vec<String>,
    /// When nothing is applied.
    pub freeze: Vec<FreezeConfig>,
    /// Resources that one apply may delete or replace in a stack without a consent of its own; default 10.
    pub max_delete: Option<u32>,
}

/// What an apply does about fields that somebody changed since our last write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DriftPolicy {
    /// Puts back our last write.
    #[default]
    Restore,
    /// Stops the stack.
    Stop,
}

/// The scheduled look for drift.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Drift {
    /// Stacks looked at in one run, the longest not looked at first; default: all.
    pub stacks: Option<u32>,
    /// Stop starting new stacks after this; default: never.
    pub budget: Option<Span>,
    /// Whether drift is put back.
    pub reconcile: Reconcile,
    /// Say so when the last good run is older than this; default 2 days.
    pub stale_after: Option<Span>,
    /// The label of drift issues; default `konverge-drift`.
    pub label: Option<String>,
}

/// Whether drift is put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reconcile {
    /// Reported only.
    #[default]
    Never,
    /// Our last write is put back.
    Restore,
}

/// Who is told. The address is a secret and comes from the environment.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Notify {
    /// `slack` (and whatever speaks its incoming webhooks) or `webhook` (signed).
    pub kind: NotifyKind,
    /// The environment variable that holds the URL.
    pub url_env: String,
    /// The environment variable that holds the signing key of a `webhook`.
    #[serde(default)]
    pub key_env: Option<String>,
    /// Events to send; default: everything.
    #[serde(default)]
    pub on: Vec<NotifyEvent>,
}

/// The protocol of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NotifyKind {
    /// An incoming webhook of Slack or a compatible chat.
    Slack,
    /// A JSON POST with an HMAC signature.
    Webhook,
}
