//! One `terraform plan` and its saved plan.

use std::{collections::HashSet, ffi::OsString};

use super::{
    context::Terraform,
    error::{TerraformError, of_output},
    installation::{Installed, ModuleFolder},
    log_messages::{LogMessage, TerraformDiagnostic, plain},
    module::ModuleFiles,
    saved_plan::SavedPlan,
};

/// The result of a `terraform plan`.
pub(super) enum DryRun {
    /// Terraform saved a plan in the module folder.
    Saved(Box<SavedPlanFile>),
    /// Terraform refused to plan.
    Refused(PlanRefusal),
}

/// A saved plan with its module folder.
pub(super) struct SavedPlanFile {
    pub(super) plan: SavedPlan,
    pub(super) workspace: ModuleFolder,
    pub(super) log: Vec<LogMessage>,
}

/// The errors with which Terraform refused a plan.
pub(super) struct PlanRefusal {
    /// The errors in the log.
    pub(super) errors: Vec<TerraformDiagnostic>,
    /// The addresses of the resources that were refreshed before the error.
    pub(super) refreshed: HashSet<String>,
    /// The first bytes of standard error.
    pub(super) stderr: String,
    /// Hints about the login, if the credentials expired while Terraform ran.
    pub(super) expiry_hints: Vec<String>,
}

/// Plans a module. `mode` is an argument that selects another planning mode, such as `-refresh-only`.
pub(super) async fn plan(
    runtime: &Terraform,
    installed: &Installed,
    module: &ModuleFiles,
    mode: Option<&str>,
) -> Result<DryRun, TerraformError> {
    let options = &runtime.options;
    let toolbox = runtime.toolbox().await?;
    let workspace = toolbox.workspace(installed, module)?;
    // The number of Terraform processes is limited, because several of them could fill the memory of a
    // runner.
    let _turn = toolbox.processes.acquire().await;
    let credentials = runtime.credentials().await?;
    let mut out = OsString::from("-out=");
    out.push(workspace.plan.path());
    // `-lock=false`: the state is a copy in memory, which no other process uses.
    let mut args: Vec<OsString> = ["-json", "-input=false", "-lock=false", "-no-color"]
        .into_iter()
        .chain(mode)
        .map(OsString::from)
        .collect();
    args.push(format!("-parallelism={}", options.parallelism).into());
    args.push(out);
    let output = workspace
        .start("plan", args, &credentials.variables)?
        .finish(options.deadline)
        .await?;
    let lines = output.lines.iter();
    let log: Vec<LogMessage> = lines.filter_map(|line| LogMessage::read(line)).collect();
    if output.code != Some(0) {
        // An error may name no resource. Then the resources that were not refreshed yet may have caused it.
        let refreshed = log.iter().filter(|message| message.kind == "refresh_complete");
        let refreshed = refreshed
            .filter_map(LogMessage::address)
            .map(str::to_owned)
            .collect();
        let diagnostics = log.into_iter().filter_map(|message| message.diagnostic);
        return Ok(DryRun::Refused(PlanRefusal {
            refreshed,
            errors: diagnostics.filter(TerraformDiagnostic::is_error).collect(),
            stderr: output.stderr,
            expiry_hints: runtime.expiry_hints(&credentials).await,
        }));
    }
    let args = [OsString::from("-json"), workspace.plan.path().into_os_string()];
    let shown = workspace
        .start("show", args, &credentials.variables)?
        .finish(options.deadline)
        .await?;
    if shown.code != Some(0) {
        return Err(of_output("show", plain(&options.secrets, &shown.stderr)).into());
    }
    Ok(DryRun::Saved(Box::new(SavedPlanFile {
        plan: SavedPlan::read(&shown.lines.concat())?,
        workspace,
        log,
    })))
}
