//! Hooks: Jobs that run around a change.

use std::{collections::BTreeMap, fmt};

use super::{Digest, ResourceId};

/// The annotation that makes a Job a hook: `pre`, `post`, `failed` or `pre-destroy`.
pub const HOOK: &str = "konverge/hook";
/// The annotation that says which applies a hook runs in: `change` or `always`.
pub const HOOK_ON: &str = "konverge/hook-on";
/// The annotation that says what stays of a Job that has ended: `last` or `none`.
pub const HOOK_KEEP: &str = "konverge/hook-keep";
/// The annotation that lets a rollback run a `pre` hook, or pass one that has run.
pub const HOOK_REVERSIBLE: &str = "konverge/hook-reversible";
/// The annotation that Konverge writes: the stamp of the run.
pub const HOOK_STAMP: &str = "konverge/hook-digest";

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookTime {
    /// Before the workloads that it guards change.
    Pre,
    /// After the workloads that it guards are ready.
    Post,
    /// After an apply in which something failed.
    Failed,
    /// Before the resources of a stack are deleted that leaves.
    PreDestroy,
}

impl HookTime {
    /// All of them, in the order of an apply.
    pub const ALL: [Self; 4] = [Self::Pre, Self::Post, Self::Failed, Self::PreDestroy];

    /// The value of the annotation.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pre => "pre",
            Self::Post => "post",
            Self::Failed => "failed",
            Self::PreDestroy => "pre-destroy",
        }
    }
}

impl fmt::Display for HookTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The kind of run that the plan of a stack is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HookPurpose {
    /// A change: hooks run.
    #[default]
    Change,
    /// The last applied Spec is restored or compared: no hook runs.
    Restore,
    /// An earlier version is applied: `pre` hooks must be reversible.
    Rollback,
}

/// The rules for hooks, from the configuration and from the run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HookRules {
    /// The service accounts that a hook may use: `NAME` or `NAMESPACE/NAME`.
    pub service_accounts: Vec<String>,
    /// True if the annotations of Argo CD are understood.
    pub argocd: bool,
    /// True if the annotations of Helm are understood.
    pub helm: bool,
    /// The serial of the recorded state, during an apply.
    pub serial: Option<u64>,
    /// The purpose of the plan.
    pub purpose: HookPurpose,
}

/// A hook in the plan of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookTask {
    /// When it runs.
    pub time: HookTime,
    /// True if it runs at every apply.
    pub always: bool,
    /// True if the last Job stays after its end.
    pub keeps_last: bool,
    /// True if a rollback may run it, or pass it.
    pub reversible: bool,
    /// The workloads that it guards, sorted.
    pub guards: Vec<ResourceId>,
    /// The digest over its Job and what it guards.
    pub digest: Digest,
    /// The number that makes the run of one apply unique.
    pub serial: Option<u64>,
    /// False if the hook must not run in this plan.
    pub may_run: bool,
}

impl HookTask {
    /// The stamp of the run: a hook runs once for each.
    pub fn stamp(&self) -> String {
        match self.serial.filter(|_| self.always) {
            Some(serial) => format!("{}.{serial}", self.digest),
            None => self.digest.to_string(),
        }
    }

    /// Returns true if the hook runs when its stack leaves, and this plan only records it: then its Spec is gone.
    pub fn is_for_later(&self) -> bool {
        self.time == HookTime::PreDestroy && !self.may_run
    }

    /// Returns true if a stamp is of a run with the same digest, in this apply or in one before it.
    pub fn is_stamp(&self, stamp: &str) -> bool {
        let digest = if self.always {
            stamp.split_once('.').map_or(stamp, |(digest, _)| digest)
        } else {
            stamp
        };
        digest == self.digest.to_string()
    }

    /// Returns true if a run that succeeded with this stamp is the one that is due.
    pub fn is_done_by(&self, stamp: &str) -> bool {
        if self.always {
            // A preview does not know the number: the next apply runs it.
            self.serial.is_some() && stamp == self.stamp()
        } else {
            self.is_stamp(stamp)
        }
    }
}

/// The hooks of a plan by their Jobs.
pub type HookTasks = BTreeMap<ResourceId, HookTask>;

#[cfg(test)]
mod tests {
    use super::*;

    fn task(always: bool, serial: Option<u64>) -> HookTask {
        HookTask {
            time: HookTime::Pre,
            always,
            keeps_last: true,
            reversible: false,
            guards: Vec::new(),
            digest: Digest::of_bytes(b"a"),
            serial,
            may_run: true,
        }
    }

    #[test]
    fn a_hook_that_always_runs_is_due_once_for_each_serial() {
        let (first, second) = (task(true, Some(3)), task(true, Some(4)));
        assert!(first.is_done_by(&first.stamp()) && !second.is_done_by(&first.stamp()));
        assert!(
            second.is_stamp(&first.stamp()),
            "it may be the run of a killed apply"
        );
        assert!(!task(true, None).is_done_by(&first.stamp()), "a preview shows it");
        let change = task(false, Some(3));
        assert!(change.is_done_by(&task(false, None).stamp()) && !change.is_stamp("a.3"));
    }
}
