//! The options of the runtime.

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

/// The options of the runtime.
#[derive(Debug, Clone)]
pub struct Options {
    /// The field manager whose fields count as ours: that of the controller, for a stack that is delivered.
    pub field_manager: &'static str,
    /// The policy for fields that others own.
    pub conflicts: Conflicts,
    /// Maximum time for one resource to become ready, or to be deleted.
    pub ready_timeout: Duration,
    /// Maximum time for the Job of a hook to run.
    pub hook_timeout: Duration,
    /// Time for which a failure that waiting does not fix must last before the wait ends.
    pub fail_early_after: Duration,
    /// True if an apply waits for readiness.
    pub wait: bool,
    /// The user's own readiness rules.
    pub rules: HealthRules,
    /// The checkout. A kubeconfig in the checkout is refused, and so is a file there that a kubeconfig names.
    pub checkout: Checkout,
    /// The variables by which Konverge logs in at a cluster itself.
    pub environment: CloudEnvironment,
    /// The login of the stacks, in the place of the job's own identity.
    pub identity: Option<Arc<StackIdentity>>,
    /// Cancelled when the run is asked to stop: the run then no longer waits for a server that does not
    /// answer.
    pub cancel: CancellationToken,
    /// Receives notes on a cluster as a whole.
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
