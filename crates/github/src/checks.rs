//! Check runs, within GitHub's limits: 65,535 bytes in a text, 50 annotations in a request.

use async_trait::async_trait;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{Client, PAGE};
use konverge_base::model::{
    CommitId,
    check_run::{Annotation, CheckRun, Level},
};
use konverge_forge::{Checks, Result};
use konverge_rest::{TokenPermission, encoded};

const NEED: TokenPermission = TokenPermission("checks: write");

/// The maximum number of check runs that one run creates.
const MOST: usize = 50;

/// The maximum length of a text in bytes. GitHub documents 65,535 characters, but counts bytes.
const TEXT: usize = 65_000;

/// The maximum number of annotations in a request.
const BATCH: usize = 50;

/// The maximum number of annotations of a check run. Nobody would read more.
const ANNOTATIONS: usize = 200;

#[derive(Deserialize)]
struct CreatedCheck {
    id: u64,
    html_url: Option<String>,
    external_id: Option<String>,
}

#[async_trait]
impl Checks for Client {
    fn most_checks(&self) -> usize {
        MOST
    }

    async fn create_check(
        &self,
        head: &CommitId,
        check: &CheckRun,
        external_id: &str,
        details_url: Option<&str>,
    ) -> Result<Option<String>> {
        let annotations: Vec<Value> = check
            .annotations
            .iter()
            .take(ANNOTATIONS)
            .filter_map(annotation)
            .collect();
        let mut batches = annotations.chunks(BATCH);
        let mut body = json!({
            "name": check.name,
            "head_sha": head,
            "status": "completed",
            "conclusion": check.conclusion,
            "external_id": external_id,
            "output": output(check, batches.next().unwrap_or_default()),
        });
        if let Some(url) = details_url {
            body["details_url"] = json!(url);
        }
        let name = encoded(&check.name);
        let list = self.path(&format!(
            "/commits/{head}/check-runs?check_name={name}&filter=all&per_page={PAGE}"
        ));
        let find = || async {
            let runs: Vec<CreatedCheck> = self
                .rest
                .list_in(&list, NEED, |mut page| page["check_runs"].take())
                .await?;
            Ok(runs
                .into_iter()
                .find(|run| run.external_id.as_deref() == Some(external_id)))
        };
        let made = self
            .rest
            .create(
                &self.path("/check-runs"),
                &body,
                NEED,
                |made: CreatedCheck| made,
                find,
            )
            .await?;
        for batch in batches {
            // Annotations are added and not replaced, so a repeated request could show them twice. Missing
            // annotations are better than duplicates.
            let path = self.path(&format!("/check-runs/{}", made.id));
            let body = json!({"output": output(check, batch)});
            self.rest.at_most_once(Method::PATCH, &path, &body, NEED).await?;
        }
        Ok(made.html_url)
    }
}

fn output(check: &CheckRun, annotations: &[Value]) -> Value {
    json!({
        "title": truncate(&check.title, 255),
        "summary": truncate(&check.summary, TEXT),
        "text": truncate(&check.text, TEXT),
        "annotations": annotations,
    })
}

/// Converts an annotation; `None` without a file or a message. GitHub requires a line, so an annotation without one is
/// shown at line 1.
fn annotation(note: &Annotation) -> Option<Value> {
    let line = note.line.unwrap_or(1);
    let mut value = json!({
        "path": note.file,
        "start_line": line,
        "end_line": line,
        "annotation_level": match note.level {
            Level::Error => "failure",
            Level::Warning => "warning",
            Level::Notice => "notice",
        },
        "title": truncate(&note.title, 255),
        "message": truncate(&note.message, 60_000),
    });
    if let Some(column) = note.column {
        value["start_column"] = json!(column);
        value["end_column"] = json!(column);
    }
    (!note.file.is_empty() && !note.message.is_empty()).then_some(value)
}

/// Truncates a text to a number of bytes, at a character boundary.
fn truncate(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::check_run::Conclusion;

    fn note() -> Annotation {
        Annotation {
            level: Level::Warning,
            file: "appops/shop/dev/main.k".into(),
            line: None,
            column: None,
            title: "KCL".into(),
            message: "no such attribute".into(),
        }
    }

    /// GitHub refuses the whole check run for one annotation without a file, a line or a message.
    #[test]
    fn an_annotation_is_complete_or_left_out() {
        let shown = annotation(&note()).unwrap();
        assert_eq!((&shown["start_line"], &shown["end_line"]), (&json!(1), &json!(1)));
        assert_eq!(shown["annotation_level"], "warning");
        assert!(shown.get("start_column").is_none());
        let at = Annotation {
            line: Some(7),
            column: Some(3),
            level: Level::Error,
            ..note()
        };
        let shown = annotation(&at).unwrap();
        assert_eq!((&shown["end_line"], &shown["end_column"]), (&json!(7), &json!(3)));
        assert_eq!(shown["annotation_level"], "failure");
        let nowhere = Annotation {
            file: String::new(),
            ..note()
        };
        let silent = Annotation {
            message: String::new(),
            ..note()
        };
        assert_eq!((annotation(&nowhere), annotation(&silent)), (None, None));
    }

    #[test]
    fn a_text_is_cut_at_a_number_of_bytes_between_characters() {
        assert_eq!(truncate("äöü", 6), "äöü");
        assert_eq!(truncate("äöü", 5), "äö");
        assert_eq!(truncate("äöü", 1), "");
        let check = CheckRun {
            name: "konverge: shop/dev".into(),
            conclusion: Conclusion::Failure,
            title: "é".repeat(200),
            summary: "é".repeat(40_000),
            text: "x".repeat(70_000),
            annotations: Vec::new(),
        };
        let output = output(&check, &[]);
        let length = |field: &str| output[field].as_str().unwrap().len();
        assert_eq!(
            (length("title"), length("summary"), length("text")),
            (254, TEXT, TEXT)
        );
    }
}
