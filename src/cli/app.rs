//! From arguments to an exit code: parsing, logging, signals, and how an error ends the process.

use std::{
    ffi::OsString,
    io::IsTerminal,
    process::ExitCode,
    sync::{Arc, atomic::Ordering},
};

use clap::{
    ArgMatches, CommandFactory, FromArgMatches,
    error::{ContextKind, ContextValue},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use tracing_subscriber::{
    Layer as _, fmt::format::FmtSpan, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use super::{Cli, CliContext, Command, context::NOTES};
use konverge_base::{
    error::{ErrorDocument, ErrorKind, UserError},
    spans, variables,
};
use konverge_report::{
    escape::{self, log_each},
    json,
};
use konverge_secrets::{HashKey, Secrets, learn_environment, redact};
#[cfg(feature = "otlp")]
use konverge_trace::otlp;
use konverge_trace::{Recorder, log_filter};

/// Runs the command line; never panics on wrong input.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    report_bugs();
    let args: Vec<OsString> = args.into_iter().collect();
    // Before the parser, because the words of a completion request are not yet a valid command line.
    if let Some(code) = super::completions::answer(&args, Cli::command) {
        return code;
    }
    let ParsedCommand {
        cli,
        name,
        wants_json,
    } = match parse(&args) {
        Ok(parsed) => parsed,
        Err(error) => {
            let code = if error.use_stderr() {
                ErrorKind::Usage.exit_code()
            } else {
                0
            };
            if error.use_stderr() && asks_for_json(&args) {
                let said = error.to_string();
                let what = said.lines().next().unwrap_or_default();
                let known = foreign_option(&error, &args);
                let failure = UserError::new(ErrorKind::Usage, what.trim_start_matches("error: "))
                    .hint(known.unwrap_or("`konverge help` lists the commands"));
                let document = ErrorDocument {
                    error: failure.body(),
                };
                super::context::write_all(&mut std::io::stdout().lock(), &json::document(&document));
            }
            if error.use_stderr() {
                print_usage_error(&error)
            } else {
                // Ignore an error: it only means that nobody reads the output.
                drop(error.print())
            }
            return ExitCode::from(code);
        }
    };
    // A worker confines itself while it has a single thread, so it starts before the async runtime.
    if let Command::Worker(args) = &cli.command {
        return super::kcl_worker::run(args);
    }
    if let Command::Rules(args) = &cli.command {
        return super::rule_worker::run(args);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(_) => return ExitCode::FAILURE,
    };
    let context = context(&cli);
    start_logging(&context);
    let result = runtime.block_on(async {
        watch_signals(context.cancel.clone());
        tokio::select! {
            biased;
            result = dispatch(cli.command, &context).instrument(spans::run(&name)) => result,
            () = may_be_dropped(&context) => Err(UserError::new(ErrorKind::Interrupted, "interrupted")),
        }
    });
    let code = match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let failure = redact::failure(&failure, &context.secrets);
            if wants_json {
                context.print(&json::failure(&failure));
            }
            context.print_failure(&failure);
            ExitCode::from(failure.kind.exit_code())
        }
    };
    // Do not export the timeline after a request to stop: it would delay the end.
    #[cfg(feature = "otlp")]
    if !context.cancel.is_cancelled() {
        runtime.block_on(export_timeline(&context));
    }
    // A running blocking call (a slow file system) must not delay the end.
    runtime.shutdown_background();
    code
}

/// The command line.
#[derive(Debug)]
struct ParsedCommand {
    cli: Cli,
    /// The name of the subcommand.
    name: String,
    /// True if stdout carries JSON.
    wants_json: bool,
}

/// The values of `--output` with which stdout carries JSON.
const JSON_FORMS: [&str; 4] = ["json", "matrix", "sarif", "plan"];

fn wants_json(matches: &ArgMatches) -> bool {
    if let Some((_, inner)) = matches.subcommand() {
        return wants_json(inner);
    }
    let mut forms = matches.try_get_raw("output").ok().flatten().into_iter().flatten();
    forms.any(|form| JSON_FORMS.iter().any(|json| form == *json))
}

/// Parses the command line.
fn parse(args: &[OsString]) -> Result<ParsedCommand, clap::Error> {
    let mut command = super::help_groups::grouped(Cli::command());
    let mut matches = command
        .try_get_matches_from_mut(args)
        .map_err(|error| with_known_option(error, args))?;
    let name = matches.subcommand_name().unwrap_or_default().to_owned();
    let wants_json = wants_json(&matches);
    let cli = Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))?;
    Ok(ParsedCommand {
        cli,
        name,
        wants_json,
    })
}

