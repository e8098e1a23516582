//! Pipelines and jobs: checks if one is over, starts pipelines, and finds out who started one.

use std::collections::BTreeSet;

use async_trait::async_trait;
use jiff::Timestamp;
use konverge_base::error::SharedError;
use konverge_forge::{DispatchedRun, ForgeError, ForgeKind, JobInfo, Result, Runs, if_found};
use konverge_rest::{TokenPermission, encoded};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

use crate::{
    changes::READ,
    client::{Client, User},
    environment::is_project,
    job::pipeline_of_page,
    without,
};

const START: TokenPermission =
    TokenPermission("the scope `api`, the role Developer, and at a protected branch the right to merge");

/// The permission to read the settings of a project.
const SETTINGS: TokenPermission = TokenPermission("the scope `api` and the role Maintainer");

/// The CI file, which defines the jobs of all pipelines of a project.
const PIPELINE_FILE: &str = ".gitlab-ci.yml";

/// The maximum number of pipelines whose names are requested one by one.
const MOST_NAMED: usize = 10;

/// The maximum number of pipeline schedules, each of which needs a request.
const MOST_SCHEDULES: usize = 50;

#[derive(Deserialize)]
struct PipelineBody {
    id: u64,
    status: String,
    #[serde(default)]
    web_url: String,
    /// The name of the pipeline: the evaluated `workflow: name:`.
    name: Option<String>,
    user: Option<User>,
}

impl From<PipelineBody> for DispatchedRun {
    fn from(raw: PipelineBody) -> Self {
        Self {
            id: raw.id,
            display_title: raw.name.unwrap_or_default(),
            html_url: raw.web_url,
            conclusion: is_final(&raw.status).then_some(raw.status),
        }
    }
}

/// Returns true if a pipeline or a job with this status has ended. A manual job that waits for somebody has not.
fn is_final(status: &str) -> bool {
    matches!(status, "success" | "failed" | "canceled" | "skipped")
}

#[async_trait]
impl Runs for Client {
    async fn is_over(&self, url: &str) -> Result<Option<bool>> {
        #[derive(Deserialize)]
        struct Run {
            status: String,
        }
        let Some(path) = path_of_page(url, self.server_url()) else {
            return Ok(None);
        };
        let run: Run = self.rest.get(&path, READ).await?;
        Ok(Some(is_final(&run.status)))
    }

    async fn dispatch_workflow(&self, file: &str, branch: &str, inputs: &Value) -> Result<u64> {
        if file != PIPELINE_FILE {
            return Err(without("workflows in files of their own: name `.gitlab-ci.yml`").into());
        }
        let body = json!({"ref": branch, "inputs": inputs});
        let started: PipelineBody = self.rest.post_once(&self.path("/pipeline"), &body, START).await?;
        Ok(started.id)
    }

    async fn dispatched_runs(&self, _: &str, branch: &str, limit: usize) -> Result<Vec<DispatchedRun>> {
        let path = self.path(&format!(
            "/pipelines?source=api&order_by=id&sort=desc&ref={}",
            encoded(branch)
        ));
        let page = self.page::<PipelineBody>(&path, READ, 1).await?;
        let mut newest: Vec<_> = page.items.into_iter().take(limit).collect();
        // A pipeline that started without a response is found by its name, and is among the newest. The list may
        // lack names, so they are requested one by one.
        if limit > 1 {
            for listed in newest.iter_mut().take(MOST_NAMED) {
                if listed.name.is_none() {
                    listed.name = self.pipeline(listed.id).await?.name;
                }
            }
        }
        Ok(newest.into_iter().map(DispatchedRun::from).collect())
    }

    async fn dispatched_run(&self, run: u64) -> Result<Option<DispatchedRun>> {
        Ok(if_found(self.pipeline(run).await)?.map(DispatchedRun::from))
    }

    fn starters_may_push(&self) -> bool {
        // A schedule keeps running after its owner has lost the permission to push.
        false
    }

