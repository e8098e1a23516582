//! The arguments of the command line.

use clap::{Parser, Subcommand};

use super::global_args::Global;

/// The CI agent of a Konfig monorepo: finds the stacks that a change affects, previews them against the live
/// infrastructure, applies what was reviewed, and checks for drift.
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
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write konverge.yaml and the workflow into a repository, without overwriting files
    Init(super::init::Args),
    /// List the stacks of the repository: identity and folder
    #[command(visible_alias = "ls")]
    List(super::list::Args),
    /// Which stacks a change touches, and why
    Affected(super::affected::Args),
    /// Show the dependency graph of stacks, packages and files
    Graph(super::graph::Args),
    /// Compile stacks and print their Specs
    Build(super::build::Args),
    /// Show or prune the caches of this machine
    Cache(super::cache::Args),
    /// Check structure, format, lint, tests and golden files
    Check(super::check::Args),
    /// Show planned changes (live, or base vs head)
    #[command(visible_aliases = ["plan", "diff"])]
    Preview(super::preview::Args),
    /// Apply stacks, after showing the plan
    #[command(visible_alias = "up")]
    Apply(super::apply::Args),
    /// Destroy all resources of the given stacks
    Destroy(super::destroy::Args),
    /// Show applied revision, pending changes and health
    Status(super::status::Args),
    /// Show what differs from what was applied last
    Drift(super::drift::Args),
    /// Handle the event of a GitHub Actions run: preview, apply, or check for drift
    Ci(super::ci::Args),
    /// Evaluate manifest health offline with the apply rules
    Health(super::health::Args),
    /// Inspect and manage recorded state
    State(super::state::Args),
    /// Print the JSON Schema of konverge.yaml, or validate the file
    Config(super::config::Args),
    /// Diagnose the environment and suggest fixes (git, core, Terraform, clusters, store, token, permissions)
    Doctor(super::doctor::Args),
    /// Print completions for a shell
    Completions(super::completions::Args),
    /// Install and list versions of the official KCL core
    Kcl(super::kcl::Args),
    /// Internal: a page of the reference
    #[command(name = "__reference", hide = true)]
    Reference(super::docs_gen::Args),
    /// Internal: a KCL worker, started by the pool
    #[command(name = "__worker", hide = true)]
    Worker(super::kcl_worker::Args),
}
