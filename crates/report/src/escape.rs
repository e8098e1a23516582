//! Escapes all text from outside before it is printed: names, paths, values, messages.
//!
//! There is one function for each context. GitHub links `@name`, `#12`, commit ids and URLs outside code, so text from
//! outside is always formatted as code. GitHub's runner executes `::` at the start of a line and `##[` anywhere in a
//! line, so both are broken up in logs.

use std::fmt::Write as _;

use serde::Serialize;

use konverge_base::{
    model::text::{is_hidden, truncate},
    yaml,
};

/// The maximum length of a log line, in bytes.
const LONGEST_LINE: usize = 8 << 10;

/// The maximum number of lines of one message in a log.
const MOST_LINES: usize = 200;

fn push_visible(c: char, out: &mut String) {
    if is_hidden(c) {
        out.extend(c.escape_unicode());
    } else {
        out.push(c);
    }
}

/// Returns one line of plain text, without line breaks, control sequences and invisible characters.
pub fn line(text: &str) -> String {
    if !text.chars().any(is_hidden) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => out.push(' '),
            other => push_visible(other, &mut out),
        }
    }
    out
}

/// Returns items as a list in Markdown, with an empty line after it; empty without items.
pub(crate) fn bullets(items: impl IntoIterator<Item = String>) -> String {
    let list: String = items.into_iter().map(|item| format!("- {item}\n")).collect();
    if list.is_empty() { list } else { list + "\n" }
}

/// Returns the lines of a plain text, each without control sequences and invisible characters.
pub fn lines(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().map(line)
}

/// Returns a Markdown code span for any text.
pub fn code(text: &str) -> String {
    let text = line(text);
    // The fence is longer than any run of backticks in the text, so that the text cannot end the span.
    let fence = "`".repeat(longest_run(&text, '`') + 1);
    if text.is_empty() {
        return "` `".to_owned();
    }
    // Markdown removes one space at each end of a span, and would read a backtick there as part of the fence.
    let pad = if text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']) {
        " "
    } else {
        ""
    };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// Returns a Markdown code span for a table cell. A pipe would end the cell even inside code, and a backslash in the
/// text would undo its escape, so a similar character replaces the pipe.
pub fn cell(text: &str) -> String {
    code(&text.replace('|', "\u{2502}"))
}

/// Splits a text with commands and names in backticks, such as a hint, into parts. The flag is true for code. A text
/// with an odd number of backticks is one part of code.
fn spans(text: &str) -> Vec<(bool, &str)> {
    let parts: Vec<_> = text
        .split('`')
        .enumerate()
        .map(|(at, part)| (at % 2 == 1, part))
        .collect();
    match parts.len() % 2 {
        1 => parts.into_iter().filter(|(_, part)| !part.is_empty()).collect(),
        _ => vec![(true, text)],
    }
}

/// Returns a text of sentences as Markdown. Text in backticks becomes code, and so does each word to which Markdown or
/// a forge would give a meaning (a mention, an issue number, a URL, a commit, an emoji, an HTML element), and a number
/// that would start a list.
pub fn prose(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (is_code, part) in spans(text) {
        if is_code {
            push_code(part, &mut out);
            continue;
        }
        for (at, word) in line(part).split(' ').enumerate() {
            if at > 0 {
                out.push(' ');
            }
            // Checked before the punctuation is removed, because it is part of an emoji and of a list number.
            if has_emoji(word) || out.is_empty() && is_list_number(word) {
                push_code(word, &mut out);
                continue;
            }
            // The punctuation of the sentence stays outside of the code span.
            let end = word.trim_end_matches([',', ';', ':', '.', ')']);
            let start = end.len() - end.trim_start_matches('(').len();
            if is_plain_word(&end[start..]) {
                out.push_str(word)
            } else {
                out.push_str(&word[..start]);
                push_code(&end[start..], &mut out);
                out.push_str(&word[end.len()..]);
            }
        }
    }
    out
}