    async fn starter(&self, job: &JobInfo) -> Result<String> {
        self.refuse_given_variables().await?;
        self.refuse_scheduled_variables().await?;
        let pipeline = self.pipeline(job.run_id).await?;
        let starter = pipeline.user.map(|user| user.username);
        starter.ok_or_else(|| {
            let path = self.path(&format!("/pipelines/{}", job.run_id));
            let cause = "it does not say who started the pipeline";
            self.rest.malformed(format!("GET {path}"), cause)
        })
    }

    async fn attempt(&self, job: &JobInfo) -> Result<u32> {
        #[derive(Deserialize)]
        struct Job {
            id: u64,
            name: String,
        }
        let own = self.job.as_ref().filter(|own| own.pipeline == job.run_id);
        let own = own.ok_or_else(|| ForgeError::Runner {
            message: "failed to find the attempt of this job: CI_JOB_ID or CI_JOB_NAME is missing".to_owned(),
            hint: "GitLab sets these variables; in a container of its own pass the CI_ variables on"
                .to_owned(),
        })?;
        let path = self.path(&format!("/pipelines/{}/jobs?include_retried=true", own.pipeline));
        let jobs: Vec<Job> = self.list(&path, READ).await?;
        // A retry is another job with the same name. A set is used, because pages may overlap while jobs are added.
        let of_name = jobs.iter().filter(|one| one.name == own.name);
        let until: BTreeSet<u64> = of_name.map(|one| one.id).filter(|id| *id <= own.id).collect();
        let malformed = |cause: SharedError| self.rest.malformed(format!("GET {path}"), cause);
        if !until.contains(&own.id) {
            return Err(malformed("the list does not have this job".into()));
        }
        u32::try_from(until.len()).map_err(|error| malformed(error.into()))
    }

    fn server_time(&self) -> Option<Timestamp> {
        self.rest.time_now()
    }
}

impl Client {
    /// Returns an error if a person who starts a pipeline may set variables. They override GitLab's own variables,
    /// so every fact about the pipeline that a job reads could be forged.
    async fn refuse_given_variables(&self) -> Result<()> {
        #[derive(Deserialize)]
        struct Project {
            /// The minimum role for starting a pipeline with variables. Only shown to maintainers.
            ci_pipeline_variables_minimum_override_role: Option<String>,
            /// The older form of the setting. If it is false, the role has no effect.
            restrict_user_defined_variables: Option<bool>,
        }
        let path = self.path("");
        let project: Project = self.rest.get(&path, SETTINGS).await?;
        let role = project.ci_pipeline_variables_minimum_override_role;
        match (role.as_deref(), project.restrict_user_defined_variables) {
            (Some("no_one_allowed" | "owner"), None | Some(true)) => Ok(()),
            (Some(_), _) => Err(ForgeError::Runner {
                message: "the project lets people who start a pipeline override the variables that GitLab sets, such as the commit and who started it"
                    .to_owned(),
                hint: "set \"Minimum role to use pipeline variables\" to \"No one allowed\" in Settings, CI/CD, Variables, and `restrict_user_defined_variables` to true if a request of the API has set it; inputs of pipelines stay possible"
                    .to_owned(),
            }),
            (None, _) => Err(unseen(&path, "the minimum role to use pipeline variables")),
        }
    }

