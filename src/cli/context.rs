//! The context of every command: where to print, in which colors, what is secret, whether to stop.

use std::{
    collections::{BTreeMap, HashSet},
    io::{IsTerminal, Write},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, Weak, atomic::AtomicBool},
};

use indicatif::ProgressBar;
use tokio_util::sync::CancellationToken;

use super::{
    Global,
    global_args::{ColorMode, LogFormat},
};
use konverge_base::{
    error::UserError,
    model::{
        ResourceId, StackId,
        note::{Note, NoteLevel},
        plan::Plan,
    },
    variables,
};
use konverge_report::{
    escape::{log_each, log_lines},
    terminal::{self, Style},
};
use konverge_run::is_ci;
use konverge_secrets::{Secrets, redact};
use konverge_trace::Recorder;

/// The context of one run.
#[derive(Clone)]
pub struct CliContext {
    /// Options of every command.
    pub global: Global,
    /// The environment at the start.
    pub env: BTreeMap<String, String>,
    /// The registry of secrets; masks everything that is printed.
    pub secrets: Secrets,
    /// Cancelled when the run is asked to stop.
    pub cancel: CancellationToken,
    /// Set when the run starts to change something.
    pub writes: Arc<AtomicBool>,
    /// The current folder at the start.
    pub current_dir: PathBuf,
    /// The spinner on the terminal; hidden while anything is printed.
    pub spinner: SharedSpinner,
    /// The notes of the plan that was shown. The progress lines do not repeat them.
    pub shown_notes: ShownNotes,
    /// Records what the command has done so far, for the timeline.
    pub recorder: Recorder,
}

/// The spinner that all runs of a command share while one of them draws it. A second spinner could not be hidden while
/// a question is open.
pub(super) type SharedSpinner = Arc<Mutex<Weak<Spinner>>>;

/// A spinner, drawn in place until the last run ends.
pub struct Spinner(pub(super) ProgressBar);

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The log target of notes, as it appears in a JSON log.
pub(super) const NOTES: &str = "konverge::note";

/// Notes, each with its stack and resource.
pub(super) type ShownNotes = Arc<Mutex<HashSet<(StackId, ResourceId, String)>>>;

impl CliContext {
    /// Returns true if results are colored.
    pub fn color(&self) -> bool {
        self.color_on(std::io::stdout().is_terminal())
    }

    /// Returns the style of results.
    pub(super) fn style(&self) -> Style {
        Style { color: self.color() }
    }

    /// Returns true if messages on stderr are colored.
    pub fn color_stderr(&self) -> bool {
        self.color_on(std::io::stderr().is_terminal())
    }

    fn color_on(&self, terminal: bool) -> bool {
        match self.global.color {
            ColorMode::Always => true,
            ColorMode::Never => false,
            ColorMode::Auto => {
                let set = |name: &str| self.env.get(name).is_some_and(|value| !value.is_empty());
                terminal
                    && !set(variables::NO_COLOR)
                    && self.env.get(variables::TERM).is_none_or(|term| term != "dumb")
            }
        }
    }

    /// Returns the maximum number of affected stacks in a text: limited on a terminal, `None` for a file or a pipe.
    pub fn shown_stacks(&self) -> Option<usize> {
        std::io::stdout().is_terminal().then_some(terminal::SHOWN_STACKS)
    }

    /// Returns true if a person watches, so that progress may be drawn in place.
    pub fn interactive(&self) -> bool {
        std::io::stderr().is_terminal()
            && !self.env.contains_key(variables::GITHUB_ACTIONS)
            && !self.global.quiet
            && !self.logs_json()
    }

    /// Returns true in a job of a CI service: all CI services set `CI`.
    pub fn in_ci(&self) -> bool {
        is_ci(&self.env)
    }

    /// Prints a result to stdout. Its values were masked when it was built. A closed pipe is not an error.
    pub fn print(&self, text: &str) {
        let text = self.secrets.mask_finished(text);
        self.without_spinner(|| write_all(&mut std::io::stdout().lock(), &text));
    }

    /// Prints a result to stderr, if it does not belong on stdout.
    pub fn show(&self, text: &str) {
        let text = self.secrets.mask_finished(&ended(text));
        self.without_spinner(|| write_all(&mut std::io::stderr().lock(), &text));
    }

