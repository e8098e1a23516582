//! Renders the events of `konverge watch` for a terminal.

use super::{
    escape::log,
    labels::plural,
    terminal::{self, Style},
};
use konverge_base::model::{
    affected::Affected,
    plan::Plan,
    watch_event::{WatchEvent, WatchEventKind},
};

/// The maximum number of files in a title.
const NAMED: usize = 3;

/// Renders the changed files, at most `most` affected stacks with the reasons, and the differences of their Specs.
pub fn text(event: &WatchEvent, most: Option<usize>, style: Style) -> String {
    let mut text = terminal::title(&title(event), style);
    if let Some(error) = &event.error {
        let place = match (&error.file, error.line) {
            (Some(file), Some(line)) => format!(" ({file}:{line})"),
            (Some(file), None) => format!(" ({file})"),
            (None, _) => String::new(),
        };
        text.push_str(&format!("error: {}\n", log(&format!("{}{place}", error.message))));
        return text;
    }
    let affected = Affected {
        version: 1,
        base: event.base.clone(),
        head: None,
        stacks: event.stacks.clone(),
    };
    text.push_str(&terminal::affected(&affected, most, style));
    if !event.plan.is_empty() {
        let plan = Plan {
            version: 1,
            stacks: event.plan.clone(),
        };
        text.push_str(&terminal::plan(&plan, style));
    }
    text
}

fn title(event: &WatchEvent) -> String {
    let base = event.base.as_ref().map_or("nothing", |base| base.short());
    if event.event == WatchEventKind::Start {
        return format!("Compared with {base}");
    }
    let mut names: Vec<String> = event.files.iter().take(NAMED).map(ToString::to_string).collect();
    let more = event.files.len().saturating_sub(NAMED);
    if more > 0 {
        names.push(plural(more, "more file"));
    }
    if names.is_empty() {
        "Saved".to_owned()
    } else {
        format!("Saved {} (compared with {base})", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::{
        error::{ErrorKind, UserError},
        model::RepoPath,
    };

    #[test]
    fn a_title_names_few_files_and_no_control_sequence() {
        let files = ["a.k", "b\u{1b}[2J.k", "c.k", "d.k", "e.k"];
        let event = WatchEvent {
            files: files
                .iter()
                .filter_map(|file| RepoPath::normalize(file))
                .collect(),
            ..WatchEvent::new(WatchEventKind::Change, None)
        };
        let text = text(&event, None, Style::default());
        assert!(
            text.contains("Saved a.k, ") && text.contains("2 more files (compared with nothing)"),
            "{text}"
        );
        assert!(
            !text.contains('\u{1b}') && text.contains("No stack is affected."),
            "{text}"
        );
    }

    #[test]
    fn an_error_has_its_place() {
        let failure = UserError::new(ErrorKind::Config, "must be a list").at("konverge.yaml", Some(3), None);
        let event = WatchEvent {
            error: Some(failure.body()),
            ..WatchEvent::new(WatchEventKind::Change, None)
        };
        assert!(text(&event, None, Style::default()).contains("error: must be a list (konverge.yaml:3)\n"));
    }
}
