//! Fits a text to its budget: selects the most detailed verbosity that fits.

use super::{
    alerts,
    bounded_writer::{BoundedWriter, BudgetExceeded},
    details, footer, headline, last_push, permission_changes, policy_findings, table,
    verbosity::{Folds, LADDER, Table, Verbosity},
};
use crate::{
    CommentInput, generation_notes, model_changes, setting_changes,
    view_model::{self, PlanView},
};

pub use super::details::OmittedDetails;

/// A fitted text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FittedComment {
    /// The Markdown; its first line is the marker.
    pub body: String,
    /// What did not fit and must be shown elsewhere.
    pub omitted: OmittedDetails,
    /// The verbosity step: 0 shows everything.
    pub step: usize,
}

/// The comment of a preview in at most `input.budget` bytes (at least 4 KiB).
pub fn comment(input: &CommentInput<'_>) -> FittedComment {
    fit(input, input.budget, &format!("{}\n", input.marker.line()))
}

/// The same for the job summary, without a marker.
pub fn summary(input: &CommentInput<'_>, budget: usize) -> FittedComment {
    fit(input, budget, "")
}

fn fit(input: &CommentInput<'_>, budget: usize, marker: &str) -> FittedComment {
    let view = view_model::build(input);
    let head = format!("{marker}{}", headline::render(input, &view));
    let budget = budget.max(4096);
    let alerts = alerts::render(input, &view, (budget / 2).saturating_sub(head.len()));
    let fixed = head
        + &alerts
        + &permission_changes::render(input, budget / 8)
        + &setting_changes::markdown(input.settings, budget / 8)
        + &last_push::render(input, budget / 8)
        + &generation_notes::markdown(input.plan, budget / 8)
        + &model_changes::markdown(input.models, budget / 8);
    for (step, detail) in LADDER.iter().enumerate() {
        if let Ok((body, omitted)) = try_fit(input, &view, &fixed, budget, detail) {
            return FittedComment { body, omitted, step };
        }
    }
    // Only a marker or commands longer than any real ones lead here; the mandatory parts are still shown.
    let omitted = OmittedDetails {
        stacks: view.stacks.len(),
        groups: view.groups.len(),
    };
    FittedComment {
        body: fixed,
        omitted,
        step: LADDER.len(),
    }
}

fn try_fit(
    input: &CommentInput<'_>,
    view: &PlanView<'_>,
    fixed: &str,
    budget: usize,
    detail: &Verbosity,
) -> Result<(String, OmittedDetails), BudgetExceeded> {
    let mut page = BoundedWriter::new(budget);
    page.push(fixed)?;
    let least = detail.table != Table::Stacks;
    let mut tail = footer::drift(view, least);
    if !least {
        tail.push_str(&footer::findings(input));
        tail.push_str(&policy_findings::render(input));
    }
    let longest_footer = footer::footer(
        input,
        view,
        OmittedDetails {
            stacks: usize::MAX,
            groups: usize::MAX,
        },
    );
    let reserved = tail.len() + longest_footer.len();
    page.reserve(reserved)?;
    // Of many stacks most change equally: then the groups come first, and the table after them.
    let by_stack = table::is_by_stack(view);
    if by_stack {
        table::render(&mut page, input, view, detail.table)?;
    }
    let mut after = BoundedWriter::new(page.room());
    table::unchanged(&mut after, view, detail.unchanged)?;
    if !by_stack {
        // The details have the other half.
        let half = after.room() / 2;
        if detail.folds == Folds::Fitting {
            after.reserve(half)?;
        }
        table::render(&mut after, input, view, detail.table)?;
    }
    if detail.folds == Folds::All {
        after.push(&footer::why(input))?;
    }
    let after = after.into_text();
    page.reserve(after.len())?;
    let omitted = details::render(&mut page, view, detail)?;
    page.release(after.len());
    page.push(&after)?;
    page.release(reserved);
    page.push(&tail)?;
    page.push(&footer::footer(input, view, omitted))?;
    Ok((page.into_text(), omitted))
}
