//! Arguments that several commands share: stacks, revisions, infrastructure.

use std::path::PathBuf;

use super::{CliContext, completers};
use crate::commands::selected_stacks::{self, SelectedStacks};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{Shard, StackId},
};
use konverge_run::{
    KeyUse, OpenRequest, RunContext, Selection, Session, StackSelector,
    cluster_selection::{GivenCluster, Live},
    session,
};

/// The form of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum TextOrJson {
    /// For people
    Text,
    /// JSON, as in the reference of JSON formats
    Json,
}

/// Returns the exit code of a command: 1 if something failed, or else 2 if it found what `--exit-code` asks for.
pub(super) fn exit_code(failed: bool, found: bool) -> u8 {
    match (failed, found) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => 0,
    }
}

/// The arguments that say what a command works on: stacks of a revision, or a Spec from a file, on an infrastructure.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct OpenedTargets {
    #[command(flatten)]
    stacks: Stacks,
    /// Only the stacks that `konverge ci` would apply, of these or of all: their recorded inputs are not those
    /// of the files that are read (the working tree, or `--rev`). Recorded stacks that were removed there are
    /// destroyed
    #[arg(long, conflicts_with = "base", help_heading = STACKS)]
    pending: bool,
    #[command(flatten)]
    revisions: Revisions,
    #[command(flatten)]
    pub infrastructure: InfrastructureArgs,
    #[command(flatten)]
    file: SpecFile,
    #[command(flatten)]
    without: WithoutArgs,
}

/// The option `--without`, for stacks whose Specs cannot be compiled.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct WithoutArgs {
    /// Confirm that this stack, whose Spec does not compile, needs nothing that others delete; may be
    /// repeated. Without it, data that could move to that stack is not deleted
    #[arg(long = "without", value_name = "IDENTITY", help_heading = STACKS, add = completers::recorded_stacks())]
    pub stacks: Vec<StackId>,
}

impl OpenedTargets {
    /// Returns true if the arguments select stacks by name or select all, so that the change does not matter.
    pub(super) fn names_stacks(&self) -> bool {
        self.stacks.selection() != Selection::Affected
    }

    /// Opens the selected stacks, or the Spec of the file.
    ///
    /// # Errors
    /// Errors of the repository, revisions, configuration, names, core, store or file.
    pub(super) async fn open(
        &self,
        run: &RunContext,
        live: Live,
        key: KeyUse,
        no_wait: bool,
    ) -> Result<Session, UserError> {
        self.open_request(run, self.request(live, no_wait)?, key).await
    }

    /// Opens the targets of a preview. If the change adds `konverge.yaml`, these are all stacks.
    ///
    /// # Errors
    /// The same as for [`OpenedTargets::open`].
    pub(super) async fn open_preview(&self, run: &RunContext, live: Live) -> Result<Session, UserError> {
        let request = OpenRequest {
            introduction: true,
            ..self.request(live, false)?
        };
        self.open_request(run, request, KeyUse::Look).await
    }

    fn request(&self, live: Live, no_wait: bool) -> Result<OpenRequest, UserError> {
        if self.pending && live == Live::Never {
            return Err(
                UserError::new(ErrorKind::Usage, "`--pending` cannot be used with `--live never`").hint(
                    "pending changes are compared with live infrastructure; \
                     `konverge status --live never` shows which stacks have them",
                ),
            );
        }
        Ok(OpenRequest {
            pending: self.pending,
            live: if self.pending { Live::Required } else { live },
            without_states: live == Live::Never,
            given: self.infrastructure.given_cluster(),
            no_wait,
            without: self.without.stacks.clone(),
            ..self.stacks.of(&self.revisions)
        })
    }

    async fn open_request(
        &self,
        run: &RunContext,
        request: OpenRequest,
        key: KeyUse,
    ) -> Result<Session, UserError> {
        match &self.file.path {
            Some(file) => session::open_file(run, file, self.file.stack.as_deref(), &request, key).await,
            None => session::open(run, &request, key).await,
        }
    }
}

#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Stacks {
    /// Stacks, by identity, folder, project or glob (`storefront/*`); default: the stacks that the change affects
    #[arg(value_name = "STACK", add = completers::stacks())]
    pub names: Vec<StackSelector>,
    /// Every stack
    #[arg(long, conflicts_with = "names", help_heading = STACKS)]
    pub all: bool,
    /// Shard to process: `2/8` is the second of eight jobs
    #[arg(long, value_name = "N/M", help_heading = STACKS)]
    pub shard: Option<Shard>,
}

impl Stacks {
    pub(super) fn selection(&self) -> Selection {
        match (self.all, self.names.is_empty()) {
            (true, _) => Selection::All,
            (false, true) => Selection::Affected,
            (false, false) => Selection::Named(self.names.clone()),
        }
    }

    /// Returns the request for these stacks of a revision.
    pub(super) fn of(&self, revisions: &Revisions) -> OpenRequest {
        OpenRequest {
            selection: self.selection(),
            shard: self.shard,
            rev: revisions.rev.clone(),
            base: revisions.base.clone(),
            ..OpenRequest::default()
        }
    }

