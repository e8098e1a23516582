//! The details of a comment: equal changes once, then the changes of each stack. Changes of live resources show their
//! values; created and deleted resources are folded lines.

use super::fill::{Block, Form, Omitted, Rank, Section, Text};
use crate::{
    danger::Danger,
    diff,
    equal_changes::{ChangeGroup, EqualChange},
    escape, labels,
    view_model::{PlanView, StackView, lifecycle},
};
use konverge_base::model::{
    FieldPath,
    plan::{Action, ResourcePlan},
    text::first_few,
};

/// The number of stacks that a group lists if it does not list all.
const FEW: usize = 5;

/// The maximum number of stacks of a group that are all listed above the change.
const INLINE: usize = 12;

/// The maximum number of paths in the line of a change.
const PATHS: usize = 10;

/// The amount of detail for the changes of a resource, from the most to the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// The values, in the tree of their paths.
    Tree,
    /// The values, each with its path on one line.
    Values,
    /// Only the paths of the changed values.
    Paths,
}

impl Detail {
    pub(super) const ALL: [Self; 3] = [Self::Tree, Self::Values, Self::Paths];

    /// Returns the context for a diff; `None` if no values are shown.
    pub(super) fn context(self) -> Option<diff::DiffContext> {
        match self {
            Self::Tree => Some(diff::DiffContext::Tree(3)),
            Self::Values => Some(diff::DiffContext::Path),
            Self::Paths => None,
        }
    }
}

/// Returns the sections: equal changes, then the stacks.
pub(super) fn sections<'v>(view: &'v PlanView<'v>) -> Vec<Section<'v>> {
    let groups = view
        .groups
        .iter()
        .map(|group| group_section(group, view.cause(group).map(|cause| cause.text(escape::code))));
    let stacks = view
        .stacks
        .iter()
        .filter(|stack| stack.grouped.iter().any(Option::is_none))
        .map(stack_section);
    groups.chain(stacks).collect()
}

fn group_section<'v>(group: &'v ChangeGroup<'v>, cause: Option<String>) -> Section<'v> {
    let title = format!("<b>Same change in {}</b>: {}", group.count(), group.title());
    let mut blocks = vec![group_names(group, cause)];
    blocks.extend(group.changes.iter().map(group_block));
    blocks.extend((group.stacks.len() > INLINE).then(|| all_names(group)));
    Section::fold(title, blocks)
}

/// Returns the cause of a change and the names of its stacks: all of them, or only a few if there are many.
fn group_names<'v>(group: &'v ChangeGroup<'v>, cause: Option<String>) -> Block<'v> {
    let n = group.stacks.len();
    let rank = group
        .changes
        .iter()
        .map(|change| rank_of_line(change.first()))
        .min();
    let cause = cause.map_or(String::new(), |cause| format!("By {cause}\n\n"));
    let names = move |shown: usize| {
        let names = group.stacks.iter().map(|id| escape::code(id.as_str()));
        Text::uncounted(format!("{cause}{}\n\n", first_few(names, shown)))
    };
    let few_names = names.clone();
    let few = Form::new(rank.unwrap_or(Rank::Harmless), move || few_names(FEW));
    if n > INLINE {
        return Block::new(Omitted::lines(FEW), few);
    }
    let all = Form::new(Rank::Background, move || names(usize::MAX));
    Block {
        hidden: Omitted::lines(n),
        forms: vec![few.without(Omitted::lines(n.saturating_sub(FEW))), all],
    }
}

/// Returns the names of many stacks, to be shown below the change, because above it they would fill the screen.
fn all_names<'v>(group: &'v ChangeGroup<'v>) -> Block<'v> {
    let all = move || {
        let names: Vec<_> = group.stacks.iter().map(|id| escape::code(id.as_str())).collect();
        Text::uncounted(format!(
            "<details><summary>All {} stacks</summary>\n\n{}\n\n</details>\n\n",
            group.stacks.len(),
            names.join(", ")
        ))
    };
    Block::new(
        Omitted::lines(group.stacks.len().saturating_sub(FEW)),
        Form::new(Rank::Background, all),
    )
}

fn group_block<'v>(change: &'v EqualChange<'v>) -> Block<'v> {
    let resource = change.first();
    let title = labels::Title::with_runtime(&resource.id, resource.runtime);
    let kind = title.kind_label();
    let title = move |shown: usize, code: fn(&str) -> String| {
        let names = change.names();
        let names = names.iter().map(|name| code(name));
        format!("{} {}", code(&kind), first_few(names, shown))
    };
    resource_forms(resource, change.resources.len(), title)
}

/// Returns the section with the changes of one stack, under its name and counts.
fn stack_section<'v>(stack: &'v StackView<'v>) -> Section<'v> {
    let title = format!(
        "<b>{}</b> {}{}",
        escape::html_code(stack.plan.id.as_str()),
        stack.counts(),
        lifecycle(stack)
            .map(|word| format!(" · {word}"))
            .unwrap_or_default()
    );
    let block = |(resource, group): (&&'v ResourcePlan, &Option<usize>)| match group {
        Some(_) => grouped_block(resource),
        None => {
            let title = labels::Title::with_runtime(&resource.id, resource.runtime).full();
            resource_forms(resource, 1, move |_, code| code(&title))
        }
    };
    let mut blocks: Vec<_> = stack.own.iter().zip(&stack.grouped).map(block).collect();
    blocks.extend((stack.kept > 0).then(|| kept_block(stack.kept)));
    Section::fold(title, blocks)
}

