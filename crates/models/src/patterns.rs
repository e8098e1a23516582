//! Translates regular expressions. The server uses Go's RE2, KCL uses Rust's `regex`. Only patterns with the same
//! meaning in both are kept.

/// The maximum product of nested repetitions. Go rejects more than 1,000, and each needs memory in an engine.
const MOST_REPEATS: u64 = 1_000;

/// Translates a pattern of the server to one for KCL; `None` if the meanings could differ.
///
/// `\d`, `\w` and `\s` mean ASCII in Go and Unicode in Rust, so they are written as ASCII classes. Patterns with
/// flags, word boundaries, Unicode classes, named groups or nested classes are refused.
pub(crate) fn translate(pattern: &str) -> Option<String> {
    let mut letters = pattern.chars().peekable();
    let mut out = String::new();
    let mut repeats = 1_u64;
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => out.push_str(&escape(letters.next()?, false)?),
            '[' => class(&mut letters, &mut out)?,
            '(' => {
                out.push('(');
                if letters.next_if_eq(&'?').is_some() {
                    letters.next_if_eq(&':')?;
                    out.push_str("?:");
                }
            }
            '{' => {
                let inside: String = std::iter::from_fn(|| letters.next_if(|&c| c != '}')).collect();
                letters.next()?;
                let (least, most) = inside.split_once(',').unwrap_or((&inside, &inside));
                let least: u64 = least.parse().ok()?;
                let most: u64 = if most.is_empty() {
                    least
                } else {
                    most.parse().ok()?
                };
                repeats = repeats.checked_mul(least.max(most).max(1))?;
                out.push_str(&format!("{{{inside}}}"));
            }
            '}' | ']' => return None,
            letter if letter.is_control() => return None,
            letter => out.push(letter),
        }
    }
    let is_read = || regex::Regex::new(&out).is_ok();
    (repeats <= MOST_REPEATS && !out.contains("${") && is_read()).then_some(out)
}

/// Translates the letter after a backslash; `None` if the meanings could differ.
fn escape(letter: char, in_class: bool) -> Option<String> {
    let ascii = match letter {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => r"\t\n\f\r ",
        't' | 'n' | 'r' | 'f' => return Some(format!("\\{letter}")),
        'D' if !in_class => return Some("[^0-9]".to_owned()),
        'W' if !in_class => return Some("[^0-9A-Za-z_]".to_owned()),
        'S' if !in_class => return Some(r"[^\t\n\f\r ]".to_owned()),
        '<' | '>' => return None,
        letter if letter.is_ascii_punctuation() => return Some(format!("\\{letter}")),
        _ => return None,
    };
    Some(if in_class {
        ascii.to_owned()
    } else {
        format!("[{ascii}]")
    })
}

/// Translates a character class, after its `[`. Rust has nested classes and set operations inside classes; Go has
/// neither.
fn class(letters: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) -> Option<()> {
    out.push('[');
    if letters.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut is_empty = true;
    let mut last = None;
    loop {
        let letter = letters.next()?;
        match letter {
            ']' if is_empty => return None,
            ']' => break,
            '[' => return None,
            '&' | '~' | '-' if last == Some(letter) => return None,
            '\\' => {
                let letter = letters.next()?;
                // In Go a range that begins or ends with a class such as `\d` is an error.
                if matches!(letter, 'd' | 'w' | 's') && (last == Some('-') || letters.peek() == Some(&'-')) {
                    return None;
                }
                out.push_str(&escape(letter, true)?);
                last = None;
                is_empty = false;
                continue;
            }
            letter if letter.is_control() => return None,
            letter => out.push(letter),
        }
        last = Some(letter);
        is_empty = false;
    }
    out.push(']');
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_patterns_are_kept_and_classes_are_ascii() {
        for (pattern, kept) in [
            (
                "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
                "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            ),
            (r"^\d+\.\w{2,5}$", r"^[0-9]+\.[0-9A-Za-z_]{2,5}$"),
            (r"^(?:a|b)\s*\/$", r"^(?:a|b)[\t\n\f\r ]*\/$"),
            (r"^[\w.-]+$", "^[0-9A-Za-z_.-]+$"),
            (r"^\S+$", r"^[^\t\n\f\r ]+$"),
        ] {
            assert_eq!(translate(pattern).as_deref(), Some(kept), "{pattern}");
        }
    }

    #[test]
    fn what_the_engines_read_differently_is_left_out() {
        for pattern in [
            "(?i)abc",
            r"\bfoo\b",
            r"\p{L}",
            "(?P<n>a)",
            "[[:alpha:]]",
            "[a&&b]",
            "[a--b]",
            r"[\D]",
            "(?=a)",
            r"a\z",
            r"\Qa\E",
            "a{1001}",
            "(a{100}){100}",
            "a{,3}",
            "[]a]",
            "[a-\\d]",
            "(",
            "a{x}",
            r"\x41",
            "$${x}",
            "[a~~b]",
        ] {
            assert_eq!(translate(pattern), None, "{pattern}");
        }
    }
}
