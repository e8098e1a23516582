//! The key of the short hashes of secrets where neither the environment nor a store gives one: a file of this user, so
//! that each run gives a secret the same marker.

use konverge_base::{
    atomic_file,
    secrets::{HashKey, Secrets},
};
use konverge_run::RunContext;

/// The registry of a run, with the key of this machine. A key that cannot be kept is random, for this run alone.
#[must_use]
pub fn secrets(run: &RunContext) -> Secrets {
    match run.var("KONVERGE_REVIEW_KEY") {
        None => key(run).map_or_else(|| run.secrets.clone(), |key| run.secrets.with_key(key)),
        Some(_) => run.secrets.clone(),
    }
}

/// The key, made if there is none. Not from the checkout: who knows the key can try out which value a marker stands for.
fn key(run: &RunContext) -> Option<HashKey> {
    let folder = run.xdg_folder("XDG_STATE_HOME", ".local/state").ok()?;
    run.checkout()
        .trust("the folder of the key of this machine", &folder)
        .ok()?;
    let path = folder.join("hash-key");
    let read = || <[u8; 32]>::try_from(std::fs::read(&path).ok()?).ok();
    if read().is_none() {
        atomic_file::write(&path, &HashKey::random().to_bytes()).ok()?;
    }
    // Of two runs that make one, both read the last.
    read().map(HashKey::from_bytes)
}
