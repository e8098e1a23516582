//! Parses the error texts of the core into [`KclDiagnostic`]s.
//!
//! The core formats errors for a terminal (`error[E2G22]: TypeError`, ` --> file:line:column`, the source line, a caret
//! and the message). All versions since 0.9 use this format, while only new versions also have a structured one, so
//! this format is parsed.

use std::path::Path;

use serde::{Deserialize, Serialize};

use konverge_base::error::Location;

/// One error of the compiler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KclDiagnostic {
    /// The code, such as `E2G22`; `None` for errors during evaluation.
    pub code: Option<String>,
    /// The name, such as `TypeError` or `EvaluationError`.
    pub name: String,
    /// The core's message.
    pub message: String,
    /// The position: a path relative to the repository, line and column from 1.
    pub place: Option<Location>,
    /// The source line with the error.
    pub source: Option<String>,
    /// True if the error is at the first word of the source line.
    pub at_line_start: bool,
    /// Other positions that the core names, each with its message.
    pub related: Vec<(Location, String)>,
    /// The core's own suggestions.
    pub hints: Vec<String>,
}

/// Phrases in errors that come from the operating system, its memory or its network.
const OF_THE_SYSTEM: [&str; 9] = [
    "os error",
    "permission denied",
    "not permitted",
    "no such file or directory",
    "no space left",
    "out of memory",
    "memory allocation",
    "timed out",
    "lookup address",
];

