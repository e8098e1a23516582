//! `state import`: taking over what Kusion recorded, from a file or from where Kusion kept it.

use super::Memory;
use crate::{
    error::{ErrorKind, Failure},
    model::{RepoPath, ResourceId, StackId, spec::RuntimeKind, state::StackState},
    ops::Run,
    secrets,
    state::{
        LeaseOptions, Reason,
        kusion::{self, KusionState},
    },
    store::{self, Key, StoreOptions},
};

/// What was taken over.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The stack.
    pub stack: StackId,
    /// The serial that was written.
    pub serial: u64,
    /// Resources that are recorded now.
    pub resources: usize,
    /// Terraform resources that were left out: Kusion's file holds their values, not Terraform's own state, so planning
    /// with them would make them a second time.
    pub left_out: Vec<ResourceId>,
}

/// Takes over a state of Kusion's. `place` is a file, the URL of an object (`s3://BUCKET/KEY`, `gs://`, `az://`,
/// `oss://`), or an `https://` URL that answers a GET.
///
/// # Errors
/// The place can not be read or holds no state of Kusion's; the stack has a state already.
pub async fn import(
    run: &Run,
    memory: &Memory,
    place: &str,
    identity: Option<&StackId>,
    folder: Option<&RepoPath>,
) -> Result<Imported, Failure> {
    let text = fetch(run, place).await?;
    let kusion =
        kusion::read(&text).map_err(|error| Failure::new(ErrorKind::State, format!("{place}: {error}")))?;
    let stack = match identity {
        Some(stack) => stack.clone(),
        None => StackId::new(kusion.tenant.as_deref(), &kusion.project, &kusion.stack).map_err(|error| {
            Failure::new(ErrorKind::State, error.to_string())
                .hint("name the stack yourself: `--stack IDENTITY`")
        })?,
    };
    let note = note(&kusion, place);
    let lease = memory.states.acquire(&stack, LeaseOptions::default()).await?;
    if lease.prior().is_some_and(|prior| !prior.retired) {
        lease.release().await?;
        return Err(
            Failure::new(ErrorKind::State, format!("stack `{stack}` has a state already")).hint(format!(
                "`konverge state forget {stack}` gives it up; nothing outside is touched"
            )),
        );
    }
    let mut state = StackState::empty(stack.clone(), folder.cloned().unwrap_or_default());
    let mut left_out = Vec::new();
    for mut recorded in kusion.resources {
        if recorded.runtime == RuntimeKind::Terraform {
            left_out.push(recorded.id);
            continue;
        }
        recorded.attributes = secrets::mask_object(&memory.secrets, &recorded.attributes);
        state.put(recorded);
    }
    let resources = state.resources.len();
    let serial = lease.record(Reason::Import, state, Some(note)).await?;
    memory.states.settle().await?;
    Ok(Imported {
        stack,
        serial,
        resources,
        left_out,
    })
}

fn note(kusion: &KusionState, place: &str) -> String {
    let bare = place.split(['?', '#']).next().unwrap_or_default();
    match &kusion.workspace {
        Some(workspace) => format!(
            "Kusion release {} of workspace {workspace}, from {bare}",
            kusion.revision
        ),
        None => format!("Kusion state serial {}, from {bare}", kusion.revision),
    }
}

async fn fetch(run: &Run, place: &str) -> Result<String, Failure> {
    let unreadable = |why: String| Failure::new(ErrorKind::State, format!("{place} can not be read: {why}"));
    let bytes = match place.split_once("://") {
        None => std::fs::read(run.dir.join(place)).map_err(|error| unreadable(error.to_string()))?,
        Some(("https", _)) => {
            let answer = reqwest::get(place)
                .await
                .and_then(reqwest::Response::error_for_status);
            let answer = answer.map_err(|error| unreadable(error.without_url().to_string()))?;
            answer
                .bytes()
                .await
                .map_err(|error| unreadable(error.without_url().to_string()))?
                .to_vec()
        }
        Some(_) => {
            let (path, query) = place
                .split_once('?')
                .map_or((place, ""), |(path, query)| (path, query));
            let (parent, name) = path.rsplit_once('/').unwrap_or((path, ""));
            let url = if query.is_empty() {
                parent.to_owned()
            } else {
                format!("{parent}?{query}")
            };
            let options = StoreOptions {
                environment: run.env.clone(),
                ..StoreOptions::default()
            };
            let store = store::open(&url, &options).await?;
            let found = store.get(&Key::from_listing(name)).await?;
            found
                .ok_or_else(|| unreadable("there is no such object".to_owned()))?
                .to_vec()
        }
    };
    String::from_utf8(bytes).map_err(|_| unreadable("it is not text".to_owned()))
}
