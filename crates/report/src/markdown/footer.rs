//! The end of a comment: drift, policy findings and data about the run. Also the texts at the top about what is left
//! out and about the merge.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::fill::{Block, Form, Omitted, Rank, Section, Text};
use crate::{CommentInput, Merging, diff, escape, labels, mermaid, next_step, view_model::PlanView};
use konverge_base::model::{
    StackId,
    plan::ResourcePlan,
    policy_finding::{Enforcement, PolicyFinding},
    text::first_few,
};

/// The page that shows the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Surface {
    /// The comment. The parts that it leaves out are in the job summary.
    Comment,
    /// The summary of the job.
    Summary,
}

/// The maximum number of changed files that are listed.
const FILES: usize = 20;

/// Returns the folded reasons: a diagram from the changed files to the stacks, or a list of files if the diagram would
/// be too large.
pub(super) fn why<'v>(input: &'v CommentInput<'v>) -> Option<Section<'v>> {
    let graph = || mermaid::why(input.affected, mermaid::NODES);
    if graph().is_some() {
        let title = "Why these stacks: from the changed files to the stacks".to_owned();
        let drawing = move || Text::uncounted(format!("```mermaid\n{}```\n\n", graph().unwrap_or_default()));
        let block = Block::new(Omitted::lines(1), Form::new(Rank::Background, drawing));
        return Some(Section::closed(title, vec![block]));
    }
    if input.affected.stacks.len() <= mermaid::NODES / 4 {
        return None;
    }
    let mut reached: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for stack in &input.affected.stacks {
        for reason in &stack.why {
            reached
                .entry(reason.path.as_str())
                .or_default()
                .insert(stack.id.as_str());
        }
    }
    let mut files: Vec<_> = reached
        .into_iter()
        .map(|(file, stacks)| (file, stacks.len()))
        .collect();
    files.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let (all, more) = (files.len(), files.len().saturating_sub(FILES));
    let list = move || {
        let lines = files.iter().take(FILES).map(|(file, n)| {
            format!(
                "- {} reaches {}\n",
                escape::code(file),
                labels::plural(*n, "stack")
            )
        });
        let lines: String = lines.collect();
        let more = match more {
            0 => String::new(),
            more => format!("- and {}\n", labels::plural(more, "more file")),
        };
        Text::uncounted(format!("{lines}{more}\n"))
    };
    let block = Block::new(
        Omitted::lines(all),
        Form::new(Rank::Beside, list).without(Omitted::lines(more)),
    );
    Some(Section::closed("Why these stacks".to_owned(), vec![block]))
}

/// Returns the folded drift; `None` if there is none.
pub(super) fn drift<'v>(view: &PlanView<'v>) -> Option<Section<'v>> {
    let mut blocks = Vec::new();
    for stack in &view.drifted {
        let differing = stack
            .resources
            .iter()
            .filter(|resource| resource.changes.iter().any(diff::is_drift));
        blocks.extend(differing.map(|resource| drift_block(&stack.id, resource)));
    }
    if blocks.is_empty() {
        return None;
    }
    let title = format!(
        "Already different on the cluster, not from this pull request ({})",
        labels::plural(blocks.len(), "resource")
    );
    let head = format!(
        "<details><summary>{title}</summary>\n\nApply restores the fields that Konverge manages.\n\n"
    );
    Some(Section::plain(head, blocks, "</details>\n\n"))
}

fn drift_block<'v>(stack: &'v StackId, resource: &'v ResourcePlan) -> Block<'v> {
    let name = move || {
        let title = labels::Title::with_runtime(&resource.id, resource.runtime);
        format!(
            "{} in {}",
            escape::code(&title.full()),
            escape::code(stack.as_str())
        )
    };
    let values = move || {
        let lines = diff::drift(resource, diff::DiffContext::Tree(1));
        // If this change also modifies the resource, its notes are shown with the change.
        let notes = resource.notes.iter().filter(|_| !diff::touches(resource));
        let notes = escape::bullets(notes.map(|note| escape::prose(note)));
        let text = format!(
            "{}\n\n{notes}{}\n",
            name(),
            escape::fenced("diff", &diff::from_live(&lines, "Spec").join("\n"))
        );
        text.into()
    };
    let line = Form::new(Rank::Beside, move || format!("{}\n\n", name()).into()).without(Omitted::values(1));
    Block {
        hidden: Omitted::resources(1),
        forms: vec![line, Form::new(Rank::Beside, values)],
    }
}

