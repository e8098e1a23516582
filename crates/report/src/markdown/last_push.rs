//! What the last push added to the plan and took from it, so that a reviewer who has read the earlier preview
//! reads only the rest.

use std::collections::BTreeMap;

use crate::{CommentInput, diff, escape, labels, yaml_text};
use konverge_base::model::{ResourceId, StackId, plan::Action, review::ReviewUnit, spec::RuntimeKind};

/// The number of fields that a line names.
const FIELDS: usize = 3;

/// The number of characters of a value that a line shows.
const VALUE: usize = 60;

/// The section in at most `room` bytes; lines that do not fit are counted.
pub(super) fn render(input: &CommentInput<'_>, room: usize) -> String {
    let Some(difference) = input.last_push else {
        return String::new();
    };
    let (added, removed) = (lines(&difference.added), lines(&difference.removed));
    let unknown = match difference.incomparable.len() {
        0 => String::new(),
        n => format!("; {} cannot be compared", labels::plural(n, "stack")),
    };
    let verdict = match (added.len(), removed.len()) {
        (0, 0) => "the same changes".to_owned(),
        (added, 0) => format!("{} added or changed", labels::plural(added, "resource")),
        (0, removed) => format!("{} taken back or changed", labels::plural(removed, "resource")),
        (added, removed) => format!(
            "{} added or changed, {removed} removed or changed",
            labels::plural(added, "resource")
        ),
    };
    let title = format!(
        "<b>Since your last push</b> (<code>{}</code>): {verdict}{unknown}",
        difference.earlier.short()
    );
    if added.is_empty() && removed.is_empty() {
        return format!("{title}.\n\n");
    }
    let mut body = String::new();
    let mut left_out = 0;
    let lines = added.into_iter().map(|line| format!("- now: {line}\n"));
    for line in lines.chain(removed.into_iter().map(|line| format!("- no longer: {line}\n"))) {
        match body.len() + line.len() + title.len() + 200 > room {
            true => left_out += 1,
            false => body.push_str(&line),
        }
    }
    if left_out > 0 {
        body.push_str(&format!("- and {left_out} more\n"));
    }
    format!("<details open><summary>{title}</summary>\n\n{body}\n</details>\n\n")
}

/// One line per resource: `update Deployment web/api in shop/dev: spec.replicas = 3`.
fn lines(units: &[ReviewUnit]) -> Vec<String> {
    let mut resources: BTreeMap<(&StackId, &ResourceId, Action), Vec<&ReviewUnit>> = BTreeMap::new();
    for unit in units {
        let key = (&unit.stack, &unit.resource, unit.action);
        resources.entry(key).or_default().push(unit);
    }
    let line = |((stack, resource, action), units): (_, Vec<&ReviewUnit>)| {
        let fields = units.iter().filter(|unit| !unit.path.is_empty());
        let fields: Vec<_> = fields.clone().take(FIELDS).map(|unit| field(unit)).collect();
        let more = match units.len().saturating_sub(FIELDS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let fields = match fields.is_empty() {
            true => String::new(),
            false => format!(": {}{more}", fields.join(", ")),
        };
        format!(
            "{} {} in {}{fields}",
            labels::action_word(action),
            escape::code(&title(resource)),
            escape::code(StackId::as_str(stack))
        )
    };
    resources.into_iter().map(line).collect()
}

/// A record does not name the runtime: only ids of Terraform resources have four parts whose third is the type
/// with the provider's prefix.
fn title(resource: &ResourceId) -> String {
    let parts: Vec<_> = resource.as_str().split(':').collect();
    let runtime = match parts.as_slice() {
        [_, provider, kind, _, ..] if kind.starts_with(&format!("{provider}_")) => RuntimeKind::Terraform,
        _ => RuntimeKind::Kubernetes,
    };
    labels::Title::with_runtime(resource, runtime).short()
}

fn field(unit: &ReviewUnit) -> String {
    let path = diff::dotted(&unit.path);
    let text = match &unit.to {
        None => format!("{path} removed"),
        Some(value) if value.is_array() || (value.is_object() && !yaml_text::is_mark(value)) => path,
        Some(value) => {
            let value = yaml_text::scalar(value);
            match value.chars().count() > VALUE {
                true => path,
                false => format!("{path} = {value}"),
            }
        }
    };
    escape::code(&text)
}
