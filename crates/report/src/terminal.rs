//! Reports for a terminal or a log, with colors if requested.

use std::collections::HashSet;

use super::{
    diff,
    equal_changes::{ChangeGroup, EqualChanges, StackChanges},
    errors::{self, ErrorGroup},
    escape, generation_notes, labels,
};
use konverge_base::error::ErrorBody;
use konverge_base::model::{
    FieldPath, ResourceId, StackId,
    affected::{Affected, AffectedStack, InputChange, SpecChange},
    plan::{Action, Basis, Plan, ResourcePlan, StackPlan, Summary},
    takeover,
};

/// The style of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Use ANSI colors.
    pub color: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Color {
    Green,
    Yellow,
    Red,
    Cyan,
    Dim,
    Bold,
}

impl Style {
    pub(super) fn paint(self, color: Color, text: &str) -> String {
        if !self.color {
            return text.to_owned();
        }
        use anstyle::{AnsiColor, Style as Ansi};
        let style = match color {
            Color::Green => AnsiColor::Green.on_default(),
            Color::Yellow => AnsiColor::Yellow.on_default(),
            Color::Red => AnsiColor::Red.on_default(),
            Color::Cyan => AnsiColor::Cyan.on_default(),
            Color::Dim => Ansi::new().dimmed(),
            Color::Bold => Ansi::new().bold(),
        };
        format!("{style}{text}{style:#}")
    }

    pub(super) fn action(self, action: Action, text: &str) -> String {
        match action {
            Action::Create | Action::Adopt => self.paint(Color::Green, text),
            Action::Run => self.paint(Color::Cyan, text),
            Action::Update | Action::Unknown => self.paint(Color::Yellow, text),
            Action::Replace | Action::Delete | Action::Forget => self.paint(Color::Red, text),
            Action::Unchanged => self.paint(Color::Dim, text),
        }
    }
}

/// Returns the title of a part of the output.
pub fn title(text: &str, style: Style) -> String {
    format!(
        "\n{}\n",
        style.paint(Color::Bold, &format!("==> {}", escape::log(text)))
    )
}

/// Renders the replacement of one line of a file.
pub fn file_edit(file: &str, from: &str, to: &str, style: Style) -> String {
    format!(
        "{}\n{}",
        style.paint(Color::Dim, &escape::log(file)),
        paint(&[format!("-{from}"), format!("+{to}")], style)
    )
}

/// The maximum number of stacks that a terminal shows with their reasons. The total number follows.
pub const SHOWN_STACKS: usize = 15;

/// Renders the affected stacks with the reasons: at most `most` stacks, and the number of the others.
pub fn affected(affected: &Affected, most: Option<usize>, style: Style) -> String {
    if affected.stacks.is_empty() {
        return "No stack is affected.\n".to_owned();
    }
    let most = most.unwrap_or(usize::MAX);
    let mut text = String::new();
    for stack in affected.stacks.iter().take(most) {
        text.push_str(&affected_stack(stack, style));
    }
    let more = affected.stacks.len().saturating_sub(most);
    if more > 0 {
        text.push_str(&format!(
            "… and {}: with `--output folders`, `konverge affected` lists all\n",
            labels::plural(more, "more stack")
        ));
    }
    text.push_str(&format!(
        "{} affected.\n",
        labels::plural(affected.stacks.len(), "stack")
    ));
    text
}

fn affected_stack(stack: &AffectedStack, style: Style) -> String {
    let (sign, color) = match stack.change {
        InputChange::Added => ("+", Color::Green),
        InputChange::Removed => ("-", Color::Red),
        InputChange::Modified => ("~", Color::Yellow),
    };
    let spec = match stack.spec {
        SpecChange::Same => ", compiles to the same",
        SpecChange::Error => ", does not compile",
        SpecChange::Changed | SpecChange::NotCompiled => "",
    };
    let mut text = format!(
        "{} {} {}\n",
        style.paint(color, sign),
        style.paint(Color::Bold, &escape::log(stack.id.as_str())),
        style.paint(
            Color::Dim,
            &format!("({}{spec})", escape::log(stack.stack.as_str()))
        )
    );
    for reason in &stack.why {
        let chain: Vec<_> = reason.chain.iter().map(|p| escape::log(p.as_str())).collect();
        let chain = if chain.is_empty() {
            escape::log(reason.path.as_str())
        } else {
            chain.join(" → ")
        };
        text.push_str(&format!("    {}: {chain}\n", reason.kind));
    }
    text
}

