//! A forge as those who work there see it: what they do starts jobs, which a runner takes.

use std::{collections::BTreeSet, path::PathBuf};

use serde_json::{Value, json};

use crate::support::{
    ci_stage::Stage, git::Repository, gitea_jobs::JobStage, gitea_runner::Task, gitea_stage::KONFIG,
    payloads, process::Konverge,
};

/// How a pull request is merged.
#[derive(Debug, Clone, Copy)]
pub enum Style {
    Merge,
    Squash,
    Rebase,
}

/// A forge with one repository. Branches are made in [`Host::konfig`], and pushed by what the forge is asked for.
pub trait Host: Sized {
    /// A job that the forge has started.
    type Job;
    const NAME: &'static str;
    /// Whether a preview is of the test merge, or of the head alone.
    const HAS_TEST_MERGE: bool;

    async fn start() -> Self;
    /// A clone, whose `main` is the forge's.
    fn konfig(&self) -> &Repository;
    /// The folder in which the states lie.
    fn store(&self) -> PathBuf;
    /// Somebody pushes a branch and opens a pull request.
    async fn open(&mut self, branch: &str) -> (u64, Self::Job);
    /// Somebody pushes another head of the branch by force.
    async fn push_by_force(&mut self, number: u64, branch: &str) -> Self::Job;
    async fn merge(&mut self, number: u64, branch: &str, style: Style) -> Self::Job;
    /// Somebody pushes the newest commit of `main` without a pull request.
    async fn push_main(&mut self) -> Self::Job;
    /// Somebody who may push starts the workflow with digests.
    async fn approve(&mut self, digests: &str) -> Self::Job;
    /// `konverge ci` as the runner starts it, and its folder.
    fn prepared(&mut self, job: &mut Self::Job) -> (Konverge, PathBuf);
    /// The runner says how the job ended.
    async fn ended(&mut self, job: Self::Job, well: bool);
    /// The titles of the open issues about stopped stacks.
    async fn stopped(&self) -> BTreeSet<String>;
}

/// The fake GitHub.
pub struct Github {
    stage: Stage,
    pulls: u64,
}

/// An event of it.
pub struct GithubJob {
    event: &'static str,
    payload: Value,
    sha: String,
    git_ref: String,
    run: u64,
}

impl Github {
    fn previewed(&self, number: u64, branch: &str, action: &str) -> GithubJob {
        let (payload, sha) = self.stage.opened(number, branch, action, KONFIG);
        let git_ref = format!("refs/pull/{number}/merge");
        GithubJob {
            event: "pull_request",
            payload,
            sha,
            git_ref,
            run: 0,
        }
    }

    fn pushed(&self, before: &str, after: String, kind: &str) -> GithubJob {
        self.stage
            .github
            .world(|world| world.moved("main", Some(before), &after, kind, "dev"));
        GithubJob {
            event: "push",
            payload: payloads::push("main", before, &after, false),
            sha: after,
            git_ref: "refs/heads/main".into(),
            run: 0,
        }
    }
}

impl Host for Github {
    type Job = GithubJob;
    const NAME: &'static str = "github";
    const HAS_TEST_MERGE: bool = true;

    async fn start() -> Self {
        let stage = Stage::small("").await;
        stage.github.world(|world| {
            world.collaborators.insert("dev".into(), "write");
        });
        Self { stage, pulls: 0 }
    }

    fn konfig(&self) -> &Repository {
        &self.stage.monorepo
    }

    fn store(&self) -> PathBuf {
        self.stage.scratch.path().join("store")
    }

    async fn open(&mut self, branch: &str) -> (u64, GithubJob) {
        self.pulls += 1;
        (self.pulls, self.previewed(self.pulls, branch, "opened"))
    }

    async fn push_by_force(&mut self, number: u64, branch: &str) -> GithubJob {
        self.previewed(number, branch, "synchronize")
    }

    async fn merge(&mut self, number: u64, branch: &str, style: Style) -> GithubJob {
        let konfig = &self.stage.monorepo;
        let before = konfig.checkout("main").rev("main");
        match style {
            Style::Merge => {
                konfig.merge(branch);
            }
            Style::Squash => {
                konfig.git(["merge", "--quiet", "--squash", branch]);
                konfig.commit(branch);
            }
            Style::Rebase => {
                konfig.git(["checkout", "--quiet", "--detach", branch]);
                konfig.git(["rebase", "--quiet", "main"]);
                let rebased = konfig.rev("HEAD");
                konfig.checkout("main");
                konfig.git(["merge", "--quiet", "--ff-only", &rebased]);
            }
        }
        let after = konfig.rev("main");
        let brought = konfig.git(["rev-list", &format!("{before}..{after}")]);
        self.stage.github.world(|world| {
            let pull = world.pulls.iter_mut().find(|pull| pull.number == number).unwrap();
            pull.merged_at = Some("2026-11-21T10:00:00Z".into());
            pull.merge_commit = Some(after.clone());
            let brought = brought.lines().map(|commit| (commit.to_owned(), vec![number]));
            world.commit_pulls.extend(brought);
        });
        self.pushed(&before, after, "pr_merge")
    }

