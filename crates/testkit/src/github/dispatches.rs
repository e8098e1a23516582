//! Workflows that are dispatched, and their runs.

use serde_json::{Value, json};

use super::{
    answers::{Answer, invalid, not_found},
    world::{HERE, World},
};

impl World {
    /// Starts a run, whose id is known if the request asks for it.
    pub(super) fn dispatch(&mut self, file: &str, body: &Value) -> Answer {
        let Some(workflow) = self.workflows.get(file).cloned() else {
            return not_found();
        };
        let Some(branch) = body["ref"].as_str().filter(|name| self.tip(name).is_some()) else {
            return invalid("No ref found");
        };
        let id = self.id();
        let title = match workflow.names_inputs {
            true => ["stack", "digest"]
                .map(|input| body["inputs"][input].as_str().unwrap_or_default())
                .join(" "),
            false => "Smoke".to_owned(),
        };
        self.dispatched.push((file.to_owned(), body.clone()));
        let url = format!("https://github.com/{HERE}/actions/runs/{id}");
        let status = match workflow.conclusion {
            Some(_) => "completed",
            None => "in_progress",
        };
        self.runs.insert(
            id,
            json!({"id": id, "status": status, "conclusion": workflow.conclusion, "html_url": url,
                "path": format!(".github/workflows/{file}"), "event": "workflow_dispatch", "head_branch": branch,
                "display_title": title}),
        );
        match body["return_run_details"] == true {
            true => (
                200,
                json!({"workflow_run_id": id, "run_url": format!("https://api.github.com/repos/{HERE}/actions/runs/{id}"), "html_url": url}),
            ),
            false => (204, Value::Null),
        }
    }
}