/// Returns the line about objects that are taken over without a change.
fn kept_block<'v>(kept: usize) -> Block<'v> {
    let line = move || {
        let objects = labels::plural(kept, "object");
        format!("- {objects} taken over as they run: only the owner annotation is added\n\n").into()
    };
    Block::new(Omitted::resources(kept), Form::new(Rank::Harmless, line))
}

/// Returns the line of a change that is shown above as an equal change of several stacks.
fn grouped_block(resource: &ResourcePlan) -> Block<'_> {
    let line = move || {
        let title = labels::Title::with_runtime(&resource.id, resource.runtime);
        let text = format!(
            "- {} {}: see \"Same change\" above\n\n",
            resource.action,
            escape::code(&title.short())
        );
        Text::uncounted(text)
    };
    Block::new(Omitted::default(), Form::new(Rank::Background, line))
}

/// Returns the forms of a change that is shown for `count` resources. `title` formats the title with at most that many
/// names.
fn resource_forms<'v>(
    resource: &'v ResourcePlan,
    count: usize,
    title: impl Fn(usize, fn(&str) -> String) -> String + Clone + 'v,
) -> Block<'v> {
    let hidden = Omitted::resources(count);
    let has_values = has_values(resource);
    let name = title.clone();
    let line = Form::new(rank_of_line(resource), move || {
        line(resource, &name(FEW, escape::code)).into()
    });
    let mut forms = vec![if has_values {
        line.without(Omitted::values(count))
    } else {
        line
    }];
    if !has_values {
        return Block { hidden, forms };
    }
    match Danger::of_resource(resource) {
        // The values of a deleted resource are less important than those of a resource that stays.
        Some(danger) if resource.action == Action::Delete => forms
            .push(Form::new(Rank::Tree(danger), move || {
                whole(resource, &title(usize::MAX, escape::html_code))
            })),
        Some(danger) => {
            for (rank, detail) in [
                (Rank::Values(danger), Detail::Values),
                (Rank::Tree(danger), Detail::Tree),
            ] {
                let title = title.clone();
                forms.push(Form::new(rank, move || {
                    resource_block(resource, &title(usize::MAX, escape::code), detail)
                }));
            }
        }
        None => forms.push(Form::new(Rank::Whole, move || {
            whole(resource, &title(usize::MAX, escape::html_code))
        })),
    }
    Block { hidden, forms }
}

/// Returns true if one line does not show everything about a change.
fn has_values(resource: &ResourcePlan) -> bool {
    let is_own = |change| diff::is_own(resource, change);
    !resource.notes.is_empty() || resource.data_loss || resource.changes.iter().any(is_own)
}

fn rank_of_line(resource: &ResourcePlan) -> Rank {
    Danger::of_resource(resource).map_or(Rank::Harmless, Rank::Line)
}

/// Returns a change as a line: ``- update `apps/v1 Deployment web/api`: `spec.replicas` ``.
fn line(resource: &ResourcePlan, title: &str) -> String {
    let whole = resource.changes.iter().any(|change| change.path.is_root());
    let paths = if whole { Vec::new() } else { diff::paths(resource) };
    let paths = if paths.is_empty() {
        String::new()
    } else {
        let paths = paths.iter().map(|path| escape::code(path));
        format!(": {}", first_few(paths, PATHS))
    };
    format!("- {} {title}{paths}\n\n", resource.action)
}

/// Returns a fold with a whole resource that is created or deleted.
fn whole(resource: &ResourcePlan, title: &str) -> Text {
    let text = format!(
        "<details><summary>{} {} {title}</summary>\n\n{}</details>\n\n",
        labels::sign(resource.action),
        resource.action,
        body(resource, Detail::Tree).text
    );
    Text { text, lines: 1 }
}

/// Returns the heading, the notes and the changes of a resource.
pub(super) fn resource_block(resource: &ResourcePlan, title: &str, detail: Detail) -> Text {
    let body = body(resource, detail);
    let text = format!(
        "#### {} {} {title}\n\n{}",
        labels::sign(resource.action),
        resource.action,
        body.text
    );
    Text { text, ..body }
}

fn body(resource: &ResourcePlan, detail: Detail) -> Text {
    let mut text = escape::bullets(notes(resource));
    let mut lines = 0;
    match detail.context() {
        Some(context) => {
            let diff = diff::resource(resource, context);
            lines = diff.len();
            if !diff.is_empty() {
                text.push_str(&escape::fenced("diff", &diff.join("\n")));
                text.push('\n');
            }
        }
        None => {
            let whole = resource.changes.iter().any(|change| change.path.is_root());
            let paths = diff::paths(resource);
            if !paths.is_empty() && !whole {
                let paths = paths.iter().map(|path| escape::code(path));
                text.push_str(&first_few(paths, PATHS));
                text.push_str("\n\n");
            }
        }
    }
    Text { text, lines }
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
    let paths = |paths: &[FieldPath]| {
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
