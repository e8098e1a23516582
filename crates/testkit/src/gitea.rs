//! A real Gitea or Forgejo with its database in a file. Tests create users, tokens, organisations, repositories and
//! pushes by its own API and git, as people do.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::git::Repository;
use super::service::{Ports, Service, eventually, folder};

/// The time limit of a start, which creates the database.
const START: Duration = Duration::from_secs(120);

/// The time limit for work that Gitea does after its response, such as the queue for pushes.
const SOON: Duration = Duration::from_secs(30);

/// The account that runs Gitea if the tests run as root, because Gitea refuses to run as root.
const ORDINARY: &str = "nobody";

/// The password of every user.
const PASSWORD: &str = "correct horse";

/// The program to start. Forgejo is a fork of Gitea, and has the same options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Gitea,
    Forgejo,
}

impl Program {
    /// Returns the name of the part, which is also the name of the executable.
    fn part(self) -> &'static str {
        match self {
            Self::Gitea => "gitea",
            Self::Forgejo => "forgejo",
        }
    }
}

/// A running Gitea or Forgejo.
pub struct Gitea {
    program: Program,
    service: Service,
    ports: Ports,
    url: String,
    http: reqwest::Client,
    /// The token of the instance's administrator.
    admin: String,
}

/// A user with a token that has all rights of the user.
#[derive(Debug, Clone)]
pub struct Account {
    pub login: String,
    pub token: String,
}

/// A response of the API, with any status.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub body: Value,
}

impl Gitea {
    /// Starts an empty Gitea.
    pub async fn start() -> Self {
        Self::start_below("").await
    }

    /// Starts an empty Forgejo.
    pub async fn start_forgejo() -> Self {
        Self::start_program(Program::Forgejo, "").await
    }

    /// Starts an empty Gitea whose pages and API are below a path, such as `/forge`.
    pub async fn start_below(path: &str) -> Self {
        Self::start_program(Program::Gitea, path).await
    }

    async fn start_program(program: Program, path: &str) -> Self {
        let (folder, ports) = (folder(program.part()), Ports::claim());
        let url = format!("http://127.0.0.1:{}{path}", ports.nth(1));
        let config = folder.join("app.ini");
        std::fs::write(&config, configuration(program, &folder, ports.nth(1), &url))
            .expect("the configuration");
        let gitea = |arguments: &[&str]| command(program, &folder, &config, arguments);
        let mut service = Service::start(program.part(), &gitea(&["web"]), &folder);
        service.wait_for_port(ports.nth(1), START);
        let made = gitea(&[
            "admin",
            "user",
            "create",
            "--admin",
            "--username=operator",
            "--email=operator@acme.example",
            "--must-change-password=false",
            &format!("--password={PASSWORD}"),
        ])
        .output()
        .expect("it can be started");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut started = Self {
            program,
            service,
            ports,
            url,
            http: reqwest::Client::new(),
            admin: String::new(),
        };
        // At a Forgejo the token that the command creates has no scope, so create one by the API.
        started.admin = started.token("operator", &["all"]).await;
        started
    }

    /// Returns true for a Forgejo.
    pub fn is_forgejo(&self) -> bool {
        self.program == Program::Forgejo
    }

    /// Returns the web address, without a `/` at its end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the address of the API.
    pub fn api_url(&self) -> String {
        format!("{}/api/v1", self.url)
    }

    /// Returns the token of the instance's administrator.
    pub fn operator(&self) -> &str {
        &self.admin
    }