impl KclDiagnostic {
    pub(super) fn new(code: Option<&str>, name: &str) -> Self {
        Self {
            code: code.map(str::to_owned),
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the name, the message, the source line and the related positions, without the error's own position and
    /// hints.
    pub fn text(&self) -> String {
        let mut text = self.head();
        if let Some(source) = &self.source {
            text.push_str(&format!("\n    {source}"));
        }
        for (place, message) in &self.related {
            text.push_str(&format!("\n  {place}: {message}"));
        }
        text
    }

    /// Returns everything on one line, beginning with the position.
    pub fn line(&self) -> String {
        let head = self.head();
        self.place
            .as_ref()
            .map_or_else(|| head.clone(), |place| format!("{place}: {head}"))
    }

    /// Returns true if another machine may not report the error for the same files: it has no position in the code, or
    /// it quotes the operating system (a sandbox, a full disk or a network decides).
    pub fn is_of_the_machine(&self) -> bool {
        let related = self.related.iter().map(|(_, message)| message.as_str());
        let mut texts = related.chain([self.name.as_str(), self.message.as_str()]);
        self.place.is_none()
            || texts.any(|text| {
                let text = text.to_ascii_lowercase();
                OF_THE_SYSTEM.iter().any(|words| text.contains(words))
            })
    }

    /// Returns true if the core did not find an imported package.
    pub fn is_missing_import(&self) -> bool {
        self.name == "CannotFindModule"
    }

    /// Returns the name and the message.
    pub fn head(&self) -> String {
        if self.message.is_empty() {
            self.name.clone()
        } else {
            format!("{}: {}", self.name, self.message)
        }
    }
}

/// Parses the core's error text. `root` is the working folder, which is removed from every path. A text in another
/// format becomes one diagnostic without a position.
pub(super) fn read(text: &str, root: &Path) -> Vec<KclDiagnostic> {
    let text = plain(text, root);
    let mut all: Vec<KclDiagnostic> = Vec::new();
    let mut lines = text.lines().peekable();
    let mut place: Option<Location> = None;
    let mut source: Option<String> = None;
    let mut first_column = None;
    let mut loose: Vec<&str> = Vec::new();
    while let Some(line) = lines.next() {
        let trimmed = line.trim();
        if let Some(head) = heading(trimmed) {
            all.push(head);
            (place, source) = (None, None);
        } else if let Some(hint) = trimmed.strip_prefix("suggestion: ") {
            if let Some(last) = all.last_mut() {
                last.hints.push(hint.to_owned());
            }
        } else if let Some(rest) = trimmed.strip_prefix("--> ") {
            place = Some(location(rest));
            source = None;
        } else if let Some((gutter, rest)) = trimmed
            .split_once('|')
            .filter(|(gutter, _)| gutter.trim().bytes().all(|byte| byte.is_ascii_digit()))
        {
            if !gutter.trim().is_empty() {
                // There is one blank between the bar and the source line.
                let indent = rest.len() - rest.trim_start().len();
                first_column = u32::try_from(indent).ok();
                source = Some(rest.trim().to_owned());
                continue;
            }
            let message = rest.trim_start().trim_start_matches('^').trim();
            let Some(at) = place.clone().filter(|_| !message.is_empty()) else {
                continue;
            };
            let Some(last) = all.last_mut() else { continue };
            // A message may continue on the following lines.
            let mut message = message.to_owned();
            while let Some(more) = lines.next_if(|next| {
                let next = next.trim();
                !next.is_empty()
                    && !next.starts_with('|')
                    && !next.starts_with("--> ")
                    && heading(next).is_none()
            }) {
                message.push(' ');
                message.push_str(more.trim());
            }
            if last.place.is_none() {
                last.message = message;
                last.at_line_start = first_column.is_some() && at.column == first_column;
                last.place = Some(at);
                last.source = source.take().filter(|line| !line.is_empty());
            } else {
                last.related.push((at, message));
            }
        } else if !trimmed.is_empty() && !is_noise(trimmed) {
            loose.push(trimmed);
        }
    }
    if all.is_empty() && !loose.is_empty() {
        let mut only = KclDiagnostic::new(None, "KCL");
        only.message = loose.join("\n");
        all.push(only);
    }
    let mut unique: Vec<KclDiagnostic> = Vec::with_capacity(all.len());
    for diagnostic in all {
        if !unique.contains(&diagnostic) {
            unique.push(diagnostic);
        }
    }
    // The core reports a missing import twice, the second time with the better message.
    let shadowed = |one: &KclDiagnostic, all: &[KclDiagnostic]| {
        one.message.ends_with("not found in the program")
            && all
                .iter()
                .any(|other| other != one && other.code == one.code && other.place == one.place)
    };
    let all = unique.clone();
    unique.retain(|diagnostic| !shadowed(diagnostic, &all));
    // Errors come before warnings: the first diagnostic is shown as the cause, and the core may print a warning
    // before the error.
    unique.sort_by_key(|diagnostic| diagnostic.name.ends_with("Warning"));
    unique.iter_mut().for_each(explain_plugin);
    unique
}

/// The message for the import of a plugin.
pub(super) const NO_PLUGINS: &str = "Konverge supports no plugins";

/// Explains why a plugin does not exist. The core's own hints suggest a plugin mode or a package, which do not help
/// here.
fn explain_plugin(diagnostic: &mut KclDiagnostic) {
    let message = &diagnostic.message;
    let named = message
        .strip_prefix("the plugin package `")
        .and_then(|rest| rest.split_once("` is not found"));
    let plugin = match named {
        Some((plugin, _)) => plugin,
        None if message.starts_with("Cannot find the module kcl_plugin from ") => "kcl_plugin",
        None => return,
    };
    diagnostic.message = format!(
        "`import {plugin}`: {NO_PLUGINS}, because a plugin is a program outside of the sandbox and may read anything"
    );
    diagnostic.hints = Vec::new();
}

/// Parses a heading such as `error[E1001]: InvalidSyntax` or `EvaluationError`.
fn heading(line: &str) -> Option<KclDiagnostic> {
    let severity = |line: &str, word: &str| {
        let rest = line.strip_prefix(word)?;
        let (code, name) = rest.strip_prefix('[')?.split_once("]: ")?;
        Some(KclDiagnostic::new(Some(code), name))
    };
    severity(line, "error")
        .or_else(|| severity(line, "warning"))
        .or_else(|| {
            let word = line.strip_suffix("Error")?;
            let is_name = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphabetic());
            is_name.then(|| KclDiagnostic::new(None, line))
        })
}

/// Parses `path:line:column` from the right, because a path may contain colons.
fn location(text: &str) -> Location {
    let mut parts = text.rsplitn(3, ':');
    let column = parts.next().and_then(|part| part.parse().ok());
    let line = parts.next().and_then(|part| part.parse().ok());
    match (parts.next(), line, column) {
        (Some(file), Some(line), Some(column)) => Location {
            file: file.to_owned(),
            line: Some(line),
            column: Some(column),
        },
        _ => Location {
            file: text.to_owned(),
            line: None,
            column: None,
        },
    }
}

/// Returns true for a line of a panic report that does not describe the code.
fn is_noise(line: &str) -> bool {
    line.starts_with("thread '") || line.starts_with("note: ") || line.starts_with("stack backtrace")
}

/// Removes colors, other control characters and the working folder.
pub(super) fn plain(text: &str, root: &Path) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // Skip an ANSI escape sequence: ESC [ … letter
            for escaped in chars.by_ref() {
                if escaped.is_ascii_alphabetic() {
                    break;
                }
            }
        } else if !c.is_control() || c == '\n' || c == '\t' {
            clean.push(c);
        }
    }
    let root = root.display().to_string();
    clean.replace(&format!("{root}/"), "").replace(&root, ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE_ERROR: &str = "\nerror[E2G22]: TypeError\n \u{1b}[1;38;5;12m-->\u{1b}[0m /s/1/n/e1.k:5:7\n\u{1b}[1m  |\u{1b}[0m\n5 |\u{1b}[0m a: A {x: \"s\"}\n  |       ^ expected int, got str(s)\n  |\n\n --> /s/1/n/e1.k:2:5\n  |\n2 |     x: int\n  |     ^ variable is defined here, its type is int, but got str(s)\n  |\n\n\n";

    #[test]
    fn a_type_error_has_its_place_line_and_relation() {
        let all = read(TYPE_ERROR, Path::new("/s/1"));
        assert_eq!(all.len(), 1, "{all:?}");
        let error = &all[0];
        assert_eq!(error.code.as_deref(), Some("E2G22"));
        assert_eq!(error.line(), "n/e1.k:5:7: TypeError: expected int, got str(s)");
        assert_eq!(error.source.as_deref(), Some("a: A {x: \"s\"}"));
        assert!(!error.at_line_start);
        let text = TYPE_ERROR
            .replace("5 |\u{1b}[0m a", "5 |\u{1b}[0m     a")
            .replace("e1.k:5:7", "e1.k:5:5");
        assert!(read(&text, Path::new("/s/1"))[0].at_line_start);
        assert_eq!(error.related.len(), 1);
        assert_eq!(error.related[0].0.to_string(), "n/e1.k:2:5");
    }

    #[test]
    fn hints_stay_and_repetitions_go() {
        let text = "error[E2F04]: CannotFindModule\n --> /s/a.k:1:1\n  |\n1 | import nope.x\n  | ^ pkgpath nope.x not found in the program\n  |\n\n\nsuggestion: try 'kcl mod add nope'\n\n\nerror[E2F04]: CannotFindModule\n --> /s/a.k:1:1\n  |\n1 | import nope.x\n  | ^ Cannot find the module nope.x from /s/nope/x\n  |\n\n\nsuggestion: try 'kcl mod add nope'\n";
        let all = read(text, Path::new("/s"));
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(all[0].message, "Cannot find the module nope.x from nope/x");
        assert_eq!(all[0].hints, ["try 'kcl mod add nope'"]);
    }

    #[test]
    fn a_plugin_is_explained() {
        let named = "error[E2F04]: CannotFindModule\n --> /s/a.k:1:1\n  |\n1 | import kcl_plugin.hello\n  | ^ the plugin package `kcl_plugin.hello` is not found, please confirm if plugin mode is enabled\n  |\n";
        let bare = "error[E2F04]: CannotFindModule\n --> /s/a.k:1:1\n  |\n1 | import kcl_plugin\n  | ^ Cannot find the module kcl_plugin from /s/kcl_plugin\n  |\n\n\nsuggestion: try 'kcl mod add kcl_plugin' to download the missing package\n";
        for (text, start) in [
            (named, "`import kcl_plugin.hello`: "),
            (bare, "`import kcl_plugin`: "),
        ] {
            let all = read(text, Path::new("/s"));
            assert_eq!(all.len(), 1, "{all:?}");
            assert!(all[0].message.starts_with(start), "{all:?}");
            assert!(all[0].message.contains("may read anything"), "{all:?}");
            // The hint of the core is for packages.
            assert!(all[0].hints.is_empty(), "{all:?}");
        }
    }

    #[test]
    fn a_failed_check_says_which() {
        let text = "EvaluationError\n --> /s/e2.k:5:5\n  |\n5 | a = A {x = 1}\n  |     ^ Instance check failed\n  |\n\n --> /s/e2.k:4:1\n  |\n4 |         x > 3, \"x too small\"\n  |  Check failed on the condition: x too small\n  |\n";
        let all = read(text, Path::new("/s"));
        assert_eq!(all[0].line(), "e2.k:5:5: EvaluationError: Instance check failed");
        assert_eq!(all[0].related[0].1, "Check failed on the condition: x too small");
    }

    #[test]
    fn what_the_system_answered_is_of_the_machine() {
        let diagnostic = |message: &str| {
            let text =
                format!("EvaluationError\n --> /s/e2.k:5:5\n  |\n5 | a = 1\n  |     ^ {message}\n  |\n");
            read(&text, Path::new("/s")).remove(0)
        };
        assert!(!diagnostic("Instance check failed").is_of_the_machine());
        for message in [
            "failed to access the file 'a.txt': Permission denied (os error 13)",
            "failed to lookup address information: Temporary failure in name resolution",
            "Operation not permitted",
        ] {
            assert!(diagnostic(message).is_of_the_machine(), "{message}");
        }
        let loose = read("Cannot find the kcl file", Path::new("/s"));
        assert!(loose[0].is_of_the_machine());
    }

    #[test]
    fn any_other_text_is_kept_without_control_characters() {
        let all = read("Cannot find the kcl file \u{7}/s/zz.k\u{1b}[0m", Path::new("/s"));
        assert_eq!(all[0].message, "Cannot find the kcl file zz.k");
        assert_eq!(all[0].place, None);
    }
}
