//! Checks the receivers of notifications: that their variables are set and have a valid form. Nothing is sent.

use super::{DoctorFinding, RunContext};
use konverge_base::{error::UserError, variables};
use konverge_config::{Config, Notify};
use konverge_run::notify_receivers;

/// Returns a finding for each receiver.
pub(super) fn findings(run: &RunContext, config: &Config) -> Vec<DoctorFinding> {
    config
        .notify
        .iter()
        .map(|receiver| check(run, receiver))
        .collect()
}

fn check(run: &RunContext, receiver: &Notify) -> DoctorFinding {
    let what = format!("receiver {} in {}", receiver.kind, receiver.url_env);
    let names = [Some(&receiver.url_env), receiver.key_env.as_ref()];
    let unset = names.into_iter().flatten().find(|name| run.var(name).is_none());
    if let Some(name) = unset
        && run.var(variables::GITHUB_ACTIONS).is_none()
    {
        return DoctorFinding::unused(
            what,
            format!("{name} is not set here"),
            "nothing to do here: the job has its own variables",
        );
    }
    let checked = notify_receivers::target(run, receiver).map_err(UserError::from);
    DoctorFinding::from_result(
        what,
        checked.map(|_| "the variables are set; `konverge notify test` sends a message".to_owned()),
    )
}
