//! The first lines: what a reader needs who reads nothing else.

use crate::{
    model::Shard,
    report::{CommentInput, escape, labels, view_model::PlanView},
};

/// The heading and the line of commits.
pub(super) fn render(input: &CommentInput<'_>, view: &PlanView<'_>) -> String {
    let scope = if input.marker.scope.is_empty() {
        String::new()
    } else {
        format!(" ({})", escape::code(&input.marker.scope))
    };
    let mut parts = vec![
        if input.affected.stacks.is_empty() && input.plan.stacks.is_empty() {
            "no stack is affected".to_owned()
        } else {
            match view.changed() {
                0 if view.failed == 0 && input.affected.stacks.is_empty() => {
                    format!(
                        "none of {} changes",
                        labels::plural(input.plan.stacks.len(), "stack")
                    )
                }
                0 if view.failed == 0 => format!(
                    "{} affected, no changes",
                    labels::plural(input.affected.stacks.len(), "stack")
                ),
                1 => format!("1 of {} changes", labels::plural(view.all, "stack")),
                n => format!("{n} of {} change", labels::plural(view.all, "stack")),
            }
        },
    ];
    if view.total.changed() > 0 {
        parts.push(labels::counts(&view.total));
    }
    if view.failed > 0 {
        parts.push(format!("{} failed", view.failed));
    }
    let mut text = format!("### Konverge preview{scope}: {}\n\n", parts.join(" · "));
    let mut commits = Vec::new();
    if let Some(head) = &input.run.head {
        commits.push(format!("head `{}`", head.short()));
    }
    if let Some(base) = &input.run.base {
        commits.push(format!("base `{}`", base.short()));
    }
    commits.push(format!("digest `{}`", view.digest.short()));
    if input.marker.scope.parse::<Shard>().is_ok() {
        commits.push("the other shares have comments of their own".to_owned());
    }
    text.push_str(&commits.join(" · "));
    text.push_str("\n\n");
    text
}
