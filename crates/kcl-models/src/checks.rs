//! Checks in KCL schemas. A check must accept everything that the server accepts, so an absent value and `None`
//! always pass.

use std::collections::BTreeSet;

use crate::{
    names::quoted,
    schema::{ModelType, ModelValue, Presence, ValueCheck},
};

/// The alias under which files import the module `regex`. A property may itself have the name `regex`.
pub(crate) const REGEX: &str = "regex_module";

/// A line of a `check` block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckLine {
    /// The KCL expression.
    pub(crate) condition: String,
    /// The message if the check fails: the requirement on the value.
    pub(crate) message: String,
    /// The names that the expression uses. An attribute with such a name would shadow them.
    pub(crate) uses: BTreeSet<&'static str>,
}

/// Returns the checks of an attribute, without the condition that the value is present. `name` is the attribute in
/// KCL.
pub(crate) fn lines(name: &str, value: &ModelValue) -> Vec<CheckLine> {
    conditions(name, value, 0)
}

/// Returns the line in the `check` block, with the condition that the value is present.
pub(crate) fn write(line: &CheckLine, name: &str, presence: &Presence) -> Option<String> {
    let shown = name.trim_start_matches('$');
    let message = quoted(&format!("{shown} {}", line.message))?;
    Some(match presence {
        Presence::Required => format!("{}, {message}", line.condition),
        _ => format!("{} if {name} not in [None, Undefined], {message}", line.condition),
    })
}

fn conditions(name: &str, value: &ModelValue, depth: usize) -> Vec<CheckLine> {
    let mut all: Vec<CheckLine> = value
        .checks
        .iter()
        .map(|check| condition(name, &value.kind, check))
        .collect();
    let variable = format!(
        "each{}",
        if depth == 0 {
            String::new()
        } else {
            depth.to_string()
        }
    );
    let (inner, variables) = match &value.kind {
        ModelType::List(items) => (items, variable.clone()),
        ModelType::Map(values) => (values, format!("key{}, {variable}", &variable[4..])),
        _ => return all,
    };
    for line in conditions(&variable, inner, depth + 1) {
        all.push(CheckLine {
            condition: format!(
                "all {variables} in {name} {{{variable} in [None, Undefined] or {}}}",
                line.condition
            ),
            message: format!("has an item that {}", line.message),
            uses: line.uses,
        });
    }
    all
}

fn condition(name: &str, kind: &ModelType, check: &ValueCheck) -> CheckLine {
    let mut uses = BTreeSet::new();
    // For int-or-string, the server applies string checks only to strings.
    let is_mixed = matches!(kind, ModelType::Union(_));
    let text = if is_mixed {
        format!("str({name})")
    } else {
        name.to_owned()
    };
    let only_text = if is_mixed {
        format!("typeof({name}) != \"str\" or ")
    } else {
        String::new()
    };
    if is_mixed {
        uses.extend(["str", "typeof"]);
    }
    let (condition, message) = match check {
        ValueCheck::MinLength(least) => {
            uses.insert("len");
            (
                format!("{only_text}len([char for char in {text}]) >= {least}"),
                format!("must have at least {least} characters"),
            )
        }
        ValueCheck::MaxLength(most) => {
            uses.insert("len");
            (
                format!("{only_text}len([char for char in {text}]) <= {most}"),
                format!("must have at most {most} characters"),
            )
        }
        ValueCheck::Pattern(pattern) => {
            uses.insert(REGEX);
            let quoted = format!("\"{}\"", pattern.replace('\\', "\\\\").replace('"', "\\\""));
            (
                format!("{only_text}{REGEX}.match({text}, {quoted})"),
                format!("must match {pattern}"),
            )
        }
        ValueCheck::Minimum {
            limit,
            exclusive: false,
        } => (format!("{name} >= {limit}"), format!("must be at least {limit}")),
        ValueCheck::Minimum {
            limit,
            exclusive: true,
        } => (format!("{name} > {limit}"), format!("must be more than {limit}")),
        ValueCheck::Maximum {
            limit,
            exclusive: false,
        } => (format!("{name} <= {limit}"), format!("must be at most {limit}")),
        ValueCheck::Maximum {
            limit,
            exclusive: true,
        } => (format!("{name} < {limit}"), format!("must be less than {limit}")),
        ValueCheck::MultipleOf(step) => {
            uses.insert("multiplyof");
            (
                format!("multiplyof({name}, {step})"),
                format!("must be a multiple of {step}"),
            )
        }
        ValueCheck::MinItems(least) => {
            uses.insert("len");
            (
                format!("len({name}) >= {least}"),
                format!("must have at least {least} items"),
            )
        }
        ValueCheck::MaxItems(most) => {
            uses.insert("len");
            (
                format!("len({name}) <= {most}"),
                format!("must have at most {most} items"),
            )
        }
        ValueCheck::OneOf(values) => (
            format!("{name} in [{}]", values.join(", ")),
            "is not one of the values".to_owned(),
        ),
        ValueCheck::UniqueItems => {
            uses.insert("isunique");
            (
                format!("isunique({name})"),
                "must not have equal items".to_owned(),
            )
        }
        ValueCheck::UniqueKeys(keys) => {
            uses.insert("isunique");
            let values: Vec<_> = keys.iter().map(|key| format!("each?.{}", dollar(key))).collect();
            let values = values.join(", ");
            (
                format!("isunique([[{values}] for each in {name}])"),
                format!("must not have two items with the same {}", keys.join(", ")),
            )
        }
    };
    CheckLine {
        condition,
        message,
        uses,
    }
}

fn dollar(key: &str) -> String {
    match crate::names::attribute_name(key) {
        crate::names::AttributeName::Identifier(name) => name,
        _ => key.to_owned(),
    }
}
