//! Turns events into log lines. The caller chooses the output (a plain log or a redrawn line) and passes the time of
//! each event.

use std::{collections::HashMap, time::Duration};

use super::{escape, labels};
use konverge_base::model::{
    ResourceId, StackId,
    apply_result::ResourceResult,
    event::{RunEvent, Step},
};

/// The format of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStyle {
    /// Lines without grouping.
    Plain,
    /// GitHub's runner: `::group::` folds the lines of a stack. Stacks run concurrently and groups cannot be nested, so
    /// the lines of a stack are kept until the stack ends.
    GithubActions,
}

/// The interval of the log lines about a step, which show that the run is still alive.
const STEP_INTERVAL: Duration = Duration::from_secs(10);

/// The minimum duration that is shown for a resource.
const WORTH_SAYING: Duration = Duration::from_secs(1);

/// Turns events into lines, for one run. Each call gets the time since the start of the run.
#[derive(Debug)]
pub struct ProgressLines {
    dialect: LogStyle,
    stacks: HashMap<StackId, Running>,
    step: Option<StepTimes>,
}

#[derive(Debug, Default)]
struct Running {
    lines: Vec<String>,
    left: usize,
    done: usize,
    failed: usize,
    began: Duration,
    resources: HashMap<ResourceId, Duration>,
}

/// The step that is running now.
#[derive(Debug)]
struct StepTimes {
    began: Duration,
    /// The time of the last line about the step; `None` before the first.
    said: Option<Duration>,
}

/// Returns the text of a step: `Compiling 312/1020`, or without the numbers for one stack.
pub fn step_text(step: Step, done: usize, total: usize) -> String {
    let word = match step {
        Step::Compile => "Compiling",
        Step::Plan => "Planning",
        Step::CheckDrift => "Checking for drift",
        Step::QueryStatus => "Reading the status",
        Step::Apply => "Applying",
    };
    match total {
        0 | 1 => word.to_owned(),
        _ => format!("{word} {done}/{total}"),
    }
}

impl ProgressLines {
    /// Creates lines in the format `dialect`.
    pub fn new(dialect: LogStyle) -> Self {
        Self {
            dialect,
            stacks: HashMap::new(),
            step: None,
        }
    }

    /// Returns the lines for an event at the time `at`, without newlines. Only Konverge's own workflow commands can be
    /// in them.
    pub fn lines(&mut self, event: &RunEvent, at: Duration) -> Vec<String> {
        match event {
            RunEvent::StepProgress { step, done, total } => self.step(*step, *done, *total, at),
            RunEvent::PlanStarted { stack, resources } => {
                vec![escape::log(&format!(
                    "planning {stack}: {}",
                    labels::plural(*resources, "resource")
                ))]
            }
            RunEvent::ApplyStarted { stack, resources } => {
                let running = Running {
                    left: *resources,
                    began: at,
                    ..Running::default()
                };
                self.stacks.insert(stack.clone(), running);
                vec![escape::log(&format!(
                    "applying {stack}: {}",
                    labels::plural(*resources, "resource")
                ))]
            }
            RunEvent::ResourceStarted { stack, id, action } => {
                if let Some(running) = self.stacks.get_mut(stack) {
                    running.resources.insert(id.clone(), at);
                }
                let (sign, word) = (labels::sign(*action), action);
                self.stack_line(stack, format!("{sign} {}: {word}", title(id)))
            }
            RunEvent::ResourceNoted { stack, id, note } => {
                self.stack_line(stack, format!("  {}: note: {note}", title(id)))
            }
            RunEvent::ResourceProgress { stack, id, message } => {
                self.stack_line(stack, format!("  {}: {message}", title(id)))
            }
            RunEvent::ResourceEnded {
                stack,
                id,
                result,
                message,
            } => {
                let word = match result {
                    ResourceResult::Done => "done",
                    ResourceResult::Waiting => "waiting",
                    ResourceResult::Failed => "failed",
                    ResourceResult::Skipped => "skipped",
                };
                // The result of the resource shows the error, so it is not repeated here.
                let message = message.as_ref().filter(|_| *result != ResourceResult::Failed);
                let message = message.map_or(String::new(), |m| format!(": {m}"));
                let took = self.took(stack, id, at);
                let mut lines = self.stack_line(stack, format!("  {}: {word}{took}{message}", title(id)));
                if let Some(running) = self.stacks.get_mut(stack) {
                    running.left = running.left.saturating_sub(1);
                    running.done += usize::from(*result == ResourceResult::Done);
                    running.failed += usize::from(*result == ResourceResult::Failed);
                    if running.left == 0 {
                        lines.extend(self.close(stack, at));
                    }
                }
                lines
            }
        }
    }

    /// Returns the lines of stacks that have not ended, for the end of the run.
    pub fn finish(&mut self, at: Duration) -> Vec<String> {
        let mut open: Vec<_> = self.stacks.keys().cloned().collect();
        open.sort();
        open.iter().flat_map(|stack| self.close(stack, at)).collect()
    }

