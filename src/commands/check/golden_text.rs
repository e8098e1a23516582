//! Writes the text of a golden file in the layout that the file has: a list of resources, a mapping with `resources`,
//! one document for each resource, or Kubernetes objects alone. The text of a resource that did not change stays as it
//! is, with its comments.

use serde_json::{Map, Value};
use similar::{Algorithm, DiffTag, capture_diff_slices};

use super::spec_equality::{is_same, is_same_resource};
use konverge_base::{
    model::{
        ResourceId,
        spec::{Resource, Spec},
        stack_output::OUTPUTS_KEY,
    },
    yaml,
};
use konverge_engine::spec;

/// Layout of the resources in a golden file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// A list of the resources.
    List,
    /// A mapping with the key `resources`.
    Mapping,
    /// A document for each resource.
    Documents,
}

/// A part of the text that holds one resource, with the comments above it.
struct Block {
    comments: String,
    body: String,
    resource: Resource,
    is_object: bool,
}

/// A text divided into its resources.
struct Parts<T> {
    layout: Layout,
    head: String,
    /// Spaces before the `-` of an item.
    indent: usize,
    blocks: Vec<T>,
    tail: String,
}

/// The comments above a resource, and its own text.
type Lines = (String, String);

impl<T> Parts<T> {
    fn new(layout: Layout) -> Self {
        Self {
            layout,
            head: String::new(),
            indent: 0,
            blocks: Vec::new(),
            tail: String::new(),
        }
    }
}

/// Returns the text of a golden file for a Spec, in the layout of `text`. `None` means that there is no file yet: then
/// `like`, the golden file of another stack, gives the layout.
pub(super) fn write(text: Option<&str>, like: Option<&str>, wanted: &Spec) -> String {
    let reads_back = |text: &String| spec::read_text(text, "").is_ok_and(|read| is_same(&read, wanted));
    let edited = text.and_then(divide).map(|parts| parts.with(wanted));
    edited.filter(reads_back).unwrap_or_else(|| {
        let shape = text.or(like).and_then(layout_of);
        let keys = text.map(other_keys).unwrap_or_default();
        render_all(shape.unwrap_or(Layout::Mapping), keys, wanted)
    })
}

fn layout_of(text: &str) -> Option<Layout> {
    let documents = yaml::documents(text).ok()?;
    match documents.first()? {
        Value::Array(_) => Some(Layout::List),
        Value::Object(map) if map.contains_key("resources") => Some(Layout::Mapping),
        Value::Object(_) => Some(Layout::Documents),
        _ => None,
    }
}

/// Returns the keys of a mapping with `resources`, that key included; empty for other layouts.
fn other_keys(text: &str) -> Map<String, Value> {
    let documents = yaml::documents(text).unwrap_or_default();
    let first = documents.into_iter().next();
    match first {
        Some(Value::Object(map)) if map.contains_key("resources") => map,
        _ => Map::new(),
    }
}

fn render_all(layout: Layout, mut keys: Map<String, Value>, wanted: &Spec) -> String {
    let document = wanted.to_document();
    let resources: Vec<Value> = wanted.resources.iter().map(value_of).collect();
    match layout {
        Layout::List if wanted.outputs.is_empty() => yaml::to_string(&resources),
        Layout::Documents if wanted.outputs.is_empty() => {
            let documents: Vec<String> = resources.iter().map(yaml::to_string).collect();
            documents.join("---\n")
        }
        _ => {
            keys.remove(OUTPUTS_KEY);
            keys.extend(document);
            yaml::to_string(&keys)
        }
    }
}

fn value_of(resource: &Resource) -> Value {
    serde_json::to_value(resource).expect("a resource consists of JSON values with text keys")
}

/// Divides a text into its resources; `None` unless each part can be parsed by itself, to the same resource as in the
/// whole text.
fn divide(text: &str) -> Option<Parts<Block>> {
    let layout = layout_of(text)?;
    let whole = spec::read_text(text, "").ok()?;
    let parts = match layout {
        Layout::Documents => divide_documents(text),
        Layout::List | Layout::Mapping => divide_items(text, layout)?,
    };
    let mut resources = whole.resources.into_iter();
    let mut blocks = Vec::with_capacity(parts.blocks.len());
    for (comments, body) in parts.blocks {
        let documents = yaml::documents(&body).ok()?;
        let [document] = documents.as_slice() else {
            return None;
        };
        let item = match document {
            Value::Array(items) if layout != Layout::Documents => items.first()?,
            other => other,
        };
        let is_object = item.get("attributes").is_none();
        let own = spec::read(&documents).ok()?;
        let resource = resources.next()?;
        // A part that parses to something else than in the whole text cannot be replaced on its own.
        if own.resources.as_slice() != std::slice::from_ref(&resource) {
            return None;
        }
        blocks.push(Block {
            comments,
            body,
            resource,
            is_object,
        });
    }
    resources.next().is_none().then_some(Parts {
        layout,
        head: parts.head,
        indent: parts.indent,
        blocks,
        tail: parts.tail,
    })
}

