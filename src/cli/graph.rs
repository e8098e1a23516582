//! `konverge graph`: the dependency graph.

use super::CliContext;
use crate::{
    error::UserError,
    ops::graph::{GraphExport, GraphSelection, NodeKind, run as draw},
    report::{escape::log, json},
};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show only what these files or folders depend on
    #[arg(long, value_name = "FILE")]
    upstream: Vec<String>,
    /// Show only what depends on these files or folders
    #[arg(long, value_name = "FILE")]
    downstream: Vec<String>,
    /// Read a revision instead of the working tree
    #[arg(long, value_name = "REV")]
    rev: Option<String>,
    /// The output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// Stacks, packages and files, one per line
    Text,
    /// For programs
    Json,
    /// For Graphviz
    Dot,
    /// A Mermaid diagram, which GitHub renders in Markdown
    Mermaid,
}

impl Args {
    pub fn wants_json(&self) -> bool {
        self.output == Output::Json
    }
}

/// Runs the command.
///
/// # Errors
/// The revision cannot be read, or a file is not in it.
pub fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
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

fn text(picture: &GraphExport) -> String {
    let line = |kind: NodeKind, path: &crate::model::RepoPath| {
        let word = match kind {
            NodeKind::Stack => "stack",
            NodeKind::Package => "package",
            NodeKind::File => "file",
            NodeKind::Data => "data",
        };
        format!("{word:<8} {}\n", log(path.as_str()))
    };
    let mut nodes: Vec<_> = picture.nodes.iter().map(|node| (node.kind, &node.path)).collect();
    nodes.sort();
    nodes.into_iter().map(|(kind, path)| line(kind, path)).collect()
}