/// Returns a hint for an option of another tool; `None` if the error is not about such an option.
fn foreign_option(error: &clap::Error, args: &[OsString]) -> Option<&'static str> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    if error.kind() != clap::error::ErrorKind::UnknownArgument {
        return None;
    }
    // For an unknown `-auto-approve`, the error of clap names only `-a`: find the whole word.
    let words = args.iter().skip(1).filter_map(|word| word.to_str());
    words
        .filter(|word| word.starts_with(unknown.as_str()))
        .find_map(super::foreign_options::hint)
}

/// Replaces clap's suggestion by this hint: clap suggests the option with the most similar letters, not meaning.
fn with_known_option(mut error: clap::Error, args: &[OsString]) -> clap::Error {
    if let Some(hint) = foreign_option(&error, args) {
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::TrailingArg);
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![hint.into()]),
        );
    }
    error
}

/// Prints what is wrong with the command line. A "tip" of clap is printed as a hint, as everywhere else.
fn print_usage_error(error: &clap::Error) {
    let is_plain = std::env::var_os(variables::NO_COLOR).is_some() || !std::io::stderr().is_terminal();
    let text = if is_plain {
        error.render().to_string()
    } else {
        error.render().ansi().to_string()
    };
    super::context::write_all(&mut std::io::stderr().lock(), &with_hints(&text));
}

fn with_hints(text: &str) -> String {
    const GREEN: &str = "\u{1b}[32m";
    let lines = text.split_inclusive('\n').map(|line| {
        let start = line.trim_start().trim_start_matches(GREEN);
        if start.starts_with("tip:") {
            line.replacen("tip:", "hint:", 1)
        } else {
            line.to_owned()
        }
    });
    lines.collect()
}

/// Installs a panic hook that says how to report the bug. A panic message may contain secret values, so it is shown
/// only with RUST_BACKTRACE.
fn report_bugs() {
    let in_full = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |bug| {
        if std::env::var_os(variables::RUST_BACKTRACE).is_some() {
            in_full(bug);
        }
        let place = bug
            .location()
            .map(|place| format!("{}:{}", place.file(), place.line()));
        let text = bug_text(place.as_deref().unwrap_or("an unknown place"));
        super::context::write_all(&mut std::io::stderr().lock(), &text);
    }));
}

fn bug_text(place: &str) -> String {
    format!(
        "error: Konverge {} stopped because of a bug in itself, at {place}\n  \
         hint: the state is safe: the next run continues the unfinished work\n  \
         hint: please report it with the command that you typed: {}/issues (RUST_BACKTRACE=1 shows more)\n",
        env!("CARGO_PKG_VERSION"),
        env!("CARGO_PKG_REPOSITORY"),
    )
}

/// Returns true if an invalid command line requested JSON, as far as that can be determined.
fn asks_for_json(args: &[OsString]) -> bool {
    let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    let one = |arg: &str| matches!(arg, "--output=json" | "-ojson" | "-o=json");
    let two = |name: &str, value: &str| matches!((name, value), ("--output" | "-o", "json"));
    args.iter().any(|arg| one(arg)) || args.windows(2).any(|pair| two(&pair[0], &pair[1]))
}

async fn dispatch(command: Command, context: &CliContext) -> Result<u8, UserError> {
    match command {
        Command::Init(args) => super::init::run(&args, context).await,
        Command::Adopt(args) => super::adopt::run(&args, context).await,
        Command::Demo(args) => super::demo::run(&args, context).await,
        Command::List(args) => super::list::run(&args, context).await,
        Command::Affected(args) => super::affected::run(&args, context).await,
        Command::Graph(args) => super::graph::run(&args, context),
        Command::Build(args) => super::build::run(&args, context).await,
        Command::Export(args) => super::export::run(&args, context).await,
        Command::Check(args) => super::check::run(&args, context).await,
        Command::Test(args) => super::test::run(&args, context).await,
        Command::Cache(args) => super::cache::run(&args, context),
        Command::Models(args) => super::models::run(&args, context).await,
        Command::Set(args) => super::set::run(&args, context).await,
        Command::Preview(args) => super::preview::run(&args, context).await,
        Command::Watch(args) => super::watch::run(&args, context).await,
        Command::Lsp(args) => super::lsp::run(&args, context).await,
        Command::Apply(args) => super::apply::run(&args, context).await,
        Command::Destroy(args) => super::destroy::run(&args, context).await,
        Command::Rollout(args) => super::rollout::run(&args, context).await,
        Command::Freeze(args) => super::freeze::run(&args, context).await,
        Command::Unfreeze(args) => super::freeze::run_unfreeze(&args, context).await,
        Command::Status(args) => super::status::run(&args, context).await,
        Command::Drift(args) => super::drift::run(&args, context).await,
        Command::Ci(args) => super::ci::run(&args, context).await,
        Command::Health(args) => super::health::run(&args, context).await,
        Command::Portal(args) => super::portal::run(&args, context).await,
        #[cfg(feature = "serve")]
        Command::Serve(args) => super::serve::run(&args, context).await,
        Command::Notify(args) => super::notify::run(&args, context).await,
        Command::State(args) => super::state::run(&args, context).await,
        Command::Config(args) => super::config::run(&args, context),
        Command::Doctor(args) => super::doctor::run(&args, context).await,
        Command::Completions(args) => super::completions::run(&args, context),
        Command::Kcl(args) => super::kcl::run(&args, context).await,
        Command::Version(args) => super::version::run(&args, context),
        Command::Reference(args) => {
            super::docs_gen::run(&args, super::help_groups::grouped(Cli::command()), context)
        }
        Command::Worker(_) | Command::Rules(_) => unreachable!("handled before anything else was started"),
    }
}

