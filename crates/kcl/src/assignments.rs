//! Finds the assignments of a KCL file in the syntax tree of the core's own parser.

use std::ops::Range;

use serde_json::{Number, Value};

use super::{
    AttributePath, CompileRequest, KclDiagnostic, KclError, Pool,
    protocol::{ParseFileArgs, ParseFileResult, ParseProblem},
};
use konverge_base::{
    error::{Location, SharedError},
    model::RepoPath,
};

/// A parsed KCL file with its assignments.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedFile {
    pub(super) text: String,
    /// The assignments, in the order of the file.
    pub assignments: Vec<Assignment>,
    /// The number of statements.
    pub(super) statements: usize,
}

/// An assignment of a value to an attribute.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// The attribute that the assignment sets.
    pub path: AttributePath,
    /// The line of the value, from 1.
    pub line: u32,
    /// The value that is set.
    pub value: AssignedValue,
    /// Range of the value in the text, in bytes.
    pub(super) span: Range<usize>,
    /// The byte range between the braces, if the value is a block.
    pub(super) braces: Option<Range<usize>>,
}

/// The kind of value in an assignment.
#[derive(Debug, Clone, PartialEq)]
pub enum AssignedValue {
    /// A literal. Holds its value if it is a string, a number, a boolean or `None`.
    Literal(Option<Value>),
    /// A block. Its attributes have assignments of their own.
    Block,
    /// An expression, or an addition to another value. It cannot be edited.
    Computed,
    /// A value that is set only under a condition. It cannot be edited.
    Conditional,
}

impl Assignment {
    /// Returns true if an edit may replace the value.
    pub fn is_literal(&self) -> bool {
        matches!(self.value, AssignedValue::Literal(_))
    }
}

impl Pool {
    /// Parses a file. Imports are not followed.
    ///
    /// # Errors
    /// The text is not KCL, or the connection to the worker is lost.
    pub async fn parse(&self, path: &RepoPath, text: &str) -> Result<ParsedFile, KclError> {
        let tree = self.syntax_tree(path, text).await?;
        let statements = list(&tree["body"]);
        let mut tree = SyntaxTree {
            lines: line_starts(text),
            text,
            found: Vec::new(),
        };
        for statement in statements {
            tree.statement(&statement["node"], false);
        }
        let mut assignments = tree.found;
        assignments.sort_by_key(|found| found.span.start);
        Ok(ParsedFile {
            text: text.to_owned(),
            assignments,
            statements: statements.len(),
        })
    }

    /// Returns the syntax tree of a file as the core's JSON.
    ///
    /// # Errors
    /// The errors of [`Pool::parse`].
    pub(super) async fn syntax_tree(&self, path: &RepoPath, text: &str) -> Result<Value, KclError> {
        let request = CompileRequest {
            label: path.to_string(),
            ..CompileRequest::default()
        };
        let message = |root: &std::path::Path| ParseFileArgs {
            path: root.join(path).display().to_string(),
            source: without_relative_imports(text),
        };
        let called = self.call::<_, ParseFileResult>(&request, "ParseFile", message);
        let (result, _) = called.await?;
        let problems: Vec<_> = result
            .errors
            .iter()
            .filter(|problem| is_syntax(problem))
            .collect();
        if !problems.is_empty() {
            let all = problems.into_iter().map(|problem| diagnostic_of(problem, path));
            return Err(KclError::Code(all.collect()));
        }
        serde_json::from_str(&result.ast_json)
            .map_err(|error| KclError::Answer(SharedError::from(error).context("its syntax tree")))
    }
}

/// Returns the text with each `import ..a` replaced by `import __a`, because the core crashes if it parses a single
/// file with a relative import. No byte changes its position.
pub(super) fn without_relative_imports(text: &str) -> String {
    let line = |line: &str| match import_path(line).filter(|path| path.starts_with('.')) {
        Some(path) => {
            let (before, name) = (&line[..line.len() - path.len()], path.trim_start_matches('.'));
            format!("{before}{}{name}", "_".repeat(path.len() - name.len()))
        }
        None => line.to_owned(),
    };
    text.split_inclusive('\n').map(line).collect()
}