/// Renders the planned changes.
pub fn plan(plan: &Plan, style: Style) -> String {
    let mut text = String::new();
    let mut total = Summary::default();
    let (mut failed, mut failed_before, mut drifted) = (0, 0, 0);
    let groups = failure_groups(plan);
    let equal = SharedChanges::find(plan);
    text.push_str(&equal.text(style));
    let whole = plan.stacks.iter().filter(|stack| is_taken_over(stack));
    let objects = whole.clone().map(|stack| stack.resources.len()).sum();
    text.extend(labels::taken_over(whole.count(), objects).map(|sentence| format!("{sentence}\n")));
    for stack in &plan.stacks {
        total = total + diff::own_summary(stack);
        drifted += diff::drifted(stack);
        failed += usize::from(stack.error.is_some() && !stack.fails_as_before);
        failed_before += usize::from(stack.fails_as_before);
        match whole_failure(stack) {
            None if is_taken_over(stack) => {}
            // An error of many stacks appears once, at the first of them.
            Some(_) => {
                let group = groups.iter().find(|(_, group)| group.stacks[0] == &stack.id);
                text.extend(group.map(|(word, group)| ended_with(group, word, Color::Red, style)));
            }
            None => text.push_str(&stack_plan(stack, &equal, style)),
        }
    }
    for note in generation_notes::group(plan) {
        let names = note.names(|name| style.paint(Color::Bold, &escape::log(name)));
        let warning = style.paint(Color::Yellow, "warning");
        text.push_str(&format!("{names}: {warning}: {}\n", escape::log(note.text)));
    }
    let mut parts = Vec::new();
    // If all stacks failed, it is unknown whether they change, so no counts are shown.
    if failed + failed_before < plan.stacks.len() || total.changed() + drifted > 0 || plan.stacks.is_empty() {
        parts.push(format!(
            "{}{}",
            labels::counts(&total),
            already_different(drifted)
        ));
    }
    let failures = [(failed, "failed"), (failed_before, "failed as before")];
    parts.extend(labels::without_zeros(failures));
    text.push_str(&format!(
        "{}: {}.\n",
        style.paint(Color::Bold, &labels::plural(plan.stacks.len(), "stack")),
        parts.join(", ")
    ));
    text
}

/// Renders all failures of whole stacks. An error of many stacks appears once.
pub(super) fn failures(plan: &Plan, style: Style) -> String {
    let groups = failure_groups(plan).into_iter();
    let text = groups.map(|(word, group)| ended_with(&group, word, Color::Red, style));
    text.collect()
}

/// Returns the failures of whole stacks, each group with its word.
fn failure_groups(plan: &Plan) -> Vec<(&'static str, ErrorGroup<'_>)> {
    let group = |before: bool, word| {
        let failed = plan
            .stacks
            .iter()
            .filter(move |stack| stack.fails_as_before == before);
        let groups = errors::group(failed.filter_map(|stack| Some((&stack.id, whole_failure(stack)?))));
        groups.into_iter().map(move |group| (word, group))
    };
    group(false, "failed").chain(group(true, FAILED_BEFORE)).collect()
}

/// Renders the failure of a stack: message, position, hints.
pub(super) fn failure(error: &ErrorBody, message: &str) -> String {
    let mut text = String::new();
    for line in escape::log_each(message) {
        text.push_str(&format!("    {line}\n"));
    }
    if let Some(file) = &error.file {
        let numbers = [error.line, error.column].into_iter().map_while(|n| n);
        let place: String = numbers.map(|number| format!(":{number}")).collect();
        text.push_str(&format!("    at {}\n", escape::log(&format!("{file}{place}"))));
    }
    for hint in &error.hints {
        text.push_str(&format!("    hint: {}\n", escape::log(hint)));
    }
    text
}

