//! Reads recorded states: the list of stacks, one serial, the difference of two serials.

use std::{borrow::Cow, sync::Arc};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{KeyUse, RevisionSpec, RunContext, StateBackend, state_backend};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::{RepoPath, StackId, claim::Marks, spec::RuntimeKind, state::StackState},
};
use konverge_config::Config;
use konverge_repo::git::Repository;
use konverge_secrets::{mask_object, mask_terraform};
use konverge_state::{IndexEntry, StateError, Versioned};

/// One line of `state list`.
#[derive(Debug, Clone, Serialize)]
pub struct StateRow {
    /// The identity of the stack.
    pub stack: StackId,
    /// The index entry of the stack.
    #[serde(flatten)]
    pub entry: IndexEntry,
    /// The reason why the state cannot be read; `None` if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

/// The output of `state pull` and input of `state push`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PulledState {
    /// The version of this format.
    pub version: u32,
    /// The repository of the state.
    pub repository: String,
    /// The serial that was read.
    pub serial: u64,
    /// The decrypted state.
    pub state: StackState,
}

/// Opens the states for reading or for changing.
///
/// # Errors
/// Errors of the configuration or the store.
pub async fn open(run: &RunContext, key: KeyUse) -> Result<(StateBackend, String), UserError> {
    let repository = Repository::discover(&run.dir).ok();
    let config = match &repository {
        Some(repository) => Config::load(repository.worktree()?.as_ref())?,
        None => Config::default(),
    };
    let id = state_backend::repository_id(&config, repository.as_ref())?;
    let at = RevisionSpec::Worktree;
    let backend = state_backend::open_of_checkout(run, &config, repository.as_ref(), &at, key).await?;
    Ok((backend, id.as_str().to_owned()))
}

/// The number of states that are read concurrently.
const AT_ONCE: usize = 32;

/// Returns the stacks with a recorded state. Each state is read, because the index does not show which are readable.
///
/// # Errors
/// Errors of the store.
pub async fn list(backend: &StateBackend) -> Result<Vec<StateRow>, UserError> {
    let known = backend.states.known().await?;
    let known = known
        .entries
        .clone()
        .into_iter()
        .filter(|(_, entry)| entry.is_known());
    let listed = known.map(|(stack, entry)| async move {
        let damaged = match backend.states.load(&stack).await {
            Ok(_) => None,
            Err(StateError::Store(error)) => return Err(error.into()),
            Err(error) => Some(chain(&error)),
        };
        Ok(StateRow {
            stack,
            // The marks and the summary are internal, so they are not shown.
            entry: IndexEntry {
                marks: Marks::default(),
                summary: None,
                ..entry
            },
            damaged,
        })
    });
    stream::iter(listed.collect::<Vec<_>>())
        .buffered(AT_ONCE)
        .try_collect()
        .await
}

/// Finds a stack by its identity, or else by the folder of its last apply.
///
/// # Errors
/// No stack has this name; errors of the store.
pub async fn resolve_stack(backend: &StateBackend, name: &str) -> Result<StackId, UserError> {
    if let Ok(id) = name.parse::<StackId>()
        && backend.states.load(&id).await.is_ok_and(|found| found.is_some())
    {
        return Ok(id);
    }
    let known = backend.states.known().await?;
    let folder = RepoPath::normalize(name);
    let by_folder = known
        .entries
        .iter()
        .find(|(_, entry)| entry.is_known() && folder.is_some() && entry.folder.path() == folder.as_ref());
    match (by_folder, name.parse::<StackId>()) {
        (Some((id, _)), _) => Ok(id.clone()),
        // The stack has documents that the index does not list: a damaged state, or only a lease. The command itself
        // reports such a problem.
        (None, Ok(id)) if backend.states.has_documents(&id).await? => Ok(id),
        (None, Ok(id)) => Err(unknown(&id)),
        (None, Err(error)) => Err(UserError::new(ErrorKind::Usage, error.to_string())
            .hint("`konverge state list` shows the identities and folders that are recorded")),
    }
}

/// Returns the newest state of a stack, or the state with a serial.
///
/// # Errors
/// The stack has no state, the serial does not exist, or the state cannot be read.
pub async fn show(
    backend: &StateBackend,
    stack: &StackId,
    serial: Option<u64>,
) -> Result<Versioned, UserError> {
    let mut found = match serial {
        Some(serial) => backend.states.load_serial(stack, serial).await?,
        None => backend.states.load(stack).await?.ok_or_else(|| unknown(stack))?,
    };
    mask_recorded(backend, &mut found.state);
    Ok(found)
}

/// Masks the recorded attributes again, because an earlier version wrote the record with its own masking rules.
pub fn mask_recorded(backend: &StateBackend, state: &mut StackState) {
    for recorded in &mut state.resources {
        let masked = match recorded.runtime {
            RuntimeKind::Kubernetes => mask_object(&backend.secrets, &recorded.attributes),
            RuntimeKind::Terraform => mask_terraform(&backend.secrets, "", &recorded.attributes),
        };
        if let Cow::Owned(masked) = masked {
            recorded.attributes = Arc::new(masked);
        }
    }
}

/// Returns the error for a stack without a state.
pub fn unknown(stack: &StackId) -> UserError {
    UserError::new(
        ErrorKind::Usage,
        format!("nothing is recorded for stack `{stack}`"),
    )
    .hint("run `konverge state list` to see the recorded stacks")
}

/// Returns the difference of two serials, as a unified diff of their YAML.
///
/// # Errors
/// See [`show`].
pub async fn diff(backend: &StateBackend, stack: &StackId, from: u64, to: u64) -> Result<String, UserError> {
    let (old, new) = (
        show(backend, stack, Some(from)).await?,
        show(backend, stack, Some(to)).await?,
    );
    let text = |state| konverge_base::yaml::to_string(&readable(state));
    let (old, new) = (text(&old.state), text(&new.state));
    let diff = similar::TextDiff::from_lines(&old, &new);
    let names = (format!("{stack} serial {from}"), format!("{stack} serial {to}"));
    Ok(diff
        .unified_diff()
        .context_radius(3)
        .header(&names.0, &names.1)
        .to_string())
}

/// Returns a state without the data that only runtimes read.
pub fn readable(state: &StackState) -> Value {
    let mut value = serde_json::to_value(state).unwrap_or(Value::Null);
    if let Some(runtime) = value.get_mut("runtime").and_then(Value::as_object_mut) {
        for value in runtime.values_mut() {
            if value.get("$age").is_some() {
                *value = Value::String("(encrypted)".to_owned());
            }
        }
    }
    value
}