    /// Sends a request to the API with a token.
    pub async fn send(&self, token: &str, method: Method, path: &str, body: Value) -> Reply {
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.api_url()))
            .header("authorization", format!("token {token}"));
        if !body.is_null() {
            request = request.json(&body);
        }
        read(request).await
    }

    /// Sends a request that must succeed, and returns its body.
    pub async fn call(&self, token: &str, method: Method, path: &str, body: Value) -> Value {
        let called = format!("{method} {path}");
        let Reply { status, body } = self.send(token, method, path, body).await;
        assert!(status.is_success(), "{called}: {status} {body}");
        body
    }

    /// Sends a GET request that must succeed.
    pub async fn get(&self, token: &str, path: &str) -> Value {
        self.call(token, Method::GET, path, Value::Null).await
    }

    /// Sends a POST request that must succeed.
    pub async fn post(&self, token: &str, path: &str, body: Value) -> Value {
        self.call(token, Method::POST, path, body).await
    }

    /// Creates a user, and a token with every scope.
    pub async fn user(&self, login: &str) -> Account {
        let user = json!({
            "username": login,
            "email": format!("{login}@acme.example"),
            "password": PASSWORD,
            "must_change_password": false,
        });
        self.post(&self.admin, "/admin/users", user).await;
        let token = self.token(login, &["all"]).await;
        Account {
            login: login.to_owned(),
            token,
        }
    }

    /// Creates a token of a user with these scopes.
    pub async fn token(&self, login: &str, scopes: &[&str]) -> String {
        let name = uuid::Uuid::new_v4().simple().to_string();
        let request = self
            .http
            .post(format!("{}/users/{login}/tokens", self.api_url()))
            .basic_auth(login, Some(PASSWORD))
            .json(&json!({"name": name, "scopes": scopes}));
        let Reply { status, body } = read(request).await;
        assert!(status.is_success(), "a token of {login}: {status} {body}");
        body["sha1"].as_str().expect("a token").to_owned()
    }

    /// Creates an organisation that a user owns.
    pub async fn organisation(&self, owner: &Account, name: &str) {
        self.post(&owner.token, "/orgs", json!({"username": name})).await;
    }

    /// Creates a team of an organisation with one permission in all its repositories.
    pub async fn team(
        &self,
        owner: &Account,
        organisation: &str,
        name: &str,
        permission: &str,
        members: &[&Account],
    ) {
        let units = [
            "repo.code",
            "repo.issues",
            "repo.pulls",
            "repo.actions",
            "repo.releases",
        ];
        let units: Vec<_> = units.iter().map(|unit| (*unit, permission)).collect();
        self.team_for(owner, organisation, name, &units, members).await;
    }

    /// Creates a team of an organisation with a permission for each of these units in all its repositories.
    pub async fn team_for(
        &self,
        owner: &Account,
        organisation: &str,
        name: &str,
        units: &[(&str, &str)],
        members: &[&Account],
    ) {
        let units: serde_json::Map<_, _> = units
            .iter()
            .map(|(unit, permission)| ((*unit).to_owned(), json!(permission)))
            .collect();
        let team = json!({
            "name": name,
            "permission": "read",
            "units_map": units,
            "includes_all_repositories": true,
        });
        let made = self
            .post(&owner.token, &format!("/orgs/{organisation}/teams"), team)
            .await;
        for member in members {
            let path = format!("/teams/{}/members/{}", made["id"], member.login);
            self.call(&owner.token, Method::PUT, &path, Value::Null).await;
        }
    }

    /// Creates an empty repository of an organisation.
    pub async fn repository(&self, owner: &Account, organisation: &str, name: &str) {
        let repository = json!({"name": name, "default_branch": "main"});
        self.post(&owner.token, &format!("/orgs/{organisation}/repos"), repository)
            .await;
    }

    /// Gives a user read, write or admin access to a repository (`owner/name`).
    pub async fn collaborator(&self, owner: &Account, repository: &str, user: &Account, permission: &str) {
        let path = format!("/repos/{repository}/collaborators/{}", user.login);
        let body = json!({"permission": permission});
        self.call(&owner.token, Method::PUT, &path, body).await;
    }

    /// Returns the address for git to fetch a repository, or to push to it as a user.
    pub fn remote(&self, user: &Account, repository: &str) -> String {
        let at = self.url.trim_start_matches("http://");
        format!("http://{}:{}@{at}/{repository}.git", user.login, user.token)
    }

    /// Pushes refs of a repository as a user. `refs` are refspecs, or options before them.
    pub fn push(&self, from: &Repository, user: &Account, repository: &str, refs: &[&str]) {
        let remote = self.remote(user, repository);
        let (options, refs): (Vec<_>, Vec<_>) = refs.iter().partition(|word| word.starts_with('-'));
        let all = ["push", "--quiet"].into_iter();
        from.git(all.chain(options).chain([remote.as_str()]).chain(refs));
    }

    /// Opens a pull request as a user, and returns its number. `head` is a branch, or `USER:branch` of a fork.
    pub async fn pull_request(&self, user: &Account, repository: &str, head: &str) -> u64 {
        let pull = json!({"head": head, "base": "main", "title": format!("Merge {head}"), "body": "Please."});
        let path = format!("/repos/{repository}/pulls");
        let opened = self.post(&user.token, &path, pull).await;
        opened["number"].as_u64().expect("a number")
    }

    /// Waits until Gitea has processed the first push to a repository in the background. Before that it creates no
    /// branches.
    pub async fn is_filled(&self, repository: &str) {
        let path = format!("/repos/{repository}");
        eventually("the first push", SOON, || async {
            let found = self.get(&self.admin, &path).await;
            (found["empty"] == false).then_some(())
        })
        .await;
    }

    /// Waits until Gitea has processed this head of a pull request.
    pub async fn sees_head(&self, repository: &str, number: u64, head: &str) {
        let path = format!("/repos/{repository}/git/refs/pull/{number}/head");
        eventually("the new head of a pull request", SOON, || async {
            let reply = self.send(&self.admin, Method::GET, &path, Value::Null).await;
            (reply.body[0]["object"]["sha"] == head).then_some(())
        })
        .await;
    }

    /// Merges a pull request as a user in a style (`merge`, `squash`, `rebase`, `rebase-merge`, `fast-forward-only`),
    /// and returns the commit on the target branch.
    pub async fn merge(&self, user: &Account, repository: &str, number: u64, style: &str) -> String {
        let path = format!("/repos/{repository}/pulls/{number}");
        let merge = format!("{path}/merge");
        // Gitea first tests for conflicts in the background, and refuses merges until then.
        eventually("a merge", SOON, || async {
            let body = json!({"do": style});
            let reply = self.send(&user.token, Method::POST, &merge, body).await;
            match reply.status {
                StatusCode::OK => Some(()),
                StatusCode::METHOD_NOT_ALLOWED if reply.body["message"] == "Please try again later" => None,
                status => panic!("{merge}: {status} {}", reply.body),
            }
        })
        .await;
        let merged = self.get(&self.admin, &path).await;
        merged["merge_commit_sha"]
            .as_str()
            .expect("it is merged")
            .to_owned()
    }

    /// Waits until a pull request is merged by a rule that Gitea evaluates in the background.
    pub async fn is_merged(&self, repository: &str, number: u64) {
        let path = format!("/repos/{repository}/pulls/{number}");
        eventually("a merge that was asked for", SOON, || async {
            let pull = self.get(&self.admin, &path).await;
            (pull["merged"] == true).then_some(())
        })
        .await;
    }

    /// Comments on an issue or a pull request as a user.
    pub async fn comment(&self, user: &Account, repository: &str, number: u64, body: &str) {
        let path = format!("/repos/{repository}/issues/{number}/comments");
        let reply = self
            .send(&user.token, Method::POST, &path, json!({"body": body}))
            .await;
        // The tested Forgejo writes the comment of a pull request, and then responds with an error.
        let fails = self.is_forgejo() && reply.status == StatusCode::INTERNAL_SERVER_ERROR;
        assert!(
            reply.status.is_success() || fails,
            "{path}: {} {}",
            reply.status,
            reply.body
        );
    }

    /// Submits a review as a user: `APPROVED`, `REQUEST_CHANGES` or `COMMENT`.
    pub async fn review(
        &self,
        user: &Account,
        repository: &str,
        number: u64,
        event: &str,
        said: &str,
    ) -> Value {
        let path = format!("/repos/{repository}/pulls/{number}/reviews");
        let review = json!({"event": event, "body": said});
        self.post(&user.token, &path, review).await
    }
}

