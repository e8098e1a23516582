//! The receivers that `konverge notify test` sends a message to.

use konverge_base::error::{ErrorKind, UserError};
use konverge_config::{Config, Notify};
use konverge_repo::git::Repository;
use konverge_run::RunContext;

/// Returns the receivers in the konverge.yaml of the working tree, of one kind or of all.
///
/// # Errors
/// There is no such receiver, or konverge.yaml cannot be read.
pub fn receivers(run: &RunContext, kind: Option<&str>) -> Result<Vec<Notify>, UserError> {
    let repository = Repository::discover(&run.dir)?;
    let mut receivers = Config::load(repository.worktree()?.as_ref())?.notify;
    receivers.retain(|receiver| kind.is_none_or(|kind| receiver.kind.name() == kind));
    if !receivers.is_empty() {
        return Ok(receivers);
    }
    let what = match kind {
        Some(kind) => format!("konverge.yaml has no receiver of kind `{kind}`"),
        None => "konverge.yaml has no receiver of notifications".to_owned(),
    };
    Err(UserError::new(ErrorKind::Config, what)
        .hint("add one under `notify`, such as `{kind: slack, url_env: SLACK_WEBHOOK}`"))
}
