//! Converts the rules of `konverge.yaml` for the policies.

use jiff::Timestamp;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{RepoPath, StackId},
};
use konverge_config::{self as config, Config};
use konverge_policy::{EffectivePolicy, Freeze};

/// The rules of the repository, narrowed by those of the stack: more approvals, its own people, additional
/// freezes. A removed stack keeps its rules: they decide whether it may be deleted.
///
/// # Errors
/// An invalid time in `policy.freeze`.
pub fn effective_policy(
    config: &Config,
    id: &StackId,
    folder: &RepoPath,
) -> Result<EffectivePolicy, UserError> {
    let common = &config.policy;
    let own = config.for_place(id, folder).policy;
    let people = |own: Vec<String>, common: &[String]| if own.is_empty() { common.to_vec() } else { own };
    let freeze = common.freeze.iter().chain(&own.freeze).map(parse_freeze);
    Ok(EffectivePolicy {
        approvals: common.approvals.unwrap_or(0).max(own.approvals.unwrap_or(0)),
        freeze: freeze.collect::<Result<_, _>>()?,
        reviewers: people(own.reviewers, &common.reviewers),
        actors: people(own.actors, &common.actors),
        max_destructive: own.max_destructive.or(common.max_destructive),
    })
}

fn parse_freeze(freeze: &config::FreezeConfig) -> Result<Freeze, UserError> {
    let read = |text: &str| {
        text.parse::<Timestamp>().map_err(|error| {
            UserError::new(
                ErrorKind::Config,
                format!(
                    "policy.freeze: `{}` is not an RFC 3339 time: {error}",
                    text.escape_debug()
                ),
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