fn divide_documents(text: &str) -> Parts<Lines> {
    let mut parts = Parts::new(Layout::Documents);
    let is_blank = |text: &str| text.lines().all(is_remark);
    let mut current = String::new();
    for line in text.split_inclusive('\n') {
        if line.trim_end() != "---" {
            current.push_str(line);
            continue;
        }
        let body = std::mem::take(&mut current);
        if is_blank(&body) {
            if parts.blocks.is_empty() {
                parts.head.push_str(&(body + line))
            }
        } else {
            parts.blocks.push((String::new(), body))
        }
    }
    if is_blank(&current) {
        parts.tail = current
    } else {
        parts.blocks.push((String::new(), current))
    }
    parts
}

/// Returns true for an empty line or a comment, which has no meaning in YAML.
fn is_remark(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

/// Divides the items of a list. In YAML all lines of an item are indented deeper than its `-`.
fn divide_items(text: &str, layout: Layout) -> Option<Parts<Lines>> {
    let mut parts = Parts::new(layout);
    let mut lines = text.split_inclusive('\n').peekable();
    let is_item = |line: &str| line.trim_start().starts_with("- ");
    if layout == Layout::Mapping {
        // Skip to `resources:`: the text before it may have lists of its own.
        for line in lines.by_ref() {
            parts.head.push_str(line);
            if line.trim_end() == "resources:" {
                break;
            }
        }
    }
    let mut remarks = String::new();
    while let Some(line) = lines.next_if(|line| !is_item(line)) {
        if is_remark(line) {
            remarks.push_str(line)
        } else {
            parts.head.push_str(&(std::mem::take(&mut remarks) + line))
        }
    }
    if layout == Layout::List {
        parts.head.push_str(&std::mem::take(&mut remarks));
    }
    let first = lines.peek()?;
    parts.indent = first.len() - first.trim_start().len();
    while let Some(line) = lines.next() {
        let depth = line.len() - line.trim_start().len();
        if is_remark(line) {
            remarks.push_str(line);
        } else if depth == parts.indent && is_item(line) {
            parts.blocks.push((std::mem::take(&mut remarks), line.to_owned()));
        } else if depth > parts.indent {
            let (_, body) = parts.blocks.last_mut()?;
            body.push_str(&std::mem::take(&mut remarks));
            body.push_str(line);
        } else {
            parts.tail = std::mem::take(&mut remarks) + line + &lines.by_ref().collect::<String>();
            break;
        }
    }
    parts.tail = remarks + &parts.tail;
    Some(parts)
}

impl Parts<Block> {
    /// Returns the text with the resources of a Spec. Present resources keep their order, and a new one follows the
    /// resource that precedes it in the Spec.
    fn with(self, wanted: &Spec) -> String {
        let wanted = &wanted.resources;
        let of_block = |block: &Block| wanted.iter().find(|resource| resource.id == block.resource.id);
        let mut order: Vec<&Resource> = self.blocks.iter().filter_map(of_block).collect();
        let place_of =
            |order: &[&Resource], id: &ResourceId| order.iter().position(|resource| resource.id == *id);
        let mut before: Option<&ResourceId> = None;
        for resource in wanted {
            if place_of(&order, &resource.id).is_none() {
                let at = before.and_then(|before| place_of(&order, before));
                order.insert(at.map_or(0, |at| at + 1), resource);
            }
            before = Some(&resource.id);
        }
        let all_objects = !self.blocks.is_empty() && self.blocks.iter().all(|block| block.is_object);
        let mut bodies = Vec::new();
        for resource in order {
            let old = self.blocks.iter().find(|block| block.resource.id == resource.id);
            let (comments, is_object) = match &old {
                Some(block) => (block.comments.clone(), block.is_object),
                None => (String::new(), all_objects),
            };
            let body = match old {
                Some(block) if is_same_resource(&block.resource, resource) => block.body.clone(),
                Some(block) => {
                    let was = self.render(&block.resource, is_object);
                    let now = self.render(resource, is_object);
                    with_quotes(&block.body, &was, &now).unwrap_or(now)
                }
                None => self.render(resource, is_object),
            };
            bodies.push(comments + &ended(body));
        }
        let between = match self.layout {
            Layout::Documents => "---\n",
            Layout::List | Layout::Mapping => "",
        };
        format!("{}{}{}", self.head, bodies.join(between), self.tail)
    }

    /// Renders a resource; as a Kubernetes object alone if `is_object` and the object says everything.
    fn render(&self, resource: &Resource, is_object: bool) -> String {
        let bare = is_object && resource.depends_on.is_empty() && resource.extensions.is_empty();
        let value = if bare {
            Value::Object(resource.attributes.clone())
        } else {
            value_of(resource)
        };
        if self.layout == Layout::Documents {
            return yaml::to_string(&value);
        }
        let indent = " ".repeat(self.indent);
        let text = yaml::to_string(&[value]);
        let lines = text.split_inclusive('\n').map(|line| {
            if line.trim().is_empty() {
                line.to_owned()
            } else {
                format!("{indent}{line}")
            }
        });
        lines.collect()
    }
}

/// Returns the text `now`, with the lines of `body` where nothing changed and with its quotes where something did.
/// `was` is the resource of `body` as Konverge renders it; `None` if `body` differs from `was` in more than quotes.
fn with_quotes(body: &str, was: &str, now: &str) -> Option<String> {
    let [body, was, now] = [body, was, now].map(|text| text.lines().collect::<Vec<_>>());
    let is_aligned = body.len() == was.len()
        && body
            .iter()
            .zip(&was)
            .all(|(line, was)| without_quotes(line) == without_quotes(was));
    if !is_aligned {
        return None;
    }
    let mut text = String::new();
    let mut push = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    let (mut old, mut new) = (0, 0);
    let ops = capture_diff_slices(Algorithm::Lcs, &was, &now);
    let common = ops
        .iter()
        .filter(|op| op.tag() == DiffTag::Equal)
        .flat_map(|op| op.old_range().zip(op.new_range()));
    for (same_old, same_new) in common.chain([(was.len(), now.len())]) {
        for line in &now[new..same_new] {
            let head = |line: &str| without_quotes(line).0;
            let same_key = body[old..same_old]
                .iter()
                .find(|before| head(before) == head(line));
            push(&same_key.map_or_else(|| (*line).to_owned(), |before| quoted_as(line, before)));
        }
        if let Some(kept) = body.get(same_old) {
            push(kept);
        }
        (old, new) = (same_old + 1, same_new + 1);
    }
    Some(text)
}

/// Splits a line into its scalar and the text before it.
fn split_line(line: &str) -> (&str, &str) {
    let mut rest = line.trim_start_matches(' ');
    while let Some(item) = rest.strip_prefix("- ") {
        rest = item.trim_start_matches(' ');
    }
    let key = rest.find(": ").map_or(0, |colon| colon + 2);
    line.split_at(line.len() - rest.len() + key)
}

/// Splits a line as [`split_line`] does, without its quotes.
fn without_quotes(line: &str) -> (String, &str) {
    let (head, scalar) = split_line(line);
    let inner = quote_of(scalar).map(|_| &scalar[1..scalar.len() - 1]);
    (head.replace(['\'', '"'], ""), inner.unwrap_or(scalar))
}

fn quote_of(scalar: &str) -> Option<char> {
    let quote = scalar
        .chars()
        .next()
        .filter(|first| ['\'', '"'].contains(first))?;
    (scalar.len() > 1 && scalar.ends_with(quote)).then_some(quote)
}

/// Returns a line with the quotes of the earlier line, if its scalar is a string that can be quoted so without escapes.
fn quoted_as(line: &str, before: &str) -> String {
    let (head, scalar) = split_line(line);
    let quote = quote_of(split_line(before).1).filter(|quote| {
        let is_text =
            || matches!(yaml::documents(scalar).as_deref(), Ok([Value::String(text)]) if text == scalar);
        !scalar.contains([*quote, '\\']) && is_text()
    });
    match quote {
        Some(quote) => format!("{head}{quote}{scalar}{quote}"),
        None => line.to_owned(),
    }
}

fn ended(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, word: &str) -> String {
        format!(
            "id: v1:ConfigMap:ns:{name}\ntype: Kubernetes\nattributes:\n  apiVersion: v1\n  kind: ConfigMap\n  metadata: {{name: {name}, namespace: ns}}\n  data:\n    word: '{word}' # quoted\n"
        )
    }

    fn list(indent: &str, items: &[String]) -> String {
        let item = |text: &String| {
            let lines: Vec<_> = text.lines().map(|line| format!("{indent}  {line}\n")).collect();
            let text = lines.concat();
            format!("{indent}- {}", &text[indent.len() + 2..])
        };
        items.iter().map(item).collect()
    }

    fn spec(items: &[String]) -> Spec {
        spec::read_text(&list("", items), "").unwrap()
    }

    #[test]
    fn the_layout_and_the_text_of_what_did_not_change_are_kept() {
        let old = [item("a", "one"), item("b", "two")];
        let new = spec(&[item("a", "one"), item("c", "three"), item("b", "2")]);
        let shapes = [
            format!("# head\n{}# foot\n", list("", &old)),
            format!("# head\nresources:\n{}context: {{a: 1}}\n", list("", &old)),
            format!(
                "secretStore:\n  list:\n  - x\nresources:\n  # of a\n{}  # foot\n",
                list("  ", &old)
            ),
            format!("---\n# of a\n{}---\n{}", old[0], old[1]),
        ];
        for text in &shapes {
            let written = write(Some(text), None, &new);
            assert!(
                is_same(&spec::read_text(&written, "").unwrap(), &new),
                "{written}"
            );
            assert_eq!(layout_of(&written), layout_of(text), "{written}");
            assert_eq!(written.matches("'one' # quoted").count(), 1, "{written}");
            assert!(!written.contains("two") && written.contains("three"), "{written}");
            for kept in ["# head", "# foot", "# of a", "secretStore:", "context: {a: 1}"] {
                assert_eq!(written.contains(kept), text.contains(kept), "{kept}: {written}");
            }
            let back = write(Some(&written), None, &new);
            assert_eq!(back, written, "nothing changed");
        }
    }

    /// A value that a person or another tool quoted stays quoted, also if it changes.
    #[test]
    fn a_changed_resource_keeps_its_quotes() {
        let text = |image: &str, more: &str| {
            format!(
                "resources:\n- id: 'apps/v1:Deployment:a'\n  type: \"Kubernetes\"\n  attributes:\n    apiVersion: apps/v1\n    kind: 'Deployment'\n    metadata:\n      name: a\n      labels:\n        'app': \"web\"\n{more}    spec:\n      replicas: 2\n      image: {image}\n      args:\n      - '--all'\n"
            )
        };
        let spec_of = |text: &str| spec::read_text(text, "").unwrap();
        let old = text("\"web:1\"", "");
        let written = |new: &str| write(Some(&old), None, &spec_of(new));
        let new = text("\"web:2\"", "");
        assert_eq!(written(&new), new);
        let more = text("\"web:2\"", "        tier: front\n");
        assert_eq!(written(&more), more);
        let fewer = old.replace("      replicas: 2\n", "");
        assert_eq!(written(&fewer), fewer);
        // In quotes a number would become a string.
        let number = text("3", "");
        assert_eq!(written(&number), number);
        let odd = text("it's \"x\"", "");
        assert!(is_same(&spec_of(&written(&odd)), &spec_of(&odd)));
        assert!(written(&odd).contains("'Deployment'"), "{}", written(&odd));
    }

    #[test]
    fn objects_alone_stay_objects_alone() {
        let object = |word: &str| {
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  word: {word}\n")
        };
        let new = spec::read_text(&object("two"), "").unwrap();
        assert_eq!(write(Some(&object("one")), None, &new), object("two"));
        // Fields that an object alone cannot represent are not lost.
        let mut more = new.clone();
        more.resources[0].depends_on.push("v1:Secret:b".parse().unwrap());
        let written = write(Some(&object("one")), None, &more);
        assert!(written.contains("dependsOn"), "{written}");
    }

    #[test]
    fn a_new_file_is_like_those_of_other_stacks() {
        let new = spec(&[item("a", "one")]);
        assert!(write(None, None, &new).starts_with("resources:\n"));
        assert!(write(None, Some("- a: 1\n"), &new).starts_with("- id: "));
        // A text that cannot be divided is written as a whole.
        assert!(write(Some("[]\n"), None, &new).starts_with("- id: "));
        assert!(write(Some("a: [\n"), None, &new).starts_with("resources:\n"));
    }
}
