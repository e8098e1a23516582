//! Workflow runs: whether a run is over.

use serde::Deserialize;

use super::{
    client::{Client, TokenPermission},
    error::GithubError,
    runner::is_name,
};

/// The URL of a run, `https://HOST/OWNER/NAME/actions/runs/ID`, optionally of one attempt (`…/attempts/N`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPage {
    repository: String,
    run: u64,
    attempt: Option<u64>,
}

impl RunPage {
    /// Parses a URL; `None` if it is not that of a run on this server.
    pub fn parse(url: &str, server_url: &str) -> Option<Self> {
        let path = url.strip_prefix(server_url.trim_end_matches('/'))?;
        let parts: Vec<_> = path.strip_prefix('/')?.split('/').collect();
        let (owner, name, run, attempt) = match parts[..] {
            [owner, name, "actions", "runs", run] => (owner, name, run, None),
            [owner, name, "actions", "runs", run, "attempts", attempt] => {
                (owner, name, run, Some(attempt.parse().ok()?))
            }
            _ => return None,
        };
        (is_name(owner) && is_name(name)).then_some(())?;
        Some(Self {
            repository: format!("{owner}/{name}"),
            run: run.parse().ok()?,
            attempt,
        })
    }
}

impl Client {
    /// Returns true if a run is over: all of it, or at least the attempt in the URL, because a later one has
    /// started.
    ///
    /// # Errors
    /// Errors of GitHub; [`GithubError::NotFound`] also if the token may not see that repository.
    pub async fn is_over(&self, page: &RunPage) -> Result<bool, GithubError> {
        #[derive(Deserialize)]
        struct WorkflowRun {
            status: Option<String>,
            run_attempt: Option<u64>,
        }
        let path = format!("/repos/{}/actions/runs/{}", page.repository, page.run);
        let run: WorkflowRun = self.get(&path, TokenPermission("actions: read")).await?;
        let overtaken = match (page.attempt, run.run_attempt) {
            (Some(theirs), Some(newest)) => newest > theirs,
            _ => false,
        };
        Ok(overtaken || run.status.as_deref() == Some("completed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Option<(String, u64, Option<u64>)> {
        RunPage::parse(url, "https://github.com").map(|page| (page.repository, page.run, page.attempt))
    }

    #[test]
    fn pages_of_this_server_and_no_others() {
        let page = "https://github.com/acme/konfig/actions/runs/42";
        assert_eq!(parse(page), Some(("acme/konfig".into(), 42, None)));
        let attempt = parse(&format!("{page}/attempts/3"));
        assert_eq!(attempt, Some(("acme/konfig".into(), 42, Some(3))));
        for other in [
            "someone@laptop (process 7)",
            "https://github.com.evil.example/acme/konfig/actions/runs/42",
            "https://ghes.example/acme/konfig/actions/runs/42",
            "https://github.com/acme/../actions/runs/42",
            "https://github.com/acme/konfig/actions/runs/42?x=y",
            "https://github.com/acme/konfig/actions/runs/42/jobs/1",
            "https://github.com/acme/kon%2Ffig/actions/runs/42",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
