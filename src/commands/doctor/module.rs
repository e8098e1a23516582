//! Calls the binary of a Kusion module with a small request, and describes its response.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::finding::{DoctorFinding, DoctorVerdict};
use konverge_base::error::{ErrorKind, UserError};
use konverge_kcl::SandboxMode;
use konverge_kusion::{
    AnswerSummary, ForeignAnswer,
    module_host::{self, ModuleLimits, ModuleRequest, ModuleRun, ModuleSetup},
};
use konverge_run::{RunContext, module_runner::offline_binary};

/// The settings in the request. They set nothing, so every module can read them.
const SETTINGS: &str = "{}\n";

/// Calls a module by the path of its binary, or by its name in the folder of KUSION_MODULE_PATH.
pub async fn check_module(run: &RunContext, given: &str) -> Vec<DoctorFinding> {
    let binary = match found(run, given) {
        Ok(binary) => binary,
        Err(failure) => return vec![DoctorFinding::from_result("module", Err(failure))],
    };
    let shown = Ok(binary.display().to_string());
    let mut findings = vec![DoctorFinding::from_result("module", shown)];
    let name = binary.file_name().unwrap_or_default().to_string_lossy();
    let name = name.trim_start_matches("kusion-module-").to_owned();
    let called = match call(&binary, &name).await {
        Ok(called) => called,
        Err(failure) => {
            findings.push(DoctorFinding::from_result("call", Err(failure)));
            return findings;
        }
    };
    if let Some(warning) = &called.warning {
        findings.push(DoctorFinding::unused(
            "sandbox",
            warning.clone(),
            konverge_sandbox::HINTS[0],
        ));
    }
    findings.push(DoctorFinding::from_result(
        "handshake",
        Ok(called.handshake.clone()),
    ));
    findings.push(answer(&called));
    findings
}

fn found(run: &RunContext, given: &str) -> Result<PathBuf, UserError> {
    let path = run.dir.join(given);
    if path.is_file() {
        let real = path.canonicalize();
        return real.map_err(|error| UserError::from_error(ErrorKind::Config, error).context(given));
    }
    offline_binary(run, given)?.ok_or_else(|| {
        UserError::new(ErrorKind::Config, format!("`{given}` is neither a file nor a module on this machine"))
            .hint("give the path of the binary, or set KUSION_MODULE_PATH to the folder that holds ORG/NAME/VERSION/OS/ARCH")
    })
}

async fn call(binary: &Path, name: &str) -> Result<ModuleRun, UserError> {
    let internal = |error: std::io::Error| UserError::from_error(ErrorKind::Internal, error);
    let files = tempfile::tempdir().map_err(internal)?;
    let folder = files.path().canonicalize().map_err(internal)?;
    let setup = ModuleSetup {
        name: name.to_owned(),
        binary: binary.to_owned(),
        executable: std::env::current_exe().map_err(internal)?,
        work_dir: folder.clone(),
        files: folder,
        readable: Vec::new(),
        environment: BTreeMap::new(),
        network: false,
        sandbox: SandboxMode::BestEffort,
        limits: ModuleLimits::default(),
    };
    let request = ModuleRequest {
        project: "doctor".to_owned(),
        stack: "dev".to_owned(),
        app: "app".to_owned(),
        dev_config: SETTINGS.into(),
        ..ModuleRequest::default()
    };
    let called = module_host::generate(&setup, &request).await;
    called.map_err(|error| error.into_user_error(name))
}

/// Describes the response by kinds and ids alone: values may be secret.
fn answer(called: &ModuleRun) -> DoctorFinding {
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    let read = ForeignAnswer {
        resources: called.reply.resources.iter().map(text).collect(),
        patchers: called.reply.patchers.iter().map(text).collect(),
    };
    match read.summary() {
        Ok(AnswerSummary { resources, patchers }) => DoctorFinding {
            what: "answer".to_owned(),
            verdict: DoctorVerdict::Ok,
            says: if resources.is_empty() {
                format!("no resource, {patchers} patchers")
            } else {
                format!("{}; {patchers} patchers", resources.join(", "))
            },
            fix: Vec::new(),
        },
        Err(error) => DoctorFinding::from_result("answer", Err(error.into())),
    }
}
