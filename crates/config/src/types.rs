//! The types of `konverge.yaml`. Their doc comments are the reference: the JSON Schema and the docs are
//! generated from them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    DeliveryConfig, DeliveryTool, Hooks, LoginConfig, Span,
    code_changes::SetConfig,
    models::ModelsConfig,
    notify::Notify,
    outputs::OutputsConfig,
    portal::PortalConfig,
    rollouts::{GateConfig, RolloutConfig},
    secrets::SecretsConfig,
};
use konverge_base::model::{ClusterName, FieldPath, RepoPath, StackId, stack::SettingsOrder};

/// The version of the KCL core if `kcl.version` is not set.
pub(crate) const DEFAULT_CORE: &str = "0.13.2";

/// konverge.yaml: how Konverge works on this repository. Every key is optional.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The version of this format: 1.
    #[schemars(range(min = 1, max = 1))]
    pub version: Option<u32>,
    /// Globs of folders without stacks, with everything below: `examples/**`. A glob after `!` includes
    /// folders again; the last matching glob wins.
    pub exclude: Vec<String>,
    /// Globs of folders with a `kcl.mod` that are stacks without a `stack.yaml`: `apps/*/*`. The folder names the
    /// stack, the one above the project. A path dependency of another module is not a stack. `.` is the root of the
    /// repository, whose stack is `root/default`. Its folder is the empty text: globs of rules, waves and the portal
    /// that match it are `**` and `*`. A glob that matches identities also takes `root/default`.
    pub include: Vec<String>,
    /// Globs of the folders of production stacks: `appops/*/prod`. Previews show them first and count them. Default: a
    /// folder with `prod` or `production` as a word of a component. Only the default branch can say so.
    pub production: Vec<String>,
    /// The state store and the lease.
    pub state: State,
    /// The clusters by name. Specs and `stack.yaml` may name one of these, never a file.
    #[schemars(with = "BTreeMap<String, ClusterConfig>")]
    pub clusters: BTreeMap<ClusterName, ClusterConfig>,
    /// The identities at clouds by name, for the rules of stacks.
    pub logins: BTreeMap<String, LoginConfig>,
    /// The waves in which a change reaches its stacks. A stack is in at most one rollout; other stacks do not wait.
    pub rollouts: Vec<RolloutConfig>,
    /// The conditions for the next wave of a rollout, by name.
    pub gates: BTreeMap<String, GateConfig>,
    /// Rules for stacks. For each key, the last rule that matches and has the key wins.
    pub stacks: Vec<StackRule>,
    /// The registry for the artifacts of stacks with `deliver`, and the cluster of their controller.
    pub delivery: DeliveryConfig,
    /// Settings of the KCL compiler.
    pub kcl: Kcl,
    /// The modules of AppConfigurations that run as processes, by the name of the dependency.
    pub modules: BTreeMap<String, ModuleConfig>,
    /// Settings of Terraform.
    pub terraform: TerraformConfig,
    /// The secret stores.
    pub secrets: SecretsConfig,
    /// The stacks that may read outputs of other stacks (`konverge/outputs`).
    pub outputs: OutputsConfig,
    /// Settings of an apply.
    pub apply: Apply,
    /// The rules for what may be applied, for every stack; `stacks[].policy` makes them stricter.
    pub policy: PolicyConfig,
    /// The files that `konverge check` validates beside stacks and KCL files.
    pub checks: ChecksConfig,
    /// The scheduled drift check.
    pub drift: Drift,
    /// The receivers of notifications.
    pub notify: Vec<Notify>,
    /// Edits of the code that other repositories ask for by `repository_dispatch`.
    pub set: SetConfig,
    /// The portal: pages that show the state of all stacks.
    pub portal: PortalConfig,
    /// The sources of generated KCL models. `konverge models import` writes them.
    pub models: ModelsConfig,
}

