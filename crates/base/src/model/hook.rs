//! Hooks: Jobs that run before or after a change.

use std::collections::BTreeMap;

use super::{Digest, ResourceId};

/// The annotation that makes a Job a hook: `pre`, `post`, `failed` or `pre-destroy`.
pub const HOOK: &str = "konverge/hook";
/// The annotation that says which applies a hook runs in: `change` or `always`.
pub const HOOK_ON: &str = "konverge/hook-on";
/// The annotation that says whether a Job stays after its end: `last` or `none`.
pub const HOOK_KEEP: &str = "konverge/hook-keep";
/// The annotation that allows a rollback to run a `pre` hook, or to go back past one that has run.
pub const HOOK_REVERSIBLE: &str = "konverge/hook-reversible";
/// The annotation that Konverge writes to identify the run of a hook ([`HookTask::stamp`]).
pub const HOOK_STAMP: &str = "konverge/hook-digest";

/// The time at which a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, derive_more::Display)]
#[display("{}", self.word())]
pub enum HookTime {
    /// Runs before the workloads that the hook guards change.
    Pre,
    /// Runs after the workloads that the hook guards are ready.
    Post,
    /// Runs after an apply in which something failed.
    Failed,
    /// Runs before the resources of a stack that is destroyed are deleted.
    PreDestroy,
}

impl HookTime {
    /// All times, in the order of an apply.
    pub const ALL: [Self; 4] = [Self::Pre, Self::Post, Self::Failed, Self::PreDestroy];

    /// Returns the value of the annotation.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pre => "pre",
            Self::Post => "post",
            Self::Failed => "failed",
            Self::PreDestroy => "pre-destroy",
        }
    }
}

/// The purpose of the plan of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HookPurpose {
    /// The plan applies a change: hooks run.
    #[default]
    Change,
    /// The plan restores or compares the last applied Spec: no hook runs.
    Restore,
    /// The plan applies an earlier version: `pre` hooks must be reversible.
    Rollback,
}

/// The rules for hooks, from the configuration and from the run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HookRules {
    /// The service accounts that a hook may use: `NAME` or `NAMESPACE/NAME`.
    pub service_accounts: Vec<String>,
    /// True if the hook annotations of Argo CD are read.
    pub argocd: bool,
    /// True if the hook annotations of Helm are read.
    pub helm: bool,
    /// The serial of the recorded state, during an apply.
    pub serial: Option<u64>,
    /// The purpose of the plan.
    pub purpose: HookPurpose,
}

/// A hook in the plan of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookTask {
    /// The time at which the hook runs.
    pub time: HookTime,
    /// True if the hook runs in every apply.
    pub always: bool,
    /// True if the last Job stays after its end.
    pub keeps_last: bool,
    /// True if a rollback may run the hook, or go back past it.
    pub reversible: bool,
    /// The workloads that the hook guards, sorted.
    pub guards: Vec<ResourceId>,
    /// The digest over the Job and the resources that it guards.
    pub digest: Digest,
    /// The serial of the state before the apply, which makes the run of a hook unique; `None` in a preview.
    pub serial: Option<u64>,
    /// False if the hook must not run in this plan.
    pub may_run: bool,
}

impl HookTask {
    /// Returns the stamp of the run. A hook runs once for each stamp.
    pub fn stamp(&self) -> String {
        match self.serial.filter(|_| self.always) {
            Some(serial) => format!("{}.{serial}", self.digest),
            None => self.digest.to_string(),
        }
    }

    /// Returns true if this plan only records the hook, because the hook runs when the stack is destroyed: by then the
    /// Spec is gone.
    pub fn is_for_later(&self) -> bool {
        self.time == HookTime::PreDestroy && !self.may_run
    }

    /// Returns true if a stamp belongs to a run with the same digest, in this apply or in an earlier one.
    pub fn is_stamp(&self, stamp: &str) -> bool {
        let digest = if self.always {
            stamp.split_once('.').map_or(stamp, |(digest, _)| digest)
        } else {
            stamp
        };
        digest == self.digest.to_string()
    }

    /// Returns true if the run that this plan needs already succeeded with this stamp.
    pub fn is_done_by(&self, stamp: &str) -> bool {
        if self.always {
            // A preview has no serial, so the hook counts as not run yet: the next apply runs it.
            self.serial.is_some() && stamp == self.stamp()
        } else {
            self.is_stamp(stamp)
        }
    }
}

/// The hooks of a plan, by the ids of their Jobs.
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
