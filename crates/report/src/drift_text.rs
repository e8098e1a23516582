//! The result of `konverge drift` for a terminal: each change from the recorded to the live value, with its writer and
//! time.

use super::{
    diff, escape, labels,
    table::{Cell, folded, table},
    terminal::{self, Color, Style},
};
use konverge_base::model::plan::{Action, Basis, ChangeOrigin, FieldChange, Plan, ResourcePlan, StackPlan};

/// The rank of the last rows of the table.
const NEVER_APPLIED: u8 = 2;

/// Returns a table with the worst stack first, the differences of each stack, and a line with the number of the others.
pub fn text(plan: &Plan, style: Style) -> String {
    let (mut drifted, mut as_applied, mut failed) = (0, 0, 0);
    let mut rows = Vec::new();
    let mut never_applied = Vec::new();
    let mut differences = String::new();
    for stack in &plan.stacks {
        let name = style.paint(Color::Bold, &escape::log(stack.id.as_str()));
        let cell = |color, words: String| {
            [
                Cell::colored(Color::Bold, escape::log(stack.id.as_str())),
                Cell::colored(color, words),
            ]
        };
        match (&stack.error, stack.basis) {
            (Some(_), _) => {
                failed += 1;
                rows.push((0, cell(Color::Red, "could not be checked".to_owned())));
                if terminal::whole_failure(stack).is_none() {
                    differences.push_str(&stack_text(stack, &name, style));
                }
            }
            (None, Basis::NeverApplied) => {
                never_applied.push(&stack.id);
                rows.push((NEVER_APPLIED, cell(Color::Yellow, "never applied".to_owned())));
            }
            (None, _) if stack.resources.is_empty() => as_applied += 1,
            (None, _) => {
                drifted += 1;
                rows.push((1, cell(Color::Yellow, drift_counts(stack).join(", "))));
                differences.push_str(&stack_text(stack, &name, style));
            }
        }
    }
    let mut text = String::new();
    if let Some(cell) = folded(&never_applied) {
        rows.retain(|(severity, _)| *severity != NEVER_APPLIED);
        rows.push((
            NEVER_APPLIED,
            [cell, Cell::colored(Color::Yellow, "never applied")],
        ));
    }
    rows.sort_by_key(|(severity, _)| *severity);
    let rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
    if !rows.is_empty() {
        text.push_str(&table(["STACK", "DRIFT"], &rows, style));
        text.push('\n');
    }
    text.push_str(&terminal::failures(plan, style));
    text.push_str(&differences);
    let said = labels::without_zeros([
        (drifted, "drifted"),
        (as_applied, "as applied"),
        (never_applied.len(), "never applied"),
        (failed, "failed"),
    ]);
    let stacks = style.paint(Color::Bold, &labels::plural(plan.stacks.len(), "stack"));
    text.push_str(&if said.is_empty() {
        format!("{stacks}.\n")
    } else {
        format!("{stacks}: {}.\n", said.join(", "))
    });
    text
}

fn stack_text(stack: &StackPlan, name: &str, style: Style) -> String {
    let mut text = terminal::partial_failure(stack, name, style);
    let mut parts = drift_counts(stack);
    parts.push(format!("{} as applied", stack.summary.unchanged));
    text.push_str(&format!("{name}: {}\n", parts.join(", ")));
    for resource in &stack.resources {
        text.push_str(&resource_text(resource, style));
    }
    text
}

/// Returns the counts of a stack's resources with differences, for example `2 changed`, `1 missing`.
pub(super) fn drift_counts(stack: &StackPlan) -> Vec<String> {
    let of = |word: &'static str| {
        let rows = stack.resources.iter();
        (rows.filter(|row| drift_word(row.action) == word).count(), word)
    };
    labels::without_zeros([CHANGED, MISSING, LEFT_OVER, OTHER].map(of))
}

const CHANGED: &str = "changed";
const MISSING: &str = "missing";
const LEFT_OVER: &str = "left over";
const OTHER: &str = "different";

/// Returns the word for a drifted resource, which is the opposite of what an apply would do.
pub(super) fn drift_word(action: Action) -> &'static str {
    match action {
        Action::Update | Action::Replace => CHANGED,
        Action::Create => MISSING,
        Action::Delete => LEFT_OVER,
        Action::Adopt | Action::Forget | Action::Run | Action::Unknown | Action::Unchanged => OTHER,
    }
}

