//! `konverge ci` in the jobs that a real Gitea or Forgejo starts: their event, their token and their secrets are the
//! server's own.

use std::{path::PathBuf, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_forge::{CommentAccess, CommitStatus, Publishing as _, StatusState};
use kube::Api;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    ci_stage::Ran,
    cluster::Cluster,
    git::Repository,
    gitea::{Account, Gitea},
    gitea_runner::{GiteaRunner, LABEL, Task},
    gitea_stage::{GiteaStage, KONFIG, id},
    process::Konverge,
    service::eventually,
    tiny_monorepo,
};

/// How long a job of a schedule may take to appear.
const SOON: Duration = Duration::from_secs(60);

/// A job for each event. What it does is the test's: it runs Konverge with what the runner was given.
pub const WORKFLOW: &str = "name: konverge
on:
  pull_request:
    types: [opened, synchronize, reopened, edited]
  push:
    branches: [main]
  workflow_dispatch:
    inputs:
      approve: {type: string, default: ''}
      reason: {type: string, default: ''}
jobs:
  konverge:
    runs-on: LABEL
    steps:
      - run: konverge ci
";

/// A monorepo of ConfigMaps at a real Gitea or Forgejo, with a runner.
pub struct JobStage {
    pub stage: GiteaStage,
    runner: GiteaRunner,
    pub cluster: &'static Cluster,
    pub scratch: TempDir,
    runs: u32,
}

impl JobStage {
    /// `more` is added to konverge.yaml.
    pub async fn start(more: &str) -> Self {
        Self::at(Gitea::start().await, more, &[("konverge.yml", WORKFLOW)]).await
    }

    /// The same at a Forgejo.
    pub async fn start_forgejo(more: &str) -> Self {
        Self::at(Gitea::start_forgejo().await, more, &[("konverge.yml", WORKFLOW)]).await
    }

    /// The same at this server, with these workflows.
    pub async fn at(gitea: Gitea, more: &str, workflows: &[(&str, &str)]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let store = scratch.path().join("store");
        std::fs::create_dir(&store).unwrap();
        let konfig = Repository::init();
        konfig.write("kcl.mod", "[package]\nname = \"small\"\nversion = \"0.1.0\"\n");
        konfig.write("README.md", "Konfig\n");
        let config = format!(
            "version: 1\nstate: {{id: gitea-jobs, url: 'file://{}'}}\nclusters: {{test: {{}}}}\nkcl: {{version: 0.13.2}}\n{more}",
            store.display()
        );
        konfig.write("konverge.yaml", config);
        konfig.commit("No project yet");
        let stage = GiteaStage::of(gitea, konfig).await;
        let rule = json!({"rule_name": "main", "enable_push": true});
        let rules = format!("/repos/{KONFIG}/branch_protections");
        stage.gitea.post(&stage.ada.token, &rules, rule).await;
        let runner = GiteaRunner::register(&stage.gitea, &stage.ada, KONFIG).await;
        let secret = format!("/repos/{KONFIG}/actions/secrets/KONVERGE_TOKEN");
        let data = json!({"data": stage.bot.token});
        stage
            .gitea
            .call(&stage.ada.token, Method::PUT, &secret, data)
            .await;
        stage.konfig.checkout("main");
        for (file, text) in workflows {
            let file = format!(".gitea/workflows/{file}");
            stage.konfig.write(&file, text.replace("LABEL", LABEL));
        }
        stage.commit_as(&stage.ada, "The workflow");
        stage.gitea.push(&stage.konfig, &stage.ada, KONFIG, &["main"]);
        let mut stage = Self {
            stage,
            runner,
            cluster: Cluster::shared(),
            scratch,
            runs: 0,
        };
        stage.next("push").await.outcome.check(0);
        stage
    }

    /// Returns a name of a ConfigMap that the same story at the other server does not use: both apply to one cluster.
    pub fn map(&self, name: &str) -> String {
        let server = if self.stage.gitea.is_forgejo() {
            "forgejo"
        } else {
            "gitea"
        };
        format!("{server}-{name}")
    }

    /// Writes a stack `project/name` with one ConfigMap of one value into the working tree.
    pub fn stack(&self, stack: &str, map: &str, value: &str) {
        let resource = format!(
            "{{id = \"v1:ConfigMap:default:{map}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{map}\", namespace = \"default\"}}, data = {{value = \"{value}\"}}}}}}"
        );
        tiny_monorepo::write_program(
            &self.stage.konfig,
            stack,
            &format!("resources = [\n{resources}\n]\n", resources = resource),
        );
    }

    /// Proposes a stack as a user: the number of the pull request and its head.
    pub async fn propose(&self, user: &Account, branch: &str, map: &str, value: &str) -> (u64, String) {
        self.stage.fetched_main();
        self.stage.konfig.branch(branch);
        self.stack("shop/dev", map, value);
        let head = self.stage.commit_as(user, branch);
        self.stage.gitea.push(&self.stage.konfig, user, KONFIG, &[branch]);
        (self.stage.gitea.pull_request(user, KONFIG, branch).await, head)
    }