/// Adds a code span, after a space if another span precedes: two adjacent spans would be read as one.
fn push_code(text: &str, out: &mut String) {
    if out.ends_with('`') {
        out.push(' ');
    }
    out.push_str(&code(text));
}

/// Returns true if a word contains a possible emoji name, such as `:tada:`. The parts of a time do not count.
fn has_emoji(word: &str) -> bool {
    let parts: Vec<_> = word.split(':').collect();
    let between_colons = parts.get(1..parts.len() - 1).unwrap_or_default();
    let is_name = |name: &&str| {
        let digits = name.trim_end_matches('Z');
        let is_of_time = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-+_".contains(c);
        !name.is_empty() && !is_of_time && name.chars().all(is_of_name)
    };
    between_colons.iter().any(is_name)
}

/// Returns true if a word starts an ordered list: `1.` or `1)`.
fn is_list_number(word: &str) -> bool {
    let number = word.strip_suffix(['.', ')']);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns true if neither Markdown nor a forge gives the word a meaning.
fn is_plain_word(word: &str) -> bool {
    let is_text = |c: char| c.is_alphanumeric() || "-'\",;:.()/=+?%…’".contains(c);
    // A forge links the id of a commit if it has seven or more digits.
    let looks_like_a_commit = word.len() >= 7 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let lower = word.to_ascii_lowercase();
    word.chars().all(is_text)
        && !looks_like_a_commit
        && !lower.contains("://")
        && !lower.contains("::")
        && !lower.starts_with("www.")
        // GitHub links `GH-12` to an issue.
        && !lower.starts_with("gh-")
        // These characters start a list, a heading or a rule.
        && !word.starts_with(['-', '+', '='])
}

/// Returns [`prose()`] as raw HTML. Line breaks of the text stay.
pub fn html_prose(text: &str) -> String {
    let parts = spans(text).into_iter();
    let parts = parts.map(|(is_code, part)| {
        if is_code {
            html_code(&line(part))
        } else {
            html(part)
        }
    });
    parts.collect()
}

/// Returns a code element in raw HTML (`<summary>`), where Markdown is not parsed.
pub fn html_code(text: &str) -> String {
    format!("<code>{}</code>", html(text))
}

/// Escapes a text for an HTML element or a quoted attribute.
pub fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push('\n'),
            other => push_visible(other, &mut out),
        }
    }
    out
}

/// Returns a fenced block whose fence is longer than any run of backticks inside. The lines are not changed, so they
/// must come from [`line()`].
pub fn fenced(language: &str, body: &str) -> String {
    let fence = fence_for(body);
    let end = if body.ends_with('\n') || body.is_empty() {
        ""
    } else {
        "\n"
    };
    format!("{fence}{language}\n{body}{end}{fence}\n")
}

/// Returns the shortest fence that no line of the body closes.
pub fn fence_for(body: &str) -> String {
    "`".repeat((longest_run(body, '`') + 1).max(3))
}

