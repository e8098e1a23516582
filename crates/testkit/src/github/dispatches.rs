//! Workflows that are dispatched, and their workflow runs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    answers::{Answer, invalid, not_found},
    world::{HERE, World},
};

impl World {
    /// Starts a workflow run. The response has its id if the request asks for it.
    pub(super) fn dispatch(&mut self, file: &str, body: &Value) -> Answer {
        let Some(workflow) = self.workflows.get(file).cloned() else {
            return not_found();
        };
        let Some(branch) = body["ref"].as_str().filter(|name| self.tip(name).is_some()) else {
            return invalid("No ref found");
        };
        let id = self.id();
        let title = if workflow.names_inputs {
            ["stack", "digest"]
                .map(|input| body["inputs"][input].as_str().unwrap_or_default())
                .join(" ")
        } else {
            "Smoke".to_owned()
        };
        self.dispatched.push((file.to_owned(), body.clone()));
        let url = format!("https://github.com/{HERE}/actions/runs/{id}");
        let status = match workflow.conclusion {
            Some(_) => "completed",
            None => "in_progress",
        };
        self.runs.insert(
            id,
            json!({"id": id, "status": status, "conclusion": workflow.conclusion, "html_url": url, "run_attempt": 1,
                "path": format!(".github/workflows/{file}"), "event": "workflow_dispatch", "head_branch": branch,
                "display_title": title, "shown_late": workflow.shown_late}),
        );
        if body["return_run_details"] == true {
            (
                200,
                json!({"workflow_run_id": id, "run_url": format!("https://api.github.com/repos/{HERE}/actions/runs/{id}"), "html_url": url}),
            )
        } else {
            (204, Value::Null)
        }
    }
    /// Lists the visible runs of a workflow, the newest first.
    pub(super) fn runs_of(&mut self, file: &str, query: &BTreeMap<String, String>) -> Answer {
        let is_of = |run: &Value, key: &str, of: &str| query.get(of).is_none_or(|v| run[key] == v.as_str());
        let path = format!(".github/workflows/{file}");
        let found = self.runs.values_mut().rev().filter(|run| {
            run["path"] == path.as_str()
                && is_of(run, "event", "event")
                && is_of(run, "head_branch", "branch")
        });
        let runs: Vec<_> = found.filter_map(shown).collect();
        (200, json!({"total_count": runs.len(), "workflow_runs": runs}))
    }

    /// Returns a workflow run, if it is visible yet.
    pub(super) fn run(&mut self, id: u64) -> Answer {
        let found = self.runs.get_mut(&id).and_then(shown);
        found.map_or_else(not_found, |run| (200, run))
    }
}

/// Returns the run as the API shows it, or nothing while it is too new.
fn shown(run: &mut Value) -> Option<Value> {
    let late = run["shown_late"].as_u64().unwrap_or(0);
    if late > 0 {
        run["shown_late"] = json!(late - 1);
        return None;
    }
    let mut answer = run.clone();
    if let Some(fields) = answer.as_object_mut() {
        fields.remove("shown_late");
    }
    Some(answer)
}
