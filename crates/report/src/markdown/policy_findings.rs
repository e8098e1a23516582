//! The folded section with the findings of the policy sets, sorted by severity, set and rule.

use std::collections::{BTreeMap, BTreeSet};

use super::fill::{Block, Form, Omitted, Rank, Section};
use crate::{CommentInput, escape, labels};
use konverge_base::model::{
    Digest,
    policy_finding::{Enforcement, PolicyFinding, SetPlace},
};

/// The maximum number of findings that are shown for one rule.
const PER_RULE: usize = 10;

type Groups<'f> = BTreeMap<(Enforcement, &'f str), Vec<(&'f PolicyFinding, &'f SetPlace)>>;

/// Groups the findings of policy sets by enforcement and rule.
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

/// Returns the digests of the denials that have a row of their own in the comment.
pub fn shown_denials(findings: &[PolicyFinding]) -> BTreeSet<Digest> {
    let groups = grouped(findings);
    let denied = groups
        .iter()
        .filter(|((verdict, _), _)| *verdict == Enforcement::Deny);
    let shown = denied.flat_map(|(_, findings)| findings.iter().take(PER_RULE));
    shown.map(|(_, place)| place.digest).collect()
}

/// Returns the folded section; `None` if no set has findings. Denials come first, because a review can only override a
/// denial that the comment shows.
pub(super) fn section<'v>(input: &CommentInput<'v>) -> Option<Section<'v>> {
    let groups = grouped(input.findings);
    if groups.is_empty() {
        return None;
    }
    let title = format!("Policy sets: {}", counts(&groups));
    Some(Section::closed(
        title,
        groups.into_iter().map(rule_block).collect(),
    ))
}

/// Returns the findings of one rule.
fn rule_block<'v>(
    ((verdict, rule), findings): ((Enforcement, &'v str), Vec<(&'v PolicyFinding, &'v SetPlace)>),
) -> Block<'v> {
    let rank = if verdict == Enforcement::Deny {
        Rank::Overview
    } else {
        Rank::Beside
    };
    let all = findings.len();
    let hidden = all.saturating_sub(PER_RULE);
    let rows = move || {
        let mut block = format!(
            "**{}** by {}\n",
            labels::enforcement_word(verdict),
            escape::code(rule)
        );
        for (finding, place) in findings.iter().take(PER_RULE) {
            block.push_str(&row(finding, place));
        }
        if hidden > 0 {
            block.push_str(&format!("- and {hidden} more\n"));
        }
        block.push('\n');
        block.into()
    };
    Block::new(
        Omitted::lines(all),
        Form::new(rank, rows).without(Omitted::lines(hidden)),
    )
}

/// Returns the counts of the findings: `2 denied, 1 undecided`.
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
