//! A monorepo on GitHub with a real cluster and a real bucket: runs of `konverge ci` as the runner makes them, and what
//! stands in the cluster, the bucket and on GitHub afterwards.

use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use object_store::ObjectStore;
use serde_json::Value;
use tempfile::TempDir;

use super::{
    cluster::Cluster,
    git::Repository,
    github::{FakeGithub, Pull, World},
    payloads,
    process::{Konverge, Outcome},
    s3::S3,
};

/// A monorepo on GitHub with a cluster and a bucket.
pub struct Stage {
    pub monorepo: Repository,
    pub github: FakeGithub,
    pub cluster: &'static Cluster,
    pub bucket: String,
    pub scratch: TempDir,
    pub runs: u64,
    /// What every run's environment has besides.
    pub env: Vec<(&'static str, String)>,
    /// Whether the runner's kernel lacks Landlock.
    pub old_kernel: bool,
}

/// What a run in GitHub Actions left behind.
pub struct Ran {
    pub outcome: Outcome,
    pub summary: String,
    pub outputs: String,
    /// Its folder, `RUNNER_TEMP`; the caches are below.
    pub folder: PathBuf,
}

impl Stage {
    /// The example monorepo with no project yet, so that every stack that is applied was reviewed.
    ///
    /// `more` is added to its konverge.yaml.
    pub async fn set_up(more: &str) -> Self {
        let monorepo = Repository::konfig_example();
        monorepo.git(["rm", "-rq", "appops"]);
        Self::with("main-job", monorepo, more).await
    }

    /// A monorepo without any cluster or store that a konverge.yaml would name: what `konverge init` writes is all
    /// there is.
    pub async fn newcomer(monorepo: Repository) -> Self {
        Self {
            github: FakeGithub::start(World::of(&monorepo)).await,
            monorepo,
            cluster: Cluster::shared(),
            bucket: String::new(),
            scratch: tempfile::tempdir().unwrap(),
            runs: 0,
            env: Vec::new(),
            old_kernel: false,
        }
    }

    /// A monorepo of one's own, known to its bucket as `name`.
    pub async fn with(name: &str, monorepo: Repository, more: &str) -> Self {
        let server = S3::shared();
        let bucket = server.bucket(name);
        let config = format!(
            "version: 1\nstate:\n  id: {name}\n  url: s3://{bucket}/konverge\n  options: {{endpoint: '{}', region: us-east-1, path_style: 'true', allow_http: 'true'}}\n\
             clusters:\n  test: {{}}\nkcl: {{version: 0.13.2}}\n{more}",
            server.endpoint()
        );
        monorepo.write("konverge.yaml", config).commit("No project yet");
        let github = FakeGithub::start(World::of(&monorepo)).await;
        let scratch = tempfile::tempdir().unwrap();
        Self {
            monorepo,
            github,
            cluster: Cluster::with_controllers(),
            bucket,
            scratch,
            runs: 0,
            env: Vec::new(),
            old_kernel: false,
        }
    }

    /// Brings files of the example back, changed, on a branch.
    pub fn propose(&self, branch: &str, change: impl FnOnce(&Repository)) -> String {
        self.monorepo.checkout("main").branch(branch);
        change(&self.monorepo);
        self.monorepo.commit(branch)
    }

    /// Runs `konverge ci` as the runner would, on a checkout of `sha`.
    pub fn ci(&mut self, event: &str, payload: &Value, sha: &str, git_ref: &str) -> Ran {
        self.monorepo.checkout(sha);
        let folder = self.monorepo.path().to_owned();
        self.ci_in(&folder, event, payload, sha, git_ref)
    }

    /// The same in another checkout.
    pub fn ci_in(&mut self, checkout: &Path, event: &str, payload: &Value, sha: &str, git_ref: &str) -> Ran {
        let (konverge, folder) = self.prepared(checkout, event, payload, sha, git_ref);
        Ran::of(konverge.run(), folder)
    }