/// The state store and the lease.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct State {
    /// The store: `s3://bucket/prefix`, `gs://…`, `az://…`, `oss://…`, `postgres://…`, `mysql://…`,
    /// `https://…` or `file:///folder`. Credentials come from the environment, never from this file.
    pub url: Option<String>,
    /// Options of the store, such as `endpoint`, `region`, `path_style`, `ca_file`, `allow_http`.
    pub options: BTreeMap<String, String>,
    /// The id of the repository in the store, which `konverge init` writes. A state with another id is
    /// refused. Default: the normalized URL of `origin`.
    pub id: Option<String>,
    /// The lease on a stack during an apply.
    pub lease: LeaseConfig,
    /// The number of old states to keep per stack. Default: 50. Runs that changed nothing do not count.
    pub history: Option<u32>,
    /// To whom states are encrypted; each can decrypt. What stays readable is marked by one of them. Age recipients
    /// (`age1…`, with the identity in KONVERGE_AGE_IDENTITY), `awskms:ARN`, `gcpkms:NAME`, `azurekv:ADDRESS`,
    /// `alikms:ARN` or `vault-transit:STORE/MOUNT/KEY`. Run `konverge state rekey` after a change.
    pub encrypt_to: Vec<String>,
    /// Until the end of this day (UTC), at most 31 days ahead, documents are read that are not encrypted or
    /// whose writer is unknown, so that `konverge state rekey` encrypts and marks them.
    pub accept_unmarked_until: Option<String>,
    /// Kusion's backend during a migration: `file:///home/me/.kusion`, `s3://bucket/prefix`, `gs://…` or `oss://…`.
    /// Applies of imported stacks write releases there, and stop where Kusion has released since.
    pub kusion_releases: Option<String>,
    /// Allow a store that cannot hold a lease. Two runs may then overwrite each other's state.
    pub unsafe_no_lock: bool,
}

/// The lease on a stack during an apply.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Lease")]
pub struct LeaseConfig {
    /// The time for which a lease is valid without a renewal. Default: 60 s.
    pub term: Span,
    /// The time to wait for the lease of another run. Default: 10 minutes.
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

/// The connection to a cluster.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Cluster")]
pub struct ClusterConfig {
    /// The environment variable with the path of a kubeconfig. Default: KUBECONFIG, or else `~/.kube/config`.
    pub kubeconfig_env: Option<String>,
    /// The context in the kubeconfig. Default: its current context.
    pub context: Option<String>,
    /// Use the service account of the pod instead.
    pub in_cluster: bool,
    /// The maximum number of concurrent requests. Default: 16.
    pub max_concurrent_requests: Option<u32>,
    /// Live stack tests may make namespaces here (`konverge test --live`). Only the default branch can say so.
    pub tests: bool,
}

/// A rule for the stacks whose folder or identity matches.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StackRule {
    /// A glob for the folder or the identity of a stack: `appops/*/prod`, `appops/payments/**`. Write folders: a pull
    /// request chooses identities.
    #[serde(rename = "match")]
    pub pattern: String,
    /// The identity of the one stack that matches, `[tenant/]<project>/<stack>`, for projects with the same
    /// name.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub identity: Option<StackId>,
    /// The cluster, a name under `clusters`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub cluster: Option<ClusterName>,
    /// The workspace of AppConfigurations: a file in `workspaces`, without `.yaml`. Default: the name of the
    /// stack, or else `default`.
    #[serde(default)]
    pub workspace: Option<String>,
    /// Globs of stacks that must be applied before. If one of them fails, this stack is skipped.
    #[serde(default)]
    pub after: Option<Vec<String>>,
    /// Required approvals, actors and freezes for these stacks; see `policy`.
    #[serde(default)]
    pub policy: Option<StackPolicy>,
    /// The environment of the stacks' GitHub deployments, and of the job that applies them (`for-environment`). For
    /// this key, `login` and `provider_identities`, `match` sees the folder alone. Default: the stack's identity.
    #[serde(default)]
    pub environment: Option<String>,
    /// The identity of the stacks' providers and of their cluster, a name under `logins`. Default: the job's own.
    #[serde(default)]
    pub login: Option<String>,
    /// As `terraform.provider_identities`, for the Specs of these stacks alone.
    #[serde(default)]
    pub provider_identities: Option<BTreeMap<String, Vec<String>>>,
    /// The controller that applies the stacks' Kubernetes objects from an artifact; see `delivery`. Konverge still
    /// applies Terraform resources. For this key `match` sees the folder alone. Default: Konverge applies all objects.
    #[serde(default)]
    pub deliver: Option<DeliveryTool>,
    /// Paths of Kubernetes objects that are set on creation and left alone afterwards: `/spec/replicas` (RFC 6901),
    /// an item of a list by its key: `/spec/template/spec/containers/name=web/image`.
    #[serde(default)]
    #[schemars(with = "Option<Vec<String>>")]
    pub ignore: Option<Vec<FieldPath>>,
}

