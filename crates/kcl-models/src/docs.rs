//! Documentation as docstrings and comments. Text of a source is hostile: it never ends the string that holds it.

/// Splits a text into lines that can stand in a raw docstring or in a comment.
pub(crate) fn lines(text: &str) -> Vec<String> {
    let clean = |line: &str| {
        let line: String = line
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        // In a raw string nothing escapes a quote, and the core joins `${`.
        let line = line.replace("\"\"\"", "'''").replace("${", "$ {");
        let words: Vec<&str> = line.split_whitespace().collect();
        words.join(" ")
    };
    let breaks = |c: char| matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
    text.split(breaks)
        .map(clean)
        .filter(|line| !line.is_empty())
        .collect()
}

/// Joins a text to one such line.
pub(crate) fn line(text: &str) -> String {
    lines(text).join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_its_string() {
        for hostile in [
            "\"\"\"",
            "a\"\"\"\"b",
            "\\\"\"\"",
            "${x}",
            "$${x}",
            "a\u{0}b\nimport x",
            "\"\"\"\n\"\"\"",
        ] {
            let all = lines(hostile).join("\n");
            assert!(!all.contains("\"\"\"") && !all.contains("${"), "{all}");
            assert!(!line(hostile).chars().any(char::is_control));
        }
    }
}
