//! The table: one row per changed stack, or per project if there are too many stacks.

use std::collections::BTreeMap;

use super::{
    bounded_writer::{BoundedWriter, BudgetExceeded},
    verbosity::Table,
};
use crate::{
    model::{affected::InputReason, plan::Summary, spec::RuntimeKind},
    report::{
        CommentInput, escape, labels,
        view_model::{PlanView, StackView, lifecycle},
    },
};

/// The space for the row of the remaining projects and for the line after the table.
const LAST_ROW: usize = 300;

pub(super) fn render(
    page: &mut BoundedWriter,
    input: &CommentInput<'_>,
    view: &PlanView<'_>,
    table: Table,
    names: bool,
) -> Result<(), BudgetExceeded> {
    match table {
        Table::Stacks if !view.stacks.is_empty() => stacks(page, input, view)?,
        Table::Projects | Table::Fitting if !view.stacks.is_empty() => projects(page, view, table)?,
        _ => {}
    }
    unchanged(page, view, names)
}

fn stacks(
    page: &mut BoundedWriter,
    input: &CommentInput<'_>,
    view: &PlanView<'_>,
) -> Result<(), BudgetExceeded> {
    let terraform = view
        .stacks
        .iter()
        .flat_map(|s| &s.own)
        .any(|r| r.runtime == RuntimeKind::Terraform);
    let details = !input.links.is_empty();
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
    page.push(&format!("{header}|\n{rule}|\n"))?;
    for stack in &view.stacks {
        let mut row = format!("| {} ", escape::cell(stack.plan.id.as_str()));
        if waves {
            row.push_str(&format!("| {} ", stack.wave + 1));
        }
        if stack.plan.error.is_some() && !stack.plan.fails_in_part() {
            row.push_str("| **failed** ");
            row.push_str(if terraform { "| " } else { "" });
        } else {
            let failed = match stack.plan.fails_in_part() {
                true => "**failed in part** ",
                false => "",
            };
            row.push_str(&format!("| {failed}{} ", counts(stack, RuntimeKind::Kubernetes)));
            if terraform {
                row.push_str(&format!("| {} ", counts(stack, RuntimeKind::Terraform)));
            }
        }
        row.push_str(&format!("| {} ", reason_cell(stack)));
        if details {
            let link = input
                .links
                .get(&stack.plan.id)
                .map(|url| escape::link("diff", url));
            row.push_str(&format!("| {} ", link.unwrap_or_default()));
        }
        row.push_str("|\n");
        page.push(&row)?;
    }
    page.push("\n")
}

fn counts(stack: &StackView<'_>, runtime: RuntimeKind) -> String {
    let mut summary = Summary::default();
    for resource in stack.own.iter().filter(|r| r.runtime == runtime) {
        summary.count(resource.action);
    }
    if summary.changed() == 0 {
        return String::new();
    }
    let text = labels::counts(&summary);
    if summary.delete + summary.replace > 0 {
        format!("**{text}**")
    } else {
        text
    }
}

/// The shortest chain from a changed file, and how many more there are.
fn reason_cell(stack: &StackView<'_>) -> String {
    let mut parts: Vec<String> = lifecycle(stack).map(str::to_owned).into_iter().collect();
    if let Some(affected) = stack.affected
        && let Some(reason) = affected.why.iter().min_by_key(|r| (r.chain.len(), *r))
    {
        parts.push(chain(reason));
        if affected.why.len() > 1 {
            parts.push(format!("and {} more", affected.why.len() - 1));
        }
    }
    parts.join(" ")
}

/// `base/base.k → models/app.k`: both ends, and the number of files between them.
fn chain(reason: &InputReason) -> String {
    match reason.chain.as_slice() {
        [] => escape::cell(reason.path.as_str()),
        [only] => escape::cell(only.as_str()),
        [first, last] => format!(
            "{} → {}",
            escape::cell(first.as_str()),
            escape::cell(last.as_str())
        ),
        [first, between @ .., last] => {
            format!(
                "{} → {} → {}",
                escape::cell(first.as_str()),
                labels::plural(between.len(), "file"),
                escape::cell(last.as_str())
            )
        }
    }
}

fn projects(page: &mut BoundedWriter, view: &PlanView<'_>, table: Table) -> Result<(), BudgetExceeded> {
    let mut projects: BTreeMap<&str, (usize, usize, Summary)> = BTreeMap::new();
    for stack in &view.stacks {
        let id = stack.plan.id.as_str();
        let row = projects
            .entry(id.rsplit_once('/').map_or(id, |(project, _)| project))
            .or_default();
        row.0 += 1;
        row.1 += usize::from(stack.plan.error.is_some());
        for resource in &stack.own {
            row.2.count(resource.action);
        }
    }
    page.push("| Project | Stacks | Resources |\n| --- | --- | --- |\n")?;
    let mut cut = 0;
    let mut rest = Summary::default();
    for (project, (stacks, failed, summary)) in projects {
        let failed = if failed > 0 {
            format!(" ({failed} failed)")
        } else {
            String::new()
        };
        let row = format!(
            "| {} | {stacks}{failed} | {} |\n",
            escape::cell(project),
            labels::counts(&summary)
        );
        // After the first row that does not fit none follows; otherwise the table would not be in order.
        if table == Table::Fitting && (cut > 0 || page.room() < row.len() + LAST_ROW) {
            cut += 1;
            rest = rest + summary;
        } else {
            page.push(&row)?;
        }
    }
    if cut > 0 {
        page.push(&format!(
            "| {} more | | {} |\n",
            labels::plural(cut, "project"),
            labels::counts(&rest)
        ))?;
    }
    page.push("\n")
}

fn unchanged(page: &mut BoundedWriter, view: &PlanView<'_>, names: bool) -> Result<(), BudgetExceeded> {
    let n = view.unchanged.len();
    if n == 0 {
        return Ok(());
    }
    let words = format!(
        "{} would stay as {}",
        labels::plural(n, view.word),
        if n == 1 { "it is" } else { "they are" }
    );
    if !names {
        return page.push(&format!("{words}.\n\n"));
    }
    let list: Vec<_> = view
        .unchanged
        .iter()
        .map(|id| escape::code(id.as_str()))
        .collect();
    page.push(&format!(
        "<details><summary>{words}</summary>\n\n{}\n\n</details>\n\n",
        list.join(", ")
    ))
}
