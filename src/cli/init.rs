//! `konverge init`: sets up a repository.

use clap::ValueEnum;

use super::{CliContext, completers};
use crate::commands::init::{self, CoreTrials, JobCloud, JobForge, NamedContext, Setup, WrittenFile};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::text::first_few,
};
use konverge_report as report;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge init                     in a clone of the repository
  konverge init --adopt             for stacks that run already
  konverge init --forge gitea       for a repository at Gitea; `gitlab` for one at GitLab
  konverge init --environments dev,production
  konverge init --cloud aws --store s3://my-bucket/konverge --cluster prod
  konverge --repo ~/monorepo init")]
pub struct Args {
    /// Try only the KCL cores that are installed: download none
    #[arg(long)]
    no_install: bool,
    /// The stacks run already: write konverge.adopt.yaml too. They are left alone until `konverge adopt --write` names
    /// those to take over
    #[arg(long)]
    adopt: bool,
    /// The environments, in the order of their applies: each gets a job of its own, which GitHub's environment guards
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    environments: Vec<String>,
    /// The forge whose jobs run Konverge
    #[arg(long, value_enum, value_name = "FORGE", default_value = "github")]
    forge: ForgeArg,
    /// The cloud that the jobs log in at, by OIDC
    #[arg(long, value_enum, value_name = "CLOUD")]
    cloud: Option<CloudArg>,
    /// Where the state is kept: `s3://my-bucket/konverge`
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The cluster of the stacks: its context in the kubeconfig, which gives it its name
    #[arg(long, value_name = "NAME", add = completers::contexts())]
    cluster: Option<NamedContext>,
}

/// A forge whose workflow `init` can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ForgeArg {
    /// GitHub Actions: .github/workflows/konverge.yml
    Github,
    /// Gitea Actions: .gitea/workflows/konverge.yml
    Gitea,
    /// GitLab CI/CD: .gitlab-ci.yml
    Gitlab,
}

impl From<ForgeArg> for JobForge {
    fn from(forge: ForgeArg) -> Self {
        match forge {
            ForgeArg::Github => Self::Github,
            ForgeArg::Gitea => Self::Gitea,
            ForgeArg::Gitlab => Self::Gitlab,
        }
    }
}

/// A cloud at which the jobs can log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum CloudArg {
    /// EKS and S3
    Aws,
    /// GKE and Cloud Storage
    Google,
    /// AKS and Blob Storage
    Azure,
}

impl From<CloudArg> for JobCloud {
    fn from(cloud: CloudArg) -> Self {
        match cloud {
            CloudArg::Aws => Self::Aws,
            CloudArg::Google => Self::Google,
            CloudArg::Azure => Self::Azure,
        }
    }
}

impl Args {
    /// Returns the setup from the options, or from questions at the terminal if no option was given.
    async fn setup(&self, context: &CliContext) -> Result<Setup, UserError> {
        let said = Setup {
            forge: self.forge.into(),
            cloud: self.cloud.map(Into::into),
            store: self.store.clone(),
            cluster: self.cluster.clone(),
            environments: self.environments.clone(),
            adopt: self.adopt,
        };
        let is_silent = said.cloud.is_none() && said.store.is_none() && said.cluster.is_none();
        if is_silent && context.can_ask() && !context.in_ci() {
            asked(said, context).await
        } else {
            Ok(said)
        }
    }
}

/// The most contexts of the kubeconfig that a question offers.
const OFFERED: usize = 5;

/// Asks a person for the setup. An empty answer leaves the setting as a comment in the file.
async fn asked(said: Setup, context: &CliContext) -> Result<Setup, UserError> {
    let store = answered(
        "Where is the state kept? (such as `s3://my-bucket/konverge`; empty: decide later) ",
        |url| init::check_address(url).map(|()| url.to_owned()),
        context,
    );
    let store = store.await?;
    let mut offered = init::kubeconfig_contexts(&context.run());
    offered.truncate(OFFERED);
    let offered = match offered.as_slice() {
        [] => String::new(),
        names => format!("{}; ", report::escape::log(&names.join(", "))),
    };
    let question = format!(
        "Which context of the kubeconfig is the cluster of the stacks? ({offered}empty: decide later) "
    );
    let cluster = answered(
        &question,
        |name| {
            let named = name.parse::<NamedContext>();
            named.map_err(|error| UserError::from_error(ErrorKind::Usage, error))
        },
        context,
    );
    let cluster = cluster.await?;
    // Only a GitHub job has an identity that a cloud can trust and for which `init` writes the setup.
    if said.forge != JobForge::Github {
        return Ok(Setup {
            store,
            cluster,
            ..said
        });
    }
    let cloud = answered(
        "At which cloud do the jobs log in? (aws, google, azure; empty: none) ",
        |name| {
            let named = CloudArg::from_str(name, true).map(JobCloud::from);
            named.map_err(|_| {
                UserError::new(
                    ErrorKind::Usage,
                    format!("`{}` is none of them", name.escape_debug()),
                )
            })
        },
        context,
    );
    let cloud = cloud.await?;
    Ok(Setup {
        cloud,
        store,
        cluster,
        ..said
    })
}