/// Returns the folded findings of the settings in `policy`.
pub(super) fn findings<'v>(input: &CommentInput<'v>) -> Option<Section<'v>> {
    let findings = input.findings.iter();
    let settings: Vec<_> = findings.filter(|finding| finding.place.is_none()).collect();
    if settings.is_empty() {
        return None;
    }
    let count = |verdict| settings.iter().filter(|f| f.verdict == verdict).count();
    let title = format!(
        "Policies: {} denied, {}, {} satisfied",
        count(Enforcement::Deny),
        labels::plural(count(Enforcement::Warn), "warning"),
        count(Enforcement::Pass)
    );
    let blocks = settings.into_iter().map(finding_block).collect();
    Some(Section::closed(title, blocks).with_end("\n</details>\n\n"))
}

fn finding_block(finding: &PolicyFinding) -> Block<'_> {
    let row = move || {
        let word = labels::enforcement_word(finding.verdict);
        let stack = finding
            .stack
            .as_ref()
            .map_or(String::new(), |s| format!(" for {}", escape::code(s.as_str())));
        let row = format!(
            "- {word}{stack}: {} {}\n",
            escape::code(&finding.rule),
            escape::prose(&finding.message)
        );
        row.into()
    };
    Block::new(Omitted::lines(1), Form::new(Rank::Beside, row))
}

/// Returns a note with the location of the full page, for the end of the summary.
pub fn page_note(path: &str) -> String {
    format!(
        "\nThe whole preview as one page: {} (output `summary-path`). A later step can upload it with `actions/upload-artifact`.\n",
        escape::code(path)
    )
}

/// The documentation that explains the comment to its readers.
const READERS: &str = "https://konverge.github.io/konverge/guides/app-developers/";

/// Returns a note about what is left out, with the counts and the places that show it; empty if nothing is left out.
pub(super) fn cut_note(input: &CommentInput<'_>, omitted: Omitted, surface: Surface) -> String {
    let resources = |count| labels::plural(count, "changed resource");
    let lines = |count| labels::plural(count, "name or note").replace("name or notes", "names and notes");
    let mut parts = Vec::new();
    parts.extend((omitted.values > 0).then(|| format!("the values of {}", resources(omitted.values))));
    parts.extend((omitted.resources > 0).then(|| resources(omitted.resources)));
    parts.extend((omitted.lines > 0).then(|| lines(omitted.lines)));
    if parts.is_empty() {
        return String::new();
    }
    format!(
        "**Not shown here**: {}. All of it: {}.\n\n",
        parts.join("; "),
        whole_preview(input, surface)
    )
}

/// Returns the places that show the whole preview.
fn whole_preview(input: &CommentInput<'_>, surface: Surface) -> String {
    let link = |words: &str, url: &Option<String>| url.as_ref().map(|url| escape::link(words, url));
    let summary = match surface {
        Surface::Comment => link("the job summary", &input.run.run_url),
        Surface::Summary => None,
    };
    let places: Vec<_> = [summary, link("the preview as a page", &input.run.page_url)]
        .into_iter()
        .flatten()
        .collect();
    if places.is_empty() {
        "`konverge preview --output html`".to_owned()
    } else {
        places.join(" or ")
    }
}

/// Returns the next steps and the effect of the merge, for the top, because a reader decides there.
pub(super) fn decision(
    input: &CommentInput<'_>,
    view: &PlanView<'_>,
    omitted: Omitted,
    surface: Surface,
) -> String {
    let next = next_step::next_steps(input, view);
    let next = next.map_or(String::new(), |steps| format!("**Next**: {steps}.\n\n"));
    format!("{next}{}\n\n", merging(input, view, omitted, surface))
}

/// Returns the effect of the merge and the data about the run.
pub(super) fn footer(input: &CommentInput<'_>, view: &PlanView<'_>) -> String {
    let mut text = "---\n".to_owned();
    if input.mode.merging == Merging::Applies && !view.changes_nothing() {
        text.push_str("Konverge plans again after the merge, and stops a stack before changing anything if its plan holds something else.\n\n");
    }
    let mut facts = vec![
        escape::link("How to read this", READERS),
        "to reproduce it: <code>konverge preview</code> in a checkout of this branch".to_owned(),
    ];
    let links = [
        ("the preview as a page", &input.run.page_url),
        ("run", &input.run.run_url),
    ];
    facts.extend(
        links
            .into_iter()
            .filter_map(|(words, url)| Some(escape::link(words, url.as_ref()?))),
    );
    let total: Duration = input.run.timeline.stages().map(|(_, time)| time).sum();
    facts.extend((!total.is_zero()).then(|| labels::seconds(total)));
    if !input.run.version.is_empty() {
        facts.push(format!("Konverge {}", escape::line(&input.run.version)));
    }
    facts.push(format!(
        "digest <code>{}</code>, which names exactly these changes",
        view.digest.short()
    ));
    text.push_str(&format!("<sub>{}</sub>\n", facts.join(" · ")));
    text
}

