//! Renders the changes of one resource as lines of a `diff` block. The sign is in column 0, because GitHub colors the
//! line by it. The path to a changed value is shown as unchanged lines around it.

use serde_json::Value;

use super::{
    escape, list_diff,
    text_diff::{self, FORCES},
    yaml_text,
};
use konverge_base::model::{
    FieldPath, field_path, masked_value,
    plan::{Action, ChangeOrigin, FieldChange, ResourcePlan, StackPlan, Summary},
    review::ReviewUnit,
};

/// The maximum length of a line that is shown whole, in characters. In longer lines the common start and end of the old
/// and the new value are shortened.
const WIDEST: usize = 400;

/// The number of common characters that stay next to the difference.
const AROUND: usize = 40;

/// The amount of context that is shown around a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffContext {
    /// Show the path as a tree, and this many unchanged lines around a change inside a text.
    Tree(usize),
    /// Show the path on one line.
    Path,
}

/// Returns the lines of a resource's own changes, without drift. Each line starts with `+`, `-`, `@` or a space.
pub fn resource(plan: &ResourcePlan, context: DiffContext) -> Vec<String> {
    let own = plan.changes.iter().filter(|change| is_own(plan, change));
    changes(own, &plan.replace, context)
}

/// Returns the lines of a resource's drift: differences that existed on the cluster before this change.
pub fn drift(plan: &ResourcePlan, context: DiffContext) -> Vec<String> {
    changes(
        plan.changes.iter().filter(|change| is_drift(change)),
        &plan.replace,
        context,
    )
}

/// Returns the lines for changes of one resource in the form in which a review or a drift check recorded them.
pub fn recorded(units: &[&ReviewUnit], context: DiffContext) -> Vec<String> {
    let change = |unit: &&ReviewUnit| FieldChange {
        path: unit.path.clone(),
        from: unit.from.clone(),
        to: unit.to.clone(),
        origin: ChangeOrigin::Change,
    };
    let with_value = units
        .iter()
        .filter(|unit| unit.from.is_some() || unit.to.is_some());
    let all: Vec<_> = with_value.map(change).collect();
    changes(all.iter(), &[], context)
}

/// Adds the header of a diff from the live side to `other`, if there are lines.
pub fn from_live(lines: &[String], other: &str) -> Vec<String> {
    let head = [String::from("--- live"), format!("+++ {other}")];
    let head = head.into_iter().filter(|_| !lines.is_empty());
    head.chain(lines.iter().cloned()).collect()
}

/// Returns true if the difference existed before this change.
pub fn is_drift(change: &FieldChange) -> bool {
    matches!(
        change.origin,
        ChangeOrigin::Drift | ChangeOrigin::Manager(_) | ChangeOrigin::Rotation
    )
}

/// Returns true if somebody else made the difference since the last apply, by hand or with another field manager.
pub fn is_by_others(change: &FieldChange) -> bool {
    matches!(change.origin, ChangeOrigin::Drift | ChangeOrigin::Manager(_))
}

/// Returns true if the difference belongs to this change. Values that the server sets are neither own changes nor
/// drift. Values that are unknown before the apply are shown, whoever sets them.
pub fn is_own(plan: &ResourcePlan, change: &FieldChange) -> bool {
    match change.origin {
        ChangeOrigin::Change => true,
        ChangeOrigin::Drift | ChangeOrigin::Manager(_) | ChangeOrigin::Rotation => false,
        // A created resource is shown with the values that the server would set.
        ChangeOrigin::Default | ChangeOrigin::Admission => {
            let becomes_unknown = change.to.as_ref().is_some_and(masked_value::holds_unknown);
            becomes_unknown || (matches!(plan.action, Action::Create | Action::Run) && change.path.is_root())
        }
    }
}

/// Returns true if this change modifies the resource. Otherwise the resource has only drift, which an apply restores.
pub fn touches(plan: &ResourcePlan) -> bool {
    match plan.action {
        Action::Unchanged => false,
        Action::Update => {
            !plan.changes.iter().any(is_drift) || plan.changes.iter().any(|change| is_own(plan, change))
        }
        _ => true,
    }
}

