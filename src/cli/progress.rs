//! Shows the progress: a spinner on a terminal, plain lines elsewhere (grouped in GitHub Actions).

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use super::{CliContext, context::Spinner};
use konverge_base::model::{
    event::{EventSink, RunEvent},
    note::{Note, NoteLevel},
};
use konverge_base::variables;
use konverge_report::progress::{LogStyle, ProgressLines, step_text};
use konverge_run::{Notes, RunContext};

/// The interval of the spinner.
const TICK: Duration = Duration::from_millis(100);

/// Text of the spinner before the first step.
const AT_FIRST: &str = "Reading";

/// Prints events and notes to stderr.
pub(super) struct Screen {
    context: CliContext,
    began: Instant,
    lines: Mutex<ProgressLines>,
    said: Mutex<HashSet<String>>,
    spinner: Option<Arc<Spinner>>,
}

impl CliContext {
    /// The context of the use cases; events and notes go to stderr.
    pub fn run(&self) -> RunContext {
        let dialect = if self.env.contains_key(variables::GITHUB_ACTIONS) && !self.logs_json() {
            LogStyle::GithubActions
        } else {
            LogStyle::Plain
        };
        let screen = Arc::new(Screen {
            context: self.clone(),
            began: Instant::now(),
            lines: Mutex::new(ProgressLines::new(dialect)),
            said: Mutex::default(),
            spinner: self.interactive().then(|| self.open_spinner()),
        });
        RunContext {
            dir: self.repo_dir(),
            env: self.env.clone(),
            secrets: self.secrets.clone(),
            cancel: self.cancel.clone(),
            writes: Arc::clone(&self.writes),
            events: screen.clone(),
            notes: screen,
            recorder: self.recorder.clone(),
        }
    }

    /// Returns the spinner that all runs of the command share.
    fn open_spinner(&self) -> Arc<Spinner> {
        let mut shared = self.spinner.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_style(spinner_style());
            bar.set_prefix(AT_FIRST);
            bar.enable_steady_tick(TICK);
            let spinner = Arc::new(Spinner(bar));
            *shared = Arc::downgrade(&spinner);
            spinner
        })
    }

    /// Hides the progress until the returned value is dropped: a spinner would erase what a person types.
    pub(super) fn hide_progress(&self) -> HiddenProgress {
        let spinner = self.drawn_spinner();
        if let Some(spinner) = &spinner {
            spinner.0.disable_steady_tick();
            spinner.0.finish_and_clear();
        }
        HiddenProgress(spinner)
    }
}

/// The progress of a command, hidden.
pub(super) struct HiddenProgress(Option<Arc<Spinner>>);

impl Drop for HiddenProgress {
    fn drop(&mut self) {
        if let Some(spinner) = &self.0 {
            spinner.0.set_message("");
            spinner.0.reset();
            spinner.0.enable_steady_tick(TICK);
        }
    }
}

/// Returns the style of the spinner: `⠋ Compiling 312/1020 · 18 s  shop/dev: 3 resources`. It shows the step, its time
/// and the latest note, truncated to the width of the terminal.
fn spinner_style() -> ProgressStyle {
    let took = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        // Ignore an error: an output that cannot be written to shows nothing.
        let _ = write!(out, "{} s", state.elapsed().as_secs());
    };
    ProgressStyle::with_template("{spinner} {prefix} · {took}  {wide_msg}")
        .expect("a constant template")
        .with_key("took", took)
}

impl Screen {
    /// Returns true for a note that the person has already read in the plan.
    fn was_shown(&self, event: &RunEvent) -> bool {
        let RunEvent::ResourceNoted { stack, id, note } = event else {
            return false;
        };
        let shown = self.context.shown_notes.lock();
        let shown = shown.unwrap_or_else(PoisonError::into_inner);
        shown.contains(&(stack.clone(), id.clone(), note.clone()))
    }
}

impl EventSink for Screen {
    fn event(&self, event: RunEvent) {
        if let (Some(Spinner(spinner)), RunEvent::StepProgress { step, done, total }) =
            (self.spinner.as_deref(), &event)
        {
            if *done == 0 {
                spinner.reset_elapsed();
                spinner.set_message("");
            }
            spinner.set_prefix(step_text(*step, *done, *total));
            return;
        }
        if self.was_shown(&event) {
            return;
        }
        let lines = self
            .lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .lines(&event, self.began.elapsed());
        let passing = matches!(
            event,
            RunEvent::PlanStarted { .. } | RunEvent::ResourceProgress { .. }
        );
        for line in lines {
            match &self.spinner {
                Some(spinner) if passing => spinner.0.set_message(self.context.secrets.mask(&line)),
                _ => self.context.note(&line),
            }
        }
    }
}

impl Notes for Screen {
    fn say(&self, note: Note) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if note.level < NoteLevel::Warning || said.insert(note.to_string()) {
            self.context.say(&note);
        }
    }

    fn command(&self, line: &str) {
        self.context.print_error(line);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        for line in lines.finish(self.began.elapsed()) {
            self.context.note(&line);
        }
    }
}
