//! The end of a comment: drift, policy findings, and what merging will do.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::details::OmittedDetails;
use crate::{CommentInput, Merging, diff, escape, labels, mermaid, view_model::PlanView};
use konverge_base::model::policy_finding::{Enforcement, PolicyFinding};

/// The maximum size of the drift section, in bytes.
const DRIFT: usize = 12_000;
const FINDINGS: usize = 6_000;

/// The number of changed files that are listed.
const FILES: usize = 20;

/// The folded reasons: a diagram from the changed files to the stacks, or a list of the files if it would be too
/// large.
pub(super) fn why(input: &CommentInput<'_>) -> String {
    if let Some(graph) = mermaid::why(input.affected, mermaid::NODES) {
        return format!(
            "<details><summary>Why these stacks: from the changed files to the stacks</summary>\n\n```mermaid\n{graph}```\n\n</details>\n\n"
        );
    }
    if input.affected.stacks.len() <= mermaid::NODES / 4 {
        return String::new();
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
    let lines = files.iter().take(FILES).map(|(file, n)| {
        format!(
            "- {} reaches {}\n",
            escape::code(file),
            labels::plural(*n, "stack")
        )
    });
    let lines: String = lines.collect();
    let more = match files.len().saturating_sub(FILES) {
        0 => String::new(),
        more => format!("- and {}\n", labels::plural(more, "more file")),
    };
    format!("<details><summary>Why these stacks</summary>\n\n{lines}{more}\n</details>\n\n")
}

/// The folded drift section; whole resources only. `short` omits the diffs.
pub(super) fn drift(view: &PlanView<'_>, short: bool) -> String {
    let mut count = 0;
    let mut body = String::new();
    let mut left_out = 0;
    for stack in &view.drifted {
        for resource in &stack.resources {
            let lines = diff::drift(resource, diff::DiffContext::Tree(1));
            if lines.is_empty() {
                continue;
            }
            count += 1;
            let title = labels::Title::with_runtime(&resource.id, resource.runtime);
            // The notes of a resource that this change touches are shown with the change.
            let notes = resource.notes.iter().filter(|_| !diff::touches(resource));
            let notes: String = notes.map(|note| format!("- {}\n", escape::prose(note))).collect();
            let notes = if notes.is_empty() { notes } else { notes + "\n" };
            let block = format!(
                "{} in {}\n\n{notes}{}\n",
                escape::code(&title.full()),
                escape::code(stack.id.as_str()),
                escape::fenced("diff", &diff::from_live(&lines, "Spec").join("\n"))
            );
            if short || body.len() + block.len() > DRIFT {
                left_out += 1;
            } else {
                body.push_str(&block);
            }
        }
    }
    if count == 0 {
        return String::new();
    }
    if left_out > 0 {
        body.push_str(&format!(
            "{} not shown here.\n\n",
            labels::plural(left_out, "resource")
        ));
    }
    format!(
        "<details><summary>Already different on the cluster, not from this pull request ({})</summary>\n\nApply restores the fields that Konverge manages.\n\n{body}</details>\n\n",
        labels::plural(count, "resource")
    )
}

/// The folded findings of the settings in `policy`.
pub(super) fn findings(input: &CommentInput<'_>) -> String {
    let settings = || input.findings.iter().filter(|finding| finding.place.is_none());
    if settings().next().is_none() {
        return String::new();
    }
    let count = |verdict| settings().filter(|f| f.verdict == verdict).count();
    let mut body = String::new();
    let mut left_out = 0;
    for finding in settings() {
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
        if body.len() + row.len() > FINDINGS {
            left_out += 1;
        } else {
            body.push_str(&row);
        }
    }
    if left_out > 0 {
        body.push_str(&format!("- and {left_out} more\n"));
    }
    format!(
        "<details><summary>Policies: {} denied, {}, {} satisfied</summary>\n\n{body}\n</details>\n\n",
        count(Enforcement::Deny),
        labels::plural(count(Enforcement::Warn), "warning"),
        count(Enforcement::Pass)
    )
}

/// The location of the full page, for the end of the summary.
pub fn page_note(path: &str) -> String {
    format!(
        "\nThe whole preview as one page: {} (output `summary-path`). A later step can upload it with `actions/upload-artifact`.\n",
        escape::code(path)
    )
}

/// The page that explains the comment to its readers.
const READERS: &str = "https://konverge.github.io/konverge/guides/app-developers/";

/// Three lines: what merging does, how to reproduce the preview, and the facts. Before them, what did not fit.
pub(super) fn footer(input: &CommentInput<'_>, view: &PlanView<'_>, omitted: OmittedDetails) -> String {
    let mut text = String::new();
    if omitted != OmittedDetails::default() {
        let mut what = Vec::new();
        if omitted.stacks > 0 {
            what.push(format!(
                "the diffs of {}",
                labels::plural(omitted.stacks, "stack")
            ));
        }
        if omitted.groups > 0 {
            what.push(labels::plural(omitted.groups, "equal change"));
        }
        let place = input
            .run
            .run_url
            .as_ref()
            .map_or("the job summary".to_owned(), |url| {
                escape::link("the job summary", url)
            });
        text.push_str(&format!(
            "**Cut to fit**: {} omitted to fit GitHub's limit. The whole preview: {place}.\n\n",
            what.join(" and ")
        ));
    }
    text.push_str(&format!("---\n{}\n\n", merging(input, view)));
    let mut facts = vec![
        escape::link("How to read this", READERS),
        "to reproduce it: <code>konverge preview</code> in a checkout of this branch".to_owned(),
    ];
    if let Some(url) = &input.run.page_url {
        facts.push(escape::link("the preview as a page", url));
    }
    if let Some(url) = &input.run.run_url {
        facts.push(escape::link("run", url));
    }
    let total: Duration = input.run.timings.iter().map(|(_, time)| *time).sum();
    if !total.is_zero() {
        facts.push(seconds(total));
    }
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

/// The number of denied stacks that are named.
const DENIED: usize = 5;

/// What merging does now, in one line.
fn merging(input: &CommentInput<'_>, view: &PlanView<'_>) -> String {
    let denied: Vec<_> = input
        .findings
        .iter()
        .filter(|f| f.verdict == Enforcement::Deny)
        .collect();
    let line = match input.mode.merging {
        Merging::Applies if !denied.is_empty() => return merging_denied(&denied),
        _ => merging_allowed(input, view, !denied.is_empty()),
    };
    line.to_owned()
}

/// What a merge leaves out while policies deny it.
fn merging_denied(denied: &[&PolicyFinding]) -> String {
    let stacks: Option<BTreeSet<_>> = denied.iter().map(|finding| finding.stack.as_ref()).collect();
    let Some(stacks) = stacks else {
        return "**Merging** applies nothing until the policies above are satisfied.".to_owned();
    };
    let names: Vec<_> = stacks
        .iter()
        .take(DENIED)
        .map(|id| escape::code(id.as_str()))
        .collect();
    let more = match stacks.len().saturating_sub(DENIED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "**Merging**: {}{more} will not be applied until the policies above are satisfied.",
        names.join(", ")
    )
}

/// What a merge does that no policy denies, or whatever they deny.
fn merging_allowed(input: &CommentInput<'_>, view: &PlanView<'_>, denied: bool) -> &'static str {
    let in_part = view.partial_failures().next().is_some();
    match input.mode.merging {
        Merging::Outside => {
            "**Merging**: Konverge plans again with credentials, and applies. This pull request comes from outside (a fork, or Dependabot), so it was only compiled."
        }
        Merging::Queued => {
            "**Merging**: Konverge plans again with credentials, and applies. In the merge queue only Specs are compared."
        }
        _ if view.stacks.is_empty() && !denied => "**Merging** makes no infrastructure changes.",
        // Nothing is applied, whatever the plan holds.
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
        Merging::Applies if view.failed > 0 => {
            "**Merging** leaves out the failed stacks; a later run applies them once they are planned and reviewed."
        }
        Merging::Applies => {
            "**Merging** applies exactly this. Konverge plans again after the merge, and stops a stack before changing anything if its plan holds something else."
        }
    }
}

fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(10) {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{} s", time.as_secs())
    }
}