/// Returns the counts of a stack's own changes, without resources that have only drift.
pub fn own_summary(stack: &StackPlan) -> Summary {
    let mut summary = Summary {
        unchanged: stack.summary.unchanged,
        ..Summary::default()
    };
    let own = stack.resources.iter().filter(|resource| touches(resource));
    own.for_each(|resource| summary.count_resource(&stack.id, resource));
    summary
}

/// Returns the number of a stack's resources that have only drift.
pub fn drifted(stack: &StackPlan) -> usize {
    stack
        .resources
        .iter()
        .filter(|resource| differs_already(resource))
        .count()
}

/// Returns true if the resource has only drift.
pub fn differs_already(plan: &ResourcePlan) -> bool {
    plan.changes.iter().any(is_drift) && !touches(plan)
}

/// Returns the paths of a resource's own changes, for places without room for the values.
pub fn paths(plan: &ResourcePlan) -> Vec<String> {
    plan.changes
        .iter()
        .filter(|change| is_own(plan, change))
        .map(|change| dotted(&change.path))
        .collect()
}

/// Formats `/spec/containers/name=web/image` as `spec.containers[name=web].image`.
pub fn dotted(path: &FieldPath) -> String {
    let mut out = String::new();
    for component in path.components() {
        if component.contains('=') || (!component.is_empty() && component.bytes().all(|b| b.is_ascii_digit()))
        {
            out.push_str(&format!("[{component}]"));
        } else if component.contains('.') || component.contains('/') {
            out.push_str(&format!("[\"{component}\"]"));
        } else {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&component);
        }
    }
    if out.is_empty() {
        "(all)".to_owned()
    } else {
        escape::line(&out)
    }
}

fn changes<'a>(
    changes: impl Iterator<Item = &'a FieldChange>,
    forcing: &[FieldPath],
    context: DiffContext,
) -> Vec<String> {
    let mut out = Vec::new();
    match context {
        DiffContext::Tree(around) => {
            let mut open: Vec<String> = Vec::new();
            for change in changes {
                let path: Vec<_> = change.path.components().collect();
                let parents = path.len().saturating_sub(1);
                let shared = open
                    .iter()
                    .zip(&path[..parents])
                    .take_while(|(a, b)| a == b)
                    .count();
                open.truncate(shared);
                for component in &path[shared..parents] {
                    out.push(format!(" {}{}", "  ".repeat(open.len()), step(component)));
                    open.push(component.clone());
                }
                let from = out.len();
                value_lines(
                    path.last().map(String::as_str),
                    change,
                    open.len(),
                    around,
                    &mut out,
                );
                mark_forced(change, forcing, &mut out[from..]);
            }
        }
        DiffContext::Path => {
            for change in changes {
                out.push(format!("@@ {} @@", dotted(&change.path)));
                let from = out.len();
                value_lines(None, change, 0, 0, &mut out);
                mark_forced(change, forcing, &mut out[from..]);
            }
        }
    }
    out
}

/// Marks a change that forces a replacement. No value can imitate the mark, because a `#` in a value is quoted, and so
/// is a line of a text that contains the mark.
fn mark_forced(change: &FieldChange, forcing: &[FieldPath], lines: &mut [String]) {
    let forces = |path: &FieldPath| path.is_within(&change.path) || change.path.is_within(path);
    if change.path.is_root() || !forcing.iter().any(forces) {
        return;
    }
    let with = |sign: char| lines.iter().position(|line| line.starts_with(sign));
    if let Some(at) = with('+').or_else(|| with('-')) {
        lines[at].push_str(&format!("  {FORCES}"));
    }
}

/// The keys by which Kubernetes merges lists and whose values are numbers.
const PORTS: [&str; 3] = ["port", "containerPort", "hostPort"];

/// Returns a path component as a line of the tree.
fn step(component: &str) -> String {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match component.split_once('=') {
        Some((key, value)) if PORTS.contains(&key) && is_number(value) => format!("- {key}: {value}"),
        Some((key, value)) => format!("- {}: {}", yaml_text::name(key), yaml_text::name(value)),
        None => format!("{}:", yaml_text::name(component)),
    }
}

/// Returns true if a path component identifies the changed list item, as `name=web` does for `{name: web}`. Any other
/// component is the key of a map, even if it contains `=`.
fn is_item(component: &str, change: &FieldChange) -> bool {
    let Some((key, _)) = component.split_once('=') else {
        return false;
    };
    let is_named = |item: &Value| {
        let label = field_path::label(item, &[key]);
        !label.is_empty() && (component == label || component.starts_with(&format!("{label},")))
    };
    [&change.from, &change.to].into_iter().flatten().all(is_named)
}