async fn read(request: reqwest::RequestBuilder) -> Reply {
    let answer = request.send().await.expect("Gitea answers");
    let status = answer.status();
    let text = answer.text().await.expect("a whole answer");
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Reply { status, body }
}

/// Returns the command of the program with arguments, as an ordinary user.
fn command(program: Program, folder: &Path, config: &Path, arguments: &[&str]) -> Command {
    let program = super::executable(program.part(), program.part());
    let mut command = match ordinary_user() {
        None => Command::new(program),
        Some(user) => {
            give(folder, &user);
            let mut command = Command::new("setpriv");
            command
                .args([format!("--reuid={}", user.uid), format!("--regid={}", user.gid)])
                // The cache of the parts is in a home that no other user may enter, so the process needs the right to
                // read it.
                .args([
                    "--clear-groups",
                    "--inh-caps=+dac_read_search",
                    "--ambient-caps=+dac_read_search",
                ])
                // Set the signal again, because a change of user clears it.
                .args(["--pdeathsig", "KILL", "--"])
                .arg(program)
                .env("USER", ORDINARY);
            command
        }
    };
    // `--config` must follow the subcommand that uses it.
    command
        .args(arguments)
        .arg("--config")
        .arg(config)
        .current_dir(folder)
        .env("HOME", folder)
        .env("GITEA_WORK_DIR", folder);
    command
}