    async fn push_main(&mut self) -> GithubJob {
        let konfig = &self.stage.monorepo;
        let (before, after) = (konfig.rev("main^1"), konfig.rev("main"));
        self.pushed(&before, after, "push")
    }

    async fn approve(&mut self, digests: &str) -> GithubJob {
        GithubJob {
            event: "workflow_dispatch",
            payload: payloads::workflow_dispatch("main", json!({"approve": digests, "reason": "as it is"})),
            sha: self.stage.monorepo.rev("main"),
            git_ref: "refs/heads/main".into(),
            run: 0,
        }
    }

    fn prepared(&mut self, job: &mut GithubJob) -> (Konverge, PathBuf) {
        self.stage.monorepo.checkout(&job.sha);
        let checkout = self.stage.monorepo.path().to_owned();
        let prepared = self
            .stage
            .prepared(&checkout, job.event, &job.payload, &job.sha, &job.git_ref);
        job.run = 5000 + self.stage.runs;
        prepared
    }

    async fn ended(&mut self, job: GithubJob, _well: bool) {
        let over = json!({"id": job.run, "status": "completed", "run_attempt": 1});
        self.stage.github.world(|world| world.runs.insert(job.run, over));
    }

    async fn stopped(&self) -> BTreeSet<String> {
        self.stage.github.world(|world| {
            let open = world.issues.iter().filter(|issue| {
                issue.state == "open" && issue.labels.iter().any(|label| label == "konverge-unreviewed")
            });
            open.map(|issue| issue.title.clone()).collect()
        })
    }
}

/// A real Gitea.
pub struct Gitea {
    jobs: JobStage,
}

impl Host for Gitea {
    type Job = Task;
    const NAME: &'static str = "gitea";
    const HAS_TEST_MERGE: bool = false;

    async fn start() -> Self {
        Self {
            jobs: JobStage::start("").await,
        }
    }

    fn konfig(&self) -> &Repository {
        &self.jobs.stage.konfig
    }

    fn store(&self) -> PathBuf {
        self.jobs.scratch.path().join("store")
    }

    async fn open(&mut self, branch: &str) -> (u64, Task) {
        let stage = &self.jobs.stage;
        stage.gitea.push(&stage.konfig, &stage.bob, KONFIG, &[branch]);
        let number = stage.gitea.pull_request(&stage.bob, KONFIG, branch).await;
        (number, self.jobs.task("pull_request").await)
    }

    async fn push_by_force(&mut self, number: u64, branch: &str) -> Task {
        let stage = &self.jobs.stage;
        stage
            .gitea
            .push(&stage.konfig, &stage.bob, KONFIG, &["--force", branch]);
        stage
            .gitea
            .sees_head(KONFIG, number, &stage.konfig.rev(branch))
            .await;
        self.jobs.task("pull_request").await
    }

    async fn merge(&mut self, number: u64, _branch: &str, style: Style) -> Task {
        let stage = &self.jobs.stage;
        let style = match style {
            Style::Merge => "merge",
            Style::Squash => "squash",
            Style::Rebase => "rebase",
        };
        stage.gitea.merge(&stage.ada, KONFIG, number, style).await;
        stage.fetched_main();
        self.jobs.task("push").await
    }

    async fn push_main(&mut self) -> Task {
        let stage = &self.jobs.stage;
        stage.gitea.push(&stage.konfig, &stage.ada, KONFIG, &["main"]);
        self.jobs.task("push").await
    }

    async fn approve(&mut self, digests: &str) -> Task {
        let inputs = json!({"approve": digests, "reason": "as it is"});
        self.jobs.dispatch(&self.jobs.stage.bob, inputs).await;
        self.jobs.task("workflow_dispatch").await
    }

    fn prepared(&mut self, job: &mut Task) -> (Konverge, PathBuf) {
        self.jobs.prepared(job)
    }

    async fn ended(&mut self, job: Task, well: bool) {
        self.jobs.end(&job, well).await;
    }

    async fn stopped(&self) -> BTreeSet<String> {
        let issues = self.jobs.issues("konverge-unreviewed").await;
        let titles = issues
            .iter()
            .map(|issue| issue["title"].as_str().unwrap().to_owned());
        titles.collect()
    }
}
