//! `state import`: imports Kusion's state from a file or from Kusion's backend.

use serde_json::Value;

use super::{
    edit,
    import_target::{ImportRequest, ImportTarget},
};
use crate::RunContext;
use crate::StateBackend;
use konverge_base::{
    error::{ErrorKind, SharedError, UserError},
    model::{
        ResourceId, StackId, masked_value,
        spec::RuntimeKind,
        state::{KusionRelease, StackState},
    },
};
use konverge_secrets::mask_object;
use konverge_state::{
    Versioned, WriteReason,
    kusion::{self, KusionState},
    store::{
        self, Key, StoreError, StoreOptions,
        kusion::{KusionQuery, in_mysql, over_http},
    },
};

/// A state that was imported from Kusion.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The identity of the stack.
    pub stack: StackId,
    /// The serial that was written.
    pub serial: u64,
    /// The number of imported resources.
    pub resources: usize,
    /// The Terraform resources that were skipped: Kusion's state has their values but no Terraform state, so a plan
    /// would create them again.
    pub left_out: Vec<LeftOut>,
    /// True if the repository has the stack; `None` if there is no monorepo.
    pub is_known: Option<bool>,
}

/// A Terraform resource in Kusion's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The skipped resource.
    pub id: ResourceId,
    /// The id of the object at the provider, with which the object can be imported.
    pub object: Option<String>,
}

/// Imports a Kusion state.
///
/// # Errors
/// The source cannot be read or has no Kusion state; the stack already has a state, or another run holds its lease.
pub async fn import(
    run: &RunContext,
    backend: &StateBackend,
    import: &ImportRequest,
) -> Result<Imported, UserError> {
    let shown = import.from.split(['?', '#']).next().unwrap_or_default();
    let text = fetch(run, import).await?;
    let kusion =
        kusion::read(&text).map_err(|error| UserError::from_error(ErrorKind::State, error).context(shown))?;
    if let Some(phase) = &kusion.under_way {
        return Err(UserError::new(
            ErrorKind::State,
            format!(
                "{shown}: release {} is in the phase `{}`: an operation of Kusion is in progress, or was stopped",
                kusion.revision,
                phase.escape_debug()
            ),
        )
        .hint("wait for the operation and import again; if none runs any more, `kusion release unlock` ends it"));
    }
    let target = ImportTarget::find(run, import, &kusion)?;
    let stack = target.stack;
    let note = note(&kusion, shown);
    run.begin_writes()?;
    let lease = edit::acquire_to_replace(backend, &stack).await?;
    let release = release_of(&kusion);
    let there = lease.prior().filter(|prior| !prior.retired);
    let follows = |prior: &&Versioned| follows(&prior.state, release.as_ref());
    // Only a state that follows an earlier release of Kusion may be updated. An import into any other would lose
    // records.
    if there.is_some() && !there.as_ref().is_some_and(follows) {
        lease.release().await?;
        return Err(
            UserError::new(ErrorKind::State, format!("stack `{stack}` already has a state")).hint(format!(
                "`konverge state forget {stack}` removes the records; live objects are not changed"
            )),
        );
    }
    let empty = || StackState::empty(stack.clone(), target.folder.clone());
    let mut state = there.map_or_else(empty, |prior| prior.state.clone());
    state.named_by = target.named_by;
    state.kusion_release = release;
    // The imported record may differ from the last apply, so the stack is pending and the next run applies it.
    state.input_digest = None;
    let mut left_out = Vec::new();
    for mut recorded in kusion.resources {
        let known = state.resource(&recorded.id);
        if recorded.runtime == RuntimeKind::Terraform && known.is_some() {
            // The recorded resource has a Terraform state, which Kusion's values must not replace.
            continue;
        }
        if recorded.runtime == RuntimeKind::Terraform {
            // The provider `random` gives each of its passwords the id `none`, which imports nothing.
            let object = recorded.attributes.get("id").and_then(Value::as_str);
            left_out.push(LeftOut {
                object: object.filter(|id| *id != "none").map(str::to_owned),
                id: recorded.id,
            });
            continue;
        }
        // Text in a release of Kusion that looks like one of Konverge's masks is plain data, so it is escaped first.
        let attributes = Value::Object(recorded.attributes.as_ref().clone());
        if let Value::Object(attributes) = masked_value::escape_marks(&attributes).as_ref() {
            let masked = mask_object(&backend.secrets, attributes).into_owned();
            if known.is_some_and(|known| *known.attributes == masked) {
                continue;
            }
            recorded.attributes = masked.into();
        }
        recorded.cluster = target.cluster.clone();
        state.put(recorded);
    }
    let resources = state.resources.len();
    let serial = lease.record(WriteReason::Import, state, Some(note)).await?;
    backend.states.save_index().await?;
    Ok(Imported {
        stack,
        serial,
        resources,
        left_out,
        is_known: target.is_known,
    })
}