/// Returns the user that runs the program if the tests run as root.
fn ordinary_user() -> Option<nix::unistd::User> {
    nix::unistd::Uid::effective()
        .is_root()
        .then(|| nix::unistd::User::from_name(ORDINARY).ok().flatten())
        .flatten()
}

fn give(folder: &Path, user: &nix::unistd::User) {
    for path in [folder.to_owned(), folder.join("app.ini")] {
        nix::unistd::chown(&path, Some(user.uid), Some(user.gid)).expect("root may give it away");
    }
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).expect("root may do that");
}

/// Returns the configuration. Features without use in a test are off: mails, SSH, remote avatars, sign-up.
fn configuration(program: Program, folder: &Path, port: u16, url: &str) -> String {
    let at: PathBuf = folder.join("data");
    let (at, texts) = (at.display(), super::cache().join(program.part()));
    format!(
        "APP_NAME = Gitea of the tests
RUN_MODE = prod
[server]
PROTOCOL = http
HTTP_ADDR = 127.0.0.1
HTTP_PORT = {port}
ROOT_URL = {url}/
LOCAL_ROOT_URL = {url}/
USE_SUB_URL_PATH = {below}
STATIC_ROOT_PATH = {texts}
APP_DATA_PATH = {at}
DISABLE_SSH = true
OFFLINE_MODE = true
LFS_START_SERVER = false
[database]
DB_TYPE = sqlite3
PATH = {at}/gitea.db
SQLITE_JOURNAL_MODE = WAL
[repository]
ROOT = {at}/repositories
DEFAULT_BRANCH = main
DISABLE_DOWNLOAD_SOURCE_ARCHIVES = true
[security]
INSTALL_LOCK = true
SECRET_KEY = of-the-tests-alone
PASSWORD_COMPLEXITY = off
PASSWORD_HASH_ALGO = pbkdf2_v1
[service]
DISABLE_REGISTRATION = true
DEFAULT_ALLOW_CREATE_ORGANIZATION = true
[mailer]
ENABLED = false
[picture]
DISABLE_GRAVATAR = true
[indexer]
ISSUE_INDEXER_TYPE = db
[queue]
TYPE = channel
[session]
PROVIDER = memory
[cache]
ADAPTER = memory
[webhook]
ALLOWED_HOST_LIST = loopback
[actions]
ENABLED = true
[log]
MODE = console
LEVEL = Warn
[cron.update_checker]
ENABLED = false
",
        below = url.matches('/').count() > 2,
        texts = texts.display(),
    )
}