/// The inputs of the action and the equivalent environment variables. The runner passes inputs as `INPUT_…` with
/// hyphens kept; an input that is not set is empty. Only `for-environment` has a default, so that an expression with an
/// empty result is noticed.
const INPUTS: [(&str, &str); 11] = [
    ("INPUT_WORKING-DIRECTORY", variables::KONVERGE_REPO),
    ("INPUT_LIVE", variables::KONVERGE_LIVE),
    ("INPUT_SHARD", variables::KONVERGE_SHARD),
    ("INPUT_SHARD-RESULT", variables::KONVERGE_SHARD_RESULT),
    ("INPUT_APPROVE", variables::KONVERGE_APPROVE),
    ("INPUT_ENVIRONMENT", variables::KONVERGE_ENVIRONMENT),
    (FOR_ENVIRONMENT, variables::KONVERGE_FOR_ENVIRONMENT),
    ("INPUT_COMMENT", variables::KONVERGE_COMMENT),
    ("INPUT_KUBECONFIG", variables::KONVERGE_KUBECONFIG),
    ("INPUT_REVIEW-KEY", variables::KONVERGE_REVIEW_KEY),
    ("INPUT_AGE-IDENTITY", variables::KONVERGE_AGE_IDENTITY),
];

/// The input that is refused if it is set, but empty.
const FOR_ENVIRONMENT: &str = "INPUT_FOR-ENVIRONMENT";

fn context(cli: &Cli) -> CliContext {
    let mut env: std::collections::BTreeMap<_, _> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    for (input, variable) in INPUTS {
        let counts = |text: &&String| !text.is_empty() || input == FOR_ENVIRONMENT;
        if let Some(given) = env.get(input).filter(counts).cloned() {
            env.entry(variable.to_owned()).or_insert(given);
        }
    }
    let key = env
        .get(variables::KONVERGE_REVIEW_KEY)
        .filter(|key| !key.is_empty());
    let secrets = Secrets::new(key.map_or_else(HashKey::random, |key| HashKey::derive(key)));
    learn_environment(&secrets, &env);
    CliContext {
        global: cli.global.clone(),
        env,
        secrets,
        cancel: CancellationToken::new(),
        writes: Arc::default(),
        current_dir: std::env::current_dir().unwrap_or_else(|_| ".".into()),
        spinner: super::context::SharedSpinner::default(),
        shown_notes: super::context::ShownNotes::default(),
        recorder: Recorder::default(),
    }
}

/// Starts logging to stderr, masked like all output.
fn start_logging(context: &CliContext) {
    // RUNNER_DEBUG is set when somebody starts a job again with debug logging.
    let debugs = context.env.get(variables::RUNNER_DEBUG).map(String::as_str) == Some("1");
    let verbose = context.global.verbose.max(if debugs { 2 } else { 0 });
    let mut filter = log_filter(
        verbose,
        context.env.get(variables::KONVERGE_LOG).map(String::as_str),
    );
    let secrets = context.secrets.clone();
    let form = match (context.logs_json(), std::io::stderr().is_terminal()) {
        (true, _) => LogForm::Json,
        (false, true) => LogForm::Terminal,
        (false, false) => LogForm::Lines,
    };
    let writer = move || MaskedStderr {
        secrets: secrets.clone(),
        form,
    };
    let events = tracing_subscriber::fmt::layer()
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(form == LogForm::Terminal && context.color_stderr())
        .with_writer(writer);
    let events = if form == LogForm::Json {
        let notes = format!("{NOTES}=info").parse();
        filter = filter.add_directive(notes.expect("a constant directive"));
        events.json().boxed()
    } else {
        events.boxed()
    };
    let subscriber = tracing_subscriber::registry()
        .with(context.recorder.layer())
        .with(events.with_filter(filter));
    if subscriber.try_init().is_err() {
        tracing::debug!("logging was set up before");
    }
}