/// Returns the rest of a line from the path of its import on; `None` if the line is no import.
pub(super) fn import_path(line: &str) -> Option<&str> {
    let after = line.trim_start().strip_prefix("import")?;
    after.starts_with([' ', '\t', '.']).then(|| after.trim_start())
}

/// Returns true for a syntax error. Missing imports are not counted: only this one file is parsed.
fn is_syntax(problem: &ParseProblem) -> bool {
    problem.level == "error" && !problem.code.contains("CannotFindModule")
}

fn diagnostic_of(problem: &ParseProblem, path: &RepoPath) -> KclDiagnostic {
    let first = problem.messages.first();
    let mut found = KclDiagnostic::new(None, "InvalidSyntax");
    found.message = first.map(|message| message.msg.clone()).unwrap_or_default();
    let position = first.and_then(|message| message.pos.as_ref());
    found.place = Some(Location {
        file: path.to_string(),
        line: position.and_then(|at| u32::try_from(at.line).ok()),
        column: position.and_then(|at| u32::try_from(at.column + 1).ok()),
    });
    found
}

/// The walk through a syntax tree. A kind of node that is not known counts as computed, so that no edit touches it.
struct SyntaxTree<'a> {
    text: &'a str,
    lines: Vec<usize>,
    found: Vec<Assignment>,
}

impl SyntaxTree<'_> {
    fn statement(&mut self, node: &Value, conditional: bool) {
        match node["type"].as_str() {
            Some("Unification") => {
                if let Some(keys) = identifier(&node["target"]["node"]) {
                    self.expression(&keys, &node["value"], false, conditional);
                }
            }
            Some("Assign") => {
                let targets = list(&node["targets"]);
                for keys in targets.iter().filter_map(|target| target_keys(&target["node"])) {
                    self.expression(&keys, &node["value"], targets.len() > 1, conditional);
                }
            }
            Some("AugAssign") => {
                if let Some(keys) = target_keys(&node["target"]["node"]) {
                    self.expression(&keys, &node["value"], true, conditional);
                }
            }
            Some("If") => {
                for part in ["body", "orelse"] {
                    for inner in list(&node[part]) {
                        self.statement(&inner["node"], true);
                    }
                }
            }
            _ => {}
        }
    }

    fn entries(&mut self, above: &[String], config: &Value, conditional: bool) {
        for item in list(&config["items"]) {
            let entry = &item["node"];
            if entry["key"].is_null() {
                self.condition(above, &entry["value"]["node"]);
            } else if let Some(keys) = key(&entry["key"]["node"]) {
                let path = [above, &keys].concat();
                let added = entry["operation"] == "Insert";
                self.expression(&path, &entry["value"], added, conditional);
            }
        }
    }

    /// Adds the assignments under an `if` in a block. Any other entry without a key unpacks a value and sets no
    /// attribute here.
    fn condition(&mut self, above: &[String], node: &Value) {
        if node["type"] == "ConfigIfEntry" {
            self.entries(above, node, true);
            let or_else = &node["orelse"]["node"];
            match or_else["type"].as_str() {
                Some("Config") => self.entries(above, or_else, true),
                _ => self.condition(above, or_else),
            }
        }
    }

    fn expression(&mut self, keys: &[String], value: &Value, computed: bool, conditional: bool) {
        let node = &value["node"];
        let config = match node["type"].as_str() {
            Some("Config") => Some(value),
            Some("Schema") | None if node["config"].is_object() => Some(&node["config"]),
            _ => None,
        };
        let assigned = match literal_value(node) {
            _ if conditional => AssignedValue::Conditional,
            _ if computed => AssignedValue::Computed,
            Some(known) => AssignedValue::Literal(known),
            None if config.is_some() => AssignedValue::Block,
            None => AssignedValue::Computed,
        };
        let path = AttributePath::from_keys(keys.to_vec());
        if let (Some(path), Some(span)) = (path, self.span(value)) {
            self.found.push(Assignment {
                path,
                line: line_of(value),
                value: assigned,
                span,
                braces: config.and_then(|config| self.span(config)),
            });
        }
        if let Some(config) = config {
            self.entries(keys, &config["node"], conditional || computed);
        }
    }

    /// Returns the byte range of a node.
    fn span(&self, node: &Value) -> Option<Range<usize>> {
        let at = |line: &str, column: &str| {
            let (line, column) = (node[line].as_u64()?, node[column].as_u64()?);
            let index = usize::try_from(line.checked_sub(1)?).ok()?;
            let start = *self.lines.get(index)?;
            let mut letters = self.text.get(start..)?.char_indices();
            // The core does not count the byte order mark at the start of the file, so one column is added.
            let marks = usize::from(start == 0 && self.text.starts_with('\u{feff}'));
            let column = usize::try_from(column).ok()? + marks;
            Some(
                letters
                    .nth(column)
                    .map_or(self.text.len(), |(offset, _)| start + offset),
            )
        };
        let span = at("line", "column")?..at("end_line", "end_column")?;
        (span.start <= span.end).then_some(span)
    }
}

