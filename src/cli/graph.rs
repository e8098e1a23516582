//! `konverge graph`: the dependency graph.

use std::collections::BTreeMap;

use super::{CliContext, completers};
use crate::commands::graph::{ExportNode, GraphExport, GraphSelection, run as draw};
use konverge_base::error::UserError;
use konverge_report::{escape::log, json};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge graph --downstream base/pkg/frontend/server.k     what depends on a file
  konverge graph --upstream appops/storefront/dev
  konverge graph --output dot | dot -Tsvg > graph.svg")]
pub struct Args {
    /// Show only what these files or folders depend on
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::AnyPath)]
    upstream: Vec<String>,
    /// Show only what depends on these files or folders
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::AnyPath)]
    downstream: Vec<String>,
    /// Read a revision instead of the working tree
    #[arg(long, value_name = "REV", add = completers::revisions())]
    rev: Option<String>,
    /// The output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// Stacks, packages and files, each with what it depends on
    Text,
    /// For programs
    Json,
    /// For Graphviz
    Dot,
    /// A Mermaid diagram, which GitHub renders in Markdown
    Mermaid,
}

/// Runs the command.
///
/// # Errors
/// The revision cannot be read, or a file is not in it.
pub(super) fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let view = GraphSelection {
        rev: args.rev.clone(),
        upstream: args.upstream.clone(),
        downstream: args.downstream.clone(),
    };
    let picture = draw(&context.run(), &view)?;
    context.print(&match args.output {
        Output::Text => text(&picture),
        Output::Json => json::document(&picture),
        Output::Dot => picture.dot(),
        Output::Mermaid => picture.mermaid(),
    });
    Ok(0)
}

/// Formats the graph as text: each node, and below it what it depends on.
fn text(picture: &GraphExport) -> String {
    let name = |node: &ExportNode| {
        let path = if node.path.is_root() {
            "."
        } else {
            node.path.as_str()
        };
        format!("{} {}", node.kind, log(path))
    };
    let mut depends_on: BTreeMap<&ExportNode, Vec<&ExportNode>> = BTreeMap::new();
    for edge in &picture.edges {
        depends_on.entry(&edge.from).or_default().push(&edge.to);
    }
    let mut nodes: Vec<_> = picture.nodes.iter().collect();
    nodes.sort_by_key(|node| (node.kind, &node.path));
    let mut text = String::new();
    for node in nodes {
        text.push_str(&format!("{}\n", name(node)));
        for to in depends_on.remove(node).unwrap_or_default() {
            text.push_str(&format!("  → {}\n", name(to)));
        }
    }
    text
}
