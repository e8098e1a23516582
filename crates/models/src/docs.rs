//! Documentation as docstrings and comments. The text comes from others and must not be able to end its string
//! literal.

/// Splits a text into lines that are safe in a raw docstring and in a comment.
pub(crate) fn lines(text: &str) -> Vec<String> {
    let clean = |line: &str| {
        let line: String = line
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        // A raw string has no escapes for quotes, and KCL interpolates `${`.
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

/// Joins a text to one safe line.
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
