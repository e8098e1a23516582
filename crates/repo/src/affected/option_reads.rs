//! Finds the options that a KCL file reads, by its tokens. It follows the lexical rules of [`super::scan()`]: the
//! content of comments and strings is skipped.

use super::import_scanner::Scanner;

/// A call `option("NAME")`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionRead {
    /// Name of the option.
    pub name: String,
    /// The line, from 1.
    pub line: u32,
    /// True if the call has a default for an option that is not set.
    pub has_default: bool,
}

/// Finds all calls with a literal name, in order.
pub fn option_reads(bytes: &[u8]) -> Vec<OptionRead> {
    let mut found = Vec::new();
    let is_worth_it = bytes.windows(6).any(|window| window == b"option");
    let mut scanner = Scanner::new(bytes);
    let mut last = b'\n';
    while let Some(byte) = scanner.peek().filter(|_| is_worth_it) {
        let (is_blank, width) = scanner.skip_blanks();
        if is_blank {
            scanner.at += width;
            continue;
        }
        let at = scanner.at;
        match byte {
            b'#' => scanner.comment(),
            b'"' | b'\'' => scanner.string(),
            _ => match scanner.name() {
                Some(word) if word == "option" && last != b'.' => {
                    if let Some((name, has_default)) = call(&mut scanner) {
                        let line = 1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count();
                        found.push(OptionRead {
                            name,
                            line: u32::try_from(line).unwrap_or(u32::MAX),
                            has_default,
                        });
                    }
                }
                Some(_) => {}
                None => scanner.at += 1,
            },
        }
        last = byte;
    }
    found
}

/// Parses `("NAME" …)` and an `or` after it. Returns the name, and true if there is a default: the fourth
/// argument, an argument named as the default, or the value after `or`.
fn call(scanner: &mut Scanner<'_>) -> Option<(String, bool)> {
    scanner.blanks();
    if scanner.peek() != Some(b'(') {
        return None;
    }
    scanner.at += 1;
    skip_lines(scanner);
    let start = scanner.at;
    if !matches!(scanner.peek(), Some(b'"' | b'\'')) {
        return None;
    }
    scanner.string();
    let literal = scanner.bytes.get(start + 1..scanner.at.checked_sub(1)?)?;
    let name = std::str::from_utf8(literal).ok()?.to_owned();
    let (mut depth, mut commas, mut has_default) = (1_u32, 0, false);
    while let Some(byte) = scanner.peek().filter(|_| depth > 0) {
        match byte {
            b'#' => scanner.comment(),
            b'"' | b'\'' => scanner.string(),
            _ => match scanner.name() {
                Some(word) => has_default |= depth == 1 && word == "default",
                None => {
                    match byte {
                        b'(' | b'[' | b'{' => depth += 1,
                        b')' | b']' | b'}' => depth -= 1,
                        b',' if depth == 1 => commas += 1,
                        _ => {}
                    }
                    scanner.at += 1;
                }
            },
        }
    }
    let end = scanner.at;
    scanner.blanks();
    let has_other = scanner.name().is_some_and(|word| word == "or");
    scanner.at = end;
    Some((name, has_default || has_other || commas >= 3))
}

fn skip_lines(scanner: &mut Scanner<'_>) {
    loop {
        scanner.blanks();
        match scanner.peek() {
            Some(b'\n' | b'\r') => scanner.at += 1,
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_with_a_literal_name_are_found_at_their_line() {
        let text = "# option(\"a\")\nx = option(\"b\")\ny = \"option('c')\"\nz = {name = option(\n    'd', type=\"str\")}\n\
                    w = a.option(\"e\")\nv = option(name)\n";
        let found: Vec<_> = option_reads(text.as_bytes())
            .into_iter()
            .map(|read| format!("{} {} {}", read.name, read.line, read.has_default))
            .collect();
        assert_eq!(found, ["b 2 false", "d 4 false"]);
    }

    #[test]
    fn another_value_counts_as_a_default() {
        for text in [
            "option(\"a\", default=\"x\")",
            "option(\"a\") or \"x\"",
            "option(\"a\", \"str\", False, \"x\")",
        ] {
            assert!(option_reads(text.as_bytes())[0].has_default, "{text}");
        }
        for text in [
            "option(\"a\", help=\"default\")",
            "option(\"a\", required=False)",
            "option(\"a\"",
        ] {
            assert!(!option_reads(text.as_bytes())[0].has_default, "{text}");
        }
    }
}