/// Asks again until the answer is valid, or empty.
async fn answered<T>(
    question: &str,
    read: impl Fn(&str) -> Result<T, UserError>,
    context: &CliContext,
) -> Result<Option<T>, UserError> {
    loop {
        let answer = context.ask(question).await?;
        if answer.is_empty() {
            return Ok(None);
        }
        match read(&answer) {
            Ok(value) => return Ok(Some(value)),
            Err(failure) => context.print_failure(&failure),
        }
    }
}

/// The maximum number of errors that are shown for the core that fits best.
const SHOWN_ERRORS: usize = 3;

/// The maximum number of lines shown of each error.
const SHOWN_LINES: usize = 24;

/// Runs the command.
///
/// # Errors
/// Not in a repository, or it cannot be written.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let setup = args.setup(context).await?;
    let report = init::run(&context.run(), !args.no_install, &setup).await?;
    for (path, written) in &report.files {
        let word = match written {
            WrittenFile::Created => "created",
            WrittenFile::Kept => "kept   ",
        };
        context.print(&format!("{word}  {path}\n"));
    }
    for sentence in &report.found {
        context.note(&format!("found: {sentence}"));
    }
    for (command, result) in &report.tried {
        match result {
            Ok(result) => context.note(&format!("tried: `{command}`: {result}")),
            Err(failure) => {
                context.note(&format!("tried: `{command}`: {}", failure.message));
                for hint in &failure.hints {
                    context.note(&format!("  hint: {hint}"));
                }
            }
        }
    }
    show_cores(&report.cores, context);
    for hint in &report.hints {
        context.note(&format!("hint: {hint}"));
    }
    if report.cores.compiles_nothing() {
        return Err(nothing_compiles(&report.cores));
    }
    if let Some(next) = report.next {
        context.note(&format!("hint: {next}"));
    }
    Ok(0)
}

/// Returns the error for a repository where no stack compiles although the files are written. It is the last line of
/// the output, and sets the exit code.
fn nothing_compiles(cores: &CoreTrials) -> UserError {
    let tried = match cores.rows.as_slice() {
        [row] => format!("the KCL core {} compiles no stack", row.version),
        _ => "no KCL core compiles a stack".to_owned(),
    };
    UserError::new(
        ErrorKind::Kcl,
        format!("{tried}: the files are written, but nothing can be previewed yet"),
    )
    .hint("fix the errors above, then run `konverge build --all`; the same with another core: `kcl.version` in konverge.yaml")
    .hint("docs/guides/migrate.md describes what changed between cores, and how to change code of KCL 0.4")
}

/// Prints the results of each core, as a table.
fn show_cores(cores: &CoreTrials, context: &CliContext) {
    if !cores.rows.is_empty() {
        let which = if cores.stacks < cores.all_stacks {
            format!("{} of {} stacks", cores.stacks, cores.all_stacks)
        } else {
            "every stack".to_owned()
        };
        context.note(&format!("tried: {which} with the KCL core"));
    }
    for row in &cores.rows {
        let mut why: Vec<_> = row
            .reasons
            .iter()
            .map(|(reason, stacks)| format!("{reason} ({})", report::plural(*stacks, "stack")))
            .collect();
        if cores.rows.len() > 1 && cores.chosen.as_ref() == Some(&row.version) {
            why.push(
                match row.compiled {
                    0 => "written, because none compiles a stack",
                    _ => "the one to use",
                }
                .to_owned(),
            );
        }
        let counted = format!("{} of {} compile", row.compiled, cores.stacks);
        let line = format!("  {:<8}  {counted:<18}  {}", row.version, why.join("; "));
        context.note(line.trim_end());
    }
    if let Some((versions, why)) = &cores.untried {
        let some = first_few(versions.iter().map(String::as_str), 3);
        context.note(&format!("  not tried: {some}: {why}"));
        context.note(&format!(
            "hint: `konverge kcl install {}` installs one; `kcl.version` in konverge.yaml names the one to use",
            versions[0]
        ));
    }
    for failure in cores.failures.iter().take(SHOWN_ERRORS) {
        let text = failure.to_string();
        let lines: Vec<_> = text.lines().take(SHOWN_LINES).collect();
        context.note(&format!("error: {}", lines.join("\n")));
        for hint in &failure.hints {
            context.note(&format!("  hint: {hint}"));
        }
    }
    if cores.failures.len() > SHOWN_ERRORS {
        context.note("hint: `konverge build --all` shows the other errors");
    }
}
