//! Workflow runs: checks if a run is over, starts workflows, and reads their results.

use async_trait::async_trait;
use jiff::Timestamp;
use konverge_actions::is_name;
use konverge_forge::{DispatchedRun, ForgeError, ForgeKind, Result, Runs, if_found};
use konverge_rest::{TokenPermission, encoded};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{client::Client, version::Version};

const READ: TokenPermission = TokenPermission("read:repository");
const WRITE: TokenPermission = TokenPermission("write:repository");

/// The maximum number of pages to search for runs of one workflow, because the list has the runs of all workflows.
const MOST_PAGES: usize = 10;

/// A run in Gitea's list.
#[derive(Deserialize)]
struct ListedRun {
    /// The file and the ref: `konverge.yml@refs/heads/main`.
    #[serde(default)]
    path: String,
    #[serde(flatten)]
    run: DispatchedRun,
}

#[async_trait]
impl Runs for Client {
    async fn is_over(&self, url: &str) -> Result<Option<bool>> {
        #[derive(Deserialize)]
        struct Run {
            status: String,
        }
        let Some(path) = path_of_page(url, self.server_url()) else {
            return Ok(None);
        };
        // On an older server the number in the URL is not the id of the run.
        self.require(&format!("GET {path}"), Version::RUNS).await?;
        // On Forgejo, the number in the URL counts the runs of the repository. The run with that id is another one.
        if self.server().await?.is_forgejo {
            return Ok(None);
        }
        let run: Run = self.rest.get(&path, READ).await?;
        Ok(Some(run.status == "completed"))
    }

    async fn dispatch_workflow(&self, file: &str, branch: &str, inputs: &Value) -> Result<u64> {
        #[derive(Deserialize)]
        struct Started {
            workflow_run_id: u64,
        }
        let path = self.path(&format!("/actions/workflows/{}/dispatches", encoded(file)));
        // An older server would start the workflow without returning its run.
        self.require(&format!("POST {path}"), Version::RUNS).await?;
        let body = json!({"ref": format!("refs/heads/{branch}"), "inputs": inputs});
        let path = format!("{path}?return_run_details=true");
        let started: Started = self.rest.post_once(&path, &body, WRITE).await?;
        Ok(started.workflow_run_id)
    }

    async fn dispatched_runs(&self, file: &str, branch: &str, limit: usize) -> Result<Vec<DispatchedRun>> {
        #[derive(Deserialize)]
        struct Page {
            workflow_runs: Vec<ListedRun>,
        }
        let runs = self.path("/actions/runs");
        self.require(&format!("GET {runs}"), Version::RUNS).await?;
        let size = self.page_size().await?;
        let of_file = format!("{file}@");
        let mut found = Vec::new();
        for page in 1..=MOST_PAGES {
            let path = format!(
                "{runs}?event=workflow_dispatch&branch={}&limit={size}&page={page}",
                encoded(branch)
            );
            let Page { workflow_runs } = self.rest.get(&path, READ).await?;
            let is_last = workflow_runs.is_empty();
            let runs = workflow_runs
                .into_iter()
                .filter(|listed| listed.path.starts_with(&of_file));
            found.extend(runs.map(|listed| listed.run));
            if is_last || found.len() >= limit {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    async fn dispatched_run(&self, run: u64) -> Result<Option<DispatchedRun>> {
        let path = self.path(&format!("/actions/runs/{run}"));
        self.require(&format!("GET {path}"), Version::RUNS).await?;
        if_found(self.rest.get(&path, READ).await)
    }

    async fn answers_about_runs(&self) -> Result<()> {
        let path = self.path("/actions/runs");
        self.require(&format!("GET {path}"), Version::RUNS).await
    }

    fn starters_may_push(&self) -> bool {
        // In Gitea a team without write access to code may still start workflows.
        false
    }

    fn server_time(&self) -> Option<Timestamp> {
        self.rest.time_now()
    }
}

impl Client {
    /// Returns an error if the server is older than `needed`.
    async fn require(&self, operation: &str, needed: Version) -> Result<()> {
        let server = self.server().await?;
        if server.api >= needed {
            return Ok(());
        }
        Err(ForgeError::Outdated {
            forge: ForgeKind::Gitea,
            operation: operation.to_owned(),
            server: server.name.clone(),
            needed: needed.to_string(),
        })
    }
}

/// Returns the API path for the URL of a run, `https://HOST/OWNER/NAME/actions/runs/ID`; `None` for a URL that is
/// no run on this server.
fn path_of_page(url: &str, server_url: &str) -> Option<String> {
    let path = url.strip_prefix(server_url)?.strip_prefix('/')?;
    let [owner, name, "actions", "runs", run] = path.split('/').collect::<Vec<_>>()[..] else {
        return None;
    };
    let run: u64 = run.parse().ok()?;
    (is_name(owner) && is_name(name)).then(|| format!("/repos/{owner}/{name}/actions/runs/{run}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_this_server_and_no_others() {
        let path = |url| path_of_page(url, "https://acme.example/git");
        let page = "https://acme.example/git/acme/konfig/actions/runs/42";
        assert_eq!(path(page).as_deref(), Some("/repos/acme/konfig/actions/runs/42"));
        for other in [
            "someone@laptop (process 7)",
            "https://acme.example.evil.example/git/acme/konfig/actions/runs/42",
            "https://acme.example/acme/konfig/actions/runs/42",
            "https://acme.example/git/acme/../actions/runs/42",
            "https://acme.example/git/acme/konfig/actions/runs/42?x=y",
            "https://acme.example/git/acme/konfig/actions/runs/42/jobs/1",
        ] {
            assert_eq!(path(other), None, "{other}");
        }
    }
}
