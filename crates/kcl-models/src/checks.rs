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
    // For int-or-string, the server applies string checks only to strings.
    let is_mixed = matches!(kind, ModelType::Union(_));
    let (text, only_text, of_mixed): (_, _, &[&str]) = if is_mixed {
        let only_text = format!("typeof({name}) != \"str\" or ");
        (format!("str({name})"), only_text, &["str", "typeof"])
    } else {
        (name.to_owned(), String::new(), &[])
    };
    let (condition, message, uses): (_, _, &[&str]) = match check {
        ValueCheck::MinLength(least) => (
            format!("{only_text}len([char for char in {text}]) >= {least}"),
            format!("must have at least {least} characters"),
            &["len"],
        ),
        ValueCheck::MaxLength(most) => (
            format!("{only_text}len([char for char in {text}]) <= {most}"),
            format!("must have at most {most} characters"),
            &["len"],
        ),
        ValueCheck::Pattern(pattern) => {
            let quoted = format!("\"{}\"", pattern.replace('\\', "\\\\").replace('"', "\\\""));
            (
                format!("{only_text}{REGEX}.match({text}, {quoted})"),
                format!("must match {pattern}"),
                &[REGEX],
            )
        }
        ValueCheck::Minimum { limit, exclusive } => {
            let (sign, words) = if *exclusive {
                (">", "more than")
            } else {
                (">=", "at least")
            };
            (
                format!("{name} {sign} {limit}"),
                format!("must be {words} {limit}"),
                &[],
            )
        }
        ValueCheck::Maximum { limit, exclusive } => {
            let (sign, words) = if *exclusive {
                ("<", "less than")
            } else {
                ("<=", "at most")
            };
            (
                format!("{name} {sign} {limit}"),
                format!("must be {words} {limit}"),
                &[],
            )
        }
        ValueCheck::MultipleOf(step) => (
            format!("multiplyof({name}, {step})"),
            format!("must be a multiple of {step}"),
            &["multiplyof"],
        ),
        ValueCheck::MinItems(least) => (
            format!("len({name}) >= {least}"),
            format!("must have at least {least} items"),
            &["len"],
        ),
        ValueCheck::MaxItems(most) => (
            format!("len({name}) <= {most}"),
            format!("must have at most {most} items"),
            &["len"],
        ),
        ValueCheck::OneOf(values) => (
            format!("{name} in [{}]", values.join(", ")),
            "is not one of the values".to_owned(),
            &[],
        ),
        ValueCheck::UniqueItems => (
            format!("isunique({name})"),
            "must not have equal items".to_owned(),
            &["isunique"],
        ),
        ValueCheck::UniqueKeys(keys) => {
            let values: Vec<_> = keys.iter().map(|key| format!("each?.{}", dollar(key))).collect();
            let values = values.join(", ");
            (
                format!("isunique([[{values}] for each in {name}])"),
                format!("must not have two items with the same {}", keys.join(", ")),
                &["isunique"],
            )
        }
    };
    CheckLine {
        condition,
        message,
        uses: of_mixed.iter().chain(uses).copied().collect(),
    }
}

fn dollar(key: &str) -> String {
    match crate::names::attribute_name(key) {
        crate::names::AttributeName::Identifier(name) => name,
        _ => key.to_owned(),
    }
}
