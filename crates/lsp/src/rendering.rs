//! Converts results to the types of the protocol: code lenses, diagnostics, links, hovers.

use lsp_server::{ErrorCode, ResponseError};
use lsp_types::{
    CodeLens, Command, DiagnosticSeverity, DocumentLink, Hover, HoverContents, MarkupContent, MarkupKind,
    NumberOrString, Url,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    resource_mentions::ResourceMention,
    text_position::{column_of, range, range_at},
    workspace::{FileImpact, ResourceView},
};
use konverge_base::{
    error::UserError,
    model::lint::{Diagnostic, LintSeverity},
};

/// The response to a request.
pub(crate) type RequestResult = Result<Value, ResponseError>;

/// Creates an error response.
pub(crate) fn refusal(code: ErrorCode, message: impl Into<String>) -> ResponseError {
    ResponseError {
        code: code as i32,
        message: message.into(),
        data: None,
    }
}

/// Returns the code lenses at the top of a file.
pub(crate) fn lenses(uri: &Url, impact: &FileImpact) -> Vec<CodeLens> {
    let lens = |title: &str, command: &str| CodeLens {
        range: range(0, 0, 0),
        command: Some(Command {
            title: title.to_owned(),
            command: command.to_owned(),
            arguments: Some(vec![uri.as_str().into()]),
        }),
        data: None,
    };
    let mut all = vec![lens(&impact_title(impact), "konverge.showChain")];
    if impact.checked > 0 {
        all.push(lens("Show Spec", "konverge.showSpec"));
        all.push(lens("Preview", "konverge.preview"));
    }
    all
}

fn impact_title(impact: &FileImpact) -> String {
    let stacks = match impact.stacks {
        0 => return "affects no stack".to_owned(),
        1 => "1 stack".to_owned(),
        many => format!("{many} stacks"),
    };
    let production = match impact.production {
        0 => String::new(),
        some => format!(", {some} in prod"),
    };
    let checked = if impact.checked < impact.stacks {
        format!("; the nearest {} are checked", impact.checked)
    } else {
        String::new()
    };
    format!("affects {stacks}{production}{checked}")
}

/// Converts a finding of `konverge check`.
pub(crate) fn diagnostic(found: &Diagnostic, text: &str) -> lsp_types::Diagnostic {
    let severity = match found.severity {
        LintSeverity::Error => DiagnosticSeverity::ERROR,
        LintSeverity::Warning => DiagnosticSeverity::WARNING,
    };
    let mut message = found.message.clone();
    if let [only] = found.stacks.as_slice() {
        message = format!("{only}: {message}");
    } else if found.stacks.len() > 1 {
        message = format!("{} stacks: {message}", found.stacks.len());
    }
    if let Some(hint) = &found.hint {
        message.push_str(&format!("\nhint: {hint}"));
    }
    lsp_types::Diagnostic {
        range: range_at(text, found.line, found.column),
        severity: Some(severity),
        code: Some(NumberOrString::String(found.rule_id().to_owned())),
        source: Some("konverge".to_owned()),
        message,
        ..lsp_types::Diagnostic::default()
    }
}

/// The data of a link that is needed to find its target after a click.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LinkData {
    /// The file with the link.
    pub(crate) uri: Url,
    /// The text of the link.
    pub(crate) mention: String,
}

/// Creates a link. Its target is computed only after a click.
pub(crate) fn link(uri: &Url, mention: &ResourceMention, line: &str) -> DocumentLink {
    let data = json!({"uri": uri, "mention": mention.text});
    DocumentLink {
        range: range(
            mention.line,
            column_of(line, mention.start),
            column_of(line, mention.end),
        ),
        target: None,
        tooltip: Some("Show the resource in the Spec".to_owned()),
        data: Some(data),
    }
}

/// Renders the hover of a resource. It is plain text, because names in the repository could contain Markdown.
pub(crate) fn hover(resource: &ResourceView) -> Hover {
    let head = [resource.id.to_string(), format!("stack {}", resource.stack)];
    let lines: Vec<_> = head.into_iter().chain(resource.lines.iter().cloned()).collect();
    Hover {
        contents: HoverContents::Markup(MarkupContent {
            kind: MarkupKind::PlainText,
            value: lines.join("\n"),
        }),
        range: None,
    }
}

/// Renders an error as one message.
pub(crate) fn failure(failure: &UserError) -> String {
    let mut text = failure.message.clone();
    if let Some(place) = &failure.location {
        text.push_str(&format!(" ({place})"));
    }
    for hint in &failure.hints {
        text.push_str(&format!("\nhint: {hint}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{RepoPath, lint::LintRule};

    #[test]
    fn the_title_counts_stacks() {
        let title = |stacks, production, checked| {
            impact_title(&FileImpact {
                stacks,
                production,
                checked,
            })
        };
        assert_eq!(title(0, 0, 0), "affects no stack");
        assert_eq!(title(1, 0, 1), "affects 1 stack");
        assert_eq!(title(12, 3, 12), "affects 12 stacks, 3 in prod");
        assert_eq!(
            title(400, 3, 16),
            "affects 400 stacks, 3 in prod; the nearest 16 are checked"
        );
    }

    #[test]
    fn a_finding_names_its_rule_its_stacks_and_what_to_do() {
        let file = RepoPath::normalize("a.k").unwrap();
        let mut found = Diagnostic::new(&file, LintRule::Compile, "wrong").at(Some(1), Some(1));
        found.stacks = vec!["a/dev".parse().unwrap()];
        found.hint = Some("repair it".to_owned());
        let shown = diagnostic(&found, "abc = 1");
        assert_eq!(shown.message, "a/dev: wrong\nhint: repair it");
        assert_eq!(shown.code, Some(NumberOrString::String("compile".to_owned())));
        assert_eq!(shown.severity, Some(DiagnosticSeverity::ERROR));
        assert_eq!(shown.range.end.character, 3);
    }
}
