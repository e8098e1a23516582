//! What a job does on a schedule: the workflow says it, by a variable of the job.

/// What a job does on a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScheduledTask {
    /// It checks for drift.
    #[default]
    Drift,
    /// It applies what is pending and reviewed, and moves rollouts on. It approves nothing.
    Apply,
}