/// Returns the error of a stack of which nothing could be planned.
pub(super) fn whole_failure(stack: &StackPlan) -> Option<&ErrorBody> {
    stack
        .error
        .as_ref()
        .filter(|_| labels::left_as_it_is(stack).is_none())
}

/// The text for a stack that could not be planned before the change either.
const FAILED_BEFORE: &str = "fails as before, at a place that this change does not touch";

/// Renders all stacks that ended with the same error, with their number if there are several.
pub(super) fn ended_with(group: &ErrorGroup<'_>, word: &str, color: Color, style: Style) -> String {
    let names = group.names(|name| style.paint(Color::Bold, &escape::log(name)));
    let count = match group.stacks.len() {
        1 => String::new(),
        n => format!(" ({})", labels::plural(n, "stack")),
    };
    format!(
        "{names}: {}{count}\n{}",
        style.paint(color, word),
        failure(group.error, &group.message())
    )
}

/// Renders the failure of a part of a stack; empty if there is none.
pub(super) fn partial_failure(stack: &StackPlan, name: &str, style: Style) -> String {
    match (&stack.error, labels::left_as_it_is(stack)) {
        (Some(error), Some(rest)) => format!(
            "{name}: {}\n{}    {rest}\n",
            style.paint(Color::Red, "failed in part"),
            failure(error, &error.message)
        ),
        _ => String::new(),
    }
}

/// The minimum number of stacks for which an equal change is shown only once.
const SHARED_BY: usize = 3;

/// Changes that several stacks make, shown once above the stacks.
struct SharedChanges<'a> {
    groups: Vec<ChangeGroup<'a>>,
    /// The resources that are shown in a group.
    shown: HashSet<(&'a StackId, &'a ResourceId)>,
}

impl<'a> SharedChanges<'a> {
    fn find(plan: &'a Plan) -> Self {
        let stacks: Vec<&StackPlan> = plan
            .stacks
            .iter()
            .filter(|stack| whole_failure(stack).is_none())
            .collect();
        // Drift is shown at each stack, so only own changes are grouped.
        let own = |stack: &&'a StackPlan| -> Vec<&'a ResourcePlan> {
            let resources = stack.resources.iter();
            resources
                .filter(|resource| !resource.changes.iter().any(diff::is_drift))
                .filter(|resource| !takeover::stays(&stack.id, resource))
                .collect()
        };
        let resources: Vec<_> = stacks.iter().map(own).collect();
        let changes = stacks
            .iter()
            .zip(&resources)
            .map(|(stack, resources)| StackChanges {
                stack: &stack.id,
                is_production: false,
                resources,
            });
        let found = EqualChanges::find(&changes.collect::<Vec<_>>());
        let is_shared = |group: &ChangeGroup<'_>| group.stacks.len() >= SHARED_BY;
        let mut shown = HashSet::new();
        for (s, stack) in stacks.iter().enumerate() {
            let of_stack = resources[s].iter().enumerate();
            let shared = of_stack.filter(|(r, _)| {
                found
                    .group_of(s, *r)
                    .is_some_and(|group| is_shared(&found.groups[group]))
            });
            shown.extend(shared.map(|(_, resource)| (&stack.id, &resource.id)));
        }
        let groups = found.groups.into_iter().filter(is_shared).collect();
        Self { groups, shown }
    }

    fn shows(&self, stack: &StackPlan, resource: &ResourcePlan) -> bool {
        self.shown.contains(&(&stack.id, &resource.id))
    }

    fn text(&self, style: Style) -> String {
        let mut text = String::new();
        for group in &self.groups {
            let names = errors::names(&group.stacks, |name| style.paint(Color::Bold, &escape::log(name)));
            let count = labels::plural(group.stacks.len(), "stack");
            text.push_str(&format!(
                "{} in {count}: {names}\n",
                style.paint(Color::Bold, "Same change")
            ));
            for change in &group.changes {
                let first = change.first();
                let kind = labels::Title::with_runtime(&first.id, first.runtime).kind_label();
                let title = format!("{kind} {}", change.names().join(", "));
                text.push_str(&titled_resource(first, &title, style));
            }
        }
        text
    }
}

