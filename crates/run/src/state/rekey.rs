//! `state rekey`: encrypts everything that is encrypted for today's recipients.

use crate::{RunContext, StateBackend};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::StackId,
};
use konverge_state::{IDENTITY_VARIABLE, LeaseOptions, SealScope, Sealer, StateError, StateStore};

/// The documents that were encrypted again.
#[derive(Debug, Default)]
pub struct Rekeyed {
    /// True if a data key was made.
    pub data_key: bool,
    /// The number of written documents by stack; stacks without any are left out.
    pub stacks: Vec<(StackId, usize)>,
    /// The number of other documents that were marked again.
    pub marked: usize,
    /// The stacks whose documents could not be written, and why.
    pub failed: Vec<(StackId, UserError)>,
}

/// The choice of the data key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedDataKey {
    /// The newest one, if everybody who is to have it has it.
    Current,
    /// A new one in any case.
    New,
}

/// Encrypts every state and the key of the hashes for today's `state.encrypt_to`. A new data key is made if the newest
/// one is not wrapped by exactly its key services, if the holder of an age identity of this run does not know it yet,
/// or if a new one is wanted. A document that has these keys already stays.
///
/// # Errors
/// Nothing is encrypted; a key service fails; errors of the store.
pub async fn rekey(
    run: &RunContext,
    backend: &StateBackend,
    wanted: WantedDataKey,
) -> Result<Rekeyed, UserError> {
    let (age, identity) = (&backend.age_recipients, run.var(IDENTITY_VARIABLE));
    let mut states = backend.states.clone();
    let mut rekeyed = Rekeyed::default();
    let new_key = wanted == WantedDataKey::New;
    if age.is_empty() && !states.has_key_services() {
        return Err(
            UserError::new(ErrorKind::Config, "`state.encrypt_to` names no recipient")
                .hint("name age recipients or keys in konverge.yaml; then states are encrypted to them"),
        );
    }
    states.finish_resealing().await?;
    if states.has_key_services() {
        let is_settled =
            |keys| !new_key && states.is_wrapped_by_all(keys) && states.is_known_to_identities(keys);
        let keys = match states.open_data_keys().await {
            Ok(Some(keys)) if is_settled(&keys) => keys,
            Ok(keys) => {
                rekeyed.data_key = true;
                states.make_data_key(keys.as_ref()).await?
            }
            // A document that is also encrypted to an age recipient can be encrypted again without the lost key.
            Err(error @ StateError::KeyService { .. }) if can_decrypt(age, identity)? => {
                run.notes.note(&format!(
                    "{}; a new data key is created, and the identity in {IDENTITY_VARIABLE} decrypts the states",
                    chain(&error)
                ));
                rekeyed.data_key = true;
                states.make_data_key_after_loss().await?
            }
            Err(error) => return Err(error.into()),
        };
        let sealer = Sealer::with_data_keys(age, identity, &keys)?;
        states = states.with_sealer(Some(sealer), SealScope::Documents);
    } else if new_key {
        return Err(UserError::new(
            ErrorKind::Usage,
            "`--new-key` creates a data key, and `state.encrypt_to` names no key service that wraps one",
        )
        .hint("to change an age key, name the new recipient in `state.encrypt_to` and run `konverge state rekey`")
        .hint(format!("set {IDENTITY_VARIABLE} to the identity that decrypts the stored states")));
    }
    // Check first that this run can read what it writes. Otherwise it would stop in the middle.
    if let Some(sealer) = states.sealer()
        && sealer.open(&sealer.seal(b"")?).is_err()
    {
        return Err(UserError::new(
            ErrorKind::State,
            format!("the identity in {IDENTITY_VARIABLE} belongs to no recipient in `state.encrypt_to`"),
        )
        .hint("name the old and the new recipient, run `konverge state rekey`, then change the identity and remove the old recipient"));
    }
    states.reseal_hash_key().await?;
    // The index may lag behind; the states do not.
    let known = states.rebuild_index().await?;
    for stack in known.entries.keys() {
        match reseal(&states, stack).await {
            Ok(0) => {}
            Ok(written) => rekeyed.stacks.push((stack.clone(), written)),
            Err(error) => rekeyed.failed.push((stack.clone(), error)),
        }
    }
    states.save_index().await?;
    rekeyed.marked = states.mark_again().await?;
    Ok(rekeyed)
}

/// Returns true if the identity is that of an age recipient.
fn can_decrypt(age: &[String], identity: Option<&str>) -> Result<bool, UserError> {
    let sealer = match identity {
        Some(_) if !age.is_empty() => Sealer::new(age, identity)?,
        _ => None,
    };
    Ok(match sealer {
        Some(sealer) => sealer.open(&sealer.seal(b"")?).is_ok(),
        None => false,
    })
}

async fn reseal(states: &StateStore, stack: &StackId) -> Result<usize, UserError> {
    let options = LeaseOptions {
        wait: std::time::Duration::ZERO,
        ..LeaseOptions::default()
    };
    Ok(states.reseal(stack, &options).await?)
}
