//! The options of the Kubernetes runtime.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::super::{FIELD_MANAGER, health::HealthRules};
use konverge_base::checkout::Checkout;
use konverge_cloud::{CloudEnvironment, StackIdentity};
use konverge_engine::runtime::RunNotes;

/// Policy for a field that the Spec sets and another manager owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Conflicts {
    /// A field that the last apply wrote is restored. For any other field the resource fails, and the error
    /// names the owner.
    #[default]
    Restore,
    /// The value of the Spec is written, and the field is taken over.
    Write,
    /// The field keeps its owner and its value.
    Leave,
    /// The resource fails, and the error names the owner.
    Stop,
}

/// The options of the Kubernetes runtime.
#[derive(Debug, Clone)]
pub struct Options {
    /// The field manager that owns the stack's fields: Konverge, or the controller if it delivers the stack.
    pub field_manager: &'static str,
    /// The policy for fields that other managers own.
    pub conflicts: Conflicts,
    /// Maximum time for one resource to become ready, or to be deleted.
    pub ready_timeout: Duration,
    /// Maximum time for the Job of a hook to run.
    pub hook_timeout: Duration,
    /// Time for which a failure that waiting cannot fix must last before the wait ends.
    pub fail_early_after: Duration,
    /// True if an apply waits until objects are ready.
    pub wait: bool,
    /// The user's own readiness rules.
    pub rules: HealthRules,
    /// The checkout. A kubeconfig in it is refused, and so is a file in it that a kubeconfig names.
    pub checkout: Checkout,
    /// The environment variables for Konverge's own logins at clusters.
    pub environment: CloudEnvironment,
    /// The login of the stacks, which replaces the job's own identity.
    pub identity: Option<Arc<StackIdentity>>,
    /// Cancelled when the run is asked to stop, so that the run no longer waits for a server that does not
    /// respond.
    pub cancel: CancellationToken,
    /// Receives notes about a whole cluster.
    pub notes: RunNotes,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            field_manager: FIELD_MANAGER,
            conflicts: Conflicts::Restore,
            ready_timeout: Duration::from_secs(600),
            hook_timeout: Duration::from_secs(900),
            fail_early_after: Duration::from_secs(30),
            wait: true,
            rules: HealthRules::default(),
            checkout: Checkout::default(),
            environment: CloudEnvironment::default(),
            identity: None,
            cancel: CancellationToken::new(),
            notes: RunNotes::default(),
        }
    }
}