fn longest_run(text: &str, what: char) -> usize {
    let (mut longest, mut run) = (0, 0);
    for c in text.chars() {
        run = if c == what { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

/// Returns a link, or only the text if the URL is not a plain `http(s)` URL.
pub fn link(text: &str, url: &str) -> String {
    if is_plain_url(url) {
        format!("[{text}]({url})")
    } else {
        text.to_owned()
    }
}

/// Returns true if a URL can be used unchanged in Markdown and HTML.
pub fn is_plain_url(url: &str) -> bool {
    (url.starts_with("https://") || url.starts_with("http://"))
        && url
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-._~:/?#@!$&*+,;=%".contains(c))
}

/// Returns a label for a Mermaid diagram. Each character with a meaning in Mermaid is written as its entity (`#35;` for
/// `#`).
pub fn mermaid(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in line(text).chars() {
        if c.is_alphanumeric() || " ./_-".contains(c) {
            out.push(c);
        } else {
            let _ = write!(out, "#{};", u32::from(c));
        }
    }
    out
}

/// Returns a line for a log that GitHub's runner reads: without `::command::`, `##[command]` and terminal control
/// sequences. A very long line is truncated.
pub fn log(text: &str) -> String {
    let mut text = line(&truncate(text, LONGEST_LINE));
    // A thin space breaks the command, but is hardly visible.
    if text.contains(OLD_COMMAND) {
        text = text.replace(OLD_COMMAND, "#\u{2009}#[");
    }
    if is_command(&text) {
        let indent = text.len() - text.trim_start().len();
        text.insert(indent + 1, '\u{2009}');
    }
    text
}

/// Returns the lines of a message for a log that GitHub's runner reads. A very long message is truncated, with the
/// number of the remaining lines.
pub fn log_each(text: &str) -> Vec<String> {
    let text = text.trim_end();
    let mut lines: Vec<_> = text.lines().take(MOST_LINES).map(log).collect();
    let more = text.lines().skip(MOST_LINES).count();
    if more > 0 {
        lines.push(format!("… ({more} more lines)"));
    }
    lines
}

/// Returns several lines for a log that GitHub's runner reads, all but the first one indented.
pub fn log_lines(text: &str) -> String {
    log_each(text).join("\n    ")
}

/// The old form of a workflow command, which GitHub's runner executes anywhere in a line.
const OLD_COMMAND: &str = "##[";

fn is_command(line: &str) -> bool {
    line.trim_start().starts_with("::")
}

/// Escapes workflow commands and hidden characters in a JSON text with JSON's own escapes, so that its
/// meaning stays the same. The text may be on one line or indented.
pub fn json(text: &str) -> String {
    escaped(text, |c, out| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

/// Returns a value as YAML without workflow commands and hidden characters. Block YAML cannot escape these, so such a
/// value is written as JSON, which is also valid YAML.
pub fn yaml<T: Serialize>(value: &T) -> String {
    let text = yaml::to_string(value);
    let hidden = |c: char| is_hidden(c) && c != '\n';
    if !text.contains(OLD_COMMAND) && !text.contains(hidden) && !text.lines().any(is_command) {
        return text;
    }
    let text = serde_json::to_string_pretty(value).expect("what has a YAML form has a JSON form");
    // YAML has no surrogate pairs, so its longer escape is used.
    escaped(&text, |c, out| {
        let _ = write!(out, "\\U{:08x}", u32::from(c));
    }) + "\n"
}

/// Escapes hidden characters and the second character of `##[` in the strings of a JSON text. In JSON both
/// occur only in strings, and no line starts with the content of a string.
fn escaped(json: &str, escape: impl Fn(char, &mut String)) -> String {
    let is_plain = |c: char| !is_hidden(c) || c == '\n';
    if !json.contains(OLD_COMMAND) && json.chars().all(is_plain) {
        return json.to_owned();
    }
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with(OLD_COMMAND) {
            out.push('#');
            escape('#', &mut out);
            rest = &rest[2..];
            continue;
        }
        if is_plain(c) {
            out.push(c)
        } else {
            escape(c, &mut out)
        }
        rest = &rest[c.len_utf8()..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_spans_hold() {
        assert_eq!(code("a"), "`a`");
        assert_eq!(code("a``b"), "```a``b```");
        assert_eq!(code("`"), "`` ` ``");
        assert_eq!(code("a\n# b"), "`a\\u{a}# b`");
        assert!(!cell("a|b\\|c").contains('|'));
    }

    #[test]
    fn prose_keeps_its_words_and_hides_no_link() {
        for (text, shown) in [
            ("run `konverge build a` again", "run `konverge build a` again"),
            (
                "ask one of @acme/infra, see #12 (or https://evil.example/x).",
                "ask one of `@acme/infra`, see `#12` (or `https://evil.example/x`).",
            ),
            ("it is 0123456789abcdef", "it is `0123456789abcdef`"),
            ("<img src=x> *b* [a](b)", "`<img` `src=x>` `*b*` `[a](b`)"),
            ("@a`b`", "`@a` `b`"),
            ("::error::x", "`::error::x`"),
            ("an odd ` backtick", "``an odd ` backtick``"),
            ("- a\n# b", "`-` `a\\u{a}#` b"),
            ("1. one 2.", "`1.` one 2."),
            ("10) ten", "`10)` ten"),
            (
                "a :tada:, (:+1:) at 18:44:13Z: done",
                "a `:tada:,` `(:+1:)` at 18:44:13Z: done",
            ),
        ] {
            assert_eq!(prose(text), shown);
        }
        assert_eq!(
            html_prose("run `a <b>` & <i>"),
            "run <code>a &lt;b&gt;</code> &amp; &lt;i&gt;"
        );
    }

    #[test]
    fn what_can_not_be_seen_is_shown() {
        assert_eq!(line("a\u{202e}b\u{1b}[31m"), "a\\u{202e}b\\u{1b}[31m");
    }

    #[test]
    fn logs_carry_no_commands() {
        for hostile in [
            "::error::x",
            "  ::add-mask::x",
            "\u{2003}::x::",
            "a ##[group]b",
            "\u{feff}::stop::",
            "x\n::error::y",
            "x\r::error::y",
        ] {
            let safe = log(hostile);
            assert!(!safe.trim().starts_with("::"), "{safe:?}");
            assert!(!safe.contains("##["), "{safe:?}");
            assert_eq!(safe.lines().count(), 1, "{safe:?}");
        }
        assert_eq!(log("fe80::1"), "fe80::1");
        assert_eq!(log_lines("a\n::error::b\n"), "a\n    :\u{2009}:error::b");
    }

    #[test]
    fn a_huge_message_is_cut() {
        let line = log(&"x".repeat(50 << 20));
        assert!(
            line.len() < 9_000 && line.ends_with("more bytes)"),
            "{}",
            line.len()
        );
        let lines = log_lines(&"x\n".repeat(1 << 20));
        assert!(
            lines.len() < 2_000 && lines.ends_with("more lines)"),
            "{}",
            lines.len()
        );
    }

    #[test]
    fn documents_carry_no_commands_and_mean_the_same() {
        let value = serde_json::json!({
            "plain": "a\n::error::x\n  ::add-mask::y",
            "old": "a ##[group]b ###[x",
            "##[key]": "\u{202e}x\u{e0041}\u{200b}\u{7f}\u{85}",
        });
        let one_line = json(&value.to_string());
        let indented = json(&format!("{value:#}"));
        for text in [&one_line, &indented] {
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(text).expect("JSON"),
                value
            );
        }
        let block = yaml(&value);
        assert_eq!(yaml::from_str::<serde_json::Value>(&block).expect("YAML"), value);
        for text in [one_line, indented, block] {
            assert!(!text.contains("##["), "{text}");
            assert!(!text.lines().any(is_command), "{text}");
            assert!(!text.contains(|c| is_hidden(c) && c != '\n'), "{text:?}");
        }
        let harmless = serde_json::json!({"a": "x\ny\n", "b": "::inside"});
        assert_eq!(yaml(&harmless), yaml::to_string(&harmless));
    }

    #[test]
    fn fences_are_longer_than_their_content() {
        assert_eq!(fenced("diff", "+ ````\n"), "`````diff\n+ ````\n`````\n");
    }

    #[test]
    fn only_plain_addresses_become_links() {
        assert_eq!(link("x", "https://h/a?b=1#c"), "[x](https://h/a?b=1#c)");
        for bad in [
            "javascript:alert(1)",
            "https://h/a)b",
            "https://h/a b",
            "https://h/<x>",
            "https://h/\"x",
        ] {
            assert_eq!(link("x", bad), "x");
        }
    }

    #[test]
    fn mermaid_labels_are_inert() {
        assert_eq!(mermaid("a\"]-->b;#"), "a#34;#93;--#62;b#59;#35;");
    }
}
