//! Formats the results of `konverge check`: for a terminal, as SARIF, and as annotations of a GitHub job.

use serde_json::{Value, json};

use super::{
    escape::{log, log_lines},
    labels::plural,
};
use konverge_base::model::{
    check_run::{Annotation, Level},
    lint::{Diagnostic, LintReport, LintSeverity},
    text::first_few,
};

/// Returns the text for a terminal: one block per diagnostic, and the count at the end.
pub fn text(inspection: &LintReport) -> String {
    let mut text = String::new();
    for remark in &inspection.remarks {
        let mut place = remark.file.to_string();
        for number in [remark.line, remark.column].into_iter().flatten() {
            place.push_str(&format!(":{number}"));
        }
        let message = log_lines(&remark.message);
        text.push_str(&format!(
            "{}[{}] {}\n    {message}\n",
            severity_word(remark),
            remark.rule.name(),
            log(&place)
        ));
        if let Some(stacks) = stacks_of(remark) {
            text.push_str(&format!("    in {}\n", log(&stacks)));
        }
        if let Some(hint) = &remark.hint {
            text.push_str(&format!("    hint: {}\n", log_lines(hint)));
        }
    }
    let errors = inspection
        .remarks
        .iter()
        .filter(|remark| remark.severity == LintSeverity::Error)
        .count();
    let warnings = inspection.remarks.len() - errors;
    text.push_str(&format!(
        "{} checked: {}, {}\n",
        plural(inspection.stacks, "stack"),
        plural(errors, "error"),
        plural(warnings, "warning")
    ));
    text
}

/// The maximum number of stacks that a diagnostic lists.
const NAMED: usize = 3;

/// Returns the stacks that have the same error: `16 stacks: a/dev, a/prod, b/dev and 13 more`.
fn stacks_of(remark: &Diagnostic) -> Option<String> {
    let count = remark.stacks.len();
    if count < 2 {
        return None;
    }
    let named = first_few(remark.stacks.iter().map(|id| id.as_str()), NAMED);
    Some(format!("{count} stacks: {named}"))
}

/// Returns the message for formats with one entry per diagnostic.
fn message(remark: &Diagnostic) -> String {
    let stacks = stacks_of(remark).map(|stacks| format!("in {stacks}"));
    let hint = remark.hint.as_ref().map(|hint| format!("hint: {hint}"));
    let lines = [Some(remark.message.clone()), stacks, hint];
    lines.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// Returns the results as SARIF 2.1.0, for GitHub's code scanning.
pub fn sarif(inspection: &LintReport) -> Value {
    let results: Vec<Value> = inspection.remarks.iter().map(result).collect();
    let mut rules: Vec<&str> = inspection.remarks.iter().map(Diagnostic::rule_id).collect();
    rules.sort_unstable();
    rules.dedup();
    let rules: Vec<Value> = rules.into_iter().map(|id| json!({"id": id})).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "konverge", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
            "results": results,
        }],
    })
}

fn result(remark: &Diagnostic) -> Value {
    let mut physical = json!({"artifactLocation": {"uri": uri(remark.file.as_str())}});
    if let Some(line) = remark.line {
        physical["region"] = json!({"startLine": line});
        if let Some(column) = remark.column {
            physical["region"]["startColumn"] = json!(column);
        }
    }
    let mut location = json!({"physicalLocation": physical});
    if let Some(finding) = &remark.finding
        && let Some(resource) = &finding.resource
    {
        let path = finding.path.as_deref().unwrap_or_default();
        location["logicalLocations"] =
            json!([{"fullyQualifiedName": format!("{resource}{path}"), "kind": "resource"}]);
    }
    json!({
        "ruleId": remark.rule_id(),
        "level": severity_word(remark),
        "message": {"text": message(remark)},
        "locations": [location],
    })
}

/// Returns the annotations at the lines of the files.
pub fn annotations(inspection: &LintReport) -> Vec<Annotation> {
    let note = |remark: &Diagnostic| Annotation {
        level: match remark.severity {
            LintSeverity::Error => Level::Error,
            LintSeverity::Warning => Level::Warning,
        },
        file: remark.file.to_string(),
        line: remark.line,
        column: remark.column,
        title: format!("konverge {}", remark.rule_id()),
        message: message(remark),
    };
    inspection.remarks.iter().map(note).collect()
}

fn severity_word(remark: &Diagnostic) -> &'static str {
    match remark.severity {
        LintSeverity::Error => "error",
        LintSeverity::Warning => "warning",
    }
}

/// Returns a path as a URI reference.
fn uri(path: &str) -> String {
    path.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{
        RepoPath,
        lint::{FindingPlace, LintRule},
    };

    fn inspection(message: &str) -> LintReport {
        LintReport {
            version: 1,
            stacks: 2,
            remarks: vec![Diagnostic {
                file: RepoPath::normalize("a b/x,y.k").unwrap(),
                line: Some(3),
                column: Some(7),
                rule: LintRule::Lint,
                severity: LintSeverity::Warning,
                message: message.to_owned(),
                hint: None,
                finding: None,
                stacks: Vec::new(),
            }],
        }
    }

    #[test]
    fn sarif_has_rule_level_and_place() {
        let sarif = sarif(&inspection("m"));
        let result = &sarif["runs"][0]["results"][0];
        assert_eq!(result["ruleId"], "lint");
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "a%20b/x%2Cy.k");
        assert_eq!(place["region"]["startLine"], 3);
    }

    #[test]
    fn a_finding_names_set_rule_resource_and_path() {
        let mut found = inspection("maps/main.deny: v1:Pod:a:b: no");
        found.remarks[0].rule = LintRule::Policy;
        found.remarks[0].hint = Some("do this".to_owned());
        found.remarks[0].finding = Some(FindingPlace {
            rule: "maps/main.deny".to_owned(),
            resource: Some("v1:Pod:a:b".parse().unwrap()),
            path: Some("/spec/a".to_owned()),
        });
        let sarif = sarif(&found);
        let run = &sarif["runs"][0];
        assert_eq!(run["tool"]["driver"]["rules"], json!([{"id": "maps/main.deny"}]));
        let result = &run["results"][0];
        assert_eq!(result["ruleId"], "maps/main.deny");
        assert_eq!(
            result["message"]["text"],
            "maps/main.deny: v1:Pod:a:b: no\nhint: do this"
        );
        let place = &result["locations"][0]["logicalLocations"][0];
        assert_eq!(place["fullyQualifiedName"], "v1:Pod:a:b/spec/a");
        let note = &annotations(&found)[0];
        assert_eq!(note.title, "konverge maps/main.deny");
        assert!(note.message.ends_with("\nhint: do this"), "{}", note.message);
    }

    #[test]
    fn text_counts() {
        let text = text(&inspection("m\u{1b}[2J"));
        assert_eq!(
            text,
            "warning[lint] a b/x,y.k:3:7\n    m\\u{1b}[2J\n2 stacks checked: 0 errors, 1 warning\n"
        );
    }
}
