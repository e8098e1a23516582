//! The second half of the demo: two stacks that are really applied, in the order network, app. The first run is asked
//! to stop after the network, and the next one continues.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::commands::{manual_approver::ManualApprover, status};
use konverge_base::{
    error::UserError,
    model::{
        apply_result::ApplyReport,
        event::{EventSink, RunEvent, Step},
        stack_status::StatusReport,
    },
};
use konverge_run::{
    KeyUse, OpenRequest, RunContext, Selection, Session, Target,
    apply::{self, ApplyOptions},
    cluster_selection::Live,
    drift::{self, DriftReport},
    session,
};

/// The resources of the stacks in the second half of the demo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DemoKind {
    /// `terraform_data`, which exists only in the state.
    Terraform,
    /// ConfigMaps in a namespace of their own, in the cluster of this context.
    Kubernetes {
        /// The context of the kubeconfig.
        context: String,
    },
}

/// Returns the files of the second half of the demo, which applies.
pub(super) fn files(kind: &DemoKind) -> Vec<(String, String)> {
    let clusters = match kind {
        DemoKind::Terraform => String::new(),
        DemoKind::Kubernetes { context } => format!(
            "clusters:\n  demo: {{context: {}}}\n",
            serde_json::Value::from(context.as_str())
        ),
    };
    let config = format!(
        "version: 1\nexclude: ['appops/**']\n{clusters}stacks:\n  - {{match: live/app, after: [live/network]}}\n"
    );
    let mut files = vec![
        ("konverge.yaml".to_owned(), config),
        ("live/project.yaml".to_owned(), "name: live\n".to_owned()),
    ];
    let namespace = format!("konverge-demo-{}", std::process::id());
    for name in ["network", "app"] {
        let resources = match kind {
            DemoKind::Terraform => ["one", "two"].map(|which| terraform_data(name, which)).concat(),
            DemoKind::Kubernetes { .. } => objects(name, &namespace),
        };
        let folder = format!("live/{name}");
        files.extend([
            (format!("{folder}/stack.yaml"), format!("name: {name}\n")),
            (
                format!("{folder}/kcl.yaml"),
                "kcl_cli_configs:\n  files: [main.k]\n".to_owned(),
            ),
            (
                format!("{folder}/main.k"),
                format!("resources = [\n{resources}]\n"),
            ),
        ]);
    }
    files
}

fn terraform_data(stack: &str, which: &str) -> String {
    format!(
        "    {{id = \"terraform:builtin:terraform_data:{stack}-{which}\", type = \"Terraform\", attributes = {{input = \"{stack} {which}\"}}, extensions = {{resourceType = \"terraform_data\"}}}}\n"
    )
}

/// Returns the program of a stack with Kubernetes objects: the stack `network` creates the namespace, the stack `app`
/// uses it.
fn objects(stack: &str, namespace: &str) -> String {
    let map = format!(
        "    {{id = \"v1:ConfigMap:{namespace}:{stack}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{stack}\", namespace = \"{namespace}\"}}, data = {{stack = \"{stack}\"}}}}}}\n"
    );
    match stack {
        "network" => format!(
            "    {{id = \"v1:Namespace:{namespace}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"Namespace\", metadata = {{name = \"{namespace}\"}}}}}}\n{map}"
        ),
        _ => map,
    }
}

async fn open(run: &RunContext, pending: bool) -> Result<Session, UserError> {
    let request = OpenRequest {
        selection: Selection::All,
        pending,
        live: Live::Required,
        ..OpenRequest::default()
    };
    session::open(run, &request, KeyUse::Make).await
}

/// Applies what is pending, one stack after the other; `stops` asks the run to stop after the first one.
///
/// # Errors
/// The stacks cannot be opened. Errors of a stack are in the report.
pub async fn apply_pending(run: &RunContext, stops: bool) -> Result<ApplyReport, UserError> {
    let mut run = run.clone();
    if stops {
        run.cancel = run.cancel.child_token();
        run.events = Arc::new(StopAfterFirst {
            events: Arc::clone(&run.events),
            cancel: run.cancel.clone(),
        });
    }
    let session = open(&run, true).await?;
    apply(&session, &session.targets).await
}

/// Returns the recorded state of the stacks, and the health of their objects.
///
/// # Errors
/// The stacks cannot be opened.
pub async fn status(run: &RunContext) -> Result<StatusReport, UserError> {
    let session = open(run, false).await?;
    status::run(&session.planning, &session.targets).await
}

/// Compares the live resources with what was applied.
///
/// # Errors
/// The stacks cannot be opened.
pub async fn drift(run: &RunContext) -> Result<DriftReport, UserError> {
    let session = open(run, false).await?;
    drift::run(&session.planning, &session.targets, None).await
}

/// Deletes everything that was applied.
///
/// # Errors
/// The stacks cannot be opened. Errors of a stack are in the report.
pub async fn destroy(run: &RunContext) -> Result<ApplyReport, UserError> {
    let session = open(run, false).await?;
    let targets: Vec<_> = session.targets.iter().map(Target::destroyed).collect();
    apply(&session, &targets).await
}

async fn apply(session: &Session, targets: &[Target]) -> Result<ApplyReport, UserError> {
    let options = ApplyOptions {
        allow_empty: true,
        ..ApplyOptions::new(Arc::new(ManualApprover {
            config: session.planning.config.clone(),
            deletes_all: true,
        }))
    };
    Ok(apply::run(&session.planning, targets, &options).await?.report)
}

/// Passes events on, and asks the run to stop when the first stack is applied.
struct StopAfterFirst {
    events: Arc<dyn EventSink>,
    cancel: CancellationToken,
}

impl EventSink for StopAfterFirst {
    fn event(&self, event: RunEvent) {
        if let RunEvent::StepProgress {
            step: Step::Apply,
            done: 1..,
            ..
        } = event
        {
            self.cancel.cancel();
        }
        self.events.event(event);
    }
}
