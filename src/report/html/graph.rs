//! The picture of why as SVG: changed files on the left, what imports them between, stacks on the right.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::{model::affected::Affected, report::escape};

/// More boxes than this are not drawn; stacks are then joined by project.
const NODES: usize = 150;

const ROW: usize = 26;
const COLUMN: usize = 300;
const BOX: usize = 250;

/// The drawing, or `None` if there is nothing to draw.
pub(super) fn svg(affected: &Affected) -> Option<String> {
    let mut graph = Graph::of(affected, false);
    if graph.columns.len() > NODES {
        graph = Graph::of(affected, true);
    }
    if graph.edges.is_empty() {
        return None;
    }
    Some(graph.draw())
}

struct Graph {
    edges: BTreeSet<(String, String)>,
    /// How far right a node stands.
    columns: BTreeMap<String, usize>,
    stacks: BTreeSet<String>,
    changed: BTreeSet<String>,
}

impl Graph {
    fn of(affected: &Affected, by_project: bool) -> Self {
        let mut graph = Self {
            edges: BTreeSet::new(),
            columns: BTreeMap::new(),
            stacks: BTreeSet::new(),
            changed: BTreeSet::new(),
        };
        for stack in &affected.stacks {
            let end = if by_project {
                format!("{}: all stacks affected here", stack.project)
            } else {
                stack.stack.to_string()
            };
            for reason in &stack.why {
                let mut row = vec![reason.path.to_string()];
                let between = reason.chain.iter().map(ToString::to_string);
                row.extend(
                    between.filter(|f| *f != reason.path.to_string() && *f != stack.stack.to_string()),
                );
                if by_project {
                    row.truncate(1);
                }
                row.push(end.clone());
                graph.changed.insert(row[0].clone());
                for (from, to) in row.iter().zip(&row[1..]) {
                    graph.edges.insert((from.clone(), to.clone()));
                }
                for (at, node) in row.iter().enumerate() {
                    let column = graph.columns.entry(node.clone()).or_default();
                    *column = (*column).max(at);
                }
            }
            graph.stacks.insert(end);
        }
        let last = graph.columns.values().copied().max().unwrap_or(0);
        for stack in &graph.stacks {
            if let Some(column) = graph.columns.get_mut(stack) {
                *column = last;
            }
        }
        graph
    }

    fn draw(&self) -> String {
        let mut places: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        let mut heights: BTreeMap<usize, usize> = BTreeMap::new();
        let mut hidden = 0;
        for (node, column) in &self.columns {
            let row = heights.entry(*column).or_default();
            if *row * 3 >= NODES * 2 {
                hidden += 1;
                continue;
            }
            places.insert(node, (*column, *row));
            *row += 1;
        }
        let rows = heights.values().copied().max().unwrap_or(0);
        let columns = heights.keys().copied().max().unwrap_or(0) + 1;
        let (width, height) = (columns * COLUMN, (rows + 1) * ROW + ROW);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"From the changed files to the affected stacks\">\n"
        );
        for (from, to) in &self.edges {
            if let (Some((c1, r1)), Some((c2, r2))) = (places.get(from.as_str()), places.get(to.as_str())) {
                let (x1, y1) = (c1 * COLUMN + BOX, r1 * ROW + ROW);
                let (x2, y2) = (c2 * COLUMN, r2 * ROW + ROW);
                let middle = (x1 + x2) / 2;
                let _ = writeln!(
                    svg,
                    "<path class=\"edge\" d=\"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}\"/>"
                );
            }
        }
        for (node, (column, row)) in &places {
            let class = if self.stacks.contains(*node) {
                "stack"
            } else if self.changed.contains(*node) {
                "changed"
            } else {
                "between"
            };
            let (x, y) = (column * COLUMN, row * ROW + ROW);
            let _ = writeln!(
                svg,
                "<g class=\"node {class}\"><title>{}</title><rect x=\"{x}\" y=\"{}\" width=\"{BOX}\" height=\"20\" rx=\"4\"/><text x=\"{}\" y=\"{}\">{}</text></g>",
                escape::html(&escape::line(node)),
                y - 10,
                x + 8,
                y + 4,
                escape::html(&shortened(node))
            );
        }
        if hidden > 0 {
            let _ = writeln!(
                svg,
                "<text class=\"more\" x=\"8\" y=\"{}\">and {hidden} more, listed below</text>",
                height - 8
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn shortened(path: &str) -> String {
    const LONGEST: usize = 36;
    let count = path.chars().count();
    if count <= LONGEST {
        return escape::line(path);
    }
    let tail: String = path.chars().skip(count - LONGEST + 1).collect();
    format!("…{}", escape::line(&tail))
}
