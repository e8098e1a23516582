//! Checks the forge: which one it is, which variable says so, and whether the token can read from it.

use std::collections::BTreeSet;

use konverge_base::error::{ErrorKind, UserError};
use konverge_forge::{DetectedForge, ForgeError, ForgeKind};
use konverge_run::{RunContext, forge};

use super::DoctorFinding;

/// Returns the findings about the forge. Read permissions are tried; write permissions are read from the workflow.
pub(super) async fn findings(run: &RunContext) -> Vec<DoctorFinding> {
    let detected = DetectedForge::from_env(&run.env);
    let of_forge = match &detected {
        Ok(Some(DetectedForge { kind, variable })) => {
            let how = format!("{kind}, because {variable} is `true`");
            DoctorFinding::from_result("forge", Ok(how))
        }
        Ok(None) => DoctorFinding::unused(
            "forge",
            "not in a job: no runner has set a variable of its forge",
            "nothing to do here; `konverge doctor` checks this in a job",
        ),
        Err(two) => DoctorFinding::from_result("forge", Err(ForgeError::from(*two).into())),
    };
    let of_job = detected.ok().flatten().map(|detected| detected.kind);
    let mut findings = vec![of_forge];
    findings.extend(what_is_missing(run));
    findings.extend(version(run).await);
    findings.push(token(run, of_job).await);
    findings
}

/// Returns a finding with the features that the forge lacks, if it lacks any.
fn what_is_missing(run: &RunContext) -> Option<DoctorFinding> {
    let forge = forge::connect(run, run.forge_repository()?).ok()??;
    let parts = [
        forge.checks().err(),
        forge.deployments().err(),
        forge.environments().err(),
        forge.review_edits().err(),
        forge.branch_activity().err(),
        forge.code_owners().err(),
    ];
    let missing: Vec<_> = parts.into_iter().flatten().map(|missing| missing.what).collect();
    (!missing.is_empty()).then(|| {
        DoctorFinding::unused(
            "forge limits",
            format!("{} has no {}", forge.kind(), missing.join(", no ")),
            "docs/reference/forges.md describes what Konverge does without these features",
        )
    })
}

/// Returns a finding if the server is too old for some feature. All other features work there.
async fn version(run: &RunContext) -> Option<DoctorFinding> {
    let forge = forge::connect(run, run.forge_repository()?).ok()??;
    let error = forge.answers_about_runs().await.err()?;
    let failure = matches!(error, ForgeError::Outdated { .. }).then(|| UserError::from(error))?;
    let hint = failure.hints.first().map_or("", String::as_str);
    Some(DoctorFinding::unused("forge version", failure.to_string(), hint))
}

async fn token(run: &RunContext, of_job: Option<ForgeKind>) -> DoctorFinding {
    let (name, hint) = match of_job {
        Some(ForgeKind::Gitea) => (
            "Gitea token",
            "give the step `env: {GITEA_TOKEN: \"${{ secrets.KONVERGE_TOKEN }}\"}`, the token of a bot",
        ),
        Some(ForgeKind::Gitlab) => (
            "GitLab token",
            "add the CI/CD variables KONVERGE_GITLAB_TOKEN (protected) and GITLAB_TOKEN to the project, the tokens of bots: docs/guides/gitlab.md",
        ),
        Some(ForgeKind::Github) | None => (
            "GitHub token",
            "give the step `env: {GITHUB_TOKEN: \"${{ github.token }}\"}`, or use the action, whose input `github-token` has it by default",
        ),
    };
    let named = run.forge_repository().filter(|_| run.has_forge_login());
    let Some(repository) = named else {
        return if of_job.is_some() {
            let missing = UserError::new(
                ErrorKind::Github,
                "the job has no token: neither comment nor status is written",
            );
            DoctorFinding::from_result(name, Err(missing.hint(hint)))
        } else {
            DoctorFinding::unused(
                name,
                "not in a job",
                "nothing to do here; `konverge doctor` checks this in a job",
            )
        };
    };
    let asked = async {
        if let Some(forge) = forge::connect(run, repository)? {
            forge.recent_pull_requests(&BTreeSet::new(), 1).await?;
        }
        Ok(format!("it reads the pull requests of {repository}"))
    };
    DoctorFinding::from_result(name, asked.await)
}