    /// Opens these stacks of a revision. If the repository has stacks but none is selected, a note says why.
    ///
    /// # Errors
    /// Errors of the repository, revisions, configuration or names.
    pub(super) async fn open(
        &self,
        revisions: &Revisions,
        context: &CliContext,
    ) -> Result<SelectedStacks, UserError> {
        let opened = selected_stacks::open(&context.run(), &self.of(revisions)).await?;
        if opened.stacks.is_empty() && !opened.workspace.layout.stacks.is_empty() {
            context.note(match self.selection() {
                Selection::Affected if self.shard.is_none() => "no stack is affected: name one, or use --all",
                _ => "this shard has no stack",
            });
        }
        Ok(opened)
    }

    /// Returns the selection of a command that selects all stacks by default ([`every_by_default`]).
    ///
    /// # Errors
    /// `--all` was given, although it is the default.
    pub(super) fn selection_or_all(&self) -> Result<Selection, UserError> {
        match self.selection() {
            Selection::Affected => Ok(Selection::All),
            Selection::All => Err(UserError::new(
                ErrorKind::Usage,
                "this command selects every stack by default",
            )
            .hint("leave `--all` out")),
            chosen => Ok(chosen),
        }
    }
}

/// Sets the help of the names for a command that selects all stacks by default.
pub(super) fn every_by_default(names: clap::Arg) -> clap::Arg {
    names.help("Stacks, by identity, folder, project or glob (`storefront/*`); default: every one")
}

/// Hides `--all` of a command that selects all stacks by default.
pub(super) fn all_by_default(all: clap::Arg) -> clap::Arg {
    all.hide(true)
}

/// Hides `--live` of a command that always queries the live infrastructure: it would repeat the default, or deny it.
pub(super) fn live_by_default(live: clap::Arg) -> clap::Arg {
    let always = |text: &str| match text {
        "auto" => Ok(LiveArg::Auto),
        _ => Err("this command always compares with live infrastructure: leave `--live` out"),
    };
    live.hide(true).value_parser(always)
}

/// The options that select the change, the same for all commands.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Revisions {
    /// Compare with this revision; default: the merge base with the default branch
    #[arg(long, value_name = "REV", help_heading = CHANGE, add = completers::revisions())]
    pub base: Option<String>,
    /// The revision that holds the change; default: the working tree
    #[arg(long = "head", visible_alias = "rev", value_name = "REV", help_heading = CHANGE, add = completers::revisions())]
    pub rev: Option<String>,
    /// Read the working tree, including uncommitted changes
    #[arg(long, conflicts_with = "rev", help_heading = CHANGE)]
    pub worktree: bool,
}

/// Sets the help of `--head` for a command that reads the change from HEAD by default, not from the working tree.
pub(super) fn head_by_default(head: clap::Arg) -> clap::Arg {
    head.help("The revision that holds the change; default: HEAD")
}

#[derive(Debug, Clone, clap::Args)]
pub(super) struct InfrastructureArgs {
    /// Compare with live infrastructure
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = LiveArg::Auto, help_heading = INFRASTRUCTURE)]
    pub live: LiveArg,
    #[command(flatten)]
    cluster: ClusterArg,
}

impl InfrastructureArgs {
    /// Returns the cluster from the command line.
    pub(super) fn given_cluster(&self) -> GivenCluster {
        self.cluster.given()
    }
}

#[derive(Debug, Clone, clap::Args)]
pub(super) struct ClusterArg {
    /// A kubeconfig, for stacks without a cluster in konverge.yaml
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = INFRASTRUCTURE)]
    kubeconfig: Option<String>,
    /// The context, in --kubeconfig or else in the kubeconfig that kubectl uses
    #[arg(long, value_name = "NAME", help_heading = INFRASTRUCTURE, add = completers::contexts())]
    context: Option<String>,
}

impl ClusterArg {
    pub(super) fn given(&self) -> GivenCluster {
        GivenCluster {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            of_stacks: None,
        }
    }
}

/// The choice between live infrastructure and the compiled Specs of the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LiveArg {
    /// If a cluster is configured; else Spec is compared with Spec
    Auto,
    /// Spec is compared with Spec
    Never,
    /// Fail if no cluster is configured
    Required,
}

impl From<LiveArg> for Live {
    fn from(arg: LiveArg) -> Self {
        match arg {
            LiveArg::Auto => Self::Auto,
            LiveArg::Never => Self::Never,
            LiveArg::Required => Self::Required,
        }
    }
}

/// The options for a Spec from a file instead of stacks.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct SpecFile {
    /// A Spec file instead of stacks; needs neither a repository nor KCL
    #[arg(long = "spec", value_name = "FILE", help_heading = STACKS, conflicts_with_all = ["names", "all", "pending", "shard", "rev", "worktree", "base"])]
    pub path: Option<PathBuf>,
    /// The identity for the state of --spec; default: spec/FILE
    #[arg(long, value_name = "IDENTITY", requires = "path", help_heading = STACKS)]
    pub stack: Option<String>,
}

pub(super) const STACKS: &str = "Stacks";
pub(super) const CHANGE: &str = "Change";
pub(super) const INFRASTRUCTURE: &str = "Infrastructure";
pub(super) const GLOBAL: &str = "Global options";
