//! [`ServedConfig`]: the `konverge.yaml` that a portal follows. It is the default branch's file, or a file that is
//! given at the start of the process. It is read again while the process runs, so that a removed role ends.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::branch_config::BranchConfig;
use konverge_base::error::{ErrorKind, UserError};
use konverge_config::{Config, PortalConfig};
use konverge_repo::git::Repository;
use konverge_run::RunContext;

/// The time for which a configuration is used before it is read again.
const FRESH: Duration = Duration::from_secs(2);

/// The location of the configuration.
enum ConfigPlace {
    File(PathBuf),
    Branch(Box<Repository>),
}

/// The configuration as it was read last.
struct LastConfig {
    at: Instant,
    read: Result<ReadConfig, UserError>,
}

/// A configuration, and the part that each request needs.
#[derive(Clone)]
struct ReadConfig {
    branch: Arc<BranchConfig>,
    portal: Arc<PortalConfig>,
}

impl ReadConfig {
    fn new(branch: BranchConfig) -> Self {
        Self {
            portal: Arc::new(branch.config.portal.clone()),
            branch: Arc::new(branch),
        }
    }
}

/// The configuration of a portal.
pub struct ServedConfig {
    place: ConfigPlace,
    last: Mutex<LastConfig>,
}

impl ServedConfig {
    /// Opens the configuration in a file, or else of the default branch. `None` if there is neither.
    ///
    /// # Errors
    /// The file or the commit cannot be read, or is not valid.
    pub fn open(run: &RunContext, file: Option<PathBuf>) -> Result<Option<(Self, Config)>, UserError> {
        let place = match file {
            Some(file) => ConfigPlace::File(file),
            None => match Repository::discover(&run.dir) {
                Ok(repository) if repository.default_branch().is_ok() => {
                    ConfigPlace::Branch(Box::new(repository))
                }
                _ => return Ok(None),
            },
        };
        let branch = place.read()?;
        let config = branch.config.clone();
        let last = LastConfig {
            at: Instant::now(),
            read: Ok(ReadConfig::new(branch)),
        };
        let served = Self {
            place,
            last: Mutex::new(last),
        };
        Ok(Some((served, config)))
    }

    /// Returns the roles of the current configuration.
    ///
    /// # Errors
    /// The configuration cannot be read.
    pub(super) fn portal(&self) -> Result<Arc<PortalConfig>, UserError> {
        Ok(self.current()?.portal)
    }

    /// Returns the current configuration.
    ///
    /// # Errors
    /// The configuration cannot be read.
    pub(super) fn branch(&self) -> Result<Arc<BranchConfig>, UserError> {
        Ok(self.current()?.branch)
    }

    fn current(&self) -> Result<ReadConfig, UserError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.at.elapsed() < FRESH {
            return last.read.clone();
        }
        // A failed read counts, too: otherwise every request would read a broken file again.
        last.at = Instant::now();
        let is_same = match &self.place {
            ConfigPlace::File(_) => false,
            ConfigPlace::Branch(repository) => {
                let now = repository
                    .default_branch()
                    .and_then(|branch| repository.resolve(&branch));
                let known = last
                    .read
                    .as_ref()
                    .ok()
                    .and_then(|read| read.branch.commit.as_ref());
                now.is_ok_and(|now| Some(&now) == known)
            }
        };
        if !is_same {
            let read = self.place.read();
            if let Err(error) = &read {
                tracing::warn!(%error, "the roles of the portal cannot be read");
            }
            last.read = read.map(ReadConfig::new);
        }
        last.read.clone()
    }
}

impl ConfigPlace {
    fn read(&self) -> Result<BranchConfig, UserError> {
        match self {
            Self::File(file) => {
                let text = std::fs::read_to_string(file).map_err(|error| {
                    UserError::from_error(ErrorKind::Config, error)
                        .context(file.display())
                        .hint("give `--config` the `konverge.yaml` of the default branch")
                })?;
                Ok(BranchConfig {
                    commit: None,
                    config: Config::parse(&text)?,
                })
            }
            Self::Branch(repository) => BranchConfig::load(repository),
        }
    }
}
