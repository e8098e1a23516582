//! `state rollback`: the commit that a serial recorded, compiled again by the core that compiled it, and applied as a
//! plan of its own.

use std::sync::Arc;

use super::show;
use crate::{
    error::{ErrorKind, Failure},
    model::{StackId, outcome::ApplyReport, plan::StackPlan},
    ops::{
        KeyUse, Planned, Request, Run, Selection, Session,
        apply::{self, Agreed, ApplyOptions},
        clusters::{GivenCluster, Live},
        session,
    },
};

/// A rollback that was prepared: what would happen, and what does it.
pub struct Rollback {
    session: Session,
    /// What would happen.
    pub plan: StackPlan,
}

/// Prepares a rollback to a serial: compiles the recorded commit and holds the Spec against the recorded digest.
///
/// # Errors
/// The serial recorded no commit or another core; the Spec that comes out is not the one that was applied; whatever keeps
/// a stack from being planned.
pub async fn rollback(
    run: &Run,
    stack: &StackId,
    serial: u64,
    given: GivenCluster,
) -> Result<Rollback, Failure> {
    let (memory, _) = super::open(run, KeyUse::Make).await?;
    let recorded = show(&memory, stack, Some(serial)).await?.state;
    let refuse = |text: String| Failure::new(ErrorKind::State, text);
    let (Some(commit), Some(digest)) = (recorded.commit, recorded.spec_digest) else {
        return Err(refuse(format!(
            "serial {serial} of `{stack}` records no commit that was applied whole"
        ))
        .hint(format!("`konverge state history {stack}` shows which serials do")));
    };
    let request = Request {
        selection: Selection::Named(vec![stack.to_string()]),
        rev: Some(commit.to_string()),
        base: Some(commit.to_string()),
        live: Live::Required,
        given,
    };
    let session = session::open(run, &request, KeyUse::Make).await?;
    let core = session.planning.core().map(str::to_owned);
    if recorded.core.is_some() && core != recorded.core {
        let (then, now) = (recorded.core.unwrap_or_default(), core.unwrap_or_default());
        return Err(refuse(format!(
            "serial {serial} was compiled by KCL core {then}, and this run would use {now}"
        ))
        .hint(format!(
            "`konverge kcl install {then}`, and name that version in konverge.yaml or KONVERGE_KCL"
        )));
    }
    let target = session.targets.first().ok_or_else(|| {
        refuse(format!(
            "stack `{stack}` is not there at commit {}",
            commit.short()
        ))
    })?;
    let spec = session.planning.spec(target).await?;
    if spec.digest() != digest {
        return Err(refuse(format!(
            "commit {} compiles to another Spec ({}) than was applied at serial {serial} ({})",
            commit.short(),
            spec.digest().short(),
            digest.short()
        ))
        .hint("an input outside the commit has changed: options, remote packages, or the core"));
    }
    let plan = match session.planning.plan(target, &spec).await? {
        Planned::Live(plan) => plan.public,
        Planned::Spec(plan) => *plan,
    };
    Ok(Rollback { session, plan })
}

impl Rollback {
    /// Applies it.
    ///
    /// # Errors
    /// As an apply.
    pub async fn apply(&self) -> Result<ApplyReport, Failure> {
        let options = ApplyOptions {
            consent: Arc::new(Agreed),
            commit: self.session.affected.head.clone(),
            pull_requests: Vec::new(),
            restore: false,
            allow_empty: false,
        };
        apply::run(&self.session.planning, &self.session.targets, &options).await
    }
}
