//! Workflow runs: checks if a run is over, starts workflows, and reads their results.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{Client, PAGE};
use konverge_actions::is_name;
use konverge_forge::{DispatchedRun, Result, Runs, if_found};
use konverge_rest::{TokenPermission, encoded};

const NEED: TokenPermission = TokenPermission("actions: write");

#[async_trait]
impl Runs for Client {
    async fn is_over(&self, url: &str) -> Result<Option<bool>> {
        #[derive(Deserialize)]
        struct WorkflowRun {
            status: Option<String>,
            run_attempt: Option<u64>,
        }
        let Some((repository, run, attempt)) = parse_page(url, self.server_url()) else {
            return Ok(None);
        };
        let path = format!("/repos/{repository}/actions/runs/{run}");
        let run: WorkflowRun = self.rest.get(&path, TokenPermission("actions: read")).await?;
        let overtaken = match (attempt, run.run_attempt) {
            (Some(theirs), Some(newest)) => newest > theirs,
            _ => false,
        };
        Ok(Some(overtaken || run.status.as_deref() == Some("completed")))
    }

    async fn dispatch_workflow(&self, file: &str, branch: &str, inputs: &Value) -> Result<u64> {
        #[derive(Deserialize)]
        struct Started {
            workflow_run_id: u64,
        }
        let path = self.path(&format!("/actions/workflows/{}/dispatches", encoded(file)));
        let body = json!({"ref": branch, "inputs": inputs, "return_run_details": true});
        let started: Started = self.rest.post_once(&path, &body, NEED).await?;
        Ok(started.workflow_run_id)
    }

    async fn dispatched_runs(&self, file: &str, branch: &str, limit: usize) -> Result<Vec<DispatchedRun>> {
        #[derive(Deserialize)]
        struct Page {
            workflow_runs: Vec<DispatchedRun>,
        }
        let path = self.path(&format!(
            "/actions/workflows/{}/runs?event=workflow_dispatch&branch={}&per_page={}",
            encoded(file),
            encoded(branch),
            limit.min(PAGE)
        ));
        let page: Page = self.rest.get(&path, NEED).await?;
        Ok(page.workflow_runs)
    }

    async fn dispatched_run(&self, run: u64) -> Result<Option<DispatchedRun>> {
        let path = self.path(&format!("/actions/runs/{run}"));
        if_found(self.rest.get(&path, NEED).await)
    }

    fn starters_may_push(&self) -> bool {
        true
    }

    fn server_time(&self) -> Option<Timestamp> {
        self.rest.time_now()
    }
}

/// Parses the URL of a run, `https://HOST/OWNER/NAME/actions/runs/ID`, optionally of one attempt (`…/attempts/N`).
/// Returns the repository, the run and the attempt; `None` if it is not the URL of a run on this server.
fn parse_page(url: &str, server_url: &str) -> Option<(String, u64, Option<u64>)> {
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
    Some((format!("{owner}/{name}"), run.parse().ok()?, attempt))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Option<(String, u64, Option<u64>)> {
        parse_page(url, "https://github.com")
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
