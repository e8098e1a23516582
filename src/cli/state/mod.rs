//! `konverge state`: the recorded state, and the few ways to change it manually.

use std::{path::PathBuf, sync::Arc};

use clap::Subcommand;

mod print;

use super::{
    CliContext,
    common_args::{ClusterArg, TextOrJson},
    completers, confirm,
};
use konverge_base::{
    error::{ErrorKind, SharedError, UserError},
    model::{ClusterName, RepoPath, ResourceId, StackId, note::Note},
};
use konverge_report::{self as report, escape::log, plural};
use konverge_run::{
    KeyUse, StateBackend,
    apply::{Approver, AutoApprove, exit_code},
    state::{self as ops, ImportRequest, Imported, LeftOut, NewestDocument, PulledState},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge state list                                   what is recorded
  konverge state history storefront/dev                 the earlier serials
  konverge state rollback storefront/dev --to 7         show what going back to serial 7 does, and ask
  konverge state import kusion_state.json               take over a state of Kusion")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
    /// The output format
    #[arg(long, short, global = true, value_name = "FORMAT", value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the stacks with a recorded state
    List,
    /// Show the recorded state of a stack
    Show {
        /// The stack, by identity or folder
        #[arg(add = completers::recorded_stacks())]
        stack: String,
        /// Another serial than the newest
        #[arg(long, value_name = "N")]
        serial: Option<u64>,
    },
    /// List the stored serials of a stack
    History {
        /// The stack, by identity or folder
        #[arg(add = completers::recorded_stacks())]
        stack: String,
    },
    /// List what a stack publishes for others, and who reads it
    Outputs {
        /// The stack, by identity or folder
        #[arg(add = completers::recorded_stacks())]
        stack: String,
    },
    /// Show the difference between two serials
    Diff {
        /// The stack, by identity or folder
        #[arg(add = completers::recorded_stacks())]
        stack: String,
        /// The earlier serial
        from: u64,
        /// The later serial
        to: u64,
    },
    /// Apply the commit of an earlier serial again, compiled with the core of that time
    Rollback {
        /// The stack, by identity or folder
        #[arg(add = completers::recorded_stacks())]
        stack: String,
        /// The serial to restore
        #[arg(long, value_name = "N")]
        to: u64,
        /// Skip the confirmation (required without a terminal)
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        cluster: ClusterArg,
    },
    /// Print a state as a file for `push`
    Pull {
        /// The stack, by identity or folder
        #[arg(add = completers::recorded_stacks())]
        stack: String,
        /// Another serial than the newest
        #[arg(long, value_name = "N")]
        serial: Option<u64>,
    },
    /// Write a pulled state back; refused if anything was written since it was pulled
    Push {
        /// The stack, by identity
        #[arg(add = completers::recorded_stacks())]
        stack: String,
        /// The file
        file: PathBuf,
        /// Write although the newest document cannot be read
        #[arg(long)]
        over_damaged: bool,
    },
    /// Give a stack another identity
    Move {
        /// The current identity
        #[arg(add = completers::recorded_stacks())]
        from: StackId,
        /// New identity
        #[arg(add = completers::stacks())]
        to: StackId,
    },
    /// Forget resources, or a whole stack; live objects are not changed
    Forget {
        /// The stack, by identity or folder
        #[arg(add = completers::recorded_stacks())]
        stack: String,
        /// The resources; default: all
        resources: Vec<ResourceId>,
        /// Required to forget a whole stack
        #[arg(long, short)]
        yes: bool,
    },
    /// Let a stack move to the cluster that its cluster name means now
    Rebind {
        /// The stack, by identity or folder
        #[arg(add = completers::recorded_stacks())]
        stack: String,
        /// The cluster, by its name in konverge.yaml; default: every cluster of the stack
        #[arg(long, value_name = "NAME", add = completers::clusters())]
        cluster: Option<ClusterName>,
    },
    /// End the lease of a run that is dead
    Unlock {
        /// The stack, by identity or folder
        #[arg(add = completers::recorded_stacks())]
        stack: String,
        /// The lease id, as shown by the waiting run
        #[arg(long, value_name = "ID")]
        lease: String,
        /// The reason; stored with the lease
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Import a Kusion state (kusion_state.json, or the newest release) or a workspace
    Import {
        /// A file (JSON or YAML), a folder of releases, or the folder of a stack that holds kusion_state.json. Or the
        /// URL of an object (s3://BUCKET/KEY, gs://, az://, oss://) or of a folder of releases (ends in /). Or an
        /// https:// URL, or URL format with four %s. Or mysql://USER@HOST/DATABASE
        from: String,
        /// The identity of the stack; default: the stack that the file lies in or names
        #[arg(long, value_name = "IDENTITY", add = completers::stacks())]
        stack: Option<StackId>,
        /// The cluster under which Kusion stored it, in a database or behind a URL format
        #[arg(long, value_name = "NAME")]
        cluster: Option<String>,
        /// The folder of the stack in the repository; default: where that stack is
        #[arg(long, value_name = "DIR")]
        folder: Option<String>,
        /// Import this workspace instead, into workspaces/NAME.yaml: FROM is its file, the folder of a backend
        /// (~/.kusion), or the URL of either (a folder's ends in /)
        #[arg(long, value_name = "NAME", conflicts_with_all = ["stack", "cluster", "folder"])]
        workspace: Option<String>,
    },
    /// Encrypt all states to the recipients that `state.encrypt_to` names now
    #[command(
        long_about = "Encrypt all states to the recipients that `state.encrypt_to` names now.\n\n\
        A run that was stopped can be repeated. Run one at a time. Remove a recipient from the list first; add a key \
        service while an earlier recipient can still decrypt."
    )]
    Rekey {
        /// Make a new data key, although the present one is wrapped by the same keys
        #[arg(long)]
        new_key: bool,
    },
    /// Verify the store and its documents
    Doctor {
        /// Rebuild the index from the states
        #[arg(long)]
        repair: bool,
    },
}

