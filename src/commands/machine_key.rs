//! The key for the short hashes of secrets, where neither the environment nor a store has one. It is a file of this
//! user, so that each run shows a secret with the same marker.

use std::{fs, path::PathBuf};

use konverge_base::{atomic_file, variables};
use konverge_run::RunContext;
use konverge_secrets::{HashKey, Secrets};

/// The secrets of a run, and the key of this machine.
pub struct MachineKey {
    /// The secrets of the run, marked by the key.
    pub secrets: Secrets,
    /// A new key, and the file for it.
    unwritten: Option<(PathBuf, HashKey)>,
}

impl MachineKey {
    /// Reads the key, or creates a random one that is not yet written.
    #[must_use]
    pub fn read(run: &RunContext) -> Self {
        let file = match run.var(variables::KONVERGE_REVIEW_KEY) {
            None => file(run),
            Some(_) => None,
        };
        let Some(file) = file else {
            let secrets = run.secrets.clone();
            return Self {
                secrets,
                unwritten: None,
            };
        };
        let known = fs::read(&file).ok();
        let known = known.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let key = known.map_or_else(HashKey::random, HashKey::from_bytes);
        Self {
            secrets: run.secrets.with_key(key.clone()),
            unwritten: known.is_none().then_some((file, key)),
        }
    }

    /// Writes a new key, once something is shown with it. A key that cannot be written is valid for this run only.
    pub fn keep(&self) {
        if let Some((file, key)) = &self.unwritten
            && let Err(error) = atomic_file::write(file, &key.to_bytes())
        {
            tracing::debug!("the key for markers could not be stored: {error}");
        }
    }
}

/// Returns the path of the key, outside of the checkout: whoever has the key can guess the value behind a marker.
fn file(run: &RunContext) -> Option<PathBuf> {
    let folder = run.xdg_folder(variables::XDG_STATE_HOME, ".local/state").ok()?;
    run.checkout()
        .trust("the folder of the key of this machine", &folder)
        .ok()?;
    Some(folder.join("hash-key"))
}
