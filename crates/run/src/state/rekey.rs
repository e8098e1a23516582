//! `state rekey`: encrypts all encrypted documents again, for the current recipients.

use super::edit;
use crate::{RunContext, StateBackend};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::StackId,
};
use konverge_state::{IDENTITY_VARIABLE, SealScope, Sealer, StateError};

/// The result: the documents that were encrypted again.
#[derive(Debug, Default)]
pub struct Rekeyed {
    /// True if a new data key was created.
    pub data_key: bool,
    /// The number of written documents of each stack. Stacks without written documents are left out.
    pub stacks: Vec<(StackId, usize)>,
    /// The number of other documents whose authentication mark was written again.
    pub marked: usize,
    /// The stacks whose documents could not be written, each with the error.
    pub failed: Vec<(StackId, UserError)>,
}

/// The data key that the documents are encrypted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedDataKey {
    /// The newest data key, if exactly the current recipients can use it.
    Current,
    /// A new data key.
    New,
}

/// Encrypts every state and the key of the hashes for the current `state.encrypt_to`. A new data key is created if the
/// newest one is not wrapped by exactly the configured key services, if this run's age identity does not know it yet,
/// or if `wanted` requires a new one. A document that is already encrypted for these keys is not written.
///
/// # Errors
/// No encryption is configured; a key service fails; errors of the store.
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
            // If the old data key is lost, a document that is also encrypted to an age recipient can still be encrypted
            // again.
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
    // Checked before the first write: a run that cannot decrypt its own output would stop in the middle.
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
    // The index may lag behind the states, so the stacks are listed from the states.
    let known = states.rebuild_index().await?;
    for stack in known.entries.keys() {
        match states.reseal(stack, &edit::at_once()).await {
            Ok(0) => {}
            Ok(written) => rekeyed.stacks.push((stack.clone(), written)),
            Err(error) => rekeyed.failed.push((stack.clone(), error.into())),
        }
    }
    states.save_index().await?;
    rekeyed.marked = states.mark_again().await?;
    Ok(rekeyed)
}

/// Returns true if the identity belongs to an age recipient.
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
