//! What can be typed.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use super::Colour;

/// The CI agent of a Konfig monorepo: finds the stacks a change affects, previews them against the real
/// infrastructure, applies what was reviewed, and watches for drift.
#[derive(Debug, Parser)]
#[command(
    name = "konverge",
    version,
    arg_required_else_help = true,
    subcommand_required = true
)]
#[command(
    after_help = "Exit codes: 0 ok, 1 error, 2 changes or drift (with --exit-code), 3 stopped by review or policy,\n4 lease held, 64 usage, 130 interrupted."
)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, clap::Args)]
pub struct Global {
    /// The repository, or a folder in it; default: KONVERGE_REPO, else the current folder
    #[arg(long, value_name = "DIR", global = true)]
    pub repo: Option<PathBuf>,
    /// When to use colour
    #[arg(long, value_name = "WHEN", global = true, value_enum, default_value_t = Colour::Auto)]
    pub color: Colour,
    /// Print only results and errors
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Log what is done, to stderr (KONVERGE_LOG takes filters such as `debug`)
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write konverge.yaml and the workflow into a repository, never overwriting
    Init(super::init::Args),
    /// Which stacks a change touches, and why
    Affected(super::affected::Args),
    /// What depends on what: stacks, packages, files
    Graph(super::graph::Args),
    /// Compile stacks and print their Specs
    Build(super::build::Args),
    /// Show or prune what was compiled and kept
    Cache(super::cache::Args),
    /// Check structure, format, lint, tests and golden files
    Check(super::check::Args),
    /// Show what would happen to the stacks, against the real infrastructure or Spec against Spec
    Preview(super::preview::Args),
    /// Apply stacks, after showing the plan
    Apply(super::apply::Args),
    /// Destroy all resources of the given stacks
    Destroy(super::destroy::Args),
    /// Show how stacks stand: what is applied, whether the head wants something else, how it is doing
    Status(super::status::Args),
    /// Show what differs from what was applied last
    Drift(super::drift::Args),
    /// Do what the event of a GitHub Actions run asks for: preview, apply, or look for drift
    Ci(super::ci::Args),
    /// Judge the health of manifests, offline, by the rules that an apply waits by
    Health(super::health::Args),
    /// What is recorded of the stacks: look at it, go back, move, unlock, import, repair
    State(super::state::Args),
    /// Print the JSON Schema of konverge.yaml, or check the file
    Config(super::config::Args),
    /// Say what is missing here (git, core, Terraform, clusters, store, token, permissions), and how to fix it
    Doctor(super::doctor::Args),
    /// Print completions for a shell
    Completions(super::completions::Args),
    /// Install the official KCL core, and see which versions there are
    Kcl(super::kcl::Args),
    /// Not for people: a page of the reference
    #[command(name = "__reference", hide = true)]
    Reference(super::docs_gen::Args),
    /// Not for people: a KCL worker, started by the pool
    #[command(name = "__worker", hide = true)]
    Worker(super::kcl_worker::Args),
}