/// Returns the release that was read; `None` for a state of Kusion 0.9 and before, or if a name cannot be a folder.
fn release_of(kusion: &KusionState) -> Option<KusionRelease> {
    let workspace = kusion.workspace.as_ref()?;
    let is_name = |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\']);
    (is_name(&kusion.project) && is_name(workspace)).then(|| KusionRelease {
        project: kusion.project.clone(),
        workspace: workspace.clone(),
        stack: kusion.stack.clone(),
        revision: kusion.revision,
        mark: None,
    })
}

/// Returns true if a recorded state was imported from an earlier release of the same stack, or from the release that
/// Konverge began and Kusion took over since (`kusion release unlock`). Objects that Kusion deleted since stay recorded
/// until a plan finds them missing.
fn follows(state: &StackState, release: Option<&KusionRelease>) -> bool {
    let (Some(last), Some(release)) = (&state.kusion_release, release) else {
        return false;
    };
    (&last.project, &last.workspace, &last.stack) == (&release.project, &release.workspace, &release.stack)
        && (last.revision < release.revision || last.revision == release.revision && last.mark.is_some())
}

fn note(kusion: &KusionState, place: &str) -> String {
    match &kusion.workspace {
        Some(workspace) => format!(
            "Kusion release {} of workspace {workspace}, from {place}",
            kusion.revision
        ),
        None => format!("Kusion state serial {}, from {place}", kusion.revision),
    }
}

/// Returns the text of the newest state in a source.
async fn fetch(run: &RunContext, import: &ImportRequest) -> Result<String, UserError> {
    let from = import.from.as_str();
    let options = StoreOptions {
        environment: run.env.clone(),
        cancel: run.cancel.clone(),
        ..StoreOptions::default()
    };
    let found = match from.split_once("://") {
        None => in_folder(&run.dir.join(from))?,
        Some(("https" | "http", _)) => {
            let query = match from.matches("%s").count() {
                0 => KusionQuery::default(),
                4 => query(import)?,
                _ => {
                    return Err(UserError::new(
                        ErrorKind::Usage,
                        "a URL format of Kusion must contain `%s` four times: for tenant, project, stack and cluster",
                    ));
                }
            };
            let found = over_http(from, &query, &options).await;
            found.map_err(without_config_hints)?.map(Vec::from)
        }
        Some(("mysql", _)) => {
            let found = in_mysql(from, &query(import)?, &options).await;
            found.map_err(without_config_hints)?.map(Vec::from)
        }
        Some(_) => in_store(from, &options).await?,
    };
    let shown = from.split(['?', '#']).next().unwrap_or_default();
    let unreadable = |why: &str| UserError::new(ErrorKind::State, format!("{shown} cannot be read: {why}"));
    let bytes = found.ok_or_else(|| unreadable("there is no state"))?;
    String::from_utf8(bytes).map_err(|_| unreadable("it is not text"))
}