    /// Returns an error if a pipeline schedule has variables. Its pipelines get them regardless of the project's
    /// setting, and somebody may have added them before the setting was restricted.
    async fn refuse_scheduled_variables(&self) -> Result<()> {
        #[derive(Deserialize)]
        struct Listed {
            id: u64,
        }
        #[derive(Deserialize)]
        struct Schedule {
            /// The variables of the schedule. Missing if the token may not see them.
            variables: Option<Vec<IgnoredAny>>,
        }
        let schedules: Vec<Listed> = self.list(&self.path("/pipeline_schedules"), SETTINGS).await?;
        if schedules.len() > MOST_SCHEDULES {
            return Err(ForgeError::Runner {
                message: format!(
                    "the project has more than {MOST_SCHEDULES} pipeline schedules, too many to ask each for its variables"
                ),
                hint: "delete the schedules that nobody needs, in Build, Pipeline schedules".to_owned(),
            });
        }
        for Listed { id } in schedules {
            let path = self.path(&format!("/pipeline_schedules/{id}"));
            let Some(schedule) = if_found(self.rest.get::<Schedule>(&path, SETTINGS).await)? else {
                // The schedule was deleted in the meantime.
                continue;
            };
            match schedule.variables {
                Some(variables) if variables.is_empty() => {}
                Some(_) => {
                    return Err(ForgeError::Runner {
                        message: format!(
                            "the pipeline schedule {id} has variables, which override GitLab's own variables, such as the commit and who started the pipeline"
                        ),
                        hint: "delete the variables of the schedule in Build, Pipeline schedules; its inputs stay possible"
                            .to_owned(),
                    });
                }
                None => return Err(unseen(&path, "the variables of a pipeline schedule")),
            }
        }
        Ok(())
    }

    async fn pipeline(&self, id: u64) -> Result<PipelineBody> {
        self.rest.get(&self.path(&format!("/pipelines/{id}")), READ).await
    }
}

/// Creates the error for a response without a field, which means that the token's role is too low.
fn unseen(path: &str, what: &str) -> ForgeError {
    ForgeError::Forbidden {
        forge: ForgeKind::Gitlab,
        operation: format!("GET {path}, {what}"),
        permission: SETTINGS.0.to_owned(),
    }
}

/// Returns the API path for the URL of a job or a pipeline, `https://HOST/GROUP/NAME/-/jobs/ID`; `None` for a URL
/// of another server.
fn path_of_page(url: &str, server_url: &str) -> Option<String> {
    let path = url.strip_prefix(server_url)?.strip_prefix('/')?;
    let (project, page) = path.split_once("/-/")?;
    let (kind, id) = page.split_once('/')?;
    let id = match kind {
        "jobs" => id.parse().ok()?,
        "pipelines" => pipeline_of_page(id)?.0,
        _ => return None,
    };
    is_project(project).then(|| format!("/projects/{}/{kind}/{id}", encoded(project)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_this_server_and_no_others() {
        let path = |url: &str| path_of_page(url, "https://acme.example/git");
        let below = "https://acme.example/git/acme/platform/konfig/-";
        assert_eq!(
            path(&format!("{below}/jobs/42")).as_deref(),
            Some("/projects/acme%2Fplatform%2Fkonfig/jobs/42")
        );
        assert_eq!(
            path(&format!("{below}/pipelines/7")).as_deref(),
            Some("/projects/acme%2Fplatform%2Fkonfig/pipelines/7")
        );
        assert_eq!(
            path(&format!("{below}/pipelines/7#attempt-2")).as_deref(),
            Some("/projects/acme%2Fplatform%2Fkonfig/pipelines/7")
        );
        for other in [
            "someone@laptop (process 7)",
            "https://acme.example.evil.example/git/acme/konfig/-/jobs/42",
            "https://acme.example/acme/konfig/-/jobs/42",
            "https://acme.example/git/acme/../-/jobs/42",
            "https://acme.example/git/acme/konfig/-/jobs/42?x=y",
            "https://acme.example/git/acme/konfig/-/jobs/42/artifacts",
            "https://acme.example/git/acme/konfig/-/issues/42",
            "https://acme.example/git/acme/konfig/-/pipelines/42#x",
            "https://acme.example/git/acme/konfig/-/jobs/42#attempt-2",
            "https://acme.example/git/acme/konfig/jobs/42",
        ] {
            assert_eq!(path(other), None, "{other}");
        }
    }

    #[test]
    fn a_run_ends_with_a_result_and_not_while_it_waits() {
        for ended in ["success", "failed", "canceled", "skipped"] {
            assert!(is_final(ended), "{ended}");
        }
        for other in [
            "running",
            "pending",
            "manual",
            "canceling",
            "waiting_for_resource",
            "something new",
        ] {
            assert!(!is_final(other), "{other}");
        }
    }
}