/// Returns the value of a literal; `None` for another node, `Some(None)` for a literal that is a list or a map.
fn literal_value(node: &Value) -> Option<Option<Value>> {
    match node["type"].as_str()? {
        "StringLit" => Some(Some(node["value"].clone())),
        "NameConstantLit" => Some(match node["value"].as_str() {
            Some("True") => Some(Value::Bool(true)),
            Some("False") => Some(Value::Bool(false)),
            Some("None") => Some(Value::Null),
            _ => None,
        }),
        "NumberLit" if node["binary_suffix"].is_null() => Some(Some(node["value"]["value"].clone())),
        "NumberLit" => Some(None),
        "Unary" if node["op"] == "USub" && node["operand"]["node"]["type"] == "NumberLit" => Some(
            literal_value(&node["operand"]["node"])?
                .as_ref()
                .and_then(negative),
        ),
        "List" => {
            let items = list(&node["elts"]).iter();
            let literal = items
                .map(|item| literal_value(&item["node"]))
                .all(|item| item.is_some());
            literal.then_some(None)
        }
        "Config" => {
            let literal = |item: &Value| {
                key(&item["node"]["key"]["node"])?;
                literal_value(&item["node"]["value"]["node"])
            };
            let mut items = list(&node["items"]).iter();
            items.all(|item| literal(item).is_some()).then_some(None)
        }
        _ => None,
    }
}

fn negative(value: &Value) -> Option<Value> {
    match value.as_i64() {
        Some(integer) => Some(Value::from(-integer)),
        None => Number::from_f64(-value.as_f64()?).map(Value::Number),
    }
}

/// Returns the keys of `a.b` or `"a"`; `None` if a key is computed.
fn key(node: &Value) -> Option<Vec<String>> {
    match node["type"].as_str()? {
        "Identifier" => identifier(node),
        "StringLit" => Some(vec![node["value"].as_str()?.to_owned()]),
        _ => None,
    }
}

fn identifier(node: &Value) -> Option<Vec<String>> {
    let names = list(&node["names"]).iter();
    names
        .map(|name| Some(name["node"].as_str()?.to_owned()))
        .collect()
}

/// Returns the keys of an assignment's target, such as `a.b`. New and old cores have different nodes for it.
fn target_keys(node: &Value) -> Option<Vec<String>> {
    let Some(name) = node["name"]["node"].as_str() else {
        return identifier(node).filter(|keys| !keys.is_empty());
    };
    let mut keys = vec![name.to_owned()];
    for member in list(&node["paths"]) {
        keys.push(member["value"]["node"].as_str()?.to_owned());
    }
    Some(keys)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn line_of(node: &Value) -> u32 {
    node["line"]
        .as_u64()
        .and_then(|line| line.try_into().ok())
        .unwrap_or(1)
}

fn line_starts(text: &str) -> Vec<usize> {
    let ends = text.match_indices('\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(ends).collect()
}
