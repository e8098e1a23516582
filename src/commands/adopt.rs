//! The `adopt` use case: plans every stack that was never applied against what runs, and names the unchanged ones in
//! `konverge.adopt.yaml`.

use std::path::Path;

use konverge_base::{
    checkout::{self, Existing},
    error::{ErrorKind, UserError},
    model::{
        plan::Plan,
        takeover::{Takeover, TakeoverReport},
    },
};
use konverge_run::{
    KeyUse, OpenRequest, RunContext, Selection, SpecSource,
    adoption::{Adoption, FILE_NAME, RecordedStacks},
    cluster_selection::{GivenCluster, Live},
    preview, repository_root, session,
};

/// Plans the stacks of the working tree that have no recorded state. Nothing is written.
///
/// # Errors
/// Errors of the repository, the configuration, the core or the store. Errors of a stack are in its plan.
pub async fn plan(run: &RunContext, given: GivenCluster) -> Result<Plan, UserError> {
    let request = OpenRequest {
        selection: Selection::All,
        live: Live::Required,
        given,
        ..OpenRequest::default()
    };
    let mut session = session::open(run, &request, KeyUse::Look).await?;
    if let (Some(backend), SpecSource::Compiled { head, .. }) =
        (&session.planning.backend, &session.planning.wanted)
    {
        let known = backend.states.known().await?;
        let recorded = RecordedStacks::find(backend, &head.layout, known).await?;
        session.targets.retain(|target| !recorded.has(&target.id));
    }
    Ok(preview::run(&session.planning, &session.targets, None)
        .await?
        .plan)
}

/// Writes the stacks that would not change into `konverge.adopt.yaml`, and returns their number.
///
/// # Errors
/// The file cannot be written.
pub fn write(run: &RunContext, found: &TakeoverReport) -> Result<usize, UserError> {
    let unchanged = found.stacks_that_are(Takeover::Unchanged);
    let adoption = Adoption {
        stacks: unchanged.map(|stack| stack.id.clone()).collect(),
    };
    write_file(&repository_root(&run.dir)?, &adoption, Existing::Replace)?;
    Ok(adoption.stacks.len())
}

/// Writes `konverge.adopt.yaml` into the root of a repository.
///
/// # Errors
/// The file cannot be written.
pub fn write_file(
    root: &Path,
    adoption: &Adoption,
    existing: Existing,
) -> Result<checkout::WrittenFile, UserError> {
    checkout::write(root, FILE_NAME.as_ref(), adoption.text().as_bytes(), existing).map_err(|error| {
        UserError::from_error(ErrorKind::Config, error)
            .context(format!("could not write {}", root.join(FILE_NAME).display()))
            .hint("make the folder writable and run the command again")
    })
}
