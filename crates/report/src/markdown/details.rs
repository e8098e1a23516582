//! The details: equal changes once, then the changes of each stack. Short ones are open, long ones folded.

use super::{
    bounded_writer::{BoundedWriter, BudgetExceeded},
    verbosity::{Folds, Verbosity},
};
use crate::{
    diff,
    equal_changes::{ChangeGroup, first_few},
    escape, labels,
    view_model::{PlanView, StackView, lifecycle},
};
use konverge_base::model::plan::ResourcePlan;

/// The number of stacks that a group names if not all are named.
const FEW: usize = 5;

/// A fold with at most this many lines of diff is open.
const SHORT: usize = 15;

/// The number of lines of diff in all open folds of a comment.
const OPEN: usize = 80;

/// What did not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OmittedDetails {
    /// The number of stacks without their diffs.
    pub stacks: usize,
    /// The number of groups without their diffs.
    pub groups: usize,
}

/// A fold before it is written.
struct Fold {
    title: String,
    body: String,
    /// The number of lines of diff in it.
    lines: usize,
}

impl Fold {
    /// Writes the fold: open if it is short and `room` for open lines is left.
    fn render(&self, room: &mut usize) -> String {
        // An open fold takes room with its title too.
        let lines = self.lines + 2;
        let open = if self.lines > 0 && self.lines <= SHORT && lines <= *room {
            *room -= lines;
            " open"
        } else {
            ""
        };
        format!(
            "<details{open}><summary>{}</summary>\n\n{}</details>\n\n",
            self.title, self.body
        )
    }

    fn push(&mut self, block: ResourceBlock) {
        self.body.push_str(&block.text);
        self.lines += block.lines;
    }
}

/// Writes the groups, then the stacks, and returns what did not fit.
pub(super) fn render(
    page: &mut BoundedWriter,
    view: &PlanView<'_>,
    detail: &Verbosity,
) -> Result<OmittedDetails, BudgetExceeded> {
    let mut omitted = OmittedDetails::default();
    let mut room = OPEN;
    let mut write = |fold: Fold, omitted: &mut usize| {
        let mut left = room;
        let text = fold.render(&mut left);
        match detail.folds {
            Folds::All => page.push(&text)?,
            // Later folds may be smaller: each is tried.
            Folds::Fitting if !page.try_push(&text) => {
                *omitted += 1;
                return Ok(());
            }
            Folds::Fitting => {}
        }
        room = left;
        Ok(())
    };
    // A group represents many stacks, so its diff is dropped later than the diffs of single stacks.
    let with_diffs = Verbosity {
        diffs: true,
        ..*detail
    };
    for group in &view.groups {
        write(group_fold(group, &with_diffs), &mut omitted.groups)?;
    }
    for stack in &view.stacks {
        if !stack.own.is_empty() && !stack.grouped.iter().all(Option::is_some) {
            write(stack_fold(stack, detail), &mut omitted.stacks)?;
        }
    }
    Ok(omitted)
}

fn group_fold(group: &ChangeGroup<'_>, detail: &Verbosity) -> Fold {
    let n = group.stacks.len();
    let mut fold = Fold {
        title: format!("<b>Same change in {n} stacks</b>: {}", group.title()),
        body: String::new(),
        lines: 0,
    };
    let shown = if detail.group_stacks { n } else { FEW.min(n) };
    let names = group.stacks[..shown].iter().map(|id| escape::code(id.as_str()));
    let names: Vec<_> = names.collect();
    fold.body.push_str(&names.join(", "));
    if shown < n {
        fold.body.push_str(&format!(" and {} more", n - shown));
    }
    fold.body.push_str("\n\n");
    for change in &group.changes {
        let resource = change.first();
        let title = labels::Title::with_runtime(&resource.id, resource.runtime);
        let shown = if detail.group_stacks { usize::MAX } else { FEW };
        let names = first_few(&change.names(), shown, escape::code);
        let title = format!("{} {names}", escape::code(&title.kind_label()));
        fold.push(block(resource, &title, detail));
    }
    fold
}

/// The changes with names and fields: `update Deployment web: spec.replicas`.
fn stack_fold(stack: &StackView<'_>, detail: &Verbosity) -> Fold {
    let mut fold = Fold {
        title: format!(
            "<b>{}</b> {}{}",
            escape::html_code(stack.plan.id.as_str()),
            stack.counts(),
            lifecycle(stack)
                .map(|word| format!(" · {word}"))
                .unwrap_or_default()
        ),
        body: String::new(),
        lines: 0,
    };
    for (resource, group) in stack.own.iter().zip(&stack.grouped) {
        match group {
            Some(_) => {
                let title = labels::Title::with_runtime(&resource.id, resource.runtime);
                fold.body.push_str(&format!(
                    "- {} {}: see \"Same change\" above\n\n",
                    labels::action_word(resource.action),
                    escape::code(&title.short())
                ));
            }
            None => fold.push(resource_block(resource, detail)),
        }
    }
    fold
}

/// The text of a resource.
pub(super) struct ResourceBlock {
    pub text: String,
    /// The number of lines of diff in it.
    pub lines: usize,
}

/// The heading, the notes and the diff of a resource.
pub(super) fn resource_block(resource: &ResourcePlan, detail: &Verbosity) -> ResourceBlock {
    let title = labels::Title::with_runtime(&resource.id, resource.runtime);
    block(resource, &escape::code(&title.full()), detail)
}

fn block(resource: &ResourcePlan, title: &str, detail: &Verbosity) -> ResourceBlock {
    let mut text = format!(
        "#### {} {} {title}\n\n",
        labels::sign(resource.action),
        labels::action_word(resource.action),
    );
    for note in notes(resource) {
        text.push_str(&format!("- {note}\n"));
    }
    if !text.ends_with("\n\n") {
        text.push('\n');
    }
    let mut count = 0;
    if detail.diffs {
        let lines = diff::resource(resource, detail.context);
        count = lines.len();
        if !lines.is_empty() {
            text.push_str(&escape::fenced("diff", &lines.join("\n")));
            text.push('\n');
        }
    } else {
        let whole = resource.changes.iter().any(|change| change.path.is_empty());
        let paths = diff::paths(resource);
        if !paths.is_empty() && !whole {
            text.push_str(&first_few(&paths, 10, escape::code));
            text.push_str("\n\n");
        }
    }
    ResourceBlock { text, lines: count }
}

fn notes(resource: &ResourcePlan) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let loss = labels::loss(resource);
    if resource.data_loss {
        let loss = loss.map_or(String::new(), |loss| format!(": {}", escape::prose(loss)));
        notes.push(format!(
            "**permanently deletes data or releases an address**{loss}"
        ));
    }
    let paths = |paths: &[String]| {
        let paths: Vec<_> = paths.iter().map(|p| escape::code(&diff::dotted(p))).collect();
        paths.join(", ")
    };
    if !resource.replace.is_empty() {
        notes.push(format!("must be replaced: {} changed", paths(&resource.replace)));
    }
    if !resource.immutable.is_empty() {
        notes.push(format!(
            "may have to be replaced: {} cannot be changed in place",
            paths(&resource.immutable)
        ));
    }
    let rest = resource.notes.iter().skip(usize::from(loss.is_some()));
    notes.extend(rest.map(|note| escape::prose(note)));
    notes
}