/// The maximum number of denied stacks that are listed.
const DENIED: usize = 5;

/// Returns the effect of a merge now, on one line.
fn merging(input: &CommentInput<'_>, view: &PlanView<'_>, omitted: Omitted, surface: Surface) -> String {
    let denied: Vec<_> = input
        .findings
        .iter()
        .filter(|f| f.verdict == Enforcement::Deny)
        .collect();
    match input.mode.merging {
        Merging::Applies if !denied.is_empty() => merging_denied(&denied),
        _ if !denied.is_empty() || input.mode.merging != Merging::Applies || !applies_all(view) => {
            merging_otherwise(input, view, !denied.is_empty()).to_owned()
        }
        _ if input.mode.stops_at_drift && !view.changed_by_others().is_empty() => {
            "**Merging** stops at each stack that others changed, before changing anything of it, and applies the others."
                .to_owned()
        }
        _ => applies_exactly(input, view, omitted, surface),
    }
}

/// Returns true if a merge applies the whole plan.
fn applies_all(view: &PlanView<'_>) -> bool {
    view.failed == 0 && !view.changes_nothing()
}

/// Returns the effect of a merge that applies the whole plan. If the comment leaves something out, the plan's digest is
/// named.
fn applies_exactly(
    input: &CommentInput<'_>,
    view: &PlanView<'_>,
    omitted: Omitted,
    surface: Surface,
) -> String {
    let what = match omitted.values + omitted.resources {
        0 => "exactly this".to_owned(),
        unseen => format!(
            "exactly what the digest `{}` names; the values of {} are shown only in {}",
            view.digest.short(),
            labels::plural(unseen, "resource"),
            whole_preview(input, surface)
        ),
    };
    format!("**Merging** applies {what}.")
}

/// Returns the effect of a merge while policies deny stacks.
fn merging_denied(denied: &[&PolicyFinding]) -> String {
    let stacks: Option<BTreeSet<_>> = denied.iter().map(|finding| finding.stack.as_ref()).collect();
    let Some(stacks) = stacks else {
        return "**Merging** applies nothing until the policies below are satisfied.".to_owned();
    };
    let names = first_few(stacks.iter().map(|id| escape::code(id.as_str())), DENIED);
    format!("**Merging**: {names} will not be applied until the policies below are satisfied.")
}

/// Returns the effect of a merge that does not apply the whole plan.
fn merging_otherwise(input: &CommentInput<'_>, view: &PlanView<'_>, denied: bool) -> &'static str {
    let in_part = view.partial_failures().next().is_some();
    match input.mode.merging {
        Merging::Outside => {
            "**Merging**: Konverge plans again with credentials, and applies. This pull request comes from outside (a fork, or Dependabot), so it was only compiled."
        }
        Merging::Queued => {
            "**Merging**: Konverge plans again with credentials, and applies. In the merge queue only Specs are compared."
        }
        _ if view.changes_nothing() && !denied => "**Merging** makes no infrastructure changes.",
        // This applies nothing, even if policies deny stacks.
        Merging::OtherBranch => "**Merging** applies nothing: this targets a branch that is not deployed.",
        Merging::NoStore => {
            "**Merging** applies nothing: `konverge.yaml` of the default branch configures no store (`state.url`)."
        }
        Merging::Unreviewed => {
            "**Merging** applies nothing yet: this preview was not recorded as reviewed (the job's log says why), so the changes wait for an approval by digest."
        }
        Merging::Applies if in_part => {
            "**Merging** applies what could be planned. It leaves out the failed resources and their dependents, and deletes nothing in those stacks; a later run applies the rest once it is planned and reviewed."
        }
        Merging::Applies => {
            "**Merging** leaves out the failed stacks; a later run applies them once they are planned and reviewed."
        }
    }
}
