//! A registered runner of the Actions of Gitea or Forgejo. It takes the jobs that the server starts, with their event,
//! token and secrets, and reports their results. A test decides what a job does.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::gitea::{Account, Gitea};
use super::service::eventually;

/// The time limit for a job to appear.
const SOON: Duration = Duration::from_secs(60);

/// The label of the jobs that the runner takes.
pub const LABEL: &str = "konverge-test";

/// A registered runner.
pub struct GiteaRunner {
    http: reqwest::Client,
    service: String,
    uuid: String,
    token: String,
    is_forgejo: bool,
}

/// A job that Gitea gave to the runner.
#[derive(Debug, Clone)]
pub struct Task {
    pub id: String,
    /// The context `github` for the expressions of a workflow.
    pub context: Value,
    /// The secrets of the job, and its own token.
    pub secrets: BTreeMap<String, String>,
    /// The workflow with this single job, as YAML.
    pub workflow: String,
    /// True if a Forgejo gave it.
    pub is_forgejo: bool,
}

impl GiteaRunner {
    /// Registers a runner for a repository.
    pub async fn register(gitea: &Gitea, owner: &Account, repository: &str) -> Self {
        let path = format!("/repos/{repository}/actions/runners/registration-token");
        // Gitea 1.26 makes a token by POST; a Forgejo has the older GET alone.
        let method = if gitea.is_forgejo() {
            Method::GET
        } else {
            Method::POST
        };
        let token = gitea.call(&owner.token, method, &path, Value::Null).await;
        let mut runner = Self {
            http: reqwest::Client::new(),
            service: format!("{}/api/actions/runner.v1.RunnerService", gitea.url()),
            uuid: String::new(),
            token: String::new(),
            is_forgejo: gitea.is_forgejo(),
        };
        let labels = json!([LABEL]);
        let ask = json!({"name": "test", "token": token["token"], "version": "v1.0.0", "labels": labels});
        let registered = runner.ask("Register", ask).await;
        let text = |name: &str| registered["runner"][name].as_str().expect(name).to_owned();
        (runner.uuid, runner.token) = (text("uuid"), text("token"));
        runner
            .ask("Declare", json!({"version": "v1.0.0", "labels": labels}))
            .await;
        runner
    }

    /// Waits for the next job.
    pub async fn take(&self) -> Task {
        eventually("a job of Gitea's Actions", SOON, || self.fetch()).await
    }

    /// Returns the next job, if there is one now.
    pub async fn fetch(&self) -> Option<Task> {
        // Without a known version Gitea looks for jobs at every request.
        let answer = self.ask("FetchTask", json!({"tasksVersion": "0"})).await;
        let task = &answer["task"];
        let secrets = task["secrets"].as_object().cloned().unwrap_or_default();
        Some(Task {
            id: task["id"].as_str()?.to_owned(),
            context: task["context"].clone(),
            secrets: secrets
                .into_iter()
                .map(|(name, value)| (name, value.as_str().unwrap_or_default().to_owned()))
                .collect(),
            workflow: String::from_utf8(STANDARD.decode(task["workflowPayload"].as_str()?).ok()?).ok()?,
            is_forgejo: self.is_forgejo,
        })
    }

    /// Reports the result of a job.
    pub async fn end(&self, task: &Task, well: bool) {
        let result = if well { "RESULT_SUCCESS" } else { "RESULT_FAILURE" };
        let now = jiff::Timestamp::now().to_string();
        let state = json!({"id": task.id, "result": result, "startedAt": now, "stoppedAt": now});
        self.ask("UpdateTask", json!({"state": state})).await;
    }

    /// Returns true if the server has cancelled a job. A runner learns it from the answer to its report, and ends the
    /// job.
    pub async fn is_cancelled(&self, task: &Task) -> bool {
        let answer = self.ask("UpdateTask", json!({"state": {"id": task.id}})).await;
        answer["state"]["result"] == "RESULT_CANCELLED"
    }

    async fn ask(&self, call: &str, message: Value) -> Value {
        let request = self
            .http
            .post(format!("{}/{call}", self.service))
            .header("connect-protocol-version", "1")
            .header("x-runner-uuid", &self.uuid)
            .header("x-runner-token", &self.token)
            .json(&message);
        let answer = request.send().await.expect("Gitea answers");
        let (status, text) = (answer.status(), answer.text().await.expect("a whole answer"));
        assert_eq!(status, StatusCode::OK, "{call}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }
}

impl Task {
    /// Returns a string of the job's context.
    pub fn text(&self, name: &str) -> &str {
        self.context[name].as_str().unwrap_or_default()
    }

    /// Returns the variables that the runner of Gitea or Forgejo sets from the context, except those with names of
    /// files.
    pub fn variables(&self) -> Vec<(String, String)> {
        let named = [
            "actor",
            "api_url",
            "base_ref",
            "event_name",
            "head_ref",
            "job",
            "ref",
            "ref_name",
            "ref_type",
            "repository",
            "repository_owner",
            "run_attempt",
            "run_id",
            "run_number",
            "server_url",
            "sha",
            "workflow",
        ];
        let variables = named.map(|name| {
            (
                format!("GITHUB_{}", name.to_uppercase()),
                self.text(name).to_owned(),
            )
        });
        // Forgejo's own runner sets a variable of its own beside that of Gitea's.
        let own = self.is_forgejo.then_some("FORGEJO_ACTIONS");
        let always = ["CI", "GITHUB_ACTIONS", "GITEA_ACTIONS"].into_iter().chain(own);
        let always = always.map(|name| (name.to_owned(), "true".to_owned()));
        variables.into_iter().chain(always).collect()
    }
}