fn value_lines(key: Option<&str>, change: &FieldChange, depth: usize, around: usize, out: &mut Vec<String>) {
    // A whole list item is shown as an item, because its path component is no key.
    let is_item = key.is_some_and(|key| is_item(key, change));
    let key = key.filter(|_| !is_item);
    if let (Some(Value::String(from)), Some(Value::String(to))) = (&change.from, &change.to)
        && (from.contains('\n') || to.contains('\n'))
    {
        text_diff::render(key, from, to, depth, around, out);
        return;
    }
    // Of secrets, only whether they are equal is shown. Their hashes would tell a reader nothing more.
    let sides = [&change.from, &change.to].map(|side| side.as_ref().and_then(masked_value::as_secret));
    if sides.iter().any(Option::is_some) {
        let head = key.map_or(String::new(), |key| format!("{}: ", yaml_text::name(key)));
        let pad = "  ".repeat(depth);
        let word = match sides {
            [Some(from), Some(to)] if from != to => "(secret, changed)",
            [Some(_), Some(_)] => "(secret, same)",
            _ => "(secret)",
        };
        for (sign, side, of) in [('-', &change.from, "(secret)"), ('+', &change.to, word)] {
            match side {
                Some(side) if masked_value::as_secret(side).is_some() => {
                    out.push(format!("{sign}{pad}{head}{of}"));
                }
                Some(side) => {
                    let mut shown = Vec::new();
                    yaml_text::write_yaml(key, side, depth * 2, &mut shown);
                    out.extend(shown.into_iter().map(|line| format!("{sign}{line}")));
                }
                None => {}
            }
        }
        return;
    }
    if let (Some(Value::String(from)), Some(Value::String(to))) = (&change.from, &change.to)
        && from.chars().count().max(to.chars().count()) > WIDEST
    {
        let head = key.map_or(String::new(), |key| format!("{}: ", yaml_text::name(key)));
        let [from, to] = shorten_pair(from, to);
        let pad = "  ".repeat(depth);
        out.extend([format!("-{pad}{head}{from}"), format!("+{pad}{head}{to}")]);
        return;
    }
    if let (Some(Value::Array(from)), Some(Value::Array(to))) = (&change.from, &change.to) {
        list_diff::render(key, from, to, depth, around, out);
        return;
    }
    for (sign, side) in [('-', &change.from), ('+', &change.to)] {
        if let Some(side) = side {
            let mut shown = Vec::new();
            if is_item {
                yaml_text::write_yaml(None, &Value::Array(vec![side.clone()]), depth * 2, &mut shown)
            } else {
                yaml_text::write_yaml(key, side, depth * 2, &mut shown)
            }
            out.extend(shown.into_iter().map(|line| format!("{sign}{line}")));
        }
    }
}

