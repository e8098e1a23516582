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
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands, in the order of the help.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write konverge.yaml and the workflow into a repository, without overwriting files
    Init(super::init::Args),
    /// Show what the first apply would do to stacks that run already, and take over the unchanged ones
    Adopt(super::adopt::Args),
    /// Show a change, its preview and an apply in a small monorepo that comes with Konverge
    Demo(super::demo::Args),
    /// List the stacks of the repository: identity and folder
    #[command(visible_alias = "ls")]
    List(super::list::Args),
    /// List the stacks that a change affects, and why
    Affected(super::affected::Args),
    /// Show the dependency graph of stacks, packages and files
    Graph(super::graph::Args),
    /// Compile stacks and print their Specs
    Build(super::build::Args),
    /// Write stacks for another tool: Helm, Argo CD, Flux, KubeVela, Crossplane
    Export(super::export::Args),
    /// Show or prune the caches of this machine
    Cache(super::cache::Args),
    /// Check structure, format, lint, tests and golden files
    Check(super::check::Args),
    /// Generate KCL models from CRDs, OpenAPI and provider schemas, and check them
    Models(super::models::Args),
    /// Set attributes and images of stacks in their KCL files
    Set(super::set::Args),
    /// Run the stack tests (`<stack>/test/*.test.yaml`) on compiled Specs, without a cluster
    Test(super::test::Args),
    /// Show planned changes (live, or base vs head)
    #[command(visible_aliases = ["plan", "diff"])]
    Preview(super::preview::Args),
    /// Show after each save which stacks it affects, and how their Specs differ; it writes nothing
    Watch(super::watch::Args),
    /// Serve an editor beside KCL's language server: what an edit affects, findings, Spec and preview
    Lsp(super::lsp::Args),
    /// Apply stacks, after showing the plan
    #[command(visible_alias = "up")]
    Apply(super::apply::Args),
    /// Destroy all resources of the given stacks
    Destroy(super::destroy::Args),
    /// Show rollouts, and pause, resume or abort one
    Rollout(super::rollout::Args),
    /// Stop all applies until `konverge unfreeze`
    Freeze(super::freeze::Args),
    /// Let applies run again after `konverge freeze`
    Unfreeze(super::freeze::UnfreezeArgs),
    /// Show applied revision, pending changes and health
    Status(super::status::Args),
    /// Show what differs from what was applied last
    Drift(super::drift::Args),
    /// Handle the event of a job of GitHub, Gitea or GitLab: preview, apply, or check for drift
    Ci(super::ci::Args),
    /// Evaluate manifest health offline with the apply rules
    Health(super::health::Args),
    /// Write the pages that show what stands, since when and by whom
    Portal(super::portal::Args),
    /// Serve these pages and their JSON from the store
    #[cfg(feature = "serve")]
    Serve(super::serve::Args),
    /// Test the receivers of notifications
    Notify(super::notify::Args),
    /// Inspect and manage recorded state
    State(super::state::Args),
    /// Print the JSON Schema of konverge.yaml, or validate the file
    Config(super::config::Args),
    /// Diagnose the environment and suggest fixes (git, core, Terraform, clusters, store, receivers, token,
    /// permissions)
    Doctor(super::doctor::Args),
    /// Print completions for a shell
    Completions(super::completions::Args),
    /// Install and list versions of the official KCL core
    Kcl(super::kcl::Args),
    /// Print the version
    Version(super::version::Args),
    /// Internal: a page of the reference
    #[command(name = "__reference", hide = true)]
    Reference(super::docs_gen::Args),
    /// Internal: a KCL worker, started by the pool
    #[command(name = "__worker", hide = true)]
    Worker(super::kcl_worker::Args),
    /// Internal: a worker for policy sets
    #[command(name = "__rules", hide = true)]
    Rules(super::rule_worker::Args),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Returns the words of the command in an example. Text after two spaces, a pipe or an arrow is not part of the
    /// command.
    fn words(line: &str) -> Option<Vec<String>> {
        let command = line
            .split("  ")
            .next()?
            .split(['|', '>'])
            .find(|part| part.contains("konverge "))?;
        let words = command
            .split_whitespace()
            .map(|word| word.trim_matches('\'').to_owned());
        Some(words.collect())
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        let root = Cli::command();
        for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            let (_, examples) = help
                .split_once("Examples:\n")
                .unwrap_or_else(|| panic!("{name} has no examples"));
            let lines = examples.lines().take_while(|line| line.starts_with("  "));
            let examples: Vec<_> = lines.filter_map(|line| words(line.trim_start())).collect();
            assert!(!examples.is_empty(), "{name}: {help}");
            for example in examples {
                assert!(example.iter().any(|word| word == name), "{name}: {example:?}");
                let parsed = Cli::try_parse_from(&example);
                assert!(parsed.is_ok(), "{example:?}: {}", parsed.err().unwrap());
            }
        }
    }

    #[test]
    fn shared_options_are_in_groups() {
        let mut root = Cli::command();
        root.build();
        let preview = root.find_subcommand("preview").unwrap();
        let heading = |name: &str| {
            let mut options = preview.get_arguments();
            options
                .find(|option| option.get_id() == name)
                .and_then(clap::Arg::get_help_heading)
        };
        for (option, group) in [
            ("all", Some("Stacks")),
            ("base", Some("Change")),
            ("live", Some("Infrastructure")),
            ("color", Some("Global options")),
            ("exit_code", None),
        ] {
            assert_eq!(heading(option), group, "{option}");
        }
    }
}