    /// A run that has not begun, and its `RUNNER_TEMP`.
    pub fn prepared(
        &mut self,
        checkout: &Path,
        event: &str,
        payload: &Value,
        sha: &str,
        git_ref: &str,
    ) -> (Konverge, PathBuf) {
        self.runs += 1;
        let folder = self.scratch.path().join(self.runs.to_string());
        std::fs::create_dir(&folder).unwrap();
        let payload_path = folder.join("event.json");
        std::fs::write(&payload_path, payload.to_string()).unwrap();
        let konverge = self
            .konverge(["ci"])
            .dir(checkout)
            .env("GITHUB_ACTIONS", "true")
            .env("GITHUB_EVENT_NAME", event)
            .env("GITHUB_EVENT_PATH", &payload_path)
            .env("GITHUB_REPOSITORY", "acme/konfig")
            .env("GITHUB_SHA", sha)
            .env("GITHUB_REF", git_ref)
            .env("GITHUB_RUN_ID", (5000 + self.runs).to_string())
            .env("GITHUB_RUN_ATTEMPT", "1")
            .env("GITHUB_ACTOR", "dev")
            .env("GITHUB_SERVER_URL", "https://github.com")
            .env("GITHUB_API_URL", self.github.api_url())
            .env("GITHUB_TOKEN", "ghs_token")
            .env("GITHUB_STEP_SUMMARY", folder.join("summary.md"))
            .env("GITHUB_OUTPUT", folder.join("outputs"))
            .env("RUNNER_TEMP", &folder)
            .env("XDG_CACHE_HOME", folder.join("caches"));
        let more = |konverge: Konverge, (key, value): &(&str, String)| konverge.env(key, value);
        (self.env.iter().fold(konverge, more), folder)
    }