    /// Prints a plan to stderr, for a person who has to confirm it.
    pub(super) fn show_plan(&self, plan: &Plan) {
        let style = Style {
            color: self.color_stderr(),
        };
        self.show(&terminal::plan(plan, style));
        let mut shown = self.shown_notes.lock().unwrap_or_else(PoisonError::into_inner);
        for (stack, resource) in plan
            .stacks
            .iter()
            .flat_map(|stack| stack.resources.iter().map(move |resource| (&stack.id, resource)))
        {
            let notes = resource.notes.iter();
            shown.extend(notes.map(|note| (stack.clone(), resource.id.clone(), note.clone())));
        }
    }

    /// Returns the spinner, if a run draws one.
    pub(super) fn drawn_spinner(&self) -> Option<Arc<Spinner>> {
        let shared = self.spinner.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade()
    }

    fn without_spinner(&self, print: impl FnOnce()) {
        match self.drawn_spinner() {
            Some(spinner) => spinner.0.suspend(print),
            None => print(),
        }
    }

    /// Returns true if stderr gets JSON.
    pub fn logs_json(&self) -> bool {
        let variable = || self.env.get(variables::KONVERGE_LOG_FORMAT).map(String::as_str) == Some("json");
        self.global
            .log_format
            .map_or_else(variable, |format| format == LogFormat::Json)
    }

    /// Prints progress to stderr, masked, unless `--quiet` is set.
    pub fn note(&self, text: &str) {
        self.log(NoteLevel::Info, None, text);
    }

    /// Prints a note to stderr, masked. With `--quiet`, only warnings are printed.
    pub fn say(&self, note: &Note) {
        let text = self.secrets.mask(&note.to_string());
        let text = if self.logs_json() {
            note.text.clone()
        } else {
            log_each(&text).join("\n")
        };
        self.log(note.level, note.stack.as_ref(), &text);
    }

    fn log(&self, level: NoteLevel, stack: Option<&StackId>, text: &str) {
        if self.global.quiet && level < NoteLevel::Warning {
            return;
        }
        if !self.logs_json() {
            return self.print_error(text);
        }
        let (text, stack) = (self.secrets.mask(text), stack.map(StackId::as_str));
        let text = text.trim_end();
        match level {
            NoteLevel::Info => tracing::info!(target: NOTES, stack, "{text}"),
            NoteLevel::Note => tracing::info!(target: NOTES, stack, "{text}"),
            NoteLevel::Warning => tracing::warn!(target: NOTES, stack, "{text}"),
        }
    }

    /// Prints a warning or an error to stderr, masked, even when quiet.
    pub fn print_error(&self, text: &str) {
        self.without_spinner(|| write_all(&mut std::io::stderr().lock(), &self.secrets.mask(&ended(text))));
    }

    /// Returns the folder of `--repo` or KONVERGE_REPO, or else the current one.
    pub fn repo_dir(&self) -> PathBuf {
        let variable = || {
            self.env
                .get(variables::KONVERGE_REPO)
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
        };
        let named = self.global.repo.clone().or_else(variable);
        named.map_or_else(
            || self.current_dir.clone(),
            |folder| self.current_dir.join(folder),
        )
    }

    /// Prints all failures but the last, which is the error of the command; returns 0 if there is none.
    pub(super) fn end(&self, mut failures: Vec<UserError>) -> Result<u8, UserError> {
        let Some(last) = failures.pop() else {
            return Ok(0);
        };
        failures.iter().for_each(|failure| self.print_failure(failure));
        Err(last)
    }

    /// Prints an error for people: message, place, hints.
    pub fn print_failure(&self, failure: &UserError) {
        let failure = redact::failure(failure, &self.secrets);
        if self.logs_json() {
            let (place, hints) = (
                failure.location.as_ref().map(ToString::to_string),
                failure.hints.join("\n"),
            );
            return tracing::error!(target: NOTES, place, hints, "{}", failure.message);
        }
        let (red, cyan, off) = if self.color_stderr() {
            ("\x1b[1;31m", "\x1b[36m", "\x1b[0m")
        } else {
            ("", "", "")
        };
        let mut text = format!("{red}error{off}: {}\n", log_lines(&failure.message));
        if let Some(location) = &failure.location {
            text.push_str(&format!(
                "  {cyan}-->{off} {}\n",
                log_lines(&location.to_string())
            ));
        }
        for hint in &failure.hints {
            text.push_str(&format!("  {cyan}hint{off}: {}\n", log_lines(hint)));
        }
        self.print_error(&text);
    }
}

fn ended(text: &str) -> String {
    if text.ends_with('\n') {
        text.to_owned()
    } else {
        format!("{text}\n")
    }
}

pub(super) fn write_all(out: &mut dyn Write, text: &str) {
    // A closed pipe (`konverge … | head`) is the reader's choice.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
