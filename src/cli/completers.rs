//! Shell completions for the values of options and arguments.

use std::{ffi::OsStr, sync::Arc};

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use tokio_util::sync::CancellationToken;

use crate::commands::completions::{self, Suggestion};
use konverge_base::{model::event::NoEvents, variables};
use konverge_run::{NoNotes, RunContext};
use konverge_secrets::{HashKey, Secrets};

/// Offers the stacks of the repository.
pub(super) fn stacks() -> ArgValueCompleter {
    with_runtime(async |run, typed| completions::stacks(&run, &typed).await)
}

/// Offers the stacks of the repository, and those that only the states know.
pub(super) fn recorded_stacks() -> ArgValueCompleter {
    with_runtime(async |run, typed| completions::recorded_stacks(&run, &typed).await)
}

/// Offers the clusters of `konverge.yaml`.
pub(super) fn clusters() -> ArgValueCompleter {
    with_runtime(async |run, typed| completions::clusters(&run, &typed).await)
}

/// Offers branches and tags.
pub(super) fn revisions() -> ArgValueCompleter {
    completer(|typed| completions::revisions(&silent_run(), typed))
}

/// Offers the contexts of the kubeconfig.
pub(super) fn contexts() -> ArgValueCompleter {
    completer(|typed| completions::contexts(&silent_run(), typed))
}

/// Offers the versions of the KCL core.
pub(super) fn cores() -> ArgValueCompleter {
    completer(completions::cores)
}

fn with_runtime(
    find: impl AsyncFn(RunContext, String) -> Vec<Suggestion> + Send + Sync + 'static,
) -> ArgValueCompleter {
    completer(move |typed| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else {
            return Vec::new();
        };
        runtime.block_on(find(silent_run(), typed.to_owned()))
    })
}

fn completer(find: impl Fn(&str) -> Vec<Suggestion> + Send + Sync + 'static) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| {
        let found = typed.to_str().map(&find).unwrap_or_default().into_iter();
        let candidate = |suggestion: Suggestion| {
            let help = Some(suggestion.help).filter(|help| !help.is_empty());
            CompletionCandidate::new(suggestion.word).help(help.map(Into::into))
        };
        found.map(candidate).collect::<Vec<_>>()
    })
}

/// Returns the context for a completion: of the repository that the typed command line names, and without output on the
/// terminal.
fn silent_run() -> RunContext {
    let env: std::collections::BTreeMap<_, _> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let named = typed_repo().or_else(|| {
        env.get(variables::KONVERGE_REPO)
            .filter(|dir| !dir.is_empty())
            .cloned()
    });
    let here = std::env::current_dir().unwrap_or_else(|_| ".".into());
    RunContext {
        dir: named.map_or_else(|| here.clone(), |dir| here.join(dir)),
        env,
        secrets: Secrets::new(HashKey::random()),
        cancel: CancellationToken::new(),
        writes: Arc::default(),
        events: Arc::new(NoEvents),
        notes: Arc::new(NoNotes),
        recorder: Default::default(),
    }
}

/// Returns the value of `--repo` on the command line that is being typed.
fn typed_repo() -> Option<String> {
    let words: Vec<String> = std::env::args_os()
        .filter_map(|word| word.into_string().ok())
        .collect();
    let joined = words
        .iter()
        .find_map(|word| word.strip_prefix("--repo=").map(str::to_owned));
    let apart = || {
        let pair = words.windows(2).find(|pair| pair[0] == "--repo")?;
        Some(pair[1].clone())
    };
    joined.or_else(apart).filter(|dir| !dir.is_empty())
}