    /// Returns a line at each interval, and one at the end of a step that had such lines.
    fn step(&mut self, step: Step, done: usize, total: usize, at: Duration) -> Vec<String> {
        if done == 0 {
            self.step = Some(StepTimes {
                began: at,
                said: None,
            });
            return Vec::new();
        }
        let Some(times) = &mut self.step else {
            return Vec::new();
        };
        let is_due = at.saturating_sub(times.said.unwrap_or(times.began)) >= STEP_INTERVAL;
        let is_end = done == total && times.said.is_some();
        if !is_due && !is_end {
            return Vec::new();
        }
        times.said = Some(at);
        let took = labels::took(at.saturating_sub(times.began));
        vec![format!("{} · {took}", step_text(step, done, total))]
    }

    /// Returns ` in 18 s` if the duration is long enough to be shown.
    fn took(&self, stack: &StackId, id: &ResourceId, at: Duration) -> String {
        let began = self
            .stacks
            .get(stack)
            .and_then(|running| running.resources.get(id));
        let took = began.map(|began| at.saturating_sub(*began));
        match took.filter(|took| *took >= WORTH_SAYING) {
            Some(took) => format!(" in {}", labels::took(took)),
            None => String::new(),
        }
    }

    fn stack_line(&mut self, stack: &StackId, line: String) -> Vec<String> {
        match (self.dialect, self.stacks.get_mut(stack)) {
            (LogStyle::GithubActions, Some(running)) => {
                running.lines.push(escape::log(&line));
                Vec::new()
            }
            _ => vec![escape::log(&format!("{stack}  {line}"))],
        }
    }

    fn close(&mut self, stack: &StackId, at: Duration) -> Vec<String> {
        let Some(running) = self.stacks.remove(stack) else {
            return Vec::new();
        };
        let failed = match running.failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        let took = labels::took(at.saturating_sub(running.began));
        let ended = format!("{} done{failed} in {took}", running.done);
        if self.dialect == LogStyle::Plain {
            return vec![escape::log(&format!("{stack}  {ended}"))];
        }
        if running.lines.is_empty() {
            return Vec::new();
        }
        // The runner reads the rest of the line as the title of the group, and a percent sign in it as an escape.
        let title = escape::line(&format!("{stack}: {ended}")).replace('%', "%25");
        let mut lines = vec![format!("::group::{title}")];
        lines.extend(running.lines);
        lines.push("::endgroup::".to_owned());
        lines
    }
}

fn title(id: &ResourceId) -> String {
    labels::Title::from_id(id).full()
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::plan::Action;

    fn run(dialect: LogStyle, message: &str) -> Vec<String> {
        let mut progress = ProgressLines::new(dialect);
        let stack: StackId = "shop/dev".parse().unwrap();
        let id: ResourceId = "v1:Service:shop:web".parse().unwrap();
        let events = [
            RunEvent::ApplyStarted {
                stack: stack.clone(),
                resources: 2,
            },
            RunEvent::ResourceStarted {
                stack: stack.clone(),
                id: id.clone(),
                action: Action::Create,
            },
            RunEvent::ResourceEnded {
                stack,
                id,
                result: ResourceResult::Failed,
                message: Some(message.into()),
            },
        ];
        let at = |second: usize| Duration::from_secs(second as u64);
        let events = events.iter().enumerate();
        let mut lines: Vec<_> = events
            .flat_map(|(second, e)| progress.lines(e, at(second)))
            .collect();
        lines.extend(progress.finish(at(75)));
        lines
    }

    #[test]
    fn a_stack_is_one_group_and_says_how_long_it_took() {
        assert_eq!(
            run(LogStyle::GithubActions, "no quota"),
            [
                "applying shop/dev: 2 resources",
                "::group::shop/dev: 0 done, 1 failed in 1 min 15 s",
                "+ v1 Service shop/web: create",
                "  v1 Service shop/web: failed in 1.0 s",
                "::endgroup::"
            ]
        );
        assert_eq!(
            run(LogStyle::Plain, "no quota")[1..],
            [
                "shop/dev  + v1 Service shop/web: create",
                "shop/dev    v1 Service shop/web: failed in 1.0 s",
                "shop/dev  0 done, 1 failed in 1 min 15 s"
            ]
        );
    }

    #[test]
    fn a_long_step_counts_and_times_and_a_short_one_says_nothing() {
        let lines = |seconds_per_stack: u64, total: usize| -> Vec<String> {
            let mut progress = ProgressLines::new(LogStyle::Plain);
            let event = |done| RunEvent::StepProgress {
                step: Step::Compile,
                done,
                total,
            };
            (0..=total)
                .flat_map(|done| {
                    progress.lines(&event(done), Duration::from_secs(seconds_per_stack * done as u64))
                })
                .collect()
        };
        assert_eq!(
            lines(6, 5),
            [
                "Compiling 2/5 · 12 s",
                "Compiling 4/5 · 24 s",
                "Compiling 5/5 · 30 s"
            ]
        );
        assert_eq!(lines(1, 9), Vec::<String>::new());
        assert_eq!(lines(18, 1), ["Compiling · 18 s"]);
    }

    #[test]
    fn messages_carry_no_commands() {
        for dialect in [LogStyle::Plain, LogStyle::GithubActions] {
            let lines = run(dialect, "x\n::endgroup::\n::add-mask::a ##[error]b");
            assert_eq!(
                lines.iter().filter(|l| l.trim().starts_with("::")).count(),
                if dialect == LogStyle::Plain { 0 } else { 2 }
            );
            assert!(
                !lines.iter().any(|l| l.contains("##[") || l.contains('\n')),
                "{lines:?}"
            );
        }
    }
}
