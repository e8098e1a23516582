//! The executable with installed providers. Each set of providers is initialized once, for all modules that
//! need it.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use tempfile::TempDir;
use tokio::sync::{Mutex, OnceCell, Semaphore};

use super::{
    binary::Binary,
    command::{CommandOutput, TerraformCommand},
    environment,
    error::{TerraformError, of_file, of_output},
    log_messages::plain,
    memfd::MemoryFile,
    module::{self, ModuleFiles},
    options::TerraformOptions,
    provider_cache::{self, ProviderCache, ProviderSource},
    provider_schema::ProviderSchemas,
    providers::{self, ProviderRef},
};
use konverge_base::error::{ErrorKind, UserError};
use konverge_secrets::is_provider_credential;

/// Terraform, ready to run.
pub(super) struct Installation {
    pub(super) binary: Binary,
    /// The home and temporary folder of all processes. The folders of modules in it contain only links to
    /// memory.
    home: TempDir,
    /// The environment without credentials, which `init` and `providers schema` do not need.
    env: Vec<(OsString, OsString)>,
    /// The job's own credentials for providers.
    pub(super) credentials: Vec<(OsString, OsString)>,
    sets: Mutex<HashMap<ProviderSet, Arc<Installed>>>,
    pub(super) processes: Semaphore,
}

/// The subcommand that prints schemas.
const SCHEMA: &str = "providers schema";

/// Providers with the allowed hashes of their packages.
type ProviderSet = BTreeMap<ProviderRef, Vec<String>>;

/// An installed set of providers.
pub(super) struct Installed {
    dir: PathBuf,
    /// The hashes of each provider's package from the lock file, by source.
    pub(super) hashes: BTreeMap<String, Vec<String>>,
    lock: String,
    /// The schemas, read when a reference to a secret first needs them.
    schemas: OnceCell<ProviderSchemas>,
}

/// The folder of a module, with links to files in memory. The folder is deleted on drop.
pub(super) struct ModuleFolder {
    dir: TempDir,
    env: Vec<(OsString, OsString)>,
    binary: PathBuf,
    _configuration: MemoryFile,
    /// The values of the variables. Kept open, because each step reads them again.
    _variables: Option<MemoryFile>,
    /// The file `terraform.tfstate`.
    pub(super) state: MemoryFile,
    /// The file with the saved plan.
    pub(super) plan: MemoryFile,
}

