//! The folded section with the findings of the policy sets, sorted by severity, set and rule.

use std::collections::{BTreeMap, BTreeSet};

use crate::{CommentInput, escape, labels};
use konverge_base::model::{
    Digest,
    policy_finding::{Enforcement, PolicyFinding, SetPlace},
};

/// The maximum size of the section, in bytes.
const SECTION: usize = 8_000;
/// The most findings that are shown of one rule.
const PER_RULE: usize = 10;

type Groups<'f> = BTreeMap<(Enforcement, &'f str), Vec<(&'f PolicyFinding, &'f SetPlace)>>;

/// The findings of sets by enforcement and rule.
fn grouped(findings: &[PolicyFinding]) -> Groups<'_> {
    let mut groups = Groups::new();
    for finding in findings {
        if let Some(place) = &finding.place {
            let group = groups.entry((finding.verdict, &finding.rule)).or_default();
            group.push((finding, place));
        }
    }
    groups
}

/// The digests of the denials with a row of their own in the comment.
pub fn shown_denials(findings: &[PolicyFinding]) -> BTreeSet<Digest> {
    let groups = grouped(findings);
    let denied = groups
        .iter()
        .filter(|((verdict, _), _)| *verdict == Enforcement::Deny);
    let shown = denied.flat_map(|(_, findings)| findings.iter().take(PER_RULE));
    shown.map(|(_, place)| place.digest).collect()
}

/// The folded section; empty if no set found anything.
pub(super) fn render(input: &CommentInput<'_>) -> String {
    let groups = grouped(input.findings);
    if groups.is_empty() {
        return String::new();
    }
    let mut body = String::new();
    let mut left_out = 0;
    for ((verdict, rule), findings) in &groups {
        let word = labels::enforcement_word(*verdict);
        let title = format!("**{word}** by {}\n", escape::code(rule));
        let mut block = title;
        for (finding, place) in findings.iter().take(PER_RULE) {
            block.push_str(&row(finding, place));
        }
        let hidden = findings.len().saturating_sub(PER_RULE);
        if hidden > 0 {
            block.push_str(&format!("- and {hidden} more\n"));
        }
        block.push('\n');
        if body.len() + block.len() > SECTION {
            left_out += findings.len();
        } else {
            body.push_str(&block);
        }
    }
    if left_out > 0 {
        body.push_str(&format!(
            "{} not shown here.\n\n",
            labels::plural(left_out, "finding")
        ));
    }
    format!(
        "<details><summary>Policy sets: {}</summary>\n\n{body}</details>\n\n",
        counts(&groups)
    )
}

/// `2 denied, 1 undecided`.
fn counts(groups: &Groups<'_>) -> String {
    let mut counts: BTreeMap<Enforcement, usize> = BTreeMap::new();
    for ((verdict, _), findings) in groups {
        *counts.entry(*verdict).or_default() += findings.len();
    }
    let words = counts
        .iter()
        .map(|(verdict, count)| format!("{count} {}", labels::enforcement_word(*verdict)));
    words.collect::<Vec<_>>().join(", ")
}

fn row(finding: &PolicyFinding, place: &SetPlace) -> String {
    let stack = finding.stack.as_ref().map(|stack| escape::code(stack.as_str()));
    let resource = place.resource.as_ref().map(|id| escape::code(id.as_str()));
    let path = place.path.as_deref().map(escape::code);
    let places: Vec<_> = [stack, resource, path].into_iter().flatten().collect();
    let hint = finding
        .hint
        .as_ref()
        .map_or(String::new(), |hint| format!(" (hint: {})", escape::prose(hint)));
    format!(
        "- {}: {}{hint}\n",
        places.join(" "),
        escape::prose(&finding.message)
    )
}