/// The rules for changes of a set of stacks.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StackPolicy {
    /// The number of approvals that the pull request needs.
    pub approvals: Option<u32>,
    /// Teams (`org/team`) or users; one of them must have approved.
    pub reviewers: Vec<String>,
    /// The people who may merge or dispatch an apply. Empty: everybody whom the forge allows.
    pub actors: Vec<String>,
    /// Periods in which nothing is applied.
    pub freeze: Vec<FreezeConfig>,
    /// The number of resources of a stack that one apply may delete or replace without another approval.
    pub max_destructive: Option<u32>,
}

/// A period in which nothing is applied.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Freeze")]
pub struct FreezeConfig {
    /// The start, as RFC 3339: `2026-12-23T00:00:00Z`.
    pub from: String,
    /// The end, as RFC 3339.
    pub until: String,
    /// The reason for the freeze, which refused applies show.
    #[serde(default)]
    pub reason: String,
}

/// Settings of the KCL compiler.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Kcl {
    /// The version of the official KCL core. Default: the version that this Konverge recommends.
    pub version: Option<String>,
    /// The installation of a missing core, with its pinned hash: by hand or automatically. Default: `manual`.
    pub install: CoreInstall,
    /// The Kusion version whose rules for `kcl.yaml` and `ci-test/settings.yaml` apply.
    pub settings: SettingsOrder,
    /// The requirement of a sandbox: a kernel without full support stops the run or not. Default: `required` in
    /// `konverge ci` for pull requests, otherwise `best-effort`.
    pub sandbox: Option<Sandbox>,
    /// The number of concurrent compilers. Default: the number of cores.
    pub workers: Option<u32>,
    /// The time limit of one compilation. Default: 60 s.
    pub timeout: Option<Span>,
    /// The memory limit of one compiler in MiB. Default: 2048.
    pub memory_mib: Option<u64>,
}

impl Kcl {
    /// Returns the effective version of the core.
    pub fn core(&self) -> &str {
        self.version.as_deref().unwrap_or(DEFAULT_CORE)
    }
}

/// The permissions and limits of a module while it runs.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Module")]
pub struct ModuleConfig {
    /// Allow the network, and sockets of this machine. Never for pull requests from outside. Default: false.
    pub network: bool,
    /// The time limit of one call. Default: 60 s.
    pub timeout: Option<Span>,
}

/// The requirement of a sandbox: a kernel without full support stops the run or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// Compile only in the full sandbox.
    Required,
    /// Compile in the sandbox that the kernel supports, and report what is missing.
    BestEffort,
}

