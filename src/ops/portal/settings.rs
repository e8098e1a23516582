//! [`ServedConfig`]: the `konverge.yaml` that a portal obeys. It is the default branch's file, or a file that is
//! given at the start of the process, and it is read again while the process runs: a role that was taken away is gone.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use konverge_base::{
    error::{ErrorKind, UserError},
    model::CommitId,
};
use konverge_config::{Config, PortalConfig};
use konverge_repo::git::Repository;
use konverge_run::RunContext;

/// How long a file is not read again.
const FRESH: Duration = Duration::from_secs(2);

/// Where the configuration stands.
enum ConfigPlace {
    File(PathBuf),
    Branch(Box<Repository>),
}

/// What was read last, and of which commit.
struct LastConfig {
    at: Instant,
    commit: Option<CommitId>,
    portal: Result<Arc<PortalConfig>, UserError>,
}

/// The configuration of a portal.
pub struct ServedConfig {
    place: ConfigPlace,
    last: Mutex<LastConfig>,
}

impl ServedConfig {
    /// The configuration in a file, or else of the default branch. `None` if there is neither.
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
        let (commit, config) = place.read()?;
        let last = LastConfig {
            at: Instant::now(),
            commit,
            portal: Ok(Arc::new(config.portal.clone())),
        };
        let served = Self {
            place,
            last: Mutex::new(last),
        };
        Ok(Some((served, config)))
    }

    /// The roles that hold now.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn portal(&self) -> Result<Arc<PortalConfig>, UserError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.at.elapsed() < FRESH {
            return last.portal.clone();
        }
        last.at = Instant::now();
        let is_same = match &self.place {
            ConfigPlace::File(_) => false,
            ConfigPlace::Branch(repository) => {
                let now = repository
                    .default_branch()
                    .and_then(|branch| repository.resolve(&branch));
                last.portal.is_ok() && now.is_ok_and(|now| Some(&now) == last.commit.as_ref())
            }
        };
        if !is_same {
            let read = self.place.read();
            if let Err(error) = &read {
                tracing::warn!(%error, "the roles of the portal cannot be read");
            }
            (last.commit, last.portal) = match read {
                Ok((commit, config)) => (commit, Ok(Arc::new(config.portal))),
                Err(error) => (None, Err(error)),
            };
        }
        last.portal.clone()
    }
}

impl ConfigPlace {
    fn read(&self) -> Result<(Option<CommitId>, Config), UserError> {
        match self {
            Self::File(file) => {
                let text = std::fs::read_to_string(file).map_err(|error| {
                    UserError::new(ErrorKind::Config, format!("{}: {error}", file.display()))
                        .hint("`--config` names the `konverge.yaml` of the default branch")
                })?;
                Ok((None, Config::parse(&text)?))
            }
            Self::Branch(repository) => {
                let commit = repository.resolve(&repository.default_branch()?)?;
                let config = Config::load(repository.revision(&commit)?.as_ref())?;
                Ok((Some(commit), config))
            }
        }
    }
}
