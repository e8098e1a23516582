//! The table of a comment: one row per changed stack or, for many stacks, one row per project with the changes that are
//! not shown as equal changes.

use std::collections::BTreeMap;

use super::fill::{Block, Form, Omitted, Rank, Section, Text};
use crate::{
    CommentInput, diff, escape, labels,
    view_model::{PlanView, StackView, chain_text, lifecycle},
};
use konverge_base::model::{
    StackId,
    plan::{ResourcePlan, Summary},
    spec::RuntimeKind,
};

/// The maximum number of stacks that have a row each.
const MOST_STACKS: usize = 15;

/// The maximum number of projects whose table is not folded.
const MOST_PROJECTS: usize = 15;

/// Returns true if the table has a row for each stack.
pub(super) fn is_by_stack(view: &PlanView<'_>) -> bool {
    view.stacks.len() <= MOST_STACKS
}

/// Returns the table; `None` if there is no change, or if all changes are shown as equal changes.
pub(super) fn section<'v>(input: &'v CommentInput<'v>, view: &'v PlanView<'v>) -> Option<Section<'v>> {
    if view.stacks.is_empty() {
        None
    } else if is_by_stack(view) {
        Some(stacks(input, view))
    } else {
        projects(view)
    }
}

/// Returns a row as a block.
fn row_block<'v>(rank: Rank, row: impl Fn() -> String + 'v) -> Block<'v> {
    let text = move || Text::uncounted(row());
    Block::new(Omitted::lines(1), Form::new(rank, text))
}

fn stacks<'v>(input: &'v CommentInput<'v>, view: &'v PlanView<'v>) -> Section<'v> {
    let terraform = view
        .stacks
        .iter()
        .flat_map(|s| &s.plan.resources)
        .any(|r| r.runtime == RuntimeKind::Terraform);
    // The column "Details" is shown only if a stack in the table has a check run.
    let details = view
        .stacks
        .iter()
        .any(|stack| input.links.contains_key(&stack.plan.id));
    let waves = view.stacks.iter().any(|s| s.wave > 0);
    let mut header = String::new();
    let mut rule = String::new();
    for (shown, title) in [
        (true, "Stack"),
        (waves, "Wave"),
        (true, "Kubernetes"),
        (terraform, "Terraform"),
        (true, "Why"),
        (details, "Details"),
    ] {
        if shown {
            header.push_str(&format!("| {title} "));
            rule.push_str("| --- ");
        }
    }
    let columns = Columns {
        waves,
        terraform,
        details,
    };
    let row = |stack| row_block(Rank::Overview, move || stack_row(input, stack, columns));
    let mut blocks: Vec<_> = view.stacks.iter().map(row).collect();
    if waves {
        let note = "\nA *wave* is applied when all stacks of the waves before it are done.\n";
        blocks.push(row_block(Rank::Overview, || note.to_owned()));
    }
    let rollouts = input.rollouts.iter();
    blocks.extend(
        rollouts.map(|rollout| row_block(Rank::Overview, move || format!("\n{}\n", escape::prose(rollout)))),
    );
    Section::plain(format!("{header}|\n{rule}|\n"), blocks, "\n")
}

/// The columns that only some tables have.
#[derive(Clone, Copy)]
struct Columns {
    waves: bool,
    terraform: bool,
    details: bool,
}

fn stack_row(input: &CommentInput<'_>, stack: &StackView<'_>, columns: Columns) -> String {
    let mut row = format!("| {} ", escape::cell(stack.plan.id.as_str()));
    if columns.waves {
        row.push_str(&format!("| {} ", stack.wave + 1));
    }
    if stack.plan.error.is_some() && !stack.plan.fails_in_part() {
        row.push_str(if stack.plan.fails_as_before {
            "| fails as before "
        } else {
            "| **failed** "
        });
        row.push_str(if columns.terraform { "| " } else { "" });
    } else {
        let failed = if stack.plan.fails_in_part() {
            "**failed in part** "
        } else {
            ""
        };
        row.push_str(&format!("| {failed}{} ", counts(stack, RuntimeKind::Kubernetes)));
        if columns.terraform {
            row.push_str(&format!("| {} ", counts(stack, RuntimeKind::Terraform)));
        }
    }
    row.push_str(&format!("| {} ", reason_cell(stack)));
    if columns.details {
        let link = input
            .links
            .get(&stack.plan.id)
            .map(|url| escape::link("diff", url));
        row.push_str(&format!("| {} ", link.unwrap_or_default()));
    }
    row.push_str("|\n");
    row
}

fn counts(stack: &StackView<'_>, runtime: RuntimeKind) -> String {
    let mut summary = Summary::default();
    for resource in stack.own.iter().filter(|r| r.runtime == runtime) {
        summary.count_resource(&stack.plan.id, resource);
    }
    if runtime == RuntimeKind::Kubernetes {
        summary.adopt += stack.kept;
    }
    let differs = |r: &&ResourcePlan| r.runtime == runtime && diff::differs_already(r);
    counts_cell(&summary, stack.plan.resources.iter().filter(differs).count())
}

/// Returns the counts for a cell, bold if something is deleted; empty without changes.
fn counts_cell(summary: &Summary, restored: usize) -> String {
    if summary.changed() + restored == 0 {
        return String::new();
    }
    let text = labels::counts_with_drift(summary, restored);
    if summary.delete + summary.replace > 0 {
        format!("**{text}**")
    } else {
        text
    }
}