/// Settings of Terraform.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Terraform")]
pub struct TerraformConfig {
    /// The name or absolute path of the executable, outside the repository. Default: `terraform`, or else
    /// `tofu`, on the PATH.
    pub binary: Option<String>,
    /// The providers that may run. Others are refused before `init`.
    pub providers: Vec<Provider>,
    /// The names of provider settings that every Spec may choose with any value but an address, and all below them
    /// (`use_oidc`, `warehouse`), besides where a provider works and how it behaves (`region`, `features`).
    pub credential_settings: Vec<String>,
    /// The addresses and authorities that a Spec may set for a provider, by its source: `hashicorp/vault:
    /// ['https://vault.example.com', insecure=true]`. It sends the job's credentials there.
    pub provider_addresses: BTreeMap<String, Vec<String>>,
    /// The identities and other values that a Spec may set for a provider, by its source:
    /// `hashicorp/aws: ['arn:aws:iam::111122223333:role/apply', 'session_name=konverge']`.
    pub provider_identities: BTreeMap<String, Vec<String>>,
    /// The absolute path of a folder outside the repository with the layout of Terraform's filesystem mirror.
    /// If set, nothing is downloaded.
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
    /// Hashes in the form of the lock file (`h1:…`, `zh:…`). Empty: recorded at the first use.
    #[serde(default)]
    pub hashes: Vec<String>,
}

/// Settings of an apply.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Apply {
    /// The maximum number of stacks applied concurrently. Default: 4.
    pub parallel_stacks: Option<u32>,
    /// The maximum number of resources of one stack applied concurrently. Default: 16.
    pub parallel_resources: Option<u32>,
    /// The time that a resource may take to become ready, or to be deleted. Default: 10 minutes.
    pub ready_timeout: Option<Span>,
    /// The time after which a failure that waiting does not fix (no such image) ends the wait. Default: 30 s.
    pub fail_early_after: Option<Span>,
    /// A folder of the repository with your own rules of readiness: `<group>/<Kind>/health.lua`, `health.cel.yaml` or
    /// `health.k`. `konverge health --rules` tries them.
    pub health_rules: Option<String>,
    /// The reaction to another field manager that owns a field which the Spec sets. Default: `restore`.
    pub conflicts: ConflictsConfig,
    /// Create a GitHub deployment per apply. Needs `deployments: write`; at most 20 environments per run.
    pub deployments: bool,
    /// Jobs that run around a change.
    pub hooks: Hooks,
}

/// The rules for what may be applied, for every stack; `stacks[].policy` makes them stricter.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Policy")]
pub struct PolicyConfig {
    /// The reaction of an apply to fields that others changed since the last apply. Default: `restore`.
    pub drift: DriftPolicy,
    /// The number of approvals that a pull request needs before its changes are applied. Default: none.
    pub approvals: Option<u32>,
    /// Teams (`org/team`) or users; one of them must have approved.
    pub reviewers: Vec<String>,
    /// The people who may merge or dispatch an apply. Empty: everybody whom the forge allows.
    pub actors: Vec<String>,
    /// Periods in which nothing is applied.
    pub freeze: Vec<FreezeConfig>,
    /// The number of resources of a stack that one apply may delete or replace without another approval. Default: 10.
    pub max_destructive: Option<u32>,
    /// Rules that are evaluated on the plan of each changed stack.
    pub sets: Vec<PolicySetConfig>,
    /// Findings that do not count for some resources until a date.
    pub exceptions: Vec<PolicyExceptionConfig>,
    /// Earlier names of stacks whose policies no longer apply. Without such a line, sets, approvals, limits, freezes
    /// and workflows follow a stack that gets another folder or identity.
    pub ended_names: Vec<EndedNameConfig>,
    /// The result of a preview with a stack that fails on the base in the same way. Default: `pass`.
    pub broken_base: BrokenBase,
    /// Let approvals count at a forge that does not say who pushed (Gitea, GitLab), although an approver may have pushed
    /// the change under another name. Without this key, rules that ask for approvals stop the apply at such a forge.
    pub unknown_pushers: bool,
}

/// An earlier name of stacks whose policies no longer apply to them.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "EndedName")]
pub struct EndedNameConfig {
    /// A glob for the present folders of the stacks.
    pub stacks: String,
    /// A glob for the earlier folders or identities.
    pub was: String,
    /// The reason why policies for the earlier name no longer apply.
    pub reason: String,
}