    /// A command in the monorepo, with the credentials of cluster and bucket.
    pub fn konverge<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Konverge {
        let konverge = if self.old_kernel {
            Konverge::on_an_old_kernel(arguments)
        } else {
            Konverge::new(arguments)
        };
        konverge
            .with_kcl()
            .dir(self.monorepo.path())
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .env("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY)
    }

    /// A pull request's event on its trial merge.
    pub fn pull_request(&mut self, number: u64, branch: &str, action: &str) -> Ran {
        let (payload, trial) = self.opened(number, branch, action, "acme/konfig");
        self.preview(number, &payload, &trial)
    }

    /// The run of a pull request's event.
    pub fn preview(&mut self, number: u64, payload: &Value, trial: &str) -> Ran {
        self.ci(
            "pull_request",
            payload,
            trial,
            &format!("refs/pull/{number}/merge"),
        )
    }

    /// GitHub knows of a pull request from `from`: its event and its trial merge.
    pub fn opened(&self, number: u64, branch: &str, action: &str, from: &str) -> (Value, String) {
        let (base, head) = (self.monorepo.rev("main"), self.monorepo.rev(branch));
        self.monorepo.checkout(&base);
        let trial = self.monorepo.merge(branch);
        self.github.world(|world| {
            let before = world.pulls.iter().find(|pull| pull.number == number);
            let before = before.map(|pull| pull.head.clone());
            if from == "acme/konfig" && before.as_ref() != Some(&head) {
                let kind = if before.is_some() {
                    "push"
                } else {
                    "branch_creation"
                };
                world.moved(branch, before.as_deref(), &head, kind, "ada");
            }
            world.pulls.retain(|pull| pull.number != number);
            world.pulls.push(Pull {
                branch: branch.into(),
                head_repository: Some(from.into()),
                ..Pull::open(number, head.as_str())
            });
        });
        let payload = payloads::pull_request(action, number, &base, (branch, &head), from);
        (payload, trial)
    }

    /// GitHub's merge button: the pull request is merged, and `main` is pushed.
    pub fn merge(&mut self, number: u64, branch: &str) -> Ran {
        let (before, after) = self.press_merge(number, branch);
        self.push(&before, &after)
    }

    /// The button alone: `main` before and after it.
    pub fn press_merge(&self, number: u64, branch: &str) -> (String, String) {
        let before = self.monorepo.checkout("main").rev("main");
        let after = self.monorepo.merge(branch);
        self.merged(number, &after);
        (before, after)
    }

    /// The same with all its commits made one.
    pub fn squash(&mut self, number: u64, branch: &str) -> Ran {
        let before = self.monorepo.checkout("main").rev("main");
        self.monorepo.git(["merge", "--quiet", "--squash", branch]);
        let after = self.monorepo.commit(branch);
        self.merged(number, &after);
        self.push(&before, &after)
    }

    /// GitHub knows that `commit` brought a pull request into `main`.
    pub fn merged(&self, number: u64, commit: &str) {
        self.github.world(|world| {
            for pull in world.pulls.iter_mut().filter(|pull| pull.number == number) {
                pull.merged_at = Some("2026-11-21T10:00:00Z".into());
                pull.merge_commit = Some(commit.to_owned());
            }
            world.commit_pulls.insert(commit.to_owned(), vec![number]);
            world.main.push(commit.to_owned());
            let before = self.monorepo.rev(&format!("{commit}^1"));
            world.moved("main", Some(&before), commit, "pr_merge", "dev");
        });
    }

    /// A push of `main`, by the one who acts, as the run says, unless GitHub made it by a merge.
    pub fn push(&mut self, before: &str, after: &str) -> Ran {
        let actor = self.env.iter().find(|(name, _)| *name == "GITHUB_ACTOR");
        let actor = actor.map_or("dev", |(_, actor)| actor).to_owned();
        self.github.world(|world| {
            let is_it = |moved: &Value| moved["after"] == after && moved["ref"] == "refs/heads/main";
            if before != after && !world.activity.iter().any(is_it) {
                world.moved("main", Some(before), after, "push", &actor);
            }
        });
        let payload = payloads::push("main", before, after, false);
        self.ci("push", &payload, after, "refs/heads/main")
    }

    pub fn schedule(&mut self) -> Ran {
        let sha = self.monorepo.rev("main");
        self.ci("schedule", &payloads::schedule(), &sha, "refs/heads/main")
    }

    pub fn comments(&self) -> Vec<(u64, String)> {
        self.github
            .world(|world| world.comments.iter().map(|c| (c.id, c.body.clone())).collect())
    }

    /// The newest state of a status on a commit.
    pub fn status(&self, sha: &str, context: &str) -> Option<String> {
        self.github.world(|world| {
            let of = |(at, body): &(String, Value)| at == sha && body["context"] == context;
            world
                .statuses
                .iter()
                .rfind(|status| of(status))
                .map(|(_, body)| body["state"].as_str().unwrap().to_owned())
        })
    }

    /// The newest check run of a name.
    pub fn check(&self, name: &str) -> Option<Value> {
        self.github
            .world(|world| world.checks.iter().rfind(|check| check["name"] == name).cloned())
    }

    pub async fn keys(&self) -> Vec<String> {
        use futures::TryStreamExt as _;
        let store = S3::shared().client(&self.bucket);
        let mut keys: Vec<_> = store
            .list(None)
            .map_ok(|meta| meta.location.to_string())
            .try_collect()
            .await
            .unwrap();
        keys.sort();
        keys
    }

    pub async fn deployment(&self) -> Option<Deployment> {
        let api: Api<Deployment> = Api::namespaced(self.cluster.client().await, "storefront-dev");
        api.get_opt("storefront").await.unwrap()
    }

    pub fn writes(&self) -> usize {
        self.cluster
            .audit()
            .iter()
            .filter(|event| event.writes() && event.is_in("storefront-dev"))
            .count()
    }
}

impl Ran {
    /// What an ended run left in its `RUNNER_TEMP`.
    pub fn of(outcome: Outcome, folder: PathBuf) -> Self {
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        Self {
            outcome,
            summary: read("summary.md"),
            outputs: read("outputs"),
            folder,
        }
    }

    /// An output of the step.
    pub fn output(&self, name: &str) -> String {
        let mut lines = self.outputs.lines();
        let opens = format!("{name}<<");
        lines.find(|line| line.starts_with(&opens)).expect(name);
        lines.next().expect("a value").to_owned()
    }
}

/// The project `storefront` of the example, its stack `dev` alone.
pub fn storefront(monorepo: &Repository) {
    monorepo.git(["checkout", "-q", ":/^The example", "--", "appops/storefront"]);
    monorepo.git([
        "rm",
        "-rqf",
        "appops/storefront/staging",
        "appops/storefront/prod",
    ]);
}

/// All that stands in a folder's files, the caches of the runner's disk aside.
pub fn everything_in(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("caches") {
            text += &everything_in(&path);
        } else if path.is_file() {
            text += &String::from_utf8_lossy(&std::fs::read(&path).unwrap());
        }
    }
    text
}
