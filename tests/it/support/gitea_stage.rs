//! A real Gitea with an organisation, its people and a repository, and clients of it.

use std::time::Duration;

use konverge_base::{
    model::{
        CommitId,
        comment_marker::{CommentMarker, MarkerKind},
    },
    retry::RetryPolicy,
};
use konverge_forge::RequestOptions;
use konverge_gitea::Client;
use konverge_secrets::{HashKey, Secrets};

use super::{
    git::Repository,
    gitea::{Account, Gitea},
};

/// The repository.
pub const KONFIG: &str = "acme/konfig";

/// `acme/konfig` at a Gitea of its own.
pub struct GiteaStage {
    pub gitea: Gitea,
    /// Owns the organisation.
    pub ada: Account,
    /// May write.
    pub bob: Account,
    /// May read.
    pub eve: Account,
    /// Administers the repository and is in the team of owners: Konverge's token.
    pub bot: Account,
    /// What is pushed.
    pub konfig: Repository,
}

impl GiteaStage {
    /// With one commit on `main`.
    pub async fn start() -> Self {
        Self::of(Gitea::start().await, Repository::init()).await
    }

    /// The same at a Forgejo.
    pub async fn start_forgejo() -> Self {
        Self::of(Gitea::start_forgejo().await, Repository::init()).await
    }

    /// A Gitea with what a repository has on `main`.
    pub async fn of(gitea: Gitea, konfig: Repository) -> Self {
        let ada = gitea.user("ada").await;
        let bob = gitea.user("bob").await;
        let eve = gitea.user("eve").await;
        let bot = gitea.user("konverge").await;
        gitea.organisation(&ada, "acme").await;
        gitea.team(&ada, "acme", "developers", "write", &[&bob]).await;
        gitea.team(&ada, "acme", "readers", "read", &[&eve]).await;
        gitea.repository(&ada, "acme", "konfig").await;
        let owners = gitea.get(&ada.token, "/orgs/acme/teams").await;
        let owners = owners
            .as_array()
            .unwrap()
            .iter()
            .find(|team| team["name"] == "Owners");
        let path = format!("/teams/{}/members/{}", owners.unwrap()["id"], bot.login);
        gitea
            .call(&ada.token, reqwest::Method::PUT, &path, serde_json::Value::Null)
            .await;
        if !konfig.path().join("README.md").exists() {
            konfig.write("README.md", "Konfig\n").commit("The first");
        }
        gitea.push(&konfig, &ada, KONFIG, &["main"]);
        gitea.is_filled(KONFIG).await;
        Self {
            gitea,
            ada,
            bob,
            eve,
            bot,
            konfig,
        }
    }

    /// Konverge's client.
    pub fn client(&self) -> Client {
        self.client_with(&self.bot.token)
    }

    /// A client with a token.
    pub fn client_with(&self, token: &str) -> Client {
        client(&self.gitea.api_url(), token)
    }

    /// Pushes a branch from `main` with a changed file as a user, and gives its head.
    pub fn propose(&self, user: &Account, branch: &str, file: &str, text: &str) -> String {
        self.konfig.checkout("main").branch(branch);
        self.konfig.write(file, text);
        let head = self.commit_as(user, branch);
        self.gitea.push(&self.konfig, user, KONFIG, &[branch]);
        head
    }

    /// Commits the working tree under the name and the address of a user.
    pub fn commit_as(&self, user: &Account, message: &str) -> String {
        commit_as(&self.konfig, &user.login, message)
    }

    /// The same with a pull request, which is seen: its number and its head.
    pub async fn opened(&self, user: &Account, branch: &str, file: &str, text: &str) -> (u64, String) {
        let head = self.propose(user, branch, file, text);
        let number = self.gitea.pull_request(user, KONFIG, branch).await;
        self.gitea.sees_head(KONFIG, number, &head).await;
        (number, head)
    }

    /// The tip of `main` at Gitea, which is fetched and checked out.
    pub fn fetched_main(&self) -> String {
        let remote = self.gitea.remote(&self.ada, KONFIG);
        self.konfig.checkout("main");
        self.konfig.git([
            "fetch",
            "--quiet",
            remote.as_str(),
            "+main:refs/remotes/forge/main",
        ]);
        self.konfig
            .git(["reset", "--quiet", "--hard", "refs/remotes/forge/main"]);
        self.konfig.rev("HEAD")
    }
}

/// A client of `acme/konfig` that soon gives up.
pub fn client(api_url: &str, token: &str) -> Client {
    let quick = RetryPolicy {
        first: Duration::from_millis(50),
        attempts: 2,
        total: Duration::from_secs(20),
        ..RetryPolicy::default()
    };
    Client::new(api_url, KONFIG, token, Secrets::new(HashKey::derive("test")))
        .unwrap()
        .with_options(RequestOptions {
            retries: quick,
            deadline: Duration::from_secs(20),
            ..RequestOptions::default()
        })
}

/// Commits the working tree, with a user of Gitea as the author.
pub fn commit_as(repository: &Repository, login: &str, message: &str) -> String {
    let author = format!("--author={login} <{login}@acme.example>");
    repository.git(["add", "--all"]);
    repository.git(["commit", "--quiet", "--allow-empty", "-m", message, &author]);
    repository.rev("HEAD")
}

pub fn id(sha: &str) -> CommitId {
    sha.parse().unwrap()
}

pub fn marker(run: u64) -> CommentMarker {
    let mut marker = CommentMarker::new(MarkerKind::Preview, "");
    (marker.run, marker.attempt) = (run, 1);
    marker
}

pub fn body(marker: &CommentMarker, text: &str) -> String {
    format!("{}\n{text}\n", marker.line())
}
