//! What is dangerous, at the top of the page.

use std::fmt::Write as _;

use crate::{
    error::ErrorBody,
    model::{
        plan::{Action, Basis},
        policy_finding::Enforcement,
    },
    report::{CommentInput, diff, errors, escape, labels, view_model::PlanView},
};

/// The style of an action.
pub(super) fn class(action: Action) -> &'static str {
    match action {
        Action::Create | Action::Adopt => "create",
        Action::Update | Action::Unknown | Action::Unchanged => "update",
        Action::Replace => "replace",
        Action::Delete | Action::Forget => "delete",
    }
}

/// What is dangerous, the worst first.
pub(super) fn alerts(html: &mut String, input: &CommentInput<'_>, view: &PlanView<'_>) {
    let mut lines = String::new();
    for group in errors::group(view.whole_failures()) {
        let names = group.names(escape::html_code);
        failed_item(
            &mut lines,
            &names,
            "could not be planned",
            group.error,
            &group.message(),
        );
        lines.push_str("</li>\n");
    }
    for stack in &view.stacks {
        let name = escape::html_code(stack.plan.id.as_str());
        if let (Some(error), Some(rest)) = (&stack.plan.error, labels::left_as_it_is(stack.plan)) {
            failed_item(
                &mut lines,
                &name,
                labels::failed(stack.plan),
                error,
                &error.message,
            );
            let _ = write!(lines, "<p>{}</p>", escape::html(&rest));
            lines.push_str("</li>\n");
        }
    }
    for finding in input.findings.iter().filter(|f| f.verdict == Enforcement::Deny) {
        let stack = finding
            .stack
            .as_ref()
            .map_or(String::new(), |s| format!("{}: ", escape::html_code(s.as_str())));
        let _ = writeln!(
            lines,
            "<li class=\"failed\">{stack}{} {}</li>",
            escape::html_code(&finding.rule),
            escape::html(&finding.message)
        );
    }
    changes(&mut lines, view);
    for change in input.power {
        let value = |value: &Option<String>| {
            value.as_ref().map_or("not set".to_owned(), |value| {
                escape::html_code(&escape::line(value))
            })
        };
        let _ = writeln!(
            lines,
            "<li class=\"replace\">this merge changes a setting that grants permissions: {} from {} to {}</li>",
            escape::html_code(&escape::line(&change.key)),
            value(&change.from),
            value(&change.to)
        );
    }
    if view
        .stacks
        .iter()
        .any(|stack| stack.plan.basis == Basis::Spec && !stack.own.is_empty())
    {
        let _ = writeln!(
            lines,
            "<li class=\"replace\">Not validated. {}</li>",
            labels::SPEC_ONLY
        );
    }
    let unchecked = view.unchecked();
    if !unchecked.is_empty() {
        let named: Vec<_> = unchecked
            .iter()
            .map(|(stack, title)| {
                let resource = escape::html_code(&title.short());
                format!("{resource} in {}", escape::html_code(stack.as_str()))
            })
            .collect();
        let _ = writeln!(
            lines,
            "<li class=\"replace\">{}{}</li>",
            labels::UNCHECKED,
            named.join(", ")
        );
    }
    if !lines.is_empty() {
        let _ = write!(
            html,
            "<section class=\"alerts\"><h2>Look at these first</h2>\n<ul>\n{lines}</ul></section>\n"
        );
    }
}

/// Deletions, replacements and lost data, then what may have to be replaced.
fn changes(lines: &mut String, view: &PlanView<'_>) {
    let own = || {
        view.stacks
            .iter()
            .flat_map(|stack| stack.own.iter().map(move |r| (stack, *r)))
    };
    let mut grave: Vec<_> = own().filter(|(_, resource)| labels::is_grave(resource)).collect();
    grave.sort_by_key(|(_, resource)| (!resource.data_loss, resource.action != Action::Replace));
    for (stack, resource) in grave {
        let name = escape::html_code(stack.plan.id.as_str());
        let title = labels::Title::of(&resource.id, resource.runtime);
        let (class, loss) = match resource.data_loss {
            true => (
                class(Action::Delete),
                ": permanently deletes data or releases an address",
            ),
            false => (class(resource.action), ""),
        };
        let _ = writeln!(
            lines,
            "<li class=\"{class}\">{} {} in {name}{loss}{}</li>",
            labels::action_word(resource.action),
            escape::html_code(&title.short()),
            fields(", forced by ", &resource.replace)
        );
    }
    for (stack, resource) in own().filter(|(_, resource)| !labels::is_grave(resource)) {
        let name = escape::html_code(stack.plan.id.as_str());
        if !resource.immutable.is_empty() {
            let title = labels::Title::of(&resource.id, resource.runtime);
            let _ = writeln!(
                lines,
                "<li class=\"replace\">{} in {name} may have to be replaced{}</li>",
                escape::html_code(&title.short()),
                fields(": cannot be changed in place: ", &resource.immutable)
            );
        }
    }
}

/// An item of a list about stacks that failed with the same; the caller ends it.
fn failed_item(html: &mut String, names: &str, failed: &str, error: &ErrorBody, message: &str) {
    let place = error.file.as_ref().map_or(String::new(), |file| {
        let line = error.line.map_or(String::new(), |l| format!(":{l}"));
        format!(" at {}", escape::html_code(&format!("{file}{line}")))
    });
    let _ = write!(
        html,
        "<li class=\"failed\">{names} {failed}{place}<pre>{}</pre>",
        escape::html(message)
    );
    for hint in &error.hints {
        let _ = write!(html, "<p>hint: {}</p>", escape::html_code(hint));
    }
}

/// Paths after a text; nothing without paths.
pub(super) fn fields(before: &str, paths: &[String]) -> String {
    if paths.is_empty() {
        return String::new();
    }
    let paths = paths.iter().map(|path| escape::html_code(&diff::dotted(path)));
    format!("{before}{}", paths.collect::<Vec<_>>().join(", "))
}
