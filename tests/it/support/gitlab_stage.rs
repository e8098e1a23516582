//! A project at a fake GitLab, with a repository, and clients of it.

use std::time::Duration;

use konverge_base::retry::RetryPolicy;
use konverge_forge::RequestOptions;
use konverge_gitlab::{Client, Environment};
use konverge_secrets::{HashKey, Secrets};

use super::{
    git::Repository,
    gitlab::{FakeGitlab, HERE, MergeRequest, World},
};

/// `acme/platform/konfig` at a GitLab of its own.
pub struct GitlabStage {
    pub gitlab: FakeGitlab,
    pub konfig: Repository,
}

impl GitlabStage {
    /// With one commit on `main`, below a path.
    pub async fn start() -> Self {
        let konfig = Repository::init();
        konfig.write("README.md", "Konfig\n").commit("The first");
        let gitlab = FakeGitlab::start_at(World::of(&konfig), "/git").await;
        Self { gitlab, konfig }
    }

    /// Konverge's client.
    pub fn client(&self) -> Client {
        client(&self.gitlab.api_url(), "glpat-bot")
    }

    /// The client in a job of a pipeline for `main`.
    pub fn client_of_job(&self, pipeline: u64, id: &str, name: &str) -> Client {
        let variables = [
            ("CI_PIPELINE_ID", pipeline.to_string()),
            ("CI_COMMIT_SHA", self.konfig.rev("main")),
            ("CI_JOB_ID", id.to_owned()),
            ("CI_JOB_NAME", name.to_owned()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value)).into();
        self.client().with_job(Environment::new(&variables).own_job())
    }

    /// A branch from `main` with a changed file, and its merge request: its head.
    pub fn propose(&self, iid: u64, branch: &str, file: &str, text: &str) -> String {
        self.konfig.checkout("main").branch(branch);
        let head = self.konfig.write(file, text).commit(branch);
        self.konfig.checkout("main");
        let merge_request = MergeRequest::open(iid, branch, &head);
        self.gitlab
            .world(|world| world.merge_requests.push(merge_request));
        head
    }

    /// The operations that were asked for.
    pub fn operations(&self) -> Vec<String> {
        let requests = self.gitlab.requests().into_iter();
        requests.map(|request| request.operation).collect()
    }
}

/// A client that soon gives up.
pub fn client(api_url: &str, token: &str) -> Client {
    let quick = RetryPolicy {
        first: Duration::from_millis(5),
        attempts: 2,
        total: Duration::from_secs(20),
        ..RetryPolicy::default()
    };
    Client::new(api_url, HERE, token, Secrets::new(HashKey::derive("test")))
        .unwrap()
        .with_options(RequestOptions {
            retries: quick,
            deadline: Duration::from_secs(20),
            ..RequestOptions::default()
        })
}
