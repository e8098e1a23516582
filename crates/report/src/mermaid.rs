//! A small Mermaid diagram of the reasons: from the changed files to the affected stacks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::escape;
use konverge_base::model::affected::Affected;

/// The maximum number of boxes that a reader can follow. GitHub also limits a diagram to 50,000 characters.
pub const NODES: usize = 40;

/// The minimum number of boxes of a diagram in a comment. A smaller one shows no more than the text.
const FEWEST: usize = 3;

/// Returns the diagram for a comment; `None` if it would be too small or too large to be useful.
pub fn why(affected: &Affected, most: usize) -> Option<String> {
    diagram(affected, FEWEST, most)
}

/// Returns a diagram that the user requested, however small. `None` if nothing is affected, or too much.
pub fn requested(affected: &Affected, most: usize) -> Option<String> {
    diagram(affected, 1, most)
}

fn diagram(affected: &Affected, fewest: usize, most: usize) -> Option<String> {
    let mut edges: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut stacks: BTreeSet<&str> = BTreeSet::new();
    let mut changed: BTreeSet<&str> = BTreeSet::new();
    for stack in &affected.stacks {
        for reason in &stack.why {
            changed.insert(reason.path.as_str());
            let mut at = reason.path.as_str();
            for file in reason
                .chain
                .iter()
                .map(|f| f.as_str())
                .filter(|f| *f != reason.path.as_str())
            {
                edges.insert((at, file));
                at = file;
            }
            if at != stack.stack.as_str() {
                edges.insert((at, stack.stack.as_str()));
            }
            stacks.insert(stack.stack.as_str());
        }
    }
    let nodes: BTreeSet<_> = edges.iter().flat_map(|(a, b)| [*a, *b]).collect();
    if nodes.len() < fewest || nodes.len() > most || edges.len() > 3 * most {
        return None;
    }
    let ids: BTreeMap<_, _> = nodes
        .iter()
        .enumerate()
        .map(|(index, node)| (*node, index))
        .collect();
    let mut text = String::from("graph LR\n");
    for (node, id) in &ids {
        let label = escape::mermaid(&shortened(node));
        let _ = if stacks.contains(node) {
            writeln!(text, "  n{id}([\"{label}\"])")
        } else if changed.contains(node) {
            writeln!(text, "  n{id}[[\"{label}\"]]")
        } else {
            writeln!(text, "  n{id}[\"{label}\"]")
        };
    }
    for (from, to) in edges {
        let _ = writeln!(text, "  n{} --> n{}", ids[from], ids[to]);
    }
    Some(text)
}

/// Shortens a long path at its start, because its end distinguishes it.
fn shortened(path: &str) -> String {
    const LONGEST: usize = 60;
    let count = path.chars().count();
    if count <= LONGEST {
        return path.to_owned();
    }
    let tail: String = path.chars().skip(count - LONGEST).collect();
    format!("…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{
        RepoPath,
        affected::{AffectedStack, InputChange, InputKind, InputReason, SpecChange},
    };

    #[test]
    fn one_file_of_one_stack_is_drawn_for_who_asks_and_not_in_a_comment() {
        let path = |text: &str| RepoPath::normalize(text).unwrap();
        let affected = Affected {
            version: 1,
            base: None,
            head: None,
            stacks: vec![AffectedStack {
                stack: path("shop/dev"),
                id: "shop/dev".parse().unwrap(),
                project: "shop".to_owned(),
                name: "dev".to_owned(),
                change: InputChange::Modified,
                spec: SpecChange::NotCompiled,
                why: vec![InputReason {
                    path: path("shop/dev/main.k"),
                    kind: InputKind::Entry,
                    chain: Vec::new(),
                }],
            }],
        };
        assert_eq!(why(&affected, NODES), None);
        let drawn = requested(&affected, NODES).unwrap();
        assert!(
            drawn.contains("shop/dev/main.k") && drawn.contains(" --> "),
            "{drawn}"
        );
    }
}
