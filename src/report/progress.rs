//! Events as lines of a log. The caller decides how to show them (a plain log, progress bars).

use std::collections::HashMap;

use super::{escape, labels};
use crate::model::{StackId, apply_result::ResourceResult, event::RunEvent};

/// How lines are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStyle {
    /// Lines without grouping.
    Plain,
    /// GitHub's runner: `::group::` folds the lines of a stack. Stacks run concurrently and groups cannot be
    /// nested, so the lines of a stack are held back until it ends.
    GithubActions,
}

/// Turns events into lines. One per run.
#[derive(Debug)]
pub struct ProgressLines {
    dialect: LogStyle,
    stacks: HashMap<StackId, Running>,
}

#[derive(Debug, Default)]
struct Running {
    lines: Vec<String>,
    left: usize,
    failed: usize,
}

impl ProgressLines {
    pub fn new(dialect: LogStyle) -> Self {
        Self {
            dialect,
            stacks: HashMap::new(),
        }
    }

    /// The lines to print for an event, without newlines. None of them can be a workflow command except our
    /// own.
    pub fn lines(&mut self, event: &RunEvent) -> Vec<String> {
        match event {
            RunEvent::PlanStarted { stack, resources } => {
                vec![escape::log(&format!(
                    "planning {stack}: {}",
                    labels::plural(*resources, "resource")
                ))]
            }
            RunEvent::ApplyStarted { stack, resources } => {
                let running = Running {
                    left: *resources,
                    ..Running::default()
                };
                self.stacks.insert(stack.clone(), running);
                vec![escape::log(&format!(
                    "applying {stack}: {}",
                    labels::plural(*resources, "resource")
                ))]
            }
            RunEvent::ResourceStarted { stack, id, action } => self.stack_line(
                stack,
                format!("{} {id}: {}", labels::sign(*action), labels::action_word(*action)),
            ),
            RunEvent::ResourceNoted { stack, id, note } => {
                self.stack_line(stack, format!("  {id}: note: {note}"))
            }
            RunEvent::ResourceProgress { stack, id, message } => {
                self.stack_line(stack, format!("  {id}: {message}"))
            }
            RunEvent::ResourceEnded {
                stack,
                id,
                result,
                message,
            } => {
                let word = match result {
                    ResourceResult::Done => "done",
                    ResourceResult::Failed => "failed",
                    ResourceResult::Skipped => "skipped",
                };
                // The result shows why it failed.
                let message = message.as_ref().filter(|_| *result != ResourceResult::Failed);
                let message = message.map_or(String::new(), |m| format!(": {m}"));
                let mut lines = self.stack_line(stack, format!("  {id}: {word}{message}"));
                if let Some(running) = self.stacks.get_mut(stack) {
                    running.left = running.left.saturating_sub(1);
                    running.failed += usize::from(*result == ResourceResult::Failed);
                    if running.left == 0 {
                        lines.extend(self.close(stack));
                    }
                }
                lines
            }
        }
    }

    /// The lines of stacks that did not end, for the end of the run.
    pub fn finish(&mut self) -> Vec<String> {
        let mut open: Vec<_> = self.stacks.keys().cloned().collect();
        open.sort();
        open.iter().flat_map(|stack| self.close(stack)).collect()
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

    fn close(&mut self, stack: &StackId) -> Vec<String> {
        let Some(running) = self.stacks.remove(stack) else {
            return Vec::new();
        };
        if self.dialect == LogStyle::Plain || running.lines.is_empty() {
            return Vec::new();
        }
        let failed = if running.failed > 0 {
            format!(", {} failed", running.failed)
        } else {
            String::new()
        };
        // The runner reads the rest of the line as the title of the group; percent signs are its escapes.
        let title = escape::line(&format!("{stack}{failed}")).replace('%', "%25");
        let mut lines = vec![format!("::group::{title}")];
        lines.extend(running.lines);
        lines.push("::endgroup::".to_owned());
        lines
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::plan::Action;

    fn run(dialect: LogStyle, message: &str) -> Vec<String> {
        let mut progress = ProgressLines::new(dialect);
        let stack: StackId = "shop/dev".parse().unwrap();
        let id: crate::model::ResourceId = "v1:Service:shop:web".parse().unwrap();
        let events = [
            RunEvent::ApplyStarted {
                stack: stack.clone(),
                resources: 1,
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
        let mut lines: Vec<_> = events.iter().flat_map(|e| progress.lines(e)).collect();
        lines.extend(progress.finish());
        lines
    }

    #[test]
    fn a_stack_is_one_group() {
        assert_eq!(
            run(LogStyle::GithubActions, "no quota"),
            [
                "applying shop/dev: 1 resource",
                "::group::shop/dev, 1 failed",
                "+ v1:Service:shop:web: create",
                "  v1:Service:shop:web: failed",
                "::endgroup::"
            ]
        );
        assert_eq!(run(LogStyle::Plain, "no quota").len(), 3);
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
