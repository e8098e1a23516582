//! Texts for the runner: outputs, the job summary, annotations. Pure functions; [`Runner`](super::Runner) has the
//! files.
//!
//! The runner interprets `::command::` at the start of a line of stdout or stderr, and `##[command]` anywhere in a
//! line. So text by others is only printed escaped, or between `::stop-commands::` and its token.

use konverge_base::model::{
    check_run::{Annotation, Level},
    text::is_hidden,
};

/// The maximum number of annotations that the runner shows for each step and level.
const MOST: usize = 10;

/// The maximum length of a message in characters; the runner truncates longer ones.
const MESSAGE: usize = 4_000;

/// Writes an output `name=value` for the file GITHUB_OUTPUT. The delimiter of the heredoc is random, so a value
/// cannot end it and set another output.
pub fn output(name: &str, value: &str) -> String {
    loop {
        let delimiter = format!("konverge_{}", uuid::Uuid::new_v4().simple());
        if !value.contains(&delimiter) && !name.contains(&delimiter) {
            return format!("{name}<<{delimiter}\n{value}\n{delimiter}\n");
        }
    }
}

/// Writes annotations as workflow commands, at most ten of each level. If there are more, the tenth has the number
/// of the others.
pub fn annotations(notes: &[Annotation]) -> Vec<String> {
    let mut lines = Vec::new();
    for level in [Level::Error, Level::Warning, Level::Notice] {
        let of_level: Vec<_> = notes.iter().filter(|n| n.level == level).collect();
        let shown = if of_level.len() > MOST {
            MOST - 1
        } else {
            of_level.len()
        };
        lines.extend(of_level[..shown].iter().map(|note| annotation(note)));
        if shown < of_level.len() {
            let rest = of_level.len() - shown;
            lines.push(format!(
                "::{}::and {rest} more: see the summary and the check runs",
                level_word(level)
            ));
        }
    }
    lines
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Notice => "notice",
    }
}

fn annotation(note: &Annotation) -> String {
    let mut properties = Vec::new();
    if !note.file.is_empty() {
        properties.push(format!("file={}", property(&note.file)));
        // The runner drops an annotation that has a column but no line.
        if let Some(line) = note.line {
            properties.push(format!("line={line}"));
            if let Some(column) = note.column {
                properties.push(format!("col={column}"));
            }
        }
    }
    properties.push(format!("title={}", property(&note.title)));
    let message: String = note.message.chars().take(MESSAGE).collect();
    format!(
        "::{} {}::{}",
        level_word(note.level),
        properties.join(","),
        data(&message)
    )
}

/// Escapes the message of a command. `##[` is broken up, because the runner finds this older form anywhere in a
/// line. Hidden characters are made visible.
fn data(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.replace("##[", "#\u{2009}#[").chars() {
        match c {
            '%' => out.push_str("%25"),
            '\r' => out.push_str("%0D"),
            '\n' => out.push_str("%0A"),
            '\t' => out.push(' '),
            c if is_hidden(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Escapes a property of a command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(level: Level, message: &str) -> Annotation {
        Annotation {
            level,
            file: "a,b:c\n.k".into(),
            line: Some(3),
            column: Some(7),
            title: "x::y".into(),
            message: message.into(),
        }
    }

    #[test]
    fn an_annotation_hides_nothing() {
        let lines = annotations(&[note(Level::Warning, "a\u{202e}b\u{200b}\u{1b}[31m\tc")]);
        assert!(
            lines[0].ends_with("::a\\u{202e}b\\u{200b}\\u{1b}[31m c"),
            "{}",
            lines[0]
        );
    }

    #[test]
    fn an_output_can_not_set_another() {
        let text = output("stacks", "[]\nEOF\nother=1");
        let delimiter = text
            .lines()
            .next()
            .and_then(|l| l.split("<<").nth(1))
            .unwrap_or_default();
        assert_eq!(
            text,
            format!("stacks<<{delimiter}\n[]\nEOF\nother=1\n{delimiter}\n")
        );
        assert_ne!(output("a", "b"), output("a", "b"));
    }

    #[test]
    fn an_annotation_is_one_command() {
        let lines = annotations(&[note(Level::Error, "bad\n::add-mask::x ##[error]y 100%")]);
        assert_eq!(
            lines,
            [
                "::error file=a%2Cb%3Ac%0A.k,line=3,col=7,title=x%3A%3Ay::bad%0A::add-mask::x #\u{2009}#[error]y 100%25"
            ]
        );
    }

    #[test]
    fn at_most_ten_of_a_level_and_the_rest_is_counted() {
        let notes: Vec<_> = (0..25).map(|n| note(Level::Error, &n.to_string())).collect();
        let lines = annotations(&notes);
        assert_eq!(lines.len(), 10);
        assert!(lines[9].contains("and 16 more"));
        assert_eq!(annotations(&notes[..10]).len(), 10);
        assert!(!annotations(&notes[..10])[9].contains("more"));
    }
}
