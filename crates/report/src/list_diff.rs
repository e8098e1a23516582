//! Renders the differences of two lists as diff lines, item by item, with common items around them.

use serde_json::Value;
use similar::{Algorithm, DiffOp, DiffTag, TextDiff, capture_diff_slices, group_diff_ops};

use super::yaml_text;

/// The maximum length of a list that is compared item by item, because the time grows with the product of both lengths.
const LONGEST: usize = 2_000;

/// Returns the lines of the difference, each with its sign in column 0. `depth` is the depth of the key; `around` is
/// the number of lines around a change.
pub(super) fn render(
    key: Option<&str>,
    from: &[Value],
    to: &[Value],
    depth: usize,
    around: usize,
    out: &mut Vec<String>,
) {
    let pad = "  ".repeat(depth);
    if let Some(key) = key {
        out.push(format!(" {pad}{}:", yaml_text::name(key)));
    }
    let (from, to) = (items(from, depth), items(to, depth));
    let in_lines = from.iter().chain(&to).any(|item| item.len() > 1);
    let around = if in_lines { around.min(1) } else { around };
    if from.len().max(to.len()) > LONGEST {
        let alike = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        put('-', &from[alike..], out);
        put('+', &to[alike..], out);
        return;
    }
    let ops = capture_diff_slices(Algorithm::Myers, &from, &to);
    for (index, hunk) in group_diff_ops(ops, around).iter().enumerate() {
        let starts_later = hunk.first().is_some_and(|op| op.old_range().start > 0);
        if index > 0 || starts_later {
            out.push(format!(" {pad}…"));
        }
        for op in hunk {
            write_change(op, &from, &to, out);
        }
    }
}

/// Renders each item as lines.
fn items(list: &[Value], depth: usize) -> Vec<Vec<String>> {
    let shown = |item: &Value| {
        let mut shown = Vec::new();
        yaml_text::write_yaml(None, &Value::Array(vec![item.clone()]), depth * 2, &mut shown);
        shown
    };
    list.iter().map(shown).collect()
}

fn put(sign: char, items: &[Vec<String>], out: &mut Vec<String>) {
    out.extend(items.iter().flatten().map(|line| format!("{sign}{line}")));
}

fn write_change(op: &DiffOp, from: &[Vec<String>], to: &[Vec<String>], out: &mut Vec<String>) {
    let (from, to) = (&from[op.old_range()], &to[op.new_range()]);
    match op.tag() {
        DiffTag::Equal => put(' ', from, out),
        DiffTag::Delete => put('-', from, out),
        DiffTag::Insert => put('+', to, out),
        DiffTag::Replace => {
            // If an item replaces another one at the same position, only the differences between both are marked.
            let pairs = if from.iter().chain(to).any(|item| item.len() > 1) {
                from.len().min(to.len())
            } else {
                0
            };
            for (from, to) in from.iter().zip(to).take(pairs) {
                one_item(from, to, out);
            }
            put('-', &from[pairs..], out);
            put('+', &to[pairs..], out);
        }
    }
}

fn one_item(from: &[String], to: &[String], out: &mut Vec<String>) {
    let [from, to] = [from, to].map(|lines| lines.iter().map(String::as_str).collect::<Vec<_>>());
    for change in TextDiff::from_slices(&from, &to).iter_all_changes() {
        out.push(format!("{}{}", change.tag(), change.value()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(key: Option<&str>, from: Value, to: Value, around: usize) -> String {
        let mut out = Vec::new();
        let (from, to) = (from.as_array().unwrap(), to.as_array().unwrap());
        render(key, from, to, 1, around, &mut out);
        out.join("\n")
    }

    #[test]
    fn an_item_more_is_one_item() {
        let rule = |port: u16| json!({"from": "office", "port": port});
        assert_eq!(
            shown(
                Some("rule"),
                json!([rule(22), rule(80), rule(443)]),
                json!([rule(22), rule(80), rule(8080), rule(443)]),
                3
            ),
            "   rule:\n   …\n   - from: office\n     port: 80\n+  - from: office\n+    port: 8080\n   - from: office\n     port: 443"
        );
    }

    #[test]
    fn an_item_that_changed_shows_what_changed_in_it() {
        let (from, to) = (json!([{"a": 1, "b": 2}, {"a": 3}]), json!([{"a": 1, "b": 4}]));
        assert_eq!(
            shown(None, from, to, 3),
            "   - a: 1\n-    b: 2\n+    b: 4\n-  - a: 3"
        );
        let scalars = shown(
            Some("args"),
            json!(["a", "b", "c", "d"]),
            json!(["a", "b", "x", "d"]),
            1,
        );
        assert_eq!(scalars, "   args:\n   …\n   - b\n-  - c\n+  - x\n   - d");
        assert_eq!(shown(Some("x"), json!([]), json!([1]), 3), "   x:\n+  - 1");
    }
}