/// The result of a preview with stacks that fail without the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BrokenBase {
    /// The stacks are shown, and the preview does not fail because of them.
    #[default]
    Pass,
    /// The preview fails.
    Fail,
}

/// The files that `konverge check` validates beside stacks and KCL files.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Checks")]
pub struct ChecksConfig {
    /// Data files, and the KCL schema that each of their documents must match.
    pub data: Vec<DataCheckConfig>,
}

/// Data files with their KCL schema.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DataCheck")]
pub struct DataCheckConfig {
    /// A glob for `.yaml`, `.yml` or `.json` files, from the root: `appops/*/values/*.yaml`.
    pub files: String,
    /// The schema as `PATH:NAME`. `PATH` is a folder whose `.k` files are one package, or a `.k` file that is
    /// read alone.
    pub schema: String,
}

impl DataCheckConfig {
    /// Returns the path and the name of the schema; `None` if `schema` does not have the form `PATH:NAME` with a path
    /// in the repository.
    pub fn schema_parts(&self) -> Option<(RepoPath, &str)> {
        let (path, name) = self.schema.rsplit_once(':')?;
        let is_name = name.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_alphanumeric() || c == '_');
        let path = RepoPath::normalize(path).filter(|_| !path.is_empty())?;
        is_name.then_some((path, name))
    }
}

/// Policy sets, evaluated on the plan of each stack that changes.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PolicySet")]
pub struct PolicySetConfig {
    /// The name of the set, unique in the file.
    pub name: String,
    /// The file or folder with the rules: `*.rego`, or `*.yaml` for the other languages.
    pub path: String,
    /// The language of the rules. Default: `rego`.
    #[serde(default)]
    pub language: PolicyLanguage,
    /// The version of Rego. Default: `v1`.
    #[serde(default)]
    pub rego: RegoVersion,
    /// The input of rules in Rego. Default: `plan`. Other languages get the requests that the apply would send.
    #[serde(default)]
    pub input: Option<PolicyInput>,
    /// A glob for the folder or the identity of the stacks. Write folders: a pull request chooses identities. Default:
    /// every stack.
    #[serde(default)]
    pub stacks: Option<String>,
    /// The Rego packages whose rules count, such as `main`. Default: every package of the set.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Files (`.json`, `.yaml`) of the repository that Rego reads below `data`.
    #[serde(default)]
    pub data: Vec<String>,
    /// The effect of a denial. Default: `override` with `override.by`, else `always`.
    #[serde(default)]
    pub enforce: Option<PolicyEnforcement>,
    /// The people who may override a denial.
    #[serde(default, rename = "override")]
    pub overriders: Option<PolicyOverriders>,
}

impl PolicySetConfig {
    /// Returns the input of rules in Rego.
    pub fn input(&self) -> PolicyInput {
        self.input.unwrap_or_default()
    }

    /// Returns the effect of a denial: `enforce` if it is set, else `override` if `override.by` names somebody, else
    /// `always`.
    pub fn enforcement(&self) -> PolicyEnforcement {
        let names = self.overriders.as_ref().is_some_and(|named| !named.by.is_empty());
        self.enforce.unwrap_or(if names {
            PolicyEnforcement::Override
        } else {
            PolicyEnforcement::Always
        })
    }
}

/// The people who may override a denial.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyOverriders {
    /// Teams (`org/team`) or users. Nobody overrides their own change.
    pub by: Vec<String>,
}

/// The language of the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PolicyLanguage {
    /// Rego with conftest's conventions: `deny`, `violation`, `warn`, `exception`.
    #[default]
    Rego,
    /// ValidatingAdmissionPolicies of Kubernetes, which are CEL, with their bindings and parameters.
    Vap,
    /// ConstraintTemplates of Gatekeeper with their constraints.
    Gatekeeper,
}

