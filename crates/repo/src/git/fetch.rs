//! Fetches the commits that a shallow clone lacks, with the `git` program.

use std::{ffi::OsString, path::Path, time::Duration};

use base64::Engine as _;
use secrecy::{ExposeSecret, SecretString};

use super::{GitError, remote_url::without_credentials};
use konverge_base::{checkout::Checkout, process::Program, variables};

/// A token to read the repository over HTTPS, with the user name that the forge requires.
#[derive(Clone, derive_more::Debug)]
#[debug("Credentials(***)")]
pub struct GitCredentials {
    user: &'static str,
    token: SecretString,
}

impl GitCredentials {
    /// Creates credentials from a token.
    pub fn new(user: &'static str, token: SecretString) -> Self {
        Self { user, token }
    }
}

/// The commits to fetch.
pub(super) enum FetchSpec<'a> {
    /// The tree of one commit without its history.
    Commit(&'a str),
    /// One commit with its history, for a full clone that lacks it.
    History(&'a str),
    /// This number of further commits, older than the present ones.
    Deeper(u32),
    /// The complete history.
    Everything,
}

/// Runs `git fetch` against `origin`.
///
/// The token is passed through the environment (`GIT_CONFIG_COUNT`, git-config(1)), because other users of the machine
/// can list arguments, and only to the server of `origin`. An empty value first clears a header that `actions/checkout`
/// may have stored, because a forge refuses two `Authorization` headers.
pub(super) async fn fetch(
    work_dir: &Path,
    origin: Option<&str>,
    want: &FetchSpec<'_>,
    credentials: Option<&GitCredentials>,
) -> Result<(), GitError> {
    let git = Checkout::of_process(Some(work_dir)).find(&["git"])?;
    let mut program = Program::new(git).args(["-C".into(), work_dir.as_os_str().to_owned()]);
    let safe = format!("safe.directory={}", work_dir.display());
    program = program.args(["-c", &safe, "-c", "gc.auto=0", "fetch"]);
    program = program.args([
        "--quiet",
        "--no-tags",
        "--no-recurse-submodules",
        "--no-write-fetch-head",
    ]);
    program = match want {
        FetchSpec::Commit(id) => program.args(["--depth=1", "origin", id]),
        FetchSpec::History(id) => program.args(["origin", id]),
        FetchSpec::Deeper(commits) => program.args([&format!("--deepen={commits}"), "origin"]),
        FetchSpec::Everything => program.args(["--unshallow", "origin"]),
    };
    program.extra_env = environment(
        origin,
        credentials,
        std::env::var(variables::GIT_CONFIG_COUNT).ok().as_deref(),
    );
    program.deadline = Duration::from_secs(300);
    let ended = program.run().await?;
    if ended.code == Some(0) {
        return Ok(());
    }
    let commit = match want {
        FetchSpec::Commit(id) | FetchSpec::History(id) => (*id).to_owned(),
        FetchSpec::Deeper(_) | FetchSpec::Everything => "history".to_owned(),
    };
    Err(GitError::Fetch {
        commit,
        why: last_words(&ended.stderr),
    })
}

/// Returns the environment of git. It adds to the environment of this process, in which a job may already have set
/// `there` configuration entries (for a proxy or a `safe.directory`).
fn environment(
    origin: Option<&str>,
    credentials: Option<&GitCredentials>,
    there: Option<&str>,
) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = vec![("GIT_TERMINAL_PROMPT".into(), "0".into())];
    let server = origin
        .and_then(|raw| url::Url::parse(raw).ok())
        .filter(|url| matches!(url.scheme(), "https" | "http"))
        .map(|url| url.origin().ascii_serialization());
    if let (Some(server), Some(GitCredentials { user, token })) = (server, credentials) {
        let key = format!("http.{server}/.extraheader");
        let basic =
            base64::engine::general_purpose::STANDARD.encode(format!("{user}:{}", token.expose_secret()));
        let there: usize = there.and_then(|count| count.trim().parse().ok()).unwrap_or(0);
        let header = format!("AUTHORIZATION: basic {basic}");
        env.push((variables::GIT_CONFIG_COUNT.into(), (there + 2).to_string().into()));
        for (n, value) in [(there, String::new()), (there + 1, header)] {
            env.push((format!("GIT_CONFIG_KEY_{n}").into(), key.as_str().into()));
            env.push((format!("GIT_CONFIG_VALUE_{n}").into(), value.into()));
        }
    }
    env
}

fn last_words(stderr: &[u8]) -> String {
    let text = without_credentials(&String::from_utf8_lossy(stderr));
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let tail = &lines[lines.len().saturating_sub(3)..];
    let words: String = tail
        .join("; ")
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(600)
        .collect();
    if words.is_empty() {
        "git gave no reason".to_owned()
    } else {
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_goes_to_its_server_only() {
        let credentials = GitCredentials::new("x-access-token", "s3cret".to_owned().into());
        let env = environment(
            Some("https://github.com/acme/konfig.git"),
            Some(&credentials),
            Some("3"),
        );
        let value = |key: &str| {
            env.iter()
                .find(|(k, _)| k == key)
                .map(|(_, v)| v.to_string_lossy().into_owned())
        };
        assert_eq!(
            value("GIT_CONFIG_KEY_4").as_deref(),
            Some("http.https://github.com/.extraheader")
        );
        // What the job had set stays.
        assert_eq!(value("GIT_CONFIG_COUNT").as_deref(), Some("5"));
        assert_eq!(value("GIT_CONFIG_KEY_2"), None);
        assert_eq!(value("GIT_CONFIG_VALUE_3").as_deref(), Some(""));
        assert!(value("GIT_CONFIG_VALUE_4").is_some_and(|v| !v.contains("s3cret")));
        for local in ["/srv/konfig", "git@github.com:acme/konfig", "ssh://h/x"] {
            assert_eq!(
                environment(Some(local), Some(&credentials), None).len(),
                1,
                "{local}"
            );
        }
        assert!(!format!("{credentials:?}").contains("s3cret"));
    }
}