/// The form of a logged event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LogForm {
    /// For a person. It may be colored.
    Terminal,
    /// For a log that GitHub's runner may read as workflow commands.
    Lines,
    Json,
}

/// Sends what the command did to the OpenTelemetry collector that the environment names.
#[cfg(feature = "otlp")]
async fn export_timeline(context: &CliContext) {
    use konverge_base::{error::chain, model::note::Note};

    if !otlp::is_wanted(&context.env) {
        return;
    }
    let (timeline, begin) = (context.recorder.timeline(), context.recorder.begin());
    if let Err(error) = otlp::export(&timeline, begin, &context.env, &context.secrets).await {
        context.say(&Note::warning(format!(
            "the timeline was not sent: {}",
            chain(&error)
        )));
    }
}

struct MaskedStderr {
    secrets: Secrets,
    form: LogForm,
}

impl std::io::Write for MaskedStderr {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // tracing-subscriber writes one whole event at a time, so no secret is split between two calls.
        let mut text = self.secrets.mask(&String::from_utf8_lossy(bytes));
        match self.form {
            LogForm::Terminal => {}
            LogForm::Lines => text = log_each(&text).join("\n") + "\n",
            LogForm::Json => text = escape::json(&text),
        }
        std::io::stderr().lock().write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().lock().flush()
    }
}

/// Returns when the run was asked to stop and has changed nothing yet. Such a run can be dropped, whatever it waits
/// for.
async fn may_be_dropped(context: &CliContext) {
    context.cancel.cancelled().await;
    if context.writes.load(Ordering::SeqCst) {
        std::future::pending().await
    }
}

/// The first SIGINT or SIGTERM asks the run to stop (no new operations; state and journal are written); the
/// third ends it immediately.
fn watch_signals(cancel: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    tokio::spawn(async move {
        for seen in 1.. {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            cancel.cancel();
            #[expect(
                clippy::disallowed_methods,
                reason = "interrupted three times: stopping now, running operations are not awaited"
            )]
            if seen >= 3 {
                std::process::exit(i32::from(ErrorKind::Interrupted.exit_code()));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_tip_of_clap_is_a_hint() {
        let error = parse(&["konverge", "preview", "--al"].map(OsString::from)).unwrap_err();
        for text in [error.render().to_string(), error.render().ansi().to_string()] {
            assert!(text.contains("tip:"), "{text}");
            let said = with_hints(&text);
            assert!(said.contains("hint:") && !said.contains("tip:"), "{said}");
        }
        assert_eq!(with_hints("error: `a tip: b`\n"), "error: `a tip: b`\n");
    }

    /// An error of a command whose output is JSON is JSON, too.
    #[test]
    fn every_form_of_output_is_json_or_named() {
        fn forms(command: &clap::Command) -> BTreeSet<String> {
            let output = command.get_arguments().filter(|arg| arg.get_id() == "output");
            let values = output.flat_map(clap::Arg::get_possible_values);
            let own = values.map(|value| value.get_name().to_owned());
            own.chain(command.get_subcommands().flat_map(forms)).collect()
        }
        let mut found = forms(&Cli::command());
        for json in JSON_FORMS {
            assert!(found.remove(json), "{json}");
        }
        let others = [
            "annotations",
            "argocd-paths",
            "dot",
            "folders",
            "html",
            "manifests",
            "markdown",
            "mermaid",
            "text",
            "yaml",
        ];
        assert_eq!(found, others.map(str::to_owned).into());
    }

    #[test]
    fn an_option_of_another_tool_is_answered_with_ours() {
        for (typed, ours) in [
            (["preview", "--json"], "`--output json`"),
            (["apply", "--dry-run"], "`konverge preview`"),
            (["apply", "--auto-approve=true"], "`--yes`"),
            (["apply", "-auto-approve"], "`--yes`"),
        ] {
            let words: Vec<_> = ["konverge"].iter().chain(&typed).map(OsString::from).collect();
            let error = parse(&words).unwrap_err();
            let said = with_hints(&error.render().to_string());
            assert!(said.contains(ours) && said.contains("hint: "), "{said}");
            assert!(
                !said.contains("as a value") && !said.contains("similar"),
                "{said}"
            );
            assert_eq!(said.matches("hint:").count(), 1, "{said}");
        }
    }

    #[test]
    fn a_bug_says_what_to_do() {
        let text = bug_text("src/x.rs:1");
        assert!(
            text.starts_with("error: Konverge ") && text.contains("at src/x.rs:1\n"),
            "{text}"
        );
        assert!(
            text.contains("/issues") && text.contains("RUST_BACKTRACE=1"),
            "{text}"
        );
    }
}
