//! The end of a comment: drift, policy findings, and what merging will do.

use std::time::Duration;

use super::details::OmittedDetails;
use crate::{
    model::policy_finding::Enforcement,
    report::{CommentInput, Merging, diff, escape, labels, mermaid, view_model::PlanView},
};

/// The maximum size of the drift section, in bytes.
const DRIFT: usize = 12_000;
const FINDINGS: usize = 6_000;

pub(super) fn picture(input: &CommentInput<'_>) -> String {
    mermaid::why(input.affected, mermaid::NODES).map_or(String::new(), |graph| {
        format!("<details><summary>Why these stacks: from the changed files to the stacks</summary>\n\n```mermaid\n{graph}```\n\n</details>\n\n")
    })
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
            let title = labels::Title::of(&resource.id, resource.runtime);
            let block = format!(
                "{} in {}\n\n{}\n",
                escape::code(&title.full()),
                escape::code(stack.id.as_str()),
                escape::fenced("diff", &lines.join("\n"))
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
            escape::code(&finding.message)
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
        "<details><summary>Guardrails: {} denied, {}, {} satisfied</summary>\n\n{body}\n</details>\n\n",
        count(Enforcement::Deny),
        labels::plural(count(Enforcement::Warn), "warning"),
        count(Enforcement::Pass)
    )
}

/// The location of the full page, for the end of the summary.
pub fn page_note(path: &str) -> String {
    // The action runs in a container, where the runner's folder has another path than for other steps.
    format!(
        "\nThe whole preview as one page: {} (output `summary-path`). A later step that keeps it, with `actions/upload-artifact`, sees it as `${{{{ runner.temp }}}}/konverge-*.html`.\n",
        escape::code(path)
    )
}

/// What merging will do, the commands to reproduce, the run, its duration.
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
    text.push_str("---\n");
    text.push_str(&format!("{}\n\n", merging(input, view)));
    let mut facts = Vec::new();
    if let Some(url) = &input.run.run_url {
        facts.push(escape::link("run", url));
    }
    for (stage, time) in &input.run.timings {
        facts.push(format!("{stage} {}", seconds(*time)));
    }
    facts.push(format!(
        "{} compiled, {} from the cache",
        input.run.compiled, input.run.cached
    ));
    if !input.run.version.is_empty() {
        facts.push(format!("Konverge {}", escape::line(&input.run.version)));
    }
    text.push_str(&format!("<sub>{}</sub>\n", facts.join(" · ")));
    text
}

fn merging(input: &CommentInput<'_>, view: &PlanView<'_>) -> String {
    let look = "To reproduce: `konverge preview` in a checkout of this branch.";
    let denied = input.findings.iter().any(|f| f.verdict == Enforcement::Deny);
    let sentence = if input.mode.merging == Merging::Outside {
        "This pull request comes from outside (a fork, or Dependabot): it was compiled without any credential and compared with the base's Spec. After the merge Konverge plans again, against the real infrastructure."
    } else if input.mode.merging == Merging::Queued {
        return "In the merge queue Specs are compared with Specs, and no cluster is asked. After the merge Konverge plans again, against the real infrastructure.".to_owned();
    } else if input.mode.merging == Merging::Applies
        && !denied
        && view.stacks.iter().any(|stack| stack.plan.fails_in_part())
    {
        "Merging now would leave what failed as it is, with what waits for it, and delete nothing in those stacks; what could be planned besides is applied. The rest follows with the first run in which it can be planned and what it changes has been reviewed."
    } else if view.failed > 0 {
        "Merging now would leave the failed stacks as they are: they are applied by the first run in which they can be planned and what they change has been reviewed."
    } else if denied {
        "Merging now would stop at the guardrails above; those stacks are not changed until the rule is satisfied."
    } else if view.stacks.is_empty() {
        return "Merging makes no infrastructure changes.".to_owned();
    } else if input.mode.merging == Merging::OtherBranch {
        "Merging applies nothing: this targets a branch that is not deployed."
    } else if input.mode.merging == Merging::Unreviewed {
        "This preview was not recorded as a review; the job's log says why. After the merge what it changes waits for an approval by digest."
    } else if input.mode.merging == Merging::NoStore {
        "Merging applies nothing: `konverge.yaml` of the protected branch configures no store (`state.url`)."
    } else {
        "Merging applies exactly this. Konverge plans again after the merge. If a stack's plan then holds something that is not shown here, Konverge stops the stack before changing anything."
    };
    format!("{sentence} {look}")
}

fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(10) {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{} s", time.as_secs())
    }
}
