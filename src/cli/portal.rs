//! `konverge portal`: the pages that show what is applied.

use std::path::PathBuf;

use clap::Subcommand;

use super::CliContext;
use konverge_base::{error::UserError, model::note::Note};
use konverge_portal_site::{BranchConfig, FolderSite, Head, StackSources, build, forge};
use konverge_report::{escape::log, plural};
use konverge_run::{KeyUse, state};

/// Arguments of `konverge portal`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge portal build --out site     write the pages into a folder

The pages show what the states record: for a private bucket or an artifact. `portal.publish` in konverge.yaml lets the
scheduled drift check write them.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write a static site: the overview, a page for each stack, the search
    Build {
        /// The folder: new, empty, or one that this command wrote. Only what changed is written
        #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
        out: PathBuf,
    },
}

/// Runs the command.
///
/// # Errors
/// There is no state; errors of the store; the folder holds other files or cannot be written.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let Action::Build { out } = &args.action;
    let run = context.run();
    let (backend, _) = state::open(&run, KeyUse::Look).await?;
    let head = Head::open(&run)?;
    let config = BranchConfig::find(&run)?;
    let forge = forge(&run, config.as_ref());
    let sources = StackSources {
        backend: &backend,
        head: head.as_ref(),
        forge: forge.as_ref(),
    };
    let folder = context.current_dir.join(out);
    let site = FolderSite::open(&folder)?;
    let report = build(sources, config.as_ref(), &site).await?;
    for notice in &report.notices {
        context.say(&Note::remark(notice));
    }
    if head.is_none() {
        let unknown = "no commit with stacks is checked out here: pending changes and stacks that were never applied are unknown";
        context.say(&Note::remark(unknown));
    }
    context.print(&format!(
        "{}: {} read; {}, {} written, {} deleted\n{}\n",
        plural(report.stacks, "stack"),
        report.read,
        plural(report.files, "file"),
        report.written,
        report.deleted,
        log(&folder.join("index.html").display().to_string())
    ));
    Ok(0)
}