/// The version of Rego.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RegoVersion {
    /// Rego as of OPA 1.0.
    #[default]
    V1,
    /// Rego as before OPA 1.0.
    V0,
}

/// The input of rules in Rego.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PolicyInput {
    /// The plan document of the stack.
    #[default]
    Plan,
    /// Each Kubernetes object that the stack wants, one after another.
    Objects,
    /// The Terraform resources in the form of Terraform's own JSON plan.
    Tfplan,
}

/// The effect of a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PolicyEnforcement {
    /// The finding is only shown.
    Advise,
    /// The stack is stopped, unless one of `override.by` overrides exactly this finding.
    Override,
    /// The stack is stopped, and nobody can override the finding.
    Always,
}

/// A finding that does not count for some resources until a date.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PolicyException")]
pub struct PolicyExceptionConfig {
    /// The name of the set.
    pub set: String,
    /// The rule as the finding shows it, such as `main.deny_latest`. Default: every rule of the set.
    #[serde(default)]
    pub rule: Option<String>,
    /// A glob for the ids of the resources, such as `apps/v1:Deployment:legacy:*`.
    pub resource: String,
    /// A glob for the folders of stacks, as the default branch has them. Default: every stack.
    #[serde(default)]
    pub stacks: Option<String>,
    /// The first day on which the exception no longer applies, in UTC (`2027-01-31`), or a time as RFC 3339.
    pub until: String,
    /// The reason for the exception.
    pub reason: String,
}

impl PolicyExceptionConfig {
    /// Returns the end of the exception.
    ///
    /// # Errors
    /// The end is neither a date nor a time.
    pub fn until_moment(&self) -> Result<jiff::Timestamp, jiff::Error> {
        self.until.parse().or_else(|_| {
            let date: jiff::civil::Date = self.until.parse()?;
            Ok(date.to_zoned(jiff::tz::TimeZone::UTC)?.timestamp())
        })
    }
}

/// The reaction of an apply to fields that others changed since the last apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DriftPolicy {
    /// Restore the values of the last apply.
    #[default]
    Restore,
    /// Stop the stack.
    Stop,
}

/// The scheduled drift check.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Drift {
    /// The number of stacks to check per run, the least recently checked first. Default: all.
    pub stacks_per_run: Option<u32>,
    /// The time after which no further stack is started. Default: none.
    pub budget: Option<Span>,
    /// The reaction of a scheduled drift check to drift.
    pub reconcile: Reconcile,
    /// Warn if the last successful run is older than this. Default: 2 days.
    pub stale_after: Option<Span>,
    /// The label of drift issues. Default: `konverge-drift`.
    pub label: Option<String>,
}

impl Drift {
    /// Returns the label of drift issues.
    pub fn label(&self) -> &str {
        self.label.as_deref().unwrap_or("konverge-drift")
    }
}

/// The reaction of a scheduled drift check to drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reconcile {
    /// Drift is only reported.
    #[default]
    #[serde(alias = "never")]
    Leave,
    /// The values of the last apply are restored.
    Restore,
}

/// The installation of a missing KCL core: by hand or automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CoreInstall {
    /// The error names the command that installs it.
    #[default]
    Manual,
    /// It is installed by the first command that needs it, except in CI and with KONVERGE_OFFLINE.
    Auto,
}

/// The reaction to another field manager that owns a field which the Spec sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Conflicts")]
pub enum ConflictsConfig {
    /// A field that the last apply wrote is restored, as `policy.drift` says. For any other field the
    /// resource fails, and the error names the owner.
    #[default]
    Restore,
    /// The value of the Spec is written, and Konverge takes over the field.
    #[serde(alias = "take")]
    Write,
    /// The field keeps the value of its owner; also one that the last apply wrote.
    Leave,
    /// The resource fails, and the error names the owner; also for a field that the last apply wrote.
    Stop,
}