/// Shortens the common parts of two long lines. The mark of the omission is outside the quotes, where no value can
/// imitate it.
fn shorten_pair(from: &str, to: &str) -> [String; 2] {
    let sides = [from, to].map(|side| side.chars().collect::<Vec<_>>());
    let alike = |a: &[char], b: &[char]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let before = alike(&sides[0], &sides[1]);
    let reversed = [0, 1].map(|side| sides[side][before..].iter().rev().copied().collect::<Vec<_>>());
    let after = alike(&reversed[0], &reversed[1]);
    let cut = [before, after].map(|alike| alike.saturating_sub(AROUND));
    sides.map(|side| {
        let shown: String = side[cut[0]..side.len() - cut[1]].iter().collect();
        let left_out = |cut: usize| match cut {
            0 => String::new(),
            cut => format!("({cut} characters alike)"),
        };
        let parts = [
            left_out(cut[0]),
            yaml_text::scalar(&Value::String(shown)),
            left_out(cut[1]),
        ];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(" ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::spec::RuntimeKind;
    use serde_json::json;

    fn plan(action: Action, changes: Vec<FieldChange>) -> ResourcePlan {
        ResourcePlan::new(
            &"shop/dev".parse().unwrap(),
            "apps/v1:Deployment:shop:web".parse().unwrap(),
            RuntimeKind::Kubernetes,
            action,
            changes,
        )
    }

    fn change(path: &str, from: Option<Value>, to: Option<Value>) -> FieldChange {
        FieldChange {
            path: path.into(),
            from,
            to,
            origin: ChangeOrigin::Change,
        }
    }

    #[test]
    fn a_port_that_names_an_item_is_a_number_and_a_name_is_a_text() {
        for (component, line) in [
            ("port=80", "- port: 80"),
            ("containerPort=8080", "- containerPort: 8080"),
            ("name=80", "- name: \"80\""),
            ("port=", "- port: \"\""),
            ("port=80 # x", "- port: \"80 # x\""),
        ] {
            assert_eq!(step(component), line);
        }
    }

    #[test]
    fn the_path_is_a_tree_and_the_sign_stands_first() {
        let plan = plan(
            Action::Update,
            vec![
                change("/spec/replicas", Some(json!(2)), Some(json!(3))),
                change(
                    "/spec/template/spec/containers/name=web/image",
                    Some(json!("shop:1")),
                    Some(json!("shop:2")),
                ),
                change(
                    "/spec/template/spec/containers/name=web/ports",
                    None,
                    Some(json!([{"containerPort": 80}])),
                ),
            ],
        );
        assert_eq!(
            resource(&plan, DiffContext::Tree(3)).join("\n"),
            " spec:\n-  replicas: 2\n+  replicas: 3\n   template:\n     spec:\n       containers:\n         - name: web\n-          image: shop:1\n+          image: shop:2\n+          ports:\n+          - containerPort: 80"
        );
        assert_eq!(
            resource(&plan, DiffContext::Path)[..3].join("\n"),
            "@@ spec.replicas @@\n-2\n+3"
        );
    }

    #[test]
    fn long_texts_are_compared_line_by_line() {
        let from = (1..=20).map(|n| format!("line {n}\n")).collect::<String>();
        let to = from.replace("line 10\n", "line ten\n");
        let plan = plan(
            Action::Update,
            vec![change("/data/conf", Some(json!(from)), Some(json!(to)))],
        );
        assert_eq!(
            resource(&plan, DiffContext::Tree(1)).join("\n"),
            " data:\n   conf: |\n     line 9\n-    line 10\n+    line ten\n     line 11"
        );
    }

    #[test]
    fn whatever_changes_is_shown() {
        let long = "x".repeat(1000);
        let (from, to) = (
            format!("{long}; echo hi{long}"),
            format!("{long}; curl evil{long}"),
        );
        let one = plan(
            Action::Update,
            vec![change("/data/args", Some(json!(from)), Some(json!(to)))],
        );
        let shown = resource(&one, DiffContext::Tree(3));
        assert_eq!(
            shown[1..].join("\n"),
            format!(
                "-  args: (962 characters alike) \"{0}; echo hi{1}\" (960 characters alike)\n+  args: (962 characters alike) \"{0}; curl evil{1}\" (960 characters alike)",
                "x".repeat(38),
                "x".repeat(40)
            )
        );
        let text = "line\n".repeat(3000);
        let (from, to) = (format!("{text}old\n{text}"), format!("{text}new\n{text}"));
        let many = plan(
            Action::Update,
            vec![change("/data/conf", Some(json!(from)), Some(json!(to)))],
        );
        assert_eq!(
            resource(&many, DiffContext::Tree(1)).join("\n"),
            " data:\n   conf: |\n     line\n-    old\n+    new\n     line"
        );
        // A newline at the end is a difference too.
        let cut = plan(
            Action::Update,
            vec![change(
                "/data/conf",
                Some(json!(text)),
                Some(json!(text.trim_end())),
            )],
        );
        assert!(
            resource(&cut, DiffContext::Tree(1))
                .iter()
                .any(|line| line.starts_with('-'))
        );
    }

    #[test]
    fn of_a_list_what_changed_in_it_is_shown() {
        let rules = |ports: &[u16]| {
            let rules = ports.iter().map(|port| json!({"port": port, "from": "office"}));
            Some(Value::Array(rules.collect()))
        };
        let mut one = plan(
            Action::Replace,
            vec![
                change("/rule", rules(&[80, 443]), rules(&[80, 8080, 443])),
                change("/name", Some(json!("a # forces replacement")), Some(json!("b"))),
            ],
        );
        one.replace = vec!["/name".into()];
        let mut computed = change("/arn", Some(json!("arn:1")), Some(json!({"$unknown": true})));
        computed.origin = ChangeOrigin::Default;
        one.changes.insert(0, computed);
        assert_eq!(
            resource(&one, DiffContext::Tree(1)).join("\n"),
            "-arn: arn:1\n+arn: (known after apply)\n\
             -name: \"a # forces replacement\"\n+name: b  # forces replacement\n rule:\n - port: 80\n   from: office\n\
             +- port: 8080\n+  from: office\n - port: 443\n   from: office"
        );
        // Of a block that contains a forced change, and of a block inside the forced one.
        one.replace = vec!["/rule/0/port".into()];
        let lines = resource(&one, DiffContext::Path);
        assert!(
            lines.contains(&"+- port: 8080  # forces replacement".to_owned()),
            "{lines:?}"
        );
    }

    #[test]
    fn a_secret_is_named_and_said_to_have_changed() {
        let secret = |hash: &str| Some(json!({"$secret": hash}));
        let plan = plan(
            Action::Update,
            vec![
                change("/data/a", secret("1"), secret("2")),
                change("/data/b", None, secret("2")),
                change("/data/c", secret("1"), None),
            ],
        );
        assert_eq!(
            resource(&plan, DiffContext::Tree(3)).join("\n"),
            " data:\n-  a: (secret)\n+  a: (secret, changed)\n+  b: (secret)\n-  c: (secret)"
        );
    }

    #[test]
    fn a_key_that_looks_like_a_list_item_is_shown() {
        let secret = |hash: &str| Some(json!({"$secret": hash}));
        let of = |name: &str| Some(json!({"name": name, "image": "i"}));
        let plan = plan(
            Action::Update,
            vec![
                change(
                    "/data/9000",
                    Some(json!("default/a:80")),
                    Some(json!("default/b:80")),
                ),
                change("/data/9001", secret("1"), secret("2")),
                change("/data/a=b", Some(json!("x")), Some(json!({"a": "c"}))),
                change("/data/9002/x", None, Some(json!(1))),
                change("/spec/containers/name=web", None, of("web")),
            ],
        );
        assert_eq!(
            resource(&plan, DiffContext::Tree(3)).join("\n"),
            " data:\n-  \"9000\": default/a:80\n+  \"9000\": default/b:80\n\
             -  \"9001\": (secret)\n+  \"9001\": (secret, changed)\n\
             \x20  \"9002\":\n+    x: 1\n\
             -  a=b: x\n+  a=b:\n+    a: c\n\
             \x20spec:\n   containers:\n+    - name: web\n+      image: i"
        );
    }

    #[test]
    fn no_text_imitates_the_mark_of_a_replacement() {
        let text = |line: &str| Some(json!(format!("first\n{line}\nlast\n")));
        let plan = plan(
            Action::Update,
            vec![change("/data/conf", text("x"), text("y  # forces replacement"))],
        );
        let lines = resource(&plan, DiffContext::Tree(3));
        assert!(
            lines.contains(&"+    \"y  # forces replacement\"".to_owned()),
            "{lines:?}"
        );
    }

    #[test]
    fn drift_stands_apart() {
        let mut drifted = change("/spec/replicas", Some(json!(9)), Some(json!(3)));
        drifted.origin = ChangeOrigin::Drift;
        let plan = plan(
            Action::Update,
            vec![drifted, change("/spec/paused", None, Some(json!(true)))],
        );
        assert_eq!(
            resource(&plan, DiffContext::Tree(3)).join("\n"),
            " spec:\n+  paused: true"
        );
        assert_eq!(
            drift(&plan, DiffContext::Tree(3)).join("\n"),
            " spec:\n-  replicas: 9\n+  replicas: 3"
        );
    }

    #[test]
    fn no_line_begins_with_anything_but_a_sign() {
        let hostile = json!("a\n```\n</details>\n@octocat\n\u{202e}");
        let plan = plan(
            Action::Create,
            vec![change(
                "",
                None,
                Some(json!({"data": {"x": hostile, "y\n```": "z"}})),
            )],
        );
        for line in resource(&plan, DiffContext::Tree(3)) {
            assert!(line.starts_with(['+', '-', ' ', '@']), "{line:?}");
            assert!(!line.contains('\n'));
        }
    }
}
