//! The progress of each resource of an apply, from Terraform's log.

use std::{
    collections::{BTreeMap, HashMap},
    time::Instant,
};

use super::{
    error::TerraformError,
    log_messages::{LogMessage, TerraformDiagnostic},
    prepared_plan::{self, Ready},
    resource_state::ResourceState,
    state_document::InFlight,
};
use konverge_base::model::{ResourceId, plan::Action};
use konverge_secrets::Secrets;

/// The progress of one resource.
#[derive(Debug, Default)]
pub(super) struct ResourceProgress {
    /// Terraform's word for the current operation, such as `create`.
    pub(super) doing: Option<String>,
    /// The completed operations.
    done: Vec<String>,
    /// Time when the resource was reported complete.
    pub(super) complete: Option<Instant>,
    errored: bool,
    /// True if Terraform exited without reporting the result of an operation.
    pub(super) gave_up: bool,
    /// The id of the object at the provider, if it was reported.
    pub(super) id: Option<String>,
}

impl ResourceProgress {
    fn has_done(&self, step: &str) -> bool {
        self.done.iter().any(|done| done == step)
    }

    /// Returns true if an operation on the resource was started.
    pub(super) fn was_started(&self) -> bool {
        self.doing.is_some() || self.errored || !self.done.is_empty()
    }
}

/// All resources of an apply.
#[derive(Debug)]
pub(super) struct ApplyProgress {
    indices: HashMap<String, usize>,
    pub(super) standings: Vec<ResourceProgress>,
    /// The expected operations of each resource, in Terraform's words.
    steps: Vec<&'static [&'static str]>,
    /// The errors so far.
    pub(super) diagnostics: Vec<TerraformDiagnostic>,
}

impl ApplyProgress {
    pub(super) fn new(ready: &[Ready]) -> Self {
        Self {
            indices: prepared_plan::by_address(ready),
            standings: ready.iter().map(|_| ResourceProgress::default()).collect(),
            steps: ready
                .iter()
                .map(|r| match r.action {
                    Action::Create => &["create"][..],
                    Action::Update => &["update"],
                    Action::Delete => &["delete"],
                    Action::Replace => &["create", "delete"],
                    _ => &[],
                })
                .collect(),
            diagnostics: Vec::new(),
        }
    }

    /// Processes a line of the log. Returns the index of the resource and a short text if there is progress
    /// to report.
    pub(super) fn hear(&mut self, message: LogMessage) -> Option<(usize, String)> {
        if let Some(diagnostic) = message.diagnostic.clone().filter(TerraformDiagnostic::is_error) {
            self.diagnostics.push(diagnostic);
        }
        let index = *self.indices.get(message.address()?)?;
        let standing = &mut self.standings[index];
        let hook = message.hook.as_ref()?;
        match message.kind.as_str() {
            "apply_start" => {
                standing.doing = Some(hook.action.clone());
                None
            }
            "apply_progress" => {
                let seconds = hook.elapsed_seconds.unwrap_or(0.0);
                Some((index, format!("{} for {seconds:.0} s", hook.action)))
            }
            "apply_complete" => {
                standing.doing = None;
                // The message about a deletion has no id, so an earlier id is kept.
                standing.id = hook.id_value.clone().or(standing.id.take());
                standing.done.push(hook.action.clone());
                let steps = self.steps[index];
                if steps.iter().all(|step| standing.has_done(step)) {
                    standing.complete = Some(Instant::now());
                }
                None
            }
            "apply_errored" => {
                standing.doing = None;
                standing.errored = true;
                None
            }
            _ => None,
        }
    }

    /// Marks open operations as failed after Terraform exited by itself, as none can be running. An example
    /// is the deletion of an old object after a replacement, which has no message at its end.
    pub(super) fn finish_deposed(&mut self) {
        for standing in &mut self.standings {
            standing.gave_up = standing.doing.take().is_some();
            standing.errored |= standing.gave_up;
        }
    }

    /// Returns the first error about an address or a position for which `is_one` is true.
    pub(super) fn error_about(&self, is_one: impl Fn(&str) -> bool) -> Option<&TerraformDiagnostic> {
        self.diagnostics
            .iter()
            .find(|d| d.subjects().any(&is_one) || d.address().is_some_and(&is_one))
    }

    /// Returns the errors that name no resource, as an error of this resource.
    pub(super) fn error_of_nobody(&self, id: &ResourceId, secrets: &Secrets) -> Option<TerraformError> {
        let nobodys = self.diagnostics.iter().filter(|d| d.address().is_none());
        let errors = nobodys.map(|diagnostic| diagnostic.to_error(id, secrets));
        errors.reduce(|all, one| match (all, one) {
            (TerraformError::Provider { id, class, text }, TerraformError::Provider { text: more, .. }) => {
                TerraformError::Provider {
                    id,
                    class,
                    text: format!("{text}; {more}"),
                }
            }
            (all, _) => all,
        })
    }

    /// Returns the resources that may have changed although the state does not show it: operations in progress, objects
    /// created since OpenTofu last wrote its state (every 20 seconds), and objects that an interrupted run created and
    /// that are not imported yet.
    pub(super) fn in_flight<'b>(
        &self,
        ready: &[Ready],
        held: impl Fn(&ResourceId) -> Option<&'b ResourceState>,
    ) -> BTreeMap<ResourceId, InFlight> {
        let flight = |r: &Ready, standing: &ResourceProgress| {
            let makes = matches!(r.action, Action::Create | Action::Replace);
            // Created, possibly without a reported id.
            let made = match &r.subject.made {
                _ if makes && standing.has_done("create") => Some(standing.id.as_deref()),
                Some(id) => Some(Some(id.as_str())),
                None => None,
            };
            let made = made.filter(|id| match (held(r.subject.id()), id) {
                (None, _) => true,
                (Some(held), Some(id)) => !held.shows(id),
                (Some(_), None) => false,
            });
            let action = match (&standing.doing, made) {
                (Some(doing), _) => doing.clone(),
                (None, Some(_)) => "create".to_owned(),
                (None, None) => return None,
            };
            Some(InFlight {
                action,
                address: r.subject.address.to_string(),
                id: made.flatten().map(str::to_owned),
                planned: false,
            })
        };
        ready
            .iter()
            .zip(&self.standings)
            .filter_map(|(r, standing)| Some((r.subject.id().clone(), flight(r, standing)?)))
            .collect()
    }
}
