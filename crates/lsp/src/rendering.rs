//! Answers as the protocol has them: lenses, diagnostics, links, hovers.

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

/// The lenses at the top of a file.
pub(crate) fn lenses(uri: &str, impact: &FileImpact) -> Value {
    let lens = |title: &str, command: &str| {
        let command = json!({"title": title, "command": command, "arguments": [uri]});
        json!({"range": range(0, 0, 0), "command": command})
    };
    let mut all = vec![lens(&impact_title(impact), "konverge.showChain")];
    if impact.checked > 0 {
        all.push(lens("Show Spec", "konverge.showSpec"));
        all.push(lens("Preview", "konverge.preview"));
    }
    all.into()
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

/// A finding of `konverge check`.
pub(crate) fn diagnostic(found: &Diagnostic, text: &str) -> Value {
    let severity = match found.severity {
        LintSeverity::Error => 1,
        LintSeverity::Warning => 2,
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
    json!({
        "range": range_at(text, found.line, found.column),
        "severity": severity,
        "code": found.rule_id(),
        "source": "konverge",
        "message": message,
    })
}

/// A link whose target is found when it is clicked.
pub(crate) fn link(uri: &str, mention: &ResourceMention, line: &str) -> Value {
    json!({
        "range": range(mention.line, column_of(line, mention.start), column_of(line, mention.end)),
        "tooltip": "Show the resource in the Spec",
        "data": {"uri": uri, "mention": mention.text},
    })
}

/// What is said of a resource. It is plain text: names come from the repository.
pub(crate) fn hover(resource: &ResourceView) -> Value {
    let head = [resource.id.to_string(), format!("stack {}", resource.stack)];
    let lines: Vec<_> = head.into_iter().chain(resource.lines.iter().cloned()).collect();
    json!({"contents": {"kind": "plaintext", "value": lines.join("\n")}})
}

/// An error as one message.
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
        assert_eq!(shown["message"], "a/dev: wrong\nhint: repair it");
        assert_eq!(
            (&shown["code"], &shown["severity"]),
            (&json!("compile"), &json!(1))
        );
        assert_eq!(shown["range"]["end"]["character"], 3);
    }
}
