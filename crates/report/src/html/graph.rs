//! The reasons of the affected stacks as an SVG diagram. From left to right: changed files, their importers, the
//! stacks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use maud::{Markup, html};

use super::elements::line;
use crate::escape;
use konverge_base::model::affected::Affected;

/// The maximum number of boxes. With more, the stacks of a project become one box.
const NODES: usize = 150;

const ROW: usize = 26;
const COLUMN: usize = 295;
const BOX: usize = 250;

/// Returns the diagram; `None` if it would be empty.
pub(super) fn svg(affected: &Affected) -> Option<Markup> {
    let mut graph = GraphDrawing::new(affected, false);
    if graph.columns.len() > NODES {
        graph = GraphDrawing::new(affected, true);
    }
    if graph.edges.is_empty() {
        return None;
    }
    Some(graph.draw("From the changed files to the affected stacks"))
}

/// Returns a diagram with lines from left to right, in which `marked` nodes are highlighted. `None` if there are no
/// edges or too many nodes.
pub fn of_edges(edges: BTreeSet<(String, String)>, marked: BTreeSet<String>, label: &str) -> Option<Markup> {
    let drawing = GraphDrawing {
        columns: columns(&edges),
        edges,
        stacks: marked,
        changed: BTreeSet::new(),
    };
    let fits = (1..=NODES).contains(&drawing.columns.len());
    fits.then(|| drawing.draw(label))
}

struct GraphDrawing {
    edges: BTreeSet<(String, String)>,
    /// The column of each node.
    columns: BTreeMap<String, usize>,
    stacks: BTreeSet<String>,
    changed: BTreeSet<String>,
}

impl GraphDrawing {
    fn new(affected: &Affected, by_project: bool) -> Self {
        let mut edges = BTreeSet::new();
        let mut stacks = BTreeSet::new();
        let mut changed = BTreeSet::new();
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
                changed.insert(row[0].clone());
                for (from, to) in row.iter().zip(&row[1..]) {
                    edges.insert((from.clone(), to.clone()));
                }
            }
            stacks.insert(end);
        }
        Self {
            columns: columns(&edges),
            edges,
            stacks,
            changed,
        }
    }

    fn draw(&self, label: &str) -> Markup {
        let mut places: BTreeMap<&str, BoxPosition> = BTreeMap::new();
        let mut heights: BTreeMap<usize, usize> = BTreeMap::new();
        let mut hidden = 0;
        for (node, column) in &self.columns {
            let rows = heights.entry(*column).or_default();
            if *rows * 3 >= NODES * 2 {
                hidden += 1;
                continue;
            }
            places.insert(node, BoxPosition::below(*column, rows));
        }
        let edges = self.edges.iter().filter_map(|(from, to)| {
            let (from, to) = (*places.get(from.as_str())?, *places.get(to.as_str())?);
            Some(edge(from, to, &mut heights))
        });
        let edges: Vec<String> = edges.collect();
        let rows = heights.values().copied().max().unwrap_or(0);
        let last = heights.keys().copied().max().unwrap_or(0);
        let (width, height) = (last * COLUMN + BOX + 2, (rows + usize::from(hidden > 0)) * ROW);
        html! {
            svg viewBox={ "-1 0 " (width) " " (height) } width=(width) height=(height) role="img"
                aria-label=(label) {
                @for edge in &edges { path.edge d=(edge) {} }
                @for (node, place) in &places {
                    @let (x, y) = (place.left(), place.middle());
                    g.node.(self.class(node)) {
                        title { (line(node)) }
                        rect x=(x) y=(y - 10) width=(BOX) height="20" rx="4" {}
                        text x=(x + 8) y=(y + 4) { (line(&shortened(node))) }
                    }
                }
                @if hidden > 0 {
                    text.more x="8" y=(height - 8) { "and " (hidden) " more, listed below" }
                }
            }
        }
    }

    fn class(&self, node: &str) -> &'static str {
        if self.stacks.contains(node) {
            "stack"
        } else if self.changed.contains(node) {
            "changed"
        } else {
            "between"
        }
    }
}

/// Assigns columns. A node is directly left of its leftmost target, so that lines go from one column to the next. Files
/// that import each other in a cycle are moved only a few times.
fn columns(edges: &BTreeSet<(String, String)>) -> BTreeMap<String, usize> {
    const ROUNDS: usize = 16;
    let nodes = edges.iter().flat_map(|(from, to)| [from, to]);
    let mut from_right: BTreeMap<&String, usize> = nodes.map(|node| (node, 0)).collect();
    for _ in 0..ROUNDS {
        let before = from_right.clone();
        for (from, to) in edges {
            let least = from_right[to] + 1;
            from_right.entry(from).and_modify(|at| *at = (*at).max(least));
        }
        if before == from_right {
            break;
        }
    }
    let last = from_right.values().copied().max().unwrap_or(0);
    let columns = from_right.into_iter();
    columns.map(|(node, at)| (node.clone(), last - at)).collect()
}

/// The position of a box, or of a line that passes a column of boxes.
#[derive(Clone, Copy)]
struct BoxPosition {
    column: usize,
    row: usize,
}

impl BoxPosition {
    /// Returns the first free row of a column.
    fn below(column: usize, rows: &mut usize) -> Self {
        *rows += 1;
        Self {
            column,
            row: *rows - 1,
        }
    }

    fn left(self) -> usize {
        self.column * COLUMN
    }

    fn right(self) -> usize {
        self.left() + BOX
    }

    fn middle(self) -> usize {
        self.row * ROW + ROW / 2
    }
}

/// Returns the path of a line between two boxes. In columns between them the line gets a row below the boxes, because
/// behind a box it would seem to start there.
fn edge(from: BoxPosition, to: BoxPosition, heights: &mut BTreeMap<usize, usize>) -> String {
    let mut path = format!("M{} {}", from.right(), from.middle());
    let (mut x, mut y) = (from.right(), from.middle());
    let mut curve = |path: &mut String, to: BoxPosition| {
        let middle = (x + to.left()) / 2;
        let _ = write!(path, "C{middle} {y} {middle} {1} {0} {1}", to.left(), to.middle());
        (x, y) = (to.right(), to.middle());
    };
    for column in from.column + 1..to.column {
        let lane = BoxPosition::below(column, heights.entry(column).or_default());
        curve(&mut path, lane);
        let _ = write!(path, "H{}", lane.right());
    }
    curve(&mut path, to);
    path
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