impl Installation {
    /// Finds the executable and creates an empty home for it.
    pub(super) async fn open(options: &TerraformOptions) -> Result<Self, TerraformError> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("konverge-tf-");
        let home = match &options.scratch {
            Some(scratch) => builder.tempdir_in(scratch),
            None => builder.tempdir(),
        }
        .map_err(of_file)?;
        std::fs::write(
            home.path().join("terraform.rc"),
            provider_cache::BASE_CONFIGURATION,
        )
        .map_err(of_file)?;
        let env = environment::compose(
            std::env::vars_os(),
            &options.environment,
            options.checkout.search_path(),
            home.path(),
        );
        let (credentials, env): (Vec<_>, Vec<_>) = env
            .into_iter()
            .partition(|(name, _)| name.to_str().is_some_and(is_provider_credential));
        let binary = Binary::find(options.binary.as_deref(), &env, &options.checkout).await?;
        Ok(Self {
            binary,
            home,
            env,
            credentials,
            sets: Mutex::default(),
            processes: Semaphore::new(options.processes.max(1)),
        })
    }

    /// Installs providers. If hashes are given for a provider, its package must match one of them.
    pub(super) async fn install(
        &self,
        wanted: &ProviderSet,
        options: &TerraformOptions,
    ) -> Result<Arc<Installed>, TerraformError> {
        let mut sets = self.sets.lock().await;
        if let Some(installed) = sets.get(wanted) {
            return Ok(installed.clone());
        }
        // The folder is deleted again if a package of the set is not available.
        let place = TempDir::with_prefix_in("providers-", self.home.path()).map_err(of_file)?;
        if !wanted.is_empty() {
            self.init(place.path(), wanted, options).await?;
        }
        let dir = place.keep();
        let lock = match std::fs::read_to_string(dir.join(LOCK_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            other => other.map_err(of_file)?,
        };
        let installed = Arc::new(Installed {
            hashes: providers::read_lock_file(&lock),
            lock,
            dir,
            schemas: OnceCell::new(),
        });
        sets.insert(wanted.clone(), installed.clone());
        Ok(installed)
    }

    async fn init(
        &self,
        dir: &Path,
        wanted: &ProviderSet,
        options: &TerraformOptions,
    ) -> Result<(), TerraformError> {
        let named = wanted
            .keys()
            .enumerate()
            .map(|(n, provider)| (provider, format!("p{n}")));
        let configuration = serde_json::json!({"terraform": module::requirements(named, &self.binary)});
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).map_err(of_file);
        write("main.tf.json", &configuration.to_string())?;
        write(LOCK_FILE, &providers::lock_file(wanted, &self.binary))?;
        let mut args = vec!["-input=false", "-no-color", "-backend=false"];
        if wanted.values().all(|hashes| !hashes.is_empty()) {
            args.push("-lockfile=readonly");
        }
        let folder = options.plugin_cache.as_deref();
        let packages = folder.map(|folder| ProviderCache { folder });
        let sources = match &packages {
            Some(packages) => packages.sources(wanted.keys(), &self.binary),
            None => Vec::new(),
        };
        let kept = packages.as_ref().map(|p| (p.folder, sources.as_slice()));
        let run = async |kept| {
            let mirror = options.mirror.as_deref();
            write("terraform.rc", &ProviderSource { mirror, kept }.configuration())?;
            let mut env = self.env.clone();
            environment::set(&mut env, "TF_CLI_CONFIG_FILE", dir.join("terraform.rc"));
            TerraformCommand::start(&self.binary.path, "init", &args, dir, &env)?
                .finish(options.deadline)
                .await
        };
        let mut output = run(kept).await?;
        if output.code != Some(0) && !sources.is_empty() {
            // The cached package may be damaged, or known only by the hash of its archive, so it is
            // downloaded again.
            output = run(None).await?;
        }
        if output.code != Some(0) {
            return Err(init_error(&output, wanted, options));
        }
        if let Some(packages) = &packages
            && let Err(error) = packages.keep(&dir.join(".terraform"), wanted.keys(), &self.binary)
        {
            tracing::warn!(%error, folder = %packages.folder.display(), "the providers could not be cached");
        }
        Ok(())
    }

    /// Returns the schemas of installed providers.
    pub(super) async fn schemas<'i>(
        &self,
        installed: &'i Installed,
        options: &TerraformOptions,
    ) -> Result<&'i ProviderSchemas, TerraformError> {
        let read = || async {
            let text = self.print_schemas(installed, options).await?;
            Ok(ProviderSchemas::read(&text).map_err(|error| of_output(SCHEMA, error))?)
        };
        installed.schemas.get_or_try_init(read).await
    }

    /// Returns the schemas of installed providers, as the executable prints them.
    pub(super) async fn print_schemas(
        &self,
        installed: &Installed,
        options: &TerraformOptions,
    ) -> Result<String, TerraformError> {
        let args = ["schema", "-json"];
        let command =
            TerraformCommand::start(&self.binary.path, "providers", args, &installed.dir, &self.env)?;
        let output = command.finish(options.deadline).await?;
        match output.code {
            Some(0) => Ok(output.lines.concat()),
            _ => Err(of_output(SCHEMA, plain(&options.secrets, &output.stderr)).into()),
        }
    }

    /// Creates the folder of a module.
    pub(super) fn workspace(
        &self,
        installed: &Installed,
        module: &ModuleFiles,
    ) -> Result<ModuleFolder, TerraformError> {
        let make = || -> io::Result<ModuleFolder> {
            let dir = TempDir::new_in(self.home.path())?;
            let configuration = MemoryFile::new("module", module.configuration.to_string().as_bytes())?;
            let state = MemoryFile::new("state", module.state.to_string().as_bytes())?;
            let plan = MemoryFile::new("plan", b"")?;
            std::os::unix::fs::symlink(configuration.path(), dir.path().join("main.tf.json"))?;
            std::os::unix::fs::symlink(state.path(), dir.path().join("terraform.tfstate"))?;
            let variables = module.variables.document();
            let variables = variables.map(|values| MemoryFile::new("variables", values.as_bytes()));
            let variables = variables.transpose()?;
            if let Some(variables) = &variables {
                std::os::unix::fs::symlink(variables.path(), dir.path().join("terraform.tfvars.json"))?;
            }
            std::fs::write(dir.path().join(LOCK_FILE), &installed.lock)?;
            let mut env = self.env.clone();
            env.push((
                "TF_DATA_DIR".into(),
                installed.dir.join(".terraform").into_os_string(),
            ));
            Ok(ModuleFolder {
                dir,
                env,
                binary: self.binary.path.clone(),
                _configuration: configuration,
                _variables: variables,
                state,
                plan,
            })
        };
        Ok(make().map_err(of_file)?)
    }
}

impl ModuleFolder {
    /// Starts `terraform step args…` in the folder, with the credentials of the providers.
    pub(super) fn start(
        &self,
        step: &'static str,
        args: impl IntoIterator<Item = OsString>,
        credentials: &[(OsString, OsString)],
    ) -> Result<TerraformCommand, TerraformError> {
        let env = [&self.env, credentials].concat();
        TerraformCommand::start(&self.binary, step, args, self.dir.path(), &env)
    }
}

const LOCK_FILE: &str = ".terraform.lock.hcl";

/// Returns the error of a failed `init`, found in its text: Terraform has no machine-readable output before
/// 1.9, and OpenTofu has none.
fn init_error(output: &CommandOutput, wanted: &ProviderSet, options: &TerraformOptions) -> TerraformError {
    let text = plain(
        &options.secrets,
        &format!("{} {}", output.stderr, output.lines.join(" ")),
    );
    let why = text.split_once("Error: ").map_or(text.as_str(), |(_, why)| why);
    // The first provider named in the text is the one that failed: the progress output of `init` names others
    // later.
    let named = wanted.keys().filter_map(|provider| {
        let (_, short) = provider.source.split_once('/')?;
        Some((why.find(short)?, provider))
    });
    let Some((_, provider)) = named.min_by_key(|(at, _)| *at) else {
        let what = format!("Terraform could not be initialized: {why}");
        return UserError::new(ErrorKind::Terraform, what).into();
    };
    let ProviderRef { source, version } = provider;
    let words = why.to_lowercase();
    let differs = ["checksum", "hashes", "lock file"]
        .iter()
        .any(|w| words.contains(w));
    let (what, hint) = if differs {
        (
            format!("the package of the provider {source} {version} is not the one that is allowed: {why}"),
            "if the new package is the right one, put its hash into `terraform.providers` in the default branch's konverge.yaml; `terraform providers lock` prints it",
        )
    } else {
        (
            format!("the provider {source} {version} was not found: {why}"),
            "check the provider's name and version, that the mirror (`terraform.mirror`) holds it, or that the registry can be reached",
        )
    };
    TerraformError::Package {
        source_address: source.clone(),
        error: Box::new(UserError::new(ErrorKind::Terraform, what).hint(hint)),
    }
}
