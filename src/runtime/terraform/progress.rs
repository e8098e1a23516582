//! How far each resource of an apply has come, as Terraform's log tells it.

use std::{
    collections::{BTreeMap, HashMap},
    time::Instant,
};

use super::{
    book::InFlight,
    messages::{Diagnostic, Message},
    presenting::{self, Ready},
};
use crate::model::{ResourceId, plan::Action};

/// What is known of one resource.
#[derive(Debug, Default)]
struct Standing {
    /// Terraform's word for what it is doing now.
    doing: Option<String>,
    /// What it has done.
    done: Vec<String>,
    /// When the last of it was done.
    complete: Option<Instant>,
    errored: bool,
    /// The object's id at the provider.
    id: Option<String>,
}

/// All resources of an apply.
#[derive(Debug)]
pub(super) struct Progress {
    indices: HashMap<String, usize>,
    standings: Vec<Standing>,
    /// What each has to do before it is complete, in Terraform's words.
    steps: Vec<&'static [&'static str]>,
    diagnostics: Vec<Diagnostic>,
}

impl Progress {
    pub(super) fn new(ready: &[Ready]) -> Self {
        Self {
            indices: presenting::by_address(ready),
            standings: ready.iter().map(|_| Standing::default()).collect(),
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

    /// Takes in a line of the log. Gives the resource it is about and a few words, if there is something to tell.
    pub(super) fn hear(&mut self, message: Message) -> Option<(usize, String)> {
        if let Some(diagnostic) = message.diagnostic.clone().filter(Diagnostic::is_error) {
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
                standing.id = hook.id_value.clone();
                standing.done.push(hook.action.clone());
                let steps = self.steps[index];
                if steps.iter().all(|step| standing.done.iter().any(|d| d == step)) {
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

    /// When a resource was reported complete.
    pub(super) fn complete(&self, index: usize) -> Option<Instant> {
        self.standings[index].complete
    }

    /// Terraform's word for what it is doing with a resource.
    pub(super) fn doing(&self, index: usize) -> Option<&str> {
        self.standings[index].doing.as_deref()
    }

    /// Whether anything was done to it.
    pub(super) fn begun(&self, index: usize) -> bool {
        let standing = &self.standings[index];
        standing.doing.is_some() || standing.errored || !standing.done.is_empty()
    }

    /// The error that Terraform reported of a resource.
    pub(super) fn error_of(&self, address: &str) -> Option<&Diagnostic> {
        self.diagnostics.iter().find(|d| d.about() == Some(address))
    }

    /// The first error of all.
    pub(super) fn first_error(&self) -> Option<&Diagnostic> {
        self.diagnostics.first()
    }

    /// What is under way now, and what was made but is not in the state yet (`held`): OpenTofu writes its state every 20
    /// seconds only.
    pub(super) fn in_flight(
        &self,
        ready: &[Ready],
        held: impl Fn(&ResourceId) -> bool,
    ) -> BTreeMap<ResourceId, InFlight> {
        ready
            .iter()
            .zip(&self.standings)
            .filter_map(|(r, standing)| {
                let made = r.action == Action::Create && standing.complete.is_some() && !held(r.subject.id());
                let flight = InFlight {
                    action: match &standing.doing {
                        Some(doing) => doing.clone(),
                        None if made => "create".to_owned(),
                        None => return None,
                    },
                    address: r.subject.address.to_string(),
                    id: standing.id.clone().filter(|_| made),
                };
                Some((r.subject.id().clone(), flight))
            })
            .collect()
    }
}
