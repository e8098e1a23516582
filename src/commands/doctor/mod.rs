//! The `doctor` use case: what is missing on this machine or in this job, and how to fix each problem.

mod finding;
mod forge;
mod hook_workflows;
mod logins;
mod module;
mod receivers;
mod secret_stores;
mod workflow;

use super::toolchains;
pub use finding::{DoctorFinding, DoctorVerdict};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    process::Program,
};
use konverge_config::Config;
use konverge_forge::DetectedForge;
use konverge_repo::git::Repository;
use konverge_report::plural;
use konverge_run::{
    KeyUse, OpenRevision, RevisionSpec, RunBuilder, RunContext, checkout_addresses,
    infrastructure::Infrastructure, state_backend,
};
use konverge_state::store;
pub use module::check_module;
use workflow::Folder;

/// The hint for a repository without a stack.
const NO_STACK: &str = "a stack is a folder with a `stack.yaml`, at or below a folder with a `project.yaml`, both known to git (`git add`)";

/// Checks everything that a run may need, in the order in which it is needed. Checks that depend on something
/// missing are skipped, because that must be fixed first.
pub async fn run(run: &RunContext) -> Vec<DoctorFinding> {
    let mut findings = vec![DoctorFinding::from_result("git", git(run).await)];
    let repository = match Repository::discover(&run.dir) {
        Ok(repository) => repository,
        Err(error) => {
            findings.push(DoctorFinding::from_result("repository", Err(error.into())));
            findings.push(core(run, &Config::default()).await);
            return findings;
        }
    };
    let workspace = OpenRevision::open(run, &repository, &RevisionSpec::Worktree);
    let module = workspace.and_then(|workspace| {
        workspace.layout.require_module()?;
        Ok(workspace)
    });
    // konverge.yaml may be readable even if the layout of the repository is invalid.
    let config = match &module {
        Ok(workspace) => Some(workspace.config.clone()),
        Err(_) => repository
            .worktree()
            .ok()
            .and_then(|files| Config::load(files.as_ref()).ok()),
    };
    let stacks = module.as_ref().map(|workspace| workspace.layout.stacks.clone());
    let stacks = stacks.unwrap_or_default();
    findings.push(match module.map(|workspace| workspace.layout.stacks.len()) {
        Ok(0) => DoctorFinding::unused("repository", "it has no stack", NO_STACK),
        stacks => DoctorFinding::from_result(
            "repository",
            stacks.map(|count| format!("{} in {}", plural(count, "stack"), repository.root().display())),
        ),
    });
    let detected = DetectedForge::from_env(&run.env).ok().flatten();
    let folder = Folder::find(repository.root(), detected.map(|detected| detected.kind));
    match &config {
        Some(config) => {
            findings.push(core(run, config).await);
            findings.extend(connections(run, config, &repository).await);
            findings.extend(logins::coverage(repository.root(), folder, config, &stacks));
            findings.extend(hook_workflows::findings(repository.root(), folder, config));
            findings.extend(receivers::findings(run, config));
        }
        None => findings.push(DoctorFinding::unused(
            "KCL core, clusters, store",
            "not checked: konverge.yaml cannot be read",
            "fix konverge.yaml first: `konverge config check`",
        )),
    }
    findings.extend(forge::findings(run).await);
    let branch = repository.default_branch_name();
    findings.extend(workflow::findings(
        repository.root(),
        folder,
        branch.as_deref(),
        config.as_ref(),
    ));
    findings
}

/// Checks the clusters, stores and logins of a run. It connects to nothing if an address comes only from the
/// checkout.
async fn connections(run: &RunContext, config: &Config, repository: &Repository) -> Vec<DoctorFinding> {
    if let Err(error) = checkout_addresses::check(run, Some(repository), &RevisionSpec::Worktree, config) {
        return vec![DoctorFinding::from_result("clusters, stores", Err(error))];
    }
    let mut builder = RunBuilder::new(run, config.clone());
    builder.waits = false;
    let connected = builder.connect().await;
    let clusters = connected.as_ref().ok().map(|connected| &connected.kubernetes);
    let of_stores = secret_stores::findings(run, &config.secrets, clusters).await;
    let mut findings = infrastructure(config, connected).await;
    findings.extend(logins::findings(run, config).await);
    findings.extend(of_stores);
    findings.push(state(run, config, repository).await);
    findings
}

async fn git(run: &RunContext) -> Result<String, UserError> {
    let missing = |why: String| {
        UserError::new(ErrorKind::Git, why)
            .hint("`apt-get install git`, or use the package manager of your system")
    };
    let git = run
        .checkout()
        .find(&["git"])
        .map_err(|error| missing(error.to_string()))?;
    match Program::new(git).args(["--version"]).run().await {
        Ok(ended) if ended.code == Some(0) => Ok(String::from_utf8_lossy(&ended.stdout).trim().to_owned()),
        Ok(ended) => Err(missing(String::from_utf8_lossy(&ended.stderr).trim().to_owned())),
        Err(error) => Err(missing(chain(&error))),
    }
}

async fn core(run: &RunContext, config: &Config) -> DoctorFinding {
    let version = config.kcl.core();
    let found = toolchains::find(run, version).await;
    DoctorFinding::from_result(
        "KCL core",
        found.map(|found| format!("{version}, {}", found.extension.display())),
    )
}

/// Checks the versions of Terraform and of the clusters.
async fn infrastructure(config: &Config, connected: Result<Infrastructure, UserError>) -> Vec<DoctorFinding> {
    let Infrastructure {
        kubernetes,
        terraform,
    } = match connected {
        Ok(infrastructure) => infrastructure,
        Err(failure) => return vec![DoctorFinding::from_result("clusters", Err(failure))],
    };
    let mut findings = Vec::new();
    let binary = terraform.binary().await;
    findings.push(match binary {
        Err(failure) if config.terraform.providers.is_empty() && config.terraform.binary.is_none() => {
            DoctorFinding::unused(
                "Terraform",
                failure.to_string(),
                "install Terraform or OpenTofu and list the providers under `terraform.providers` once a stack holds resources of its runtime",
            )
        }
        seen => DoctorFinding::from_result(
            "Terraform",
            seen.map(|binary| format!("{} {}, {}", binary.make, binary.version, binary.path.display())),
        ),
    });
    if config.clusters.is_empty() {
        findings.push(DoctorFinding::unused(
            "clusters",
            "none is configured: Spec is compared with Spec",
            "define a cluster under `clusters` in konverge.yaml to compare with live objects",
        ));
    }
    for name in config.clusters.keys() {
        let version = kubernetes.version(name).await;
        findings.push(DoctorFinding::from_result(format!("cluster {name}"), version));
    }
    findings
}

/// Checks the store: it must be reachable and able to hold a lease.
async fn state(run: &RunContext, config: &Config, repository: &Repository) -> DoctorFinding {
    if config.state.url.is_none() {
        return DoctorFinding::unused(
            "store",
            "none is configured: state lies in a folder of this machine, and CI only previews",
            "set `state.url` in konverge.yaml",
        );
    }
    let probed = async {
        let backend = state_backend::open(run, config, Some(repository), KeyUse::Look).await?;
        store::probe(backend.states.store()).await?;
        Ok(format!(
            "{}: store test passed (create, refuse, read, list, delete); `konverge state doctor` checks what is in it",
            backend.states.store().url()
        ))
    };
    DoctorFinding::from_result("store", probed.await)
}
