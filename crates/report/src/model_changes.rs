//! Renders the changes of generated models: added and removed properties, and the stacks that use them. All names are
//! shown as code, because they come from CRDs and other documents from outside.

use maud::{Markup, html};

use super::{
    bounded_part::BoundedPart,
    escape,
    html::elements,
    labels,
    terminal::{Color, Style},
};
use konverge_base::model::{
    StackId,
    affected::InputChange,
    model_change::{ModelChange, ModelPackageChange, ModelPropertyChange},
    text::truncate,
};

/// The maximum number of properties of a package that a comment shows.
const IN_COMMENT: usize = 20;
/// The maximum number of properties of a package that a page or a terminal shows.
const IN_PAGE: usize = 200;
/// The maximum number of stacks that are listed.
const STACKS: usize = 5;
/// The maximum number of bytes of a name or a declaration.
const NAME: usize = 160;

/// A part of a line.
enum Part {
    /// A text of Konverge.
    Word(String),
    /// A name or a value from outside.
    Name(String),
}

/// A line, and the lines below it.
struct Row {
    parts: Vec<Part>,
    below: Vec<Row>,
}

impl Row {
    fn new(parts: Vec<Part>) -> Self {
        Self {
            parts,
            below: Vec::new(),
        }
    }

    /// Returns the line. `name` formats a name.
    fn text(&self, name: impl Fn(&str) -> String) -> String {
        let parts = self.parts.iter().map(|part| match part {
            Part::Word(text) => text.clone(),
            Part::Name(text) => name(text),
        });
        parts.collect()
    }

    fn markup(&self) -> Markup {
        html! {
            li {
                @for part in &self.parts {
                    @match part {
                        Part::Word(text) => (text),
                        Part::Name(text) => (elements::code(text)),
                    }
                }
                @if !self.below.is_empty() {
                    ul { @for row in &self.below { (row.markup()) } }
                }
            }
        }
    }
}

fn word(text: impl Into<String>) -> Part {
    Part::Word(text.into())
}

fn name(text: &str) -> Part {
    Part::Name(truncate(text, NAME).into_owned())
}

/// Returns one row for each folder of models, with a row for each package.
fn rows(models: &[ModelChange], most: usize) -> Vec<Row> {
    let folder = |model: &ModelChange| Row {
        parts: folder_parts(model),
        below: model
            .packages
            .iter()
            .map(|package| package_row(package, most))
            .collect(),
    };
    models.iter().map(folder).collect()
}

fn folder_parts(model: &ModelChange) -> Vec<Part> {
    let mut parts = vec![name(model.folder.as_str())];
    parts.extend(first_names(" from ", model.sources.iter().map(String::as_str)));
    match model.record {
        Some(InputChange::Added) => parts.push(word(": new")),
        Some(InputChange::Removed) => parts.push(word(": not recorded any more")),
        Some(InputChange::Modified) => {
            parts.push(word(": the source changed"));
            if let (Some(from), Some(to)) = (&model.from_version, &model.to_version)
                && from != to
            {
                parts.extend([word(", version "), name(from), word(" → "), name(to)]);
            }
        }
        None => parts.push(word(": the recorded source is the same")),
    }
    if model.packages.is_empty() {
        parts.push(word("; the models are the same"));
    }
    parts
}

fn package_row(package: &ModelPackageChange, most: usize) -> Row {
    let mut parts = vec![name(package.package.as_str())];
    parts.push(word(match package.change {
        InputChange::Added => " is new",
        InputChange::Removed => " is removed",
        InputChange::Modified if package.properties.is_empty() => {
            " differs, but in no schema, property or check"
        }
        InputChange::Modified => "",
    }));
    let stacks = package.stacks.iter().map(StackId::as_str);
    parts.extend(first_names(", used by ", stacks));
    if package.stacks.is_empty() {
        parts.push(word(", used by no stack"));
    }
    let mut changes: Vec<_> = package.properties.iter().collect();
    // Changes that may break a stack come first.
    changes.sort_by_key(|change| change.from.is_none());
    let mut below: Vec<_> = changes
        .iter()
        .take(most)
        .map(|change| property_row(change))
        .collect();
    if let more @ 1.. = changes.len().saturating_sub(most) {
        below.push(Row::new(vec![word(format!("and {more} more"))]));
    }
    Row { parts, below }
}

/// Returns the first names after a text, and the number of the others; nothing without names.
fn first_names<'n>(before: &str, names: impl ExactSizeIterator<Item = &'n str>) -> Vec<Part> {
    let more = names.len().saturating_sub(STACKS);
    let mut parts = Vec::new();
    for (index, text) in names.take(STACKS).enumerate() {
        parts.extend([word(if index == 0 { before } else { ", " }), name(text)]);
    }
    parts.extend((more > 0).then(|| word(format!(" and {more} more"))));
    parts
}