/// Returns true if a stack is taken over and has no other changes.
fn is_taken_over(stack: &StackPlan) -> bool {
    let mut resources = stack.resources.iter();
    stack.error.is_none()
        && !stack.resources.is_empty()
        && resources.all(|resource| takeover::stays(&stack.id, resource))
}

/// Renders a stack without the changes that are shown above; empty if there are no others.
fn stack_plan(stack: &StackPlan, shared: &SharedChanges<'_>, style: Style) -> String {
    let name = style.paint(Color::Bold, &escape::log(stack.id.as_str()));
    let mut text = partial_failure(stack, &name, style);
    let (kept, changed): (Vec<_>, Vec<_>) = stack
        .resources
        .iter()
        .partition(|resource| takeover::stays(&stack.id, resource));
    let all = changed.len();
    let mut own = changed;
    own.retain(|resource| !shared.shows(stack, resource));
    let above = all - own.len();
    if above > 0 && own.is_empty() && text.is_empty() {
        return text;
    }
    let above = match above {
        0 => String::new(),
        n => format!(", {n} of them above under \"Same change\""),
    };
    let kept = match kept.len() {
        0 => String::new(),
        n => format!(", {n} of them taken over as they run"),
    };
    let basis = match stack.basis {
        Basis::Live => "",
        Basis::NeverApplied => " (never applied)",
        Basis::Spec => " (Spec compared with Spec: no cluster was queried)",
    };
    text.push_str(&format!(
        "{name}: {}{above}{kept}{}{basis}\n",
        labels::counts(&diff::own_summary(stack)),
        already_different(diff::drifted(stack))
    ));
    for resource in own {
        text.push_str(&resource_plan(resource, style));
    }
    text
}

/// Returns a text with the number of resources that somebody else has changed, separate from the changes.
fn already_different(resources: usize) -> String {
    match resources {
        0 => String::new(),
        n => format!(
            ", {} already different on the cluster",
            labels::plural(n, "resource")
        ),
    }
}

fn resource_plan(resource: &ResourcePlan, style: Style) -> String {
    let title = labels::Title::with_runtime(&resource.id, resource.runtime).full();
    titled_resource(resource, &title, style)
}

fn titled_resource(resource: &ResourcePlan, title: &str, style: Style) -> String {
    let mut text = format!(
        "  {} {}\n",
        style.action(
            resource.action,
            &format!("{} {}", labels::sign(resource.action), resource.action)
        ),
        escape::log(title)
    );
    let loss = labels::loss(resource);
    if resource.data_loss {
        let loss = loss.map_or(String::new(), |loss| format!(": {}", escape::log(loss)));
        text.push_str(&format!(
            "      {}{loss}\n",
            style.paint(Color::Red, "permanently deletes data or releases an address")
        ));
    }
    let fields = |paths: &[FieldPath]| {
        let paths: Vec<_> = paths.iter().map(|p| escape::log(&diff::dotted(p))).collect();
        paths.join(", ")
    };
    if !resource.replace.is_empty() {
        let paths = fields(&resource.replace);
        text.push_str(&format!("      must be replaced: {paths} changed\n"));
    }
    if !resource.immutable.is_empty() {
        let paths = fields(&resource.immutable);
        text.push_str(&format!(
            "      may have to be replaced: {paths} cannot be changed in place\n"
        ));
    }
    for note in resource.notes.iter().skip(usize::from(loss.is_some())) {
        text.push_str(&format!("      note: {}\n", escape::log(note)));
    }
    let own = diff::resource(resource, diff::DiffContext::Tree(3));
    text.push_str(&paint(&own, style));
    let drift = diff::drift(resource, diff::DiffContext::Tree(3));
    if !drift.is_empty() {
        text.push_str(&format!(
            "      {}\n",
            style.paint(Color::Cyan, "already different on the cluster:")
        ));
        text.push_str(&paint(&drift, style));
    }
    text
}

