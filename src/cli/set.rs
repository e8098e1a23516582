//! `konverge set`: edits attributes of stacks.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{
    CliContext,
    common_args::{ClusterArg, TextOrJson},
    completers,
};
use crate::commands::check;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::Digest,
};
use konverge_code_change::{
    self as code_change, EditKind, EditPlace, EditTarget, EditedLine, PreparedEdits, Proposal,
    ProposalResult, SetRequest, UpdatedGolden, WantedEdit,
};
use konverge_repo::git::Repository;
use konverge_report::{self as report, escape::log, json};
use konverge_run::{RevisionSpec, StackSelector};

#[derive(Debug, clap::Args)]
#[command(
    mut_arg("kubeconfig", |argument| argument.requires("keep")),
    mut_arg("context", |argument| argument.requires("keep")),
    after_help = "Examples:
  konverge set orders/prod server.replicas=5                          one attribute of one stack
  konverge set storefront/* --image ghcr.io/example/storefront=ghcr.io/example/storefront:2.5.0
  konverge set storefront/prod server.liveness.delay=20 --in base     for every stack of the project
  konverge set --from edits.yaml --update                             many edits, and golden files
  konverge set orders/prod server.replicas=5 --check                  show it, and write nothing
  konverge set orders/prod server.replicas=5 --pull-request           on GitHub, from HEAD
  konverge set storefront/prod --keep 94ee059335e587e501cc4bf90613e0814f00a7b08bc7c648fd865a2af6a22cc2 --pull-request

A value is a literal of KCL: a text has quotes of its own, as in server.image='\"nginx:1.27\"'. Keys that are not
plain words are quoted too: server.env.\"a-b\". If another stack's Spec would change, nothing is written."
)]
pub struct Args {
    /// Stacks, by identity, folder, project or glob, and attributes with their values
    #[arg(value_name = "STACK|PATH=VALUE", add = completers::stacks())]
    words: Vec<String>,
    /// An image by its name without tag, and its new reference; may be repeated
    #[arg(long = "image", value_name = "NAME=REF")]
    images: Vec<String>,
    /// Where an attribute is set: in the stack's own files, or in the base that the stacks of a project share
    #[arg(long = "in", value_name = "PLACE", value_enum, default_value_t = Place::Stack)]
    place: Place,
    /// A YAML file with many edits: a list of {stacks, set, images, in}
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["words", "images", "place"])]
    from: Option<PathBuf>,
    /// Keep what was changed on the cluster by hand: set the live values of the drift that this digest of a drift issue
    /// stands for. Without a stack, the last drift checks say whose it is. What cannot be kept by `--pull-request` is
    /// said on the issue
    #[arg(long, value_name = "DIGEST", conflicts_with_all = ["images", "place", "from"])]
    keep: Option<Digest>,
    #[command(flatten)]
    cluster: ClusterArg,
    /// Make the edit that another repository asks for by `repository_dispatch`, if `set.allow` on the default branch
    /// lets it
    #[arg(long, requires = "pull_request", conflicts_with_all = ["words", "images", "place", "from", "keep"])]
    dispatch: bool,
    /// Show what would change, and write nothing
    #[arg(long)]
    check: bool,
    /// Write the golden files of the changed stacks too
    #[arg(long)]
    update: bool,
    /// Commit to a branch of GitHub and open one pull request, or update the one for the same stacks and attributes;
    /// made from HEAD, with GITHUB_TOKEN and GITHUB_REPOSITORY. The files here stay
    #[arg(long, conflicts_with = "check")]
    pull_request: bool,
    /// Ask GitHub to merge the pull request as soon as its rules allow it
    #[arg(long, requires = "pull_request")]
    auto_merge: bool,
    /// The output format
    #[arg(long, short, value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Place {
    /// The stack's own files
    Stack,
    /// The project's shared files
    Base,
}

impl Args {
    fn edits(&self) -> Result<Vec<WantedEdit>, UserError> {
        if let Some(file) = &self.from {
            return code_change::read_edits(file);
        }
        let (stacks, mut targets) = self.words()?;
        if stacks.is_empty() {
            return Err(usage(
                "no stack is named".to_owned(),
                "`konverge set STACK PATH=VALUE`; `konverge list` shows every stack",
            ));
        }
        for image in &self.images {
            let Some((name, reference)) = image.split_once('=') else {
                let what = format!("`{}` is not NAME=REF", image.escape_debug());
                return Err(usage(what, "such as `--image nginx=nginx:1.27`"));
            };
            targets.push(EditTarget::Image(name.to_owned(), reference.to_owned()));
        }
        if targets.is_empty() {
            return Err(usage(
                "nothing is set".to_owned(),
                "add `PATH=VALUE` or `--image NAME=REF`",
            ));
        }
        let place = match self.place {
            Place::Stack => EditPlace::Stack,
            Place::Base => EditPlace::Base,
        };
        let edit = |target| WantedEdit {
            stacks: stacks.clone(),
            target,
            place,
        };
        Ok(targets.into_iter().map(edit).collect())
    }

    /// Splits the arguments into stacks and attributes with values.
    fn words(&self) -> Result<(Vec<StackSelector>, Vec<EditTarget>), UserError> {
        let (mut stacks, mut targets) = (Vec::new(), Vec::new());
        for word in &self.words {
            let Some((path, value)) = word.split_once('=') else {
                let stack = word.parse::<StackSelector>();
                stacks.push(
                    stack.map_err(|error| usage(error.to_string(), "`konverge list` shows every stack"))?,
                );
                continue;
            };
            let path = path
                .parse()
                .map_err(|error: konverge_kcl::InvalidAttributePath| {
                    usage(
                        error.to_string(),
                        "such as `server.image`, or `server.env.\"a-b\"`",
                    )
                })?;
            targets.push(EditTarget::Attribute(path, value.to_owned()));
        }
        Ok((stacks, targets))
    }
}

fn usage(what: String, hint: &str) -> UserError {
    UserError::new(ErrorKind::Usage, what).hint(hint)
}

/// Runs the command.
///
/// # Errors
/// An edit is refused; then no file is written.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let run = context.run();
    let repository = Repository::discover(&run.dir)?;
    let forge = args.pull_request.then(|| code_change::forge(&run)).transpose()?;
    let mut dispatched = None;
    let mut commit = None;
    let request = match (&forge, args.keep) {
        (Some(forge), None) if args.dispatch => {
            let edit = code_change::read_dispatch(&run, forge.as_ref(), &repository).await?;
            commit = Some(edit.commit.clone());
            let request = edit.request.clone();
            dispatched = Some(edit);
            request
        }
        (_, None) => SetRequest::Edits(args.edits()?),
        (_, Some(digest)) => {
            let (stacks, targets) = args.words()?;
            if !targets.is_empty() {
                let what = "`--keep` takes its values from the cluster".to_owned();
                return Err(usage(what, "leave `PATH=VALUE` out"));
            }
            let drift = code_change::find_drift(&run, &stacks, digest, args.cluster.given()).await?;
            SetRequest::Keep(Box::new(drift))
        }
    };
    // Edit the commit instead of the working tree: the pull request must contain nothing else.
    if forge.is_some() && commit.is_none() {
        commit = Some(repository.resolve("HEAD")?);
    }
    let at = commit
        .clone()
        .map_or(RevisionSpec::Worktree, RevisionSpec::Commit);
    let goldens = args.update.then_some(check::updated_golden as UpdatedGolden);
    let prepared = code_change::prepare(&run, &repository, &at, &request, goldens).await;
    if let (Err(refusal), Some(forge), Some(commit), SetRequest::Keep(drift)) =
        (&prepared, &forge, &commit, &request)
    {
        let commented =
            code_change::tell_drift_issue(&run, forge.as_ref(), &repository, commit, drift, refusal).await;
        // Ignore an error here: the refusal itself matters more.
        if let Err(error) = commented
            && !run.cancel.is_cancelled()
        {
            run.warn("failed to comment on the drift issue", error);
        }
    }
    let prepared = prepared?;
    let mut result = None;
    // Check the caller's permission after the edit, which shows the attributes that it sets.
    if let Some(edit) = &dispatched {
        let admitted = edit.admit(&run, &repository, &prepared).await;
        admitted.map_err(|failure| prepared.locate(failure))?;
    }
    match (&forge, &commit) {
        (Some(forge), Some(commit)) => {
            let proposal = Proposal {
                commit,
                prepared: &prepared,
                auto_merge: args.auto_merge,
            };
            let proposed = code_change::propose(&run, forge.as_ref(), &proposal).await;
            result = Some(proposed.map_err(|failure| prepared.locate(failure))?);
        }
        _ if args.check => {}
        _ => code_change::write(&run, repository.root(), &prepared.files)
            .map_err(|failure| prepared.locate(failure))?,
    }
    match args.output {
        TextOrJson::Text => print(args, context, &prepared),
        TextOrJson::Json => context.print(&json::document(&document(args, &prepared, result.as_ref()))),
    }
    if let Some(result) = result {
        context.note(&tell(&result));
    }
    Ok(0)
}

fn tell(result: &ProposalResult) -> String {
    match result {
        ProposalResult::Opened(url) => format!("opened {}", log(url)),
        ProposalResult::Updated(url) => format!("updated {}", log(url)),
        ProposalResult::Unchanged(url) => format!("unchanged: {} proposes this already", log(url)),
        ProposalResult::Closed(url) => {
            format!(
                "somebody closed {} with these values, so it is not opened again",
                log(url)
            )
        }
        ProposalResult::Nothing => {
            "the default branch has these values: there is nothing to propose".to_owned()
        }
    }
}

fn print(args: &Args, context: &CliContext, prepared: &PreparedEdits) {
    for line in &prepared.lines {
        let place = format!("{}:{}", line.file, line.line);
        context.print(&format!(
            "{:9} {}  {}  {}\n",
            word(line.kind),
            log(&place),
            log(&line.path.to_string()),
            line.stack
        ));
    }
    let edited: Vec<_> = prepared.lines.iter().map(|line| &line.file).collect();
    for golden in prepared.files.iter().filter(|file| !edited.contains(&&file.path)) {
        context.print(&format!("golden    {}\n", log(golden.path.as_str())));
    }
    if prepared.files.is_empty() {
        return context.note("every file sets these values already");
    }
    if prepared.plan.stacks.is_empty() {
        context.note("no Spec changes")
    } else {
        let plan = report::terminal::plan(&prepared.plan, context.style());
        context.print(&format!("\n{plan}"));
    }
    if args.check {
        context.note("nothing was written (`--check`)");
    }
}

fn document(args: &Args, prepared: &PreparedEdits, result: Option<&ProposalResult>) -> Value {
    let edit = |line: &EditedLine| {
        json!({
            "stack": line.stack,
            "file": line.file,
            "line": line.line,
            "path": line.path.to_string(),
            "result": word(line.kind),
        })
    };
    let edits: Vec<_> = prepared.lines.iter().map(edit).collect();
    let files: Vec<_> = prepared.files.iter().map(|file| &file.path).collect();
    json!({
        "version": 1,
        "written": !args.check && !args.pull_request,
        "pullRequest": result.map(proposal_json),
        "edits": edits,
        "files": files,
        "stacks": prepared.plan.stacks,
    })
}

fn proposal_json(result: &ProposalResult) -> Value {
    match result {
        ProposalResult::Opened(url) => json!({"result": "opened", "url": url}),
        ProposalResult::Updated(url) => json!({"result": "updated", "url": url}),
        ProposalResult::Unchanged(url) => json!({"result": "unchanged", "url": url}),
        ProposalResult::Closed(url) => json!({"result": "closed", "url": url}),
        ProposalResult::Nothing => json!({"result": "nothing"}),
    }
}

fn word(kind: EditKind) -> &'static str {
    match kind {
        EditKind::Replaced => "replaced",
        EditKind::Added => "added",
        EditKind::Unchanged => "unchanged",
    }
}
