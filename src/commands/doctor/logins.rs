//! Logs in with each login of `konverge.yaml`, for previews and for applies, and reports the subject that GitHub sends.
//! Compares the environments of the stacks with those that the workflows apply.

use std::path::Path;

use super::{DoctorFinding, RunContext, workflow::Folder};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::stack::Stack,
    yaml,
};
use konverge_ci::workflow_coverage;
use konverge_cloud::{CloudEnvironment, job_subject};
use konverge_config::Config;
use konverge_report::plural;
use konverge_run::logins::Logins;

/// Returns a finding for each login and use.
pub(super) async fn findings(run: &RunContext, config: &Config) -> Vec<DoctorFinding> {
    if config.logins.is_empty() {
        return Vec::new();
    }
    if !run.in_ci() {
        return vec![DoctorFinding::unused(
            "logins",
            format!(
                "{} of konverge.yaml: not checked outside of a job",
                plural(config.logins.len(), "login")
            ),
            "run `konverge doctor` in a job with `id-token: write`, in each environment: GitHub tells the clouds which it is",
        )];
    }
    let subject = match job_subject(&CloudEnvironment::new(run.env.clone())).await {
        Ok(Some(subject)) => format!("GitHub sends the subject `{}`", subject.escape_debug()),
        Ok(None) => "the job may not ask for a token of its identity".to_owned(),
        Err(unknown) => format!("the subject of this job is not known: {}", chain(&unknown)),
    };
    let logins = Logins::new(run, config, run.secrets.clone());
    let mut findings = Vec::new();
    for login in logins.all() {
        let result = login.log_in().await;
        let says = result.map(|_| format!("logged in as {}; {subject}", login.describe()));
        findings.push(DoctorFinding::from_result(
            format!("login {}", login.name()),
            says,
        ));
    }
    findings
}

/// Returns an error if no job applies some stack although jobs are limited to environments, or if a job's environment
/// is always empty.
pub(super) fn coverage(
    root: &Path,
    folder: Folder,
    config: &Config,
    stacks: &[Stack],
) -> Option<DoctorFinding> {
    let files = folder.files(root);
    let texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    let workflows: Vec<_> = texts.filter_map(|text| yaml::from_str(&text).ok()).collect();
    let nameless = workflow_coverage::jobs_without_environment(&workflows);
    if let Some(text) = workflow_coverage::describe_without_environment(&nameless) {
        let failure = UserError::new(ErrorKind::Config, text)
            .hint("name a key of the job's `strategy.matrix`, as in `${{ matrix.environment }}`");
        return Some(DoctorFinding::from_result("environments", Err(failure)));
    }
    let uncovered = workflow_coverage::uncovered_stacks(config, stacks, &workflows);
    let failure = UserError::new(ErrorKind::Config, workflow_coverage::describe(&uncovered)?)
        .hint("give the stacks an environment by a rule of konverge.yaml, or add their environment to the matrix of the job");
    Some(DoctorFinding::from_result("environments", Err(failure)))
}
