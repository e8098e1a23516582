//! The rules of `konverge.yaml` as the policies read them.

use jiff::Timestamp;

use crate::{
    config::{self, Config},
    error::{ErrorKind, Failure},
    model::{RepoPath, StackId},
    policy::{Freeze, Rules},
};

/// The repository's rules, narrowed by the stack's own: more approvals, its own people, further freezes. A stack that was
/// removed keeps its rules: they are asked whether it may be deleted.
///
/// # Errors
/// A moment in `policy.freeze` that is none.
pub(in crate::ops) fn narrowed(config: &Config, id: &StackId, folder: &RepoPath) -> Result<Rules, Failure> {
    let common = &config.policy;
    let own = config.for_place(id, folder).policy;
    let people = |own: Vec<String>, common: &[String]| if own.is_empty() { common.to_vec() } else { own };
    let freeze = common.freeze.iter().chain(&own.freeze).map(moment);
    Ok(Rules {
        approvals: common.approvals.unwrap_or(0).max(own.approvals.unwrap_or(0)),
        freeze: freeze.collect::<Result<_, _>>()?,
        reviewers: people(own.reviewers, &common.reviewers),
        actors: people(own.actors, &common.actors),
        max_delete: own.max_delete.or(common.max_delete),
    })
}

fn moment(freeze: &config::Freeze) -> Result<Freeze, Failure> {
    let read = |text: &str| {
        text.parse::<Timestamp>().map_err(|error| {
            Failure::new(
                ErrorKind::Config,
                format!("policy.freeze: `{}` is no moment: {error}", text.escape_debug()),
            )
            .hint("write it as RFC 3339: `2026-12-23T00:00:00Z`")
        })
    };
    Ok(Freeze {
        from: read(&freeze.from)?,
        until: read(&freeze.until)?,
        reason: freeze.reason.clone(),
    })
}
