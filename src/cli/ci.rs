//! `konverge ci`: handles the event of a job of a forge.

use clap::ValueEnum;

use super::{CliContext, common_args::LiveArg};
use konverge_base::{
    error::{ErrorKind, UserError},
    variables,
};
use konverge_ci::{
    self as ci, CiOptions, CommentRule, ScheduledTask, ShardMode, workflow_coverage::EVERY_ENVIRONMENT,
};

/// Arguments of `konverge ci`. These variables complete them: KONVERGE_APPROVE has plan digests, which the person
/// approves who approves the job's environment. KONVERGE_ENVIRONMENT names that environment. KONVERGE_FOR_ENVIRONMENT
/// limits an apply to the stacks whose rule names that environment; `*` means all stacks, and an empty name is refused.
/// KONVERGE_SHARD_RESULT is the result of the shards' jobs (`needs.JOB.result`), for `--shard all/N` in a later attempt
/// of a run. KONVERGE_ON_SCHEDULE is what a scheduled job does: `drift` or `apply`. KONVERGE_COMMENT is when a comment
/// is written: `always`, `changes` or `never`. KONVERGE_KUBECONFIG is the text of a kubeconfig. KONVERGE_PAGE_ARTIFACT
/// names the artifact with the page, if a later step uploads it. With KONVERGE_PAGE_URL, the address of that artifact,
/// the command only links it in the job summary and, for a pull request or a shard of its preview, in the comment. With
/// KONVERGE_TESTS set to `true` it runs stack tests instead.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge ci                       in a job of GitHub, Gitea or GitLab: the event decides what is done
  konverge ci --live never          previews that compare Spec with Spec
  konverge ci --shard 2/8           the second of eight jobs of a preview
  konverge ci --tests               the stack tests of a pull request, in a job after its preview")]
pub struct Args {
    /// Compare with live infrastructure; default: KONVERGE_LIVE, or else required, and never for a pull
    /// request from a fork
    #[arg(long, value_name = "WHEN", value_enum)]
    live: Option<LiveArg>,
    /// Shard to process, for a preview that is split over the jobs of a matrix, as in `2/8`. `all/8` is the
    /// job after them, which combines all eight into the status `konverge/preview`. Default: KONVERGE_SHARD,
    /// or else all stacks
    #[arg(long, value_name = "N/M")]
    shard: Option<String>,
    /// Run the stack tests of a pull request instead, also the live ones: a job of its own, with its own login and
    /// environment, after the preview. Default: KONVERGE_TESTS
    #[arg(long, conflicts_with_all = ["live", "shard"])]
    tests: bool,
}

/// Runs the command.
///
/// # Errors
/// Not in GitHub Actions, an event that is refused, or an unusable repository or configuration.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let live = match (
        args.live,
        context
            .env
            .get(variables::KONVERGE_LIVE)
            .filter(|text| !text.is_empty()),
    ) {
        (None, Some(text)) => Some(LiveArg::from_str(text, false).map_err(|_| {
            unknown(
                variables::KONVERGE_LIVE,
                text,
                "set it to `auto`, `never` or `required`",
            )
        })?),
        (given, _) => given,
    };
    let variable = context
        .env
        .get(variables::KONVERGE_SHARD)
        .filter(|text| !text.is_empty());
    let part = match args.shard.as_ref().or(variable) {
        Some(text) => text.parse::<ShardMode>().map_err(|error| {
            UserError::from_error(ErrorKind::Usage, error)
                .hint("`2/8` previews the second of eight shards; `all/8` combines their results")
        })?,
        None => ShardMode::Whole,
    };
    let text = |name: &str| context.env.get(name).map(|text| text.trim().to_owned());
    // The step after the upload of the page only adds its link. It must not preview again.
    if let Some(address) = text(variables::KONVERGE_PAGE_URL).filter(|address| !address.is_empty()) {
        ci::link_page(&context.run(), &address, part).await?;
        return Ok(0);
    }
    let tests = args.tests || is_on(context, variables::KONVERGE_TESTS)?;
    if tests && part != ShardMode::Whole {
        let what = "the stack tests of a change are not split: KONVERGE_TESTS and a shard exclude each other";
        return Err(UserError::new(ErrorKind::Usage, what)
            .hint("remove `--shard` and KONVERGE_SHARD from the job with the tests"));
    }
    let options = CiOptions {
        live: live.map(Into::into),
        part,
        shards_succeeded: text(variables::KONVERGE_SHARD_RESULT).is_some_and(|result| result == "success"),
        approve: text(variables::KONVERGE_APPROVE).unwrap_or_default(),
        environment: text(variables::KONVERGE_ENVIRONMENT).filter(|name| !name.is_empty()),
        for_environment: match text(variables::KONVERGE_FOR_ENVIRONMENT) {
            Some(name) if name.is_empty() => return Err(empty_environment()),
            given => given.filter(|name| name != EVERY_ENVIRONMENT),
        },
        on_schedule: match text(variables::KONVERGE_ON_SCHEDULE)
            .as_deref()
            .unwrap_or_default()
        {
            "" | "drift" => ScheduledTask::Drift,
            "apply" => ScheduledTask::Apply,
            other => {
                let hint = "set it to `drift` or `apply`";
                return Err(unknown(variables::KONVERGE_ON_SCHEDULE, other, hint));
            }
        },
        comment: match text(variables::KONVERGE_COMMENT).as_deref().unwrap_or_default() {
            "" | "always" => CommentRule::Always,
            "changes" => CommentRule::Changes,
            "never" => CommentRule::Never,
            other => {
                let hint = "set it to `always`, `changes` or `never`";
                return Err(unknown(variables::KONVERGE_COMMENT, other, hint));
            }
        },
        page_artifact: text(variables::KONVERGE_PAGE_ARTIFACT).is_some_and(|name| !name.is_empty()),
    };
    let run = context.run();
    // From here a request to stop must not drop the run: its result has to be published on the forge.
    run.begin_writes()?;
    let ended = if tests {
        ci::run_tests(&run, &options).await?
    } else {
        ci::run(&run, &options).await?
    };
    context.print(&ended.text);
    Ok(ended.code)
}

/// Returns the error for an empty `for-environment`: an expression with an empty result must not mean every
/// environment.
fn empty_environment() -> UserError {
    let what = "`for-environment` (KONVERGE_FOR_ENVIRONMENT) is empty: it is not known which stacks this job may apply";
    UserError::new(ErrorKind::Usage, what).hint(
        "set `for-environment` to the name of an environment. `${{ matrix.KEY }}` is empty if the job's matrix has no KEY. To apply all stacks, leave the input out",
    )
}

/// Reads a variable that is `true` or `false`; absent or empty means `false`.
fn is_on(context: &CliContext, name: &str) -> Result<bool, UserError> {
    match context.env.get(name).map(|text| text.trim()).unwrap_or_default() {
        "" | "false" => Ok(false),
        "true" => Ok(true),
        other => Err(unknown(name, other, "set it to `true` or `false`")),
    }
}

fn unknown(variable: &str, text: &str, hint: &str) -> UserError {
    let what = format!("{variable} is `{}`", text.escape_debug());
    UserError::new(ErrorKind::Usage, what).hint(hint)
}