    /// Runs the next job, which must be of this event.
    pub async fn next(&mut self, event: &str) -> Ran {
        let task = self.task(event).await;
        self.run(&task).await
    }

    /// The next job, which must be of this event.
    pub async fn task(&self, event: &str) -> Task {
        let task = self.any_task().await;
        assert_eq!(task.text("event_name"), event, "{:?}", task.context);
        task
    }

    /// The next job.
    pub async fn any_task(&self) -> Task {
        self.runner.take().await
    }

    /// Runs `konverge ci` in a checkout as the runner's job, and tells Gitea how it ended.
    pub async fn run(&mut self, task: &Task) -> Ran {
        let (konverge, folder) = self.prepared(task);
        let ran = Ran::of(konverge.run(), folder);
        self.end(task, ran.outcome.code == Some(0)).await;
        ran
    }

    /// Tells Gitea how a job ended.
    pub async fn end(&self, task: &Task, well: bool) {
        self.runner.end(task, well).await;
    }

    /// Returns true if the server has cancelled a job.
    pub async fn is_cancelled(&self, task: &Task) -> bool {
        self.runner.is_cancelled(task).await
    }

    /// A run in the checkout of a job that has not begun, and its `RUNNER_TEMP`.
    pub fn prepared(&mut self, task: &Task) -> (Konverge, PathBuf) {
        self.runs += 1;
        let folder = self.scratch.path().join(self.runs.to_string());
        std::fs::create_dir(&folder).unwrap();
        let event = folder.join("event.json");
        std::fs::write(&event, task.context["event"].to_string()).unwrap();
        // As actions/checkout leaves it without its credentials.
        let checkout = folder.join("checkout");
        let (from, sha) = (self.stage.gitea.remote(&self.stage.bot, KONFIG), task.text("sha"));
        let at = checkout.to_str().unwrap();
        let git = |arguments: &[&str]| self.stage.konfig.git(arguments.iter().copied());
        git(&["clone", "--quiet", "--no-checkout", from.as_str(), at]);
        git(&["-C", at, "fetch", "--quiet", "origin", sha]);
        git(&["-C", at, "checkout", "--quiet", "--detach", sha]);
        let plain = format!("{}/{KONFIG}.git", self.stage.gitea.url());
        git(&["-C", at, "remote", "set-url", "origin", plain.as_str()]);

        let secret = task.secrets.get("KONVERGE_TOKEN").map_or("", String::as_str);
        let konverge = Konverge::new(["ci"])
            .with_kcl()
            .dir(&checkout)
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .env("GITHUB_EVENT_PATH", &event)
            .env("GITHUB_TOKEN", task.text("token"))
            .env("GITEA_TOKEN", secret)
            .env("GITHUB_OUTPUT", folder.join("outputs"))
            .env("GITHUB_STEP_SUMMARY", folder.join("summary.md"))
            .env("RUNNER_TEMP", &folder)
            .env("XDG_CACHE_HOME", folder.join("caches"));
        let with = |konverge: Konverge, (name, value): (String, String)| konverge.env(&name, value);
        (task.variables().into_iter().fold(konverge, with), folder)
    }

    /// What Konverge said on a pull request: the newest text of each comment.
    pub async fn comments(&self, number: u64) -> Vec<String> {
        let all = self
            .stage
            .client()
            .comments(number, None, CommentAccess::Read)
            .await;
        let ours = all
            .unwrap()
            .into_iter()
            .filter(|one| one.author.as_deref() == Some("konverge"));
        ours.map(|one| one.body).collect()
    }

    pub async fn status(&self, sha: &str, context: &str) -> Option<StatusState> {
        let all: Vec<CommitStatus> = self.stage.client().newest_statuses(&id(sha)).await.unwrap();
        all.iter().find(|one| one.context == context).map(|one| one.state)
    }

    pub async fn issues(&self, label: &str) -> Vec<Value> {
        let path = format!("/repos/{KONFIG}/issues?type=issues&state=open&labels={label}");
        let all = self.stage.gitea.get(&self.stage.bot.token, &path).await;
        let all = all.as_array().unwrap().iter();
        all.filter(|issue| issue["labels"][0]["name"] == label)
            .cloned()
            .collect()
    }

    /// Starts the workflow by hand.
    pub async fn dispatch(&self, user: &Account, inputs: Value) {
        let path = format!("/repos/{KONFIG}/actions/workflows/konverge.yml/dispatches");
        let body = json!({"ref": "main", "inputs": inputs});
        self.stage.gitea.post(&user.token, &path, body).await;
    }

    /// Lets the server start what is due by a schedule, which it does once a minute by itself: the job.
    pub async fn scheduled(&self) -> Task {
        let gitea = &self.stage.gitea;
        let start = "/admin/cron/start_schedule_tasks";
        eventually("a job of a schedule", SOON, || async {
            gitea.post(gitea.operator(), start, Value::Null).await;
            self.runner.fetch().await
        })
        .await
    }

    pub async fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.cluster.client().await, "default")
    }

    pub async fn value(&self, map: &str) -> Option<String> {
        let found = self.maps().await.get_opt(map).await.unwrap();
        found.map(|map| map.data.unwrap()["value"].clone())
    }
}