pub(super) fn paint(lines: &[String], style: Style) -> String {
    lines
        .iter()
        .map(|line| {
            let safe = escape::log(line);
            let painted = match line.as_bytes().first() {
                Some(b'+') => style.paint(Color::Green, &safe),
                Some(b'-') => style.paint(Color::Red, &safe),
                _ => safe,
            };
            format!("      {painted}\n")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{
        RepoPath,
        plan::{ChangeOrigin, FieldChange},
        spec::RuntimeKind,
    };
    use serde_json::json;

    #[test]
    fn a_terminal_shows_the_first_affected_stacks_and_counts_the_others() {
        let stack = |number: usize| AffectedStack {
            stack: RepoPath::normalize(&format!("apps/app-{number:02}/dev")).unwrap(),
            id: format!("app-{number:02}/dev").parse().unwrap(),
            project: format!("app-{number:02}"),
            name: "dev".to_owned(),
            change: InputChange::Modified,
            spec: SpecChange::NotCompiled,
            why: Vec::new(),
        };
        let of = |count: usize| Affected {
            version: 1,
            base: None,
            head: None,
            stacks: (0..count).map(stack).collect(),
        };
        let said = affected(&of(40), Some(SHOWN_STACKS), Style::default());
        assert_eq!(said.matches("~ app-").count(), SHOWN_STACKS, "{said}");
        assert!(
            said.contains("~ app-14/dev") && !said.contains("app-15/dev"),
            "{said}"
        );
        assert!(
            said.contains("… and 25 more stacks: with `--output folders`")
                && said.ends_with("40 stacks affected.\n"),
            "{said}"
        );
        // A pipe gets all of them, and a short list says nothing of more.
        assert_eq!(
            affected(&of(40), None, Style::default())
                .matches("~ app-")
                .count(),
            40
        );
        let short = affected(&of(SHOWN_STACKS), Some(SHOWN_STACKS), Style::default());
        assert!(!short.contains("more stack"), "{short}");
    }

    #[test]
    fn a_change_of_many_stacks_is_shown_once() {
        let resource = |id: &StackId, name: &str, to: &str| {
            let change = FieldChange {
                path: "/spec/replicas".into(),
                from: Some(json!(1)),
                to: Some(json!(to)),
                origin: ChangeOrigin::Change,
            };
            let key = format!("apps/v1:Deployment:{}:{name}", id.project());
            ResourcePlan::new(
                id,
                key.parse().unwrap(),
                RuntimeKind::Kubernetes,
                Action::Update,
                vec![change],
            )
        };
        let stack = |id: &str, extra: bool| {
            let id: StackId = id.parse().unwrap();
            let mut resources = vec![resource(&id, "web", "2")];
            if extra {
                resources.push(resource(&id, "own", "7"));
            }
            StackPlan::new(RepoPath::root(), id, Basis::Live, resources)
        };
        let stacks = vec![stack("a/dev", false), stack("b/dev", true), stack("c/dev", false)];
        let said = plan(
            &Plan {
                version: 1,
                stacks: stacks.clone(),
            },
            Style::default(),
        );
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines[0], "Same change in 3 stacks: a/dev, b/dev, c/dev");
        assert_eq!(lines[1], "  ~ update apps/v1 Deployment web");
        assert_eq!(said.matches("  replicas: ").count(), 4, "{said}");
        assert!(
            said.contains(
                "b/dev: 2 to update, 1 of them above under \"Same change\"\n  ~ update apps/v1 Deployment b/own"
            ),
            "{said}"
        );
        assert!(
            !said.contains("a/dev: ") && said.ends_with("3 stacks: 4 to update.\n"),
            "{said}"
        );
        // Two are shown each by itself.
        let few = plan(
            &Plan {
                version: 1,
                stacks: stacks[..2].to_vec(),
            },
            Style::default(),
        );
        assert!(
            few.contains("a/dev: 1 to update\n") && !few.contains("Same change"),
            "{few}"
        );
    }
}
