//! Everything that was written by somebody else passes here before it is printed: names, paths, values, messages.
//!
//! One function per place a text can stand in. GitHub links `@name`, `#12`, commit ids and URLs wherever text is not
//! code, so foreign text is always put as code; the runner obeys lines that begin with `::` and `##[` anywhere in a
//! line, so both are broken in logs.

use std::fmt::Write as _;

/// Writes a character that is not what it looks like (controls, bidirectional overrides, zero-width and other
/// invisible ones) so that it can be seen.
fn visible(c: char, out: &mut String) {
    if is_hidden(c) {
        let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
    } else {
        out.push(c);
    }
}

fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// One line of plain text: no line break, no control sequence, nothing invisible.
pub fn line(text: &str) -> String {
    if !text.chars().any(is_hidden) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => out.push(' '),
            other => visible(other, &mut out),
        }
    }
    out
}

/// Lines of plain text: as [`line()`], but line ends stay.
pub fn lines(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().map(line)
}

/// A Markdown code span, whatever the text holds.
pub fn code(text: &str) -> String {
    let text = line(text);
    let fence = "`".repeat(longest_run(&text, '`') + 1);
    if text.is_empty() {
        return "` `".to_owned();
    }
    let pad = if text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']) {
        " "
    } else {
        ""
    };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// A Markdown code span for a table's cell: a pipe would end the cell even inside code, and a backslash of the text
/// would undo its escape, so a character that looks the same stands for it.
pub fn cell(text: &str) -> String {
    code(&text.replace('|', "\u{2502}"))
}

/// A code element inside raw HTML (`<summary>`), where Markdown is not read.
pub fn html_code(text: &str) -> String {
    format!("<code>{}</code>", html(text))
}

/// Text inside HTML, in an element or in a quoted attribute.
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
            other => visible(other, &mut out),
        }
    }
    out
}

/// A fenced block: the fence is longer than any run of backticks inside. The lines are taken as they are, so they must
/// have been through [`line()`].
pub fn fenced(language: &str, body: &str) -> String {
    let fence = fence_for(body);
    let end = if body.ends_with('\n') || body.is_empty() {
        ""
    } else {
        "\n"
    };
    format!("{fence}{language}\n{body}{end}{fence}\n")
}

/// The shortest fence that nothing in the body closes.
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

/// A link to a page; without a link if the address is not a plain `http(s)` one.
pub fn link(text: &str, url: &str) -> String {
    if is_plain_url(url) {
        format!("[{text}]({url})")
    } else {
        text.to_owned()
    }
}

/// Whether an address can stand in Markdown and HTML as it is.
pub fn is_plain_url(url: &str) -> bool {
    (url.starts_with("https://") || url.starts_with("http://"))
        && url
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-._~:/?#@!$&*+,;=%".contains(c))
}

/// A label in a Mermaid picture: everything that Mermaid reads is written as its entity (`#35;` for `#`).
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

/// A line for a log that GitHub's runner reads: neither `::command::` nor `##[command]` survives, nor does a control
/// sequence of the terminal.
pub fn log(text: &str) -> String {
    let mut text = line(text);
    if text.contains("##[") {
        text = text.replace("##[", "#\u{2009}#[");
    }
    let start = text.trim_start();
    if start.starts_with("::") {
        let indent = text.len() - start.len();
        text.insert(indent + 1, '\u{2009}');
    }
    text
}

/// Several lines for such a log; all but the first are indented.
pub fn log_lines(text: &str) -> String {
    text.trim_end()
        .lines()
        .map(log)
        .collect::<Vec<_>>()
        .join("\n    ")
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