impl Action {
    /// Returns true if the command changes the state from the start. A rollback declares its writes when it
    /// applies, an import when it has read its source.
    fn writes(&self) -> bool {
        match self {
            Self::Push { .. }
            | Self::Move { .. }
            | Self::Forget { .. }
            | Self::Rebind { .. }
            | Self::Unlock { .. }
            | Self::Rekey { .. } => true,
            Self::Doctor { repair } => *repair,
            Self::List
            | Self::Show { .. }
            | Self::History { .. }
            | Self::Outputs { .. }
            | Self::Diff { .. }
            | Self::Pull { .. }
            | Self::Rollback { .. }
            | Self::Import { .. } => false,
        }
    }

    /// Returns how the command uses the key of the hashes: an import and a rekey may create it.
    fn key(&self) -> KeyUse {
        match self {
            Self::Import { .. } | Self::Rekey { .. } => KeyUse::Make,
            Self::Doctor { repair: false } => KeyUse::Diagnose,
            _ => KeyUse::Look,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// Errors of the state or the store.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    // A workspace becomes a file of the repository, so its import needs no store.
    if let Action::Import {
        from,
        workspace: Some(name),
        ..
    } = &args.action
    {
        return import_workspace(from, name, context).await;
    }
    let (backend, repository) = ops::open(&context.run(), args.action.key()).await?;
    if args.action.writes() {
        context.run().begin_writes()?;
    }
    let json = args.output == TextOrJson::Json;
    match &args.action {
        Action::List => print::list(&backend, json, context).await?,
        Action::Show { stack, serial } => print::show(&backend, stack, *serial, json, context).await?,
        Action::History { stack } => print::history(&backend, stack, json, context).await?,
        Action::Outputs { stack } => {
            let stack = ops::resolve_stack(&backend, stack).await?;
            print::outputs(&ops::outputs(&backend, &stack).await?, json, context);
        }
        Action::Diff { stack, from, to } => {
            let stack = ops::resolve_stack(&backend, stack).await?;
            let diff = ops::diff(&backend, &stack, *from, *to).await?;
            context.print(&diff.lines().map(|line| log(line) + "\n").collect::<String>());
        }
        Action::Rollback {
            stack,
            to,
            yes,
            cluster,
        } => {
            let stack = ops::resolve_stack(&backend, stack).await?;
            return rollback(&stack, *to, *yes, cluster, json, context).await;
        }
        Action::Pull { stack, serial } => {
            let stack = ops::resolve_stack(&backend, stack).await?;
            let pulled = pull(&backend, repository, &stack, *serial).await?;
            print::json(&pulled, context);
        }
        Action::Push {
            stack,
            file,
            over_damaged,
        } => {
            let stack: StackId = stack.parse().map_err(usage)?;
            let pulled = read_pulled(file)?;
            let newest = if *over_damaged {
                NewestDocument::MayBeDamaged
            } else {
                NewestDocument::AsPulled
            };
            let serial = ops::push(&backend, &repository, &stack, pulled, newest).await?;
            context.note(&format!(
                "{stack}: wrote serial {serial}; the next apply checks all its resources"
            ));
        }
        Action::Move { from, to } => {
            let from = &ops::resolve_stack(&backend, from.as_str()).await?;
            let serial = ops::move_to(&backend, from, to).await?;
            context.note(&format!("{from} is {to} now, serial {serial}"));
        }
        Action::Forget {
            stack,
            resources,
            yes,
        } => {
            let stack = ops::resolve_stack(&backend, stack).await?;
            if resources.is_empty() && !yes {
                return Err(forgets_all(&stack));
            }
            let serial = ops::forget(&backend, &stack, resources).await?;
            context.note(&format!(
                "{stack}: forgotten, serial {serial}; live objects were not changed"
            ));
        }
        Action::Rebind { stack, cluster } => {
            let stack = ops::resolve_stack(&backend, stack).await?;
            let serial = ops::rebind(&backend, &stack, cluster.as_ref()).await?;
            context.note(&format!(
                "{stack}: removed the recorded cluster, serial {serial}; the next apply records the current one"
            ));
        }
        Action::Unlock { stack, lease, reason } => {
            let stack = ops::resolve_stack(&backend, stack).await?;
            let holder = ops::unlock(&backend, &stack, lease, reason).await?;
            context.note(&format!(
                "{stack}: ended lease {} of {}",
                holder.id,
                log(&holder.writer.run)
            ));
        }
        Action::Import {
            from,
            stack,
            cluster,
            folder,
            workspace: _,
        } => {
            let wanted = ImportRequest {
                from: from.clone(),
                stack: stack.clone(),
                cluster: cluster.clone(),
                folder: folder.as_deref().map(in_repository).transpose()?,
            };
            import(&backend, &wanted, context).await?;
        }
        Action::Rekey { new_key } => {
            let wanted = if *new_key {
                ops::WantedDataKey::New
            } else {
                ops::WantedDataKey::Current
            };
            let rekeyed = ops::rekey(&context.run(), &backend, wanted).await?;
            return Ok(print::rekeyed(&rekeyed, json, context));
        }
        Action::Doctor { repair } => return print::doctor(&backend, *repair, json, context).await,
    }
    Ok(0)
}

/// Returns a state as the file for `konverge state push`.
async fn pull(
    backend: &StateBackend,
    repository: String,
    stack: &StackId,
    serial: Option<u64>,
) -> Result<PulledState, UserError> {
    let found = ops::show(backend, stack, serial).await?;
    let newest = ops::show(backend, stack, None)
        .await
        .map_or(found.serial, |newest| newest.serial);
    Ok(PulledState {
        version: 1,
        repository,
        // A push is refused if anything was written since the file's serial. So the file of an older state gets the
        // newest serial.
        serial: newest.max(found.serial),
        state: found.state,
    })
}

fn forgets_all(stack: &StackId) -> UserError {
    UserError::new(
        ErrorKind::Usage,
        format!("this would forget all resources of `{stack}`"),
    )
    .hint("add `--yes`, or name the resources; live objects are not changed")
}

fn usage(error: konverge_base::model::InvalidId) -> UserError {
    UserError::new(ErrorKind::Usage, error.to_string())
}

async fn rollback(
    stack: &StackId,
    serial: u64,
    yes: bool,
    cluster: &ClusterArg,
    json: bool,
    context: &CliContext,
) -> Result<u8, UserError> {
    let run = context.run();
    let rollback = ops::rollback(&run, stack, serial, cluster.given()).await?;
    let approver = if yes {
        Arc::new(AutoApprove) as Arc<dyn Approver>
    } else {
        confirm::confirm_rollback(&rollback.plan, serial, context).await?
    };
    let (report, findings) = rollback.apply(approver).await?;
    context.note(&format!(
        "hint: the default branch still has what was rolled back: revert the commit there, by a pull request. Until then the \
         runs of other merges leave {stack} as it is"
    ));
    context.print(&if json {
        report::json::with_findings(&report, &findings)
    } else {
        report::outcome::text(&report, context.style())
    });
    Ok(exit_code(&report, &run))
}

fn read_pulled(file: &std::path::Path) -> Result<PulledState, UserError> {
    let wrong = |kind, why: SharedError| {
        UserError::from_error(kind, why)
            .at(file.display().to_string(), None, None)
            .hint("`konverge state pull STACK > FILE` writes such a file")
    };
    let text = std::fs::read_to_string(file).map_err(|error| wrong(ErrorKind::Usage, error.into()))?;
    serde_json::from_str(&text).map_err(|error| {
        wrong(
            ErrorKind::State,
            SharedError::from(error).context("not a pulled state"),
        )
    })
}

fn in_repository(folder: &str) -> Result<RepoPath, UserError> {
    RepoPath::normalize(folder).ok_or_else(|| {
        UserError::new(
            ErrorKind::Usage,
            format!("`{}` is not a folder of the repository", folder.escape_debug()),
        )
    })
}

async fn import_workspace(from: &str, name: &str, context: &CliContext) -> Result<u8, UserError> {
    let imported = ops::import_workspace(&context.run(), from, name).await?;
    context.note(&format!("created {}", imported.file));
    for key in &imported.left_out {
        context.say(&Note::warning(format_args!(
            "`context.{key}` was left out: it holds a credential, which the job that applies has in its environment"
        )));
    }
    context.note("  hint: `git add` the file; stacks with the same name as the workspace use it, others need `stacks[].workspace` in konverge.yaml");
    Ok(0)
}

async fn import(
    backend: &StateBackend,
    wanted: &ImportRequest,
    context: &CliContext,
) -> Result<(), UserError> {
    let imported = ops::import(&context.run(), backend, wanted).await?;
    let stack = &imported.stack;
    let count = plural(imported.resources, "resource");
    context.note(&format!("{stack}: {count}, serial {}", imported.serial));
    for LeftOut { id, object } in &imported.left_out {
        let id = log(id.as_str());
        let way = match object {
            // As a JSON string the id is safe in a log, and valid in YAML and in KCL.
            Some(object) => format!(
                "to take it over, add this line to its `extensions`:\n  \"kusionstack.io/import-id\": {0}\nif a module makes it, \
                 add this one to `importedResources` of the module in the workspace:\n  {1}: {0}",
                serde_json::Value::String(object.clone()),
                serde_json::Value::String(id.clone())
            ),
            None => "to take it over, set `kusionstack.io/import-id` in its `extensions` to its id at the provider, which \
                     Kusion's state does not name"
                .to_owned(),
        };
        context.say(&Note::warning(format_args!(
            "{id} was left out: Kusion keeps a Terraform resource's values, not its state; {way}"
        )));
    }
    for hint in next_steps(&imported, backend) {
        context.note(&format!("  hint: {hint}"));
    }
    Ok(())
}

/// Returns the commands to run after an import.
fn next_steps(imported: &Imported, backend: &StateBackend) -> Vec<String> {
    let stack = &imported.stack;
    let mut steps = Vec::new();
    match imported.is_known {
        Some(false) => steps.push(format!(
            "the repository has no stack `{stack}`: `konverge list` shows its stacks, and `konverge state move {stack} IDENTITY` \
             gives the state to one of them"
        )),
        Some(true) => steps.push(format!(
            "`konverge preview {stack}` shows what the first apply would do; adopted objects were not in this state"
        )),
        None => steps.push(format!("`konverge state show {stack}` shows what is recorded")),
    }
    if !backend.is_shared {
        steps.push(
            "the state lies in a folder of this machine: set `state.url` in konverge.yaml and import again, so that CI finds it"
                .to_owned(),
        );
    }
    steps
}