/// Returns the shortest chain from a changed file to the stack, and the number of other chains.
fn reason_cell(stack: &StackView<'_>) -> String {
    let mut parts: Vec<String> = lifecycle(stack).map(str::to_owned).into_iter().collect();
    if let (Some(chain), Some(affected)) = (stack.shortest_chain(), stack.affected) {
        parts.push(chain_text(chain, escape::cell));
        if affected.why.len() > 1 {
            parts.push(format!("and {} more", affected.why.len() - 1));
        }
    }
    parts.join(" ")
}

/// The changes of a project besides the equal changes.
#[derive(Default)]
struct ProjectRow {
    stacks: usize,
    failed: usize,
    restored: usize,
    summary: Summary,
}

fn projects<'v>(view: &'v PlanView<'v>) -> Option<Section<'v>> {
    let mut projects: BTreeMap<&str, ProjectRow> = BTreeMap::new();
    for stack in &view.stacks {
        let alone = stack.own.iter().zip(&stack.grouped);
        let alone: Vec<_> = alone.filter(|(_, group)| group.is_none()).collect();
        let failed = stack.plan.error.is_some();
        let restored = diff::drifted(stack.plan);
        if alone.is_empty() && restored + stack.kept == 0 && !failed {
            continue;
        }
        let id = stack.plan.id.as_str();
        let project = id.rsplit_once('/').map_or(id, |(project, _)| project);
        let row = projects.entry(project).or_default();
        row.stacks += 1;
        row.failed += usize::from(failed);
        row.restored += restored;
        for (resource, _) in alone {
            row.summary.count_resource(&stack.plan.id, resource);
        }
        row.summary.adopt += stack.kept;
    }
    if projects.is_empty() {
        return None;
    }
    let other = if view.groups.is_empty() {
        "Changes"
    } else {
        "Other changes"
    };
    let title = format!("{other} in {}", labels::plural(projects.len(), "project"));
    let folded = projects.len() > MOST_PROJECTS;
    let (title, end) = if folded {
        (
            format!("<details><summary>{title}</summary>\n\n"),
            "\n</details>\n\n",
        )
    } else {
        (format!("{title}:\n\n"), "\n")
    };
    let head = format!("{title}| Project | Stacks | Resources |\n| --- | --- | --- |\n");
    let row = |(project, row): (&'v str, ProjectRow)| {
        row_block(Rank::Harmless, move || {
            let failed = match row.failed {
                0 => String::new(),
                failed => format!(" ({failed} failed)"),
            };
            format!(
                "| {} | {}{failed} | {} |\n",
                escape::cell(project),
                row.stacks,
                counts_cell(&row.summary, row.restored)
            )
        })
    };
    let section = Section::plain(head, projects.into_iter().map(row).collect(), end);
    Some(section.with_more(|hidden| format!("| {} | | |\n", labels::plural(hidden, "more project"))))
}

/// Lists the affected stacks without changes. The headline has their number.
pub(super) fn unchanged<'v>(view: &'v PlanView<'v>) -> Option<Section<'v>> {
    let title = match view.affected {
        0 => "Without changes",
        _ => "Affected, without changes",
    };
    names(title, view.unchanged.clone())
}

/// Lists the stacks that are taken over without a change. A sentence at the top has their number.
pub(super) fn taken_over<'v>(view: &'v PlanView<'v>) -> Option<Section<'v>> {
    let stacks = view.taken_over.iter().map(|stack| stack.id).collect();
    names("Taken over as they run", stacks)
}

/// Returns a fold with the names of stacks; `None` if there are none.
fn names<'v>(title: &str, stacks: Vec<&'v StackId>) -> Option<Section<'v>> {
    if stacks.is_empty() {
        return None;
    }
    let hidden = Omitted::lines(stacks.len());
    let names = move || {
        let names: Vec<_> = stacks.iter().map(|id| escape::code(id.as_str())).collect();
        Text::uncounted(names.join(", ") + "\n\n")
    };
    let block = Block::new(hidden, Form::new(Rank::Background, names));
    Some(Section::closed(title.to_owned(), vec![block]))
}

#[cfg(test)]
mod tests {
    use konverge_base::model::{
        Digest, RepoPath,
        plan::{Action, Basis, ChangeOrigin, FieldChange, StackPlan},
    };

    use super::{super::fill, *};

    #[test]
    fn the_row_of_a_project_says_how_many_adoptions_change_a_value() {
        let id = "shop/dev".parse().unwrap();
        let adopted = |name: &str, changes: Vec<FieldChange>| {
            let resource = format!("v1:ConfigMap:shop:{name}").parse().unwrap();
            ResourcePlan::new(&id, resource, RuntimeKind::Kubernetes, Action::Adopt, changes)
        };
        let change = FieldChange {
            path: "/data/a".into(),
            from: None,
            to: None,
            origin: ChangeOrigin::Change,
        };
        let resources = vec![adopted("a", vec![change]), adopted("b", Vec::new())];
        let plan = StackPlan::new(RepoPath::root(), id.clone(), Basis::Live, resources);
        let own: Vec<_> = plan.resources.iter().collect();
        let view = PlanView {
            stacks: vec![StackView {
                plan: &plan,
                affected: None,
                context: None,
                kept: 0,
                grouped: vec![None; own.len()],
                own,
                wave: 0,
            }],
            groups: Vec::new(),
            taken_over: Vec::new(),
            unchanged: Vec::new(),
            drifted: Vec::new(),
            total: Summary::default(),
            restored: 0,
            removed: 0,
            failed: 0,
            failed_before: 0,
            introduces: false,
            stops_at_drift: false,
            planned: 1,
            affected: 1,
            all: 1,
            digest: Digest::of_bytes(b""),
        };
        let section = projects(&view).unwrap();
        let text = fill::fill(&[section], 10_000).texts.concat();
        assert!(
            text.contains("| `shop` | 1 | 2 to adopt (1 with changes) |"),
            "{text}"
        );
    }
}
