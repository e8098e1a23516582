//! Finds the drift of a stack that a digest stands for, as the drift issue shows it.

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{Digest, plan::StackPlan},
};
use konverge_run::{
    KeyUse, OpenRequest, RunContext, Selection, StackSelector, Target,
    cluster_selection::{GivenCluster, Live},
    drift, session,
};
use konverge_state::DriftHistory;

/// Returns the difference of a stack from what was applied last, if it still has this digest. Without `stacks`, the
/// records of the last drift checks name the stack.
///
/// # Errors
/// The stacks cannot be compared, or none of them differs in this way.
pub async fn find_drift(
    run: &RunContext,
    stacks: &[StackSelector],
    digest: Digest,
    given: GivenCluster,
) -> Result<StackPlan, UserError> {
    let request = OpenRequest {
        selection: match stacks {
            [] => Selection::All,
            named => Selection::Named(named.to_vec()),
        },
        live: Live::Required,
        given,
        ..OpenRequest::default()
    };
    let session = session::open_named(run, &request, KeyUse::Look).await?;
    let mut targets = session.targets;
    if stacks.is_empty() {
        // The drift checks recorded which stack a digest belongs to. Comparing every stack again would take as long as
        // those checks.
        let known = match &session.planning.backend {
            Some(backend) => backend.states.drift_history().await?,
            None => DriftHistory::default(),
        };
        let digest_of = |target: &Target| Some(known.stacks.get(&target.id)?.drift.as_ref()?.digest);
        targets.retain(|target| digest_of(target) == Some(digest));
        if targets.is_empty() {
            let what = format!("no drift check found a difference with the digest {digest}");
            return Err(UserError::new(ErrorKind::Usage, what)
                .hint("give the digest of an open drift issue; or name the stack: `konverge set STACK --keep DIGEST`"));
        }
    }
    let checked = drift::run(&session.planning, &targets, None).await?;
    let mut plans = checked.plan.stacks;
    if let Some(at) = plans
        .iter()
        .position(|plan| plan.digest == digest && plan.summary.changed() > 0)
    {
        return Ok(plans.swap_remove(at));
    }
    if let Some(failed) = plans
        .iter()
        .find_map(|plan| plan.error.as_ref().map(|error| (&plan.id, error)))
    {
        let (id, error) = failed;
        return Err(UserError::new(error.kind, format!("{id}: {}", error.message)));
    }
    // Name today's digests: the difference may have changed since the issue showed it.
    let now: Vec<_> = plans
        .iter()
        .filter(|plan| plan.summary.changed() > 0)
        .map(|plan| format!("{} differs with the digest {}", plan.id, plan.digest))
        .collect();
    let failure = UserError::new(
        ErrorKind::Usage,
        format!("no difference of these stacks has the digest {digest}"),
    );
    Err(if now.is_empty() {
        failure.hint("the stacks do not differ from what was applied last")
    } else {
        failure.hint(format!(
            "the difference changed since it was shown: {}",
            now.join(", ")
        ))
    })
}
