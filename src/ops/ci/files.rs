//! What a run leaves in the runner's temporary folder for later steps: the result as JSON, the preview as a page.

use super::feedback::Feedback;

impl Feedback<'_> {
    /// Keeps the whole result where later steps find it.
    pub(super) fn result_file(&self, json: &str) {
        self.keep("result", "json", json, "result-path");
    }

    /// Keeps the preview as an HTML page, and answers its path.
    pub fn page(&self, html: &str) -> Option<String> {
        self.keep("page", "html", html, "summary-path")
    }

    fn keep(&self, what: &str, extension: &str, text: &str, output: &str) -> Option<String> {
        let run = &self.job.run;
        let folder = run.var("RUNNER_TEMP").map_or_else(std::env::temp_dir, Into::into);
        let name = format!("konverge-{}.{extension}", uuid::Uuid::new_v4().simple());
        let path = folder.join(name);
        if let Err(error) = std::fs::write(&path, run.secrets.mask(text)) {
            run.notes.note(&format!(
                "warning: the {what} was not kept in {}: {error}",
                path.display()
            ));
            return None;
        }
        let path = path.display().to_string();
        self.outputs(&[(output, path.clone())]);
        Some(path)
    }
}