/// Returns the text of a file of Kusion: `from` itself, or the file `inside` if `from` is a folder or a URL that ends
/// in `/`.
pub(super) async fn fetch_file(run: &RunContext, from: &str, inside: &str) -> Result<String, UserError> {
    let shown = from.split(['?', '#']).next().unwrap_or_default();
    let unreadable = |why: SharedError| {
        UserError::from_error(ErrorKind::State, why).context(format_args!("{shown} cannot be read"))
    };
    let found = if from.contains("://") {
        let options = StoreOptions {
            environment: run.env.clone(),
            cancel: run.cancel.clone(),
            ..StoreOptions::default()
        };
        let (path, query) = split_query(from);
        let inside = if path.ends_with('/') { inside } else { "" };
        in_store(&format!("{path}{inside}{query}"), &options).await?
    } else {
        let path = run.dir.join(from);
        let path = if path.is_dir() { path.join(inside) } else { path };
        match std::fs::read(&path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(unreadable(error.into())),
        }
    };
    let bytes = found.ok_or_else(|| unreadable(format!("it has no file `{inside}`").into()))?;
    String::from_utf8(bytes).map_err(|_| unreadable("it is not text".into()))
}

/// Removes hints about `konverge.yaml` from errors of a Kusion source.
fn without_config_hints(error: StoreError) -> UserError {
    match error {
        StoreError::Config { .. } => UserError::from_error(ErrorKind::Config, error),
        other => other.into(),
    }
}

/// Builds the query for a source with many stacks, which needs the name of one.
fn query(import: &ImportRequest) -> Result<KusionQuery, UserError> {
    let stack = import.stack.as_ref().ok_or_else(|| {
        UserError::new(ErrorKind::Usage, "this location contains the states of several stacks")
            .hint("say which state to import: `--stack [TENANT/]PROJECT/STACK`, and `--cluster NAME` if Kusion stored it per cluster")
    })?;
    Ok(KusionQuery {
        tenant: stack.tenant().unwrap_or_default().to_owned(),
        project: stack.project().to_owned(),
        stack: stack.name().to_owned(),
        cluster: import.cluster.clone().unwrap_or_default(),
    })
}

/// Reads a file, the newest release in a folder of releases, or the state in the folder of a stack.
fn in_folder(path: &std::path::Path) -> Result<Option<Vec<u8>>, UserError> {
    let read = |path: &std::path::Path| match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(UserError::from_error(ErrorKind::State, error)
            .context(format!("{} cannot be read", path.display()))),
    };
    if !path.is_dir() {
        return read(path);
    }
    if let Some(metadata) = read(&path.join(kusion::RELEASES))? {
        return read(&path.join(newest(&metadata)?));
    }
    for name in kusion::STATE_FILES {
        if let Some(state) = read(&path.join(name))? {
            return Ok(Some(state));
        }
    }
    Ok(None)
}

/// Reads an object, or the newest release below a URL that ends in `/`.
async fn in_store(url: &str, options: &StoreOptions) -> Result<Option<Vec<u8>>, UserError> {
    let (path, query) = split_query(url);
    let (folder, name) = path.rsplit_once('/').unwrap_or((path, ""));
    let store = store::open(&format!("{folder}{query}"), options)
        .await
        .map_err(without_config_hints)?;
    let get = |name: String| {
        let store = &store;
        async move { store.get(&Key::from_listing(name)).await }
    };
    let name = match name {
        "" => match get(kusion::RELEASES.to_owned()).await? {
            Some(metadata) => newest(&metadata)?,
            None => return Ok(None),
        },
        name => name.to_owned(),
    };
    Ok(get(name).await?.map(Vec::from))
}

/// Splits a URL before its query.
pub(crate) fn split_query(url: &str) -> (&str, &str) {
    url.split_at(url.find('?').unwrap_or(url.len()))
}

fn newest(metadata: &[u8]) -> Result<String, UserError> {
    kusion::newest_release(&String::from_utf8_lossy(metadata))
        .map_err(|error| UserError::from_error(ErrorKind::State, error).context(kusion::RELEASES))
}