fn resource_text(resource: &ResourcePlan, style: Style) -> String {
    let title = labels::Title::with_runtime(&resource.id, resource.runtime);
    let word = drift_word(resource.action);
    let (sign, color) = match word {
        MISSING => ("-", Color::Red),
        LEFT_OVER => ("+", Color::Green),
        _ => ("~", Color::Yellow),
    };
    let mut text = format!(
        "  {} {}\n",
        style.paint(color, &format!("{sign} {word}")),
        escape::log(&title.full())
    );
    for note in &resource.notes {
        text.push_str(&format!("      note: {}\n", escape::log(note)));
    }
    if word == CHANGED {
        text.push_str(&format!(
            "      {}\n",
            style.paint(Color::Cyan, "recorded → live:")
        ));
        let lines = diff::drift(&to_live(resource), diff::DiffContext::Tree(3));
        text.push_str(&terminal::paint(&lines, style));
    }
    text
}

/// Reverses the differences, because a plan goes from the live to the recorded value.
fn to_live(resource: &ResourcePlan) -> ResourcePlan {
    let turned = |change: &FieldChange| FieldChange {
        path: change.path.clone(),
        from: change.to.clone(),
        to: change.from.clone(),
        origin: match change.origin {
            ChangeOrigin::Rotation => ChangeOrigin::Rotation,
            _ => ChangeOrigin::Drift,
        },
    };
    let is_server_side =
        |change: &&FieldChange| matches!(change.origin, ChangeOrigin::Default | ChangeOrigin::Admission);
    let changes = resource.changes.iter().filter(|change| !is_server_side(change));
    ResourcePlan {
        changes: changes.map(turned).collect(),
        ..resource.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{RepoPath, StackId, spec::RuntimeKind};
    use serde_json::json;

    fn resource(stack: &StackId, name: &str, action: Action, changes: Vec<FieldChange>) -> ResourcePlan {
        let id = format!("v1:ConfigMap:shop:{name}").parse().unwrap();
        ResourcePlan::new(stack, id, RuntimeKind::Kubernetes, action, changes)
    }

    #[test]
    fn it_goes_from_recorded_to_live_and_counts_what_it_shows() {
        let id: StackId = "shop/dev".parse().unwrap();
        let change = |path: &str, origin: ChangeOrigin| FieldChange {
            path: path.into(),
            from: Some(json!("live")),
            to: Some(json!("recorded")),
            origin,
        };
        let changes = vec![
            change("/data/a", ChangeOrigin::Manager("kubectl-edit".to_owned())),
            change("/data/defaulted", ChangeOrigin::Default),
        ];
        let mut edited = resource(&id, "edited", Action::Update, changes);
        edited
            .notes
            .push("`kubectl-edit` wrote /data/a at 2026-01-01T00:00:00Z".to_owned());
        let gone = resource(&id, "gone", Action::Create, vec![change("", ChangeOrigin::Drift)]);
        let mut drifted = StackPlan::new(RepoPath::root(), id, Basis::Live, vec![edited, gone]);
        drifted.summary.unchanged = 3;
        let other =
            |id: &str, basis| StackPlan::new(RepoPath::root(), id.parse().unwrap(), basis, Vec::new());
        let plan = Plan {
            version: 1,
            stacks: vec![
                drifted,
                other("shop/new", Basis::NeverApplied),
                other("shop/prod", Basis::Live),
            ],
        };
        let text = text(&plan, Style::default());
        let expected = "\
STACK     DRIFT
shop/dev  1 changed, 1 missing
shop/new  never applied

shop/dev: 1 changed, 1 missing, 3 as applied
  ~ changed v1 ConfigMap shop/edited
      note: `kubectl-edit` wrote /data/a at 2026-01-01T00:00:00Z
      recorded → live:
";
        assert!(text.starts_with(expected), "{text}");
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert!(
            lines.contains(&"-  a: recorded") && lines.contains(&"+  a: live"),
            "{text}"
        );
        assert!(!text.contains("defaulted"), "{text}");
        assert!(
            text.ends_with(
                "  - missing v1 ConfigMap shop/gone\n\
                 3 stacks: 1 drifted, 1 as applied, 1 never applied.\n"
            ),
            "{text}"
        );
    }
}