fn property_row(change: &ModelPropertyChange) -> Row {
    let verb = match (&change.from, &change.to) {
        (None, _) => "added ",
        (_, None) => "removed ",
        _ => "changed ",
    };
    let mut parts = vec![word(verb)];
    match (&change.property, &change.check) {
        (Some(property), _) => parts.push(name(&format!("{}.{property}", change.schema))),
        // The message of a check is enough, so its condition is not shown.
        (None, Some(check)) => {
            parts.extend([word("the check "), name(&format!("{}: {check}", change.schema))]);
            return Row::new(parts);
        }
        (None, None) => {
            parts.extend([word("the schema "), name(&change.schema)]);
            return Row::new(parts);
        }
    }
    match (&change.from, &change.to) {
        (Some(from), Some(to)) => parts.extend([word(": "), name(from), word(" → "), name(to)]),
        (Some(one), None) | (None, Some(one)) => parts.extend([word(": "), name(one)]),
        (None, None) => {}
    }
    Row::new(parts)
}

/// Renders the section of a comment in at most `room` bytes, with the number of packages that do not fit. Empty without
/// changes.
pub(super) fn markdown(models: &[ModelChange], room: usize) -> BoundedPart {
    if models.is_empty() {
        return BoundedPart::default();
    }
    let title = format!("<b>Models</b>: {}", title(models));
    let room = room.saturating_sub(title.len() + 200);
    let (mut body, mut left_out) = (String::new(), 0);
    let packages = models.iter().flat_map(|model| &model.packages);
    let beyond: usize = packages
        .map(|package| package.properties.len().saturating_sub(IN_COMMENT))
        .sum();
    for folder in rows(models, IN_COMMENT) {
        let mut block = format!("- {}\n", folder.text(escape::code));
        for package in &folder.below {
            let mut lines = format!("  - {}\n", package.text(escape::code));
            for row in &package.below {
                lines.push_str(&format!("    - {}\n", row.text(escape::code)));
            }
            if body.len() + block.len() + lines.len() > room {
                left_out += 1
            } else {
                block.push_str(&lines)
            }
        }
        if body.len() + block.len() > room {
            left_out += 1
        } else {
            body.push_str(&block)
        }
    }
    if left_out > 0 {
        body.push_str(&format!("- and {left_out} more: `konverge preview` shows them\n"));
    }
    BoundedPart {
        text: format!("<details open><summary>{title}</summary>\n\n{body}\n</details>\n\n"),
        left_out: left_out + beyond,
    }
}

/// Returns the title: `generated schemas in 2 folders`.
fn title(models: &[ModelChange]) -> String {
    format!("generated schemas in {}", labels::plural(models.len(), "folder"))
}

/// Renders the section of a page; empty without changes.
pub(super) fn page(models: &[ModelChange]) -> Markup {
    html! {
        @if !models.is_empty() {
            section {
                h2 { "Models" }
                ul { @for row in rows(models, IN_PAGE) { (row.markup()) } }
            }
        }
    }
}

/// Renders the lines for a terminal or a log; empty without changes.
pub fn terminal(models: &[ModelChange], style: Style) -> String {
    let mut text = String::new();
    if models.is_empty() {
        return text;
    }
    text.push_str(&format!(
        "{}: {}\n",
        style.paint(Color::Bold, "Models"),
        title(models)
    ));
    for folder in rows(models, IN_PAGE) {
        add_lines(&folder, 1, &mut text);
    }
    text
}

fn add_lines(row: &Row, depth: usize, text: &mut String) {
    text.push_str(&"  ".repeat(depth));
    text.push_str(&row.text(escape::log));
    text.push('\n');
    for below in &row.below {
        add_lines(below, depth + 1, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::RepoPath;

    /// An import, a rule of the schema or its documentation: which one is not known.
    #[test]
    fn a_package_without_known_differences_is_not_called_documentation() {
        let package = ModelPackageChange {
            package: RepoPath::normalize("base/pkg/a/v1").unwrap(),
            change: InputChange::Modified,
            properties: Vec::new(),
            stacks: Vec::new(),
        };
        let model = ModelChange {
            folder: RepoPath::normalize("base/pkg/a").unwrap(),
            sources: Vec::new(),
            record: None,
            from_version: None,
            to_version: None,
            packages: vec![package],
        };
        let text = terminal(&[model], Style { color: false });
        assert!(
            text.contains("base/pkg/a/v1 differs, but in no schema, property or check"),
            "{text}"
        );
    }
}
