//! One `terraform plan`, and the plan that it saved.

use std::{collections::HashSet, ffi::OsString};

use super::{
    Terraform,
    error::TerraformError,
    log_messages::{Diagnostic, Message, plain},
    module::Module,
    saved_plan::SavedPlan,
    installation::{Installed, Workspace},
};

/// What came of it.
pub(super) enum DryRun {
    /// The plan stands in the workspace.
    Saved(Box<Saved>),
    /// Terraform refused.
    Refused(Refusal),
}

/// A plan that waits in its workspace.
pub(super) struct Saved {
    pub(super) plan: SavedPlan,
    pub(super) workspace: Workspace,
    pub(super) log: Vec<Message>,
}

/// Why Terraform refused.
pub(super) struct Refusal {
    /// The errors in its log.
    pub(super) errors: Vec<Diagnostic>,
    /// The addresses of what it had looked at by then.
    pub(super) refreshed: HashSet<String>,
    /// The start of its standard error.
    pub(super) stderr: String,
}

/// Plans a module; with `mode` in another mode than the usual one (`-refresh-only`).
pub(super) async fn plan(
    runtime: &Terraform,
    installed: &Installed,
    module: &Module,
    mode: Option<&str>,
) -> Result<DryRun, TerraformError> {
    let options = &runtime.options;
    let toolbox = runtime.toolbox().await?;
    let workspace = toolbox.workspace(installed, module)?;
    let _turn = toolbox.processes.acquire().await;
    let mut out = OsString::from("-out=");
    out.push(workspace.plan.path());
    let mut args: Vec<OsString> = ["-json", "-input=false", "-lock=false", "-no-color"]
        .into_iter()
        .chain(mode)
        .map(OsString::from)
        .collect();
    args.push(format!("-parallelism={}", options.parallelism).into());
    args.push(out);
    let output = workspace.start("plan", args)?.finish(options.deadline).await?;
    let lines = output.lines.iter();
    let log: Vec<Message> = lines.filter_map(|line| Message::read(line)).collect();
    if output.code != Some(0) {
        let refreshed = log.iter().filter(|message| message.kind == "refresh_complete");
        let refreshed = refreshed
            .filter_map(Message::address)
            .map(str::to_owned)
            .collect();
        let diagnostics = log.into_iter().filter_map(|message| message.diagnostic);
        return Ok(DryRun::Refused(Refusal {
            refreshed,
            errors: diagnostics.filter(Diagnostic::is_error).collect(),
            stderr: output.stderr,
        }));
    }
    let args = [OsString::from("-json"), workspace.plan.path().into_os_string()];
    let shown = workspace.start("show", args)?.finish(options.deadline).await?;
    if shown.code != Some(0) {
        let why = plain(&options.secrets, &shown.stderr);
        return Err(TerraformError::Answer { step: "show", why });
    }
    Ok(DryRun::Saved(Box::new(Saved {
        plan: SavedPlan::read(&shown.lines.concat())?,
        workspace,
        log,
    })))
}
