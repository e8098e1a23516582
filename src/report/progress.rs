//! Events as lines of a log. Who draws them (a plain log, a terminal's bars) is not decided here.

use std::collections::HashMap;

use super::{escape, labels};
use crate::model::{StackId, event::Event, apply_result::ResourceResult};

/// How lines are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Lines as they are.
    Plain,
    /// GitHub's runner: a stack's lines are folded by `::group::`. Stacks run at the same time and groups do not
    /// nest, so a stack's lines are held until it ended.
    GithubActions,
}

/// Turns events into lines. One per run.
#[derive(Debug)]
pub struct Progress {
    dialect: Dialect,
    stacks: HashMap<StackId, Running>,
}

#[derive(Debug, Default)]
struct Running {
    lines: Vec<String>,
    left: usize,
    failed: usize,
}

impl Progress {
    /// Nothing has happened yet.
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            stacks: HashMap::new(),
        }
    }

    /// The lines to print for an event, without line ends; none of them can be a command of the runner but our own.
    pub fn lines(&mut self, event: &Event) -> Vec<String> {
        match event {
            Event::PlanStarted { stack, resources } => {
                vec![escape::log(&format!(
                    "planning {stack}: {}",
                    labels::plural(*resources, "resource")
                ))]
            }
            Event::ApplyStarted { stack, resources } => {
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
            Event::ResourceStarted { stack, id, action } => self.say(
                stack,
                format!("{} {id}: {}", labels::sign(*action), labels::word(*action)),
            ),
            Event::ResourceNoted { stack, id, note } => self.say(stack, format!("  {id}: note: {note}")),
            Event::ResourceProgress { stack, id, message } => self.say(stack, format!("  {id}: {message}")),
            Event::ResourceEnded {
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
                // Why it failed stands in the result.
                let message = message.as_ref().filter(|_| *result != ResourceResult::Failed);
                let message = message.map_or(String::new(), |m| format!(": {m}"));
                let mut lines = self.say(stack, format!("  {id}: {word}{message}"));
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

    /// The lines of stacks that never ended, for the end of the run.
    pub fn finish(&mut self) -> Vec<String> {
        let mut open: Vec<_> = self.stacks.keys().cloned().collect();
        open.sort();
        open.iter().flat_map(|stack| self.close(stack)).collect()
    }

    fn say(&mut self, stack: &StackId, line: String) -> Vec<String> {
        match (self.dialect, self.stacks.get_mut(stack)) {
            (Dialect::GithubActions, Some(running)) => {
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
        if self.dialect == Dialect::Plain || running.lines.is_empty() {
            return Vec::new();
        }
        let failed = if running.failed > 0 {
            format!(", {} failed", running.failed)
        } else {
            String::new()
        };
        // The runner reads the rest of the line as the group's title; percent signs are its escapes.
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

    fn run(dialect: Dialect, message: &str) -> Vec<String> {
        let mut progress = Progress::new(dialect);
        let stack: StackId = "shop/dev".parse().unwrap();
        let id: crate::model::ResourceId = "v1:Service:shop:web".parse().unwrap();
        let events = [
            Event::ApplyStarted {
                stack: stack.clone(),
                resources: 1,
            },
            Event::ResourceStarted {
                stack: stack.clone(),
                id: id.clone(),
                action: Action::Create,
            },
            Event::ResourceEnded {
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
            run(Dialect::GithubActions, "no quota"),
            [
                "applying shop/dev: 1 resource",
                "::group::shop/dev, 1 failed",
                "+ v1:Service:shop:web: create",
                "  v1:Service:shop:web: failed",
                "::endgroup::"
            ]
        );
        assert_eq!(run(Dialect::Plain, "no quota").len(), 3);
    }

    #[test]
    fn messages_carry_no_commands() {
        for dialect in [Dialect::Plain, Dialect::GithubActions] {
            let lines = run(dialect, "x\n::endgroup::\n::add-mask::a ##[error]b");
            assert_eq!(
                lines.iter().filter(|l| l.trim().starts_with("::")).count(),
                if dialect == Dialect::Plain { 0 } else { 2 }
            );
            assert!(
                !lines.iter().any(|l| l.contains("##[") || l.contains('\n')),
                "{lines:?}"
            );
        }
    }
}
