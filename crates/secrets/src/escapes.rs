//! Removes escapes of a text inside another: backslashes (JSON, YAML, Go, HCL), doubled quotes, and the layout of
//! YAML's block and folded scalars. A secret is searched in the unescaped text, so it does not matter which program
//! escaped it, or how often.

use std::{ops::Range, str::Chars};

/// A text without one level of escapes, and the original positions of its parts.
pub(super) struct Unescaped {
    pub text: String,
    /// Pairs of offsets (unescaped, original), in order. Between two pairs the bytes are the same.
    places: Vec<(usize, usize)>,
}

impl Unescaped {
    /// Returns the range in the original text.
    pub(super) fn source(&self, range: &Range<usize>) -> Range<usize> {
        self.source_of(range.start)..self.source_of(range.end)
    }

    fn source_of(&self, at: usize) -> usize {
        let next = self.places.partition_point(|(here, _)| *here <= at);
        let (here, there) = self.places[next - 1];
        there + (at - here)
    }
}

/// Collects the parts of an unescaped text and their original positions.
struct Builder {
    text: String,
    places: Vec<(usize, usize)>,
    /// The end of the source text that was copied so far.
    read: usize,
}

impl Builder {
    fn new() -> Self {
        Self {
            text: String::new(),
            places: vec![(0, 0)],
            read: 0,
        }
    }

    /// Copies the text before an escape, then adds the meaning of the escape.
    fn replace(&mut self, source: &str, escape: Range<usize>, by: &str) {
        self.text.push_str(&source[self.read..escape.start]);
        // The bytes of the replacement map to the start of the escape.
        self.places.push((self.text.len(), escape.start));
        self.text.push_str(by);
        self.places.push((self.text.len(), escape.end));
        self.read = escape.end;
    }

    /// Returns the result; `None` if nothing was replaced.
    fn build(mut self, source: &str) -> Option<Unescaped> {
        if self.read == 0 {
            return None;
        }
        self.text.push_str(&source[self.read..]);
        Some(Unescaped {
            text: self.text,
            places: self.places,
        })
    }
}

/// Removes one level of backslash escapes. An unknown escape stays. `None` if the text has no escape.
pub(super) fn backslashes(text: &str) -> Option<Unescaped> {
    let mut unescaped = Builder::new();
    let mut at = 0;
    while let Some(found) = text[at..].find('\\') {
        let start = at + found;
        let mut rest = text[start + 1..].chars();
        let Some(meaning) = meaning(&mut rest) else {
            // This backslash begins no escape, but the next character may.
            at = start + 1;
            continue;
        };
        at = text.len() - rest.as_str().len();
        unescaped.replace(text, start..at, &meaning);
    }
    unescaped.build(text)
}

/// Returns the meaning of the characters after a backslash; `None` if they are not an escape.
fn meaning(rest: &mut Chars<'_>) -> Option<String> {
    let c = match rest.next()? {
        c @ ('"' | '\\' | '/' | '\'' | ' ') => c,
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'a' => '\u{7}',
        'v' => '\u{b}',
        'e' => '\u{1b}',
        '0' => '\0',
        'N' => '\u{85}',
        '_' => '\u{a0}',
        'L' => '\u{2028}',
        'P' => '\u{2029}',
        'x' => char::from_u32(hexadecimal(rest, 2)?)?,
        'U' => char::from_u32(hexadecimal(rest, 8)?)?,
        'u' => return utf16(rest),
        // In YAML, a backslash at the end of a line continues the line after its indentation.
        '\n' => {
            *rest = rest.as_str().trim_start_matches([' ', '\t']).chars();
            return Some(String::new());
        }
        _ => return None,
    };
    Some(c.to_string())
}

/// Parses four hexadecimal digits, or a surrogate pair of two times four.
fn utf16(rest: &mut Chars<'_>) -> Option<String> {
    let first = u16::try_from(hexadecimal(rest, 4)?).ok()?;
    let mut ahead = rest.clone();
    let second = match (ahead.next(), ahead.next()) {
        (Some('\\'), Some('u')) => hexadecimal(&mut ahead, 4).and_then(|unit| u16::try_from(unit).ok()),
        _ => None,
    };
    let pair = second.and_then(|second| String::from_utf16(&[first, second]).ok());
    match (String::from_utf16(&[first]), pair) {
        (Ok(single), _) => Some(single),
        (Err(_), Some(pair)) => {
            *rest = ahead;
            Some(pair)
        }
        (Err(_), None) => None,
    }
}

fn hexadecimal(rest: &mut Chars<'_>, digits: usize) -> Option<u32> {
    (0..digits).try_fold(0_u32, |value, _| {
        let digit = rest.next()?.to_digit(16)?;
        value.checked_mul(16)?.checked_add(digit)
    })
}

/// Removes the layout of YAML from a text: doubled single quotes, and line breaks and blanks from folding and
/// indentation. Each run of them becomes one quote or one blank, so that a secret in the same normal form is found.
/// `None` if the text is in this form already.
pub(super) fn layout(text: &str) -> Option<Unescaped> {
    let blank = |c: char| matches!(c, ' ' | '\n' | '\r' | '\t');
    let mut unescaped = Builder::new();
    let mut at = 0;
    while let Some(found) = text[at..].find(|c| c == '\'' || blank(c)) {
        let start = at + found;
        let rest = &text[start..];
        let (rest, one) = if rest.starts_with('\'') {
            (rest.trim_start_matches('\''), "'")
        } else {
            (rest.trim_start_matches(blank), " ")
        };
        at = text.len() - rest.len();
        if text[start..at] != *one {
            unescaped.replace(text, start..at, one);
        }
    }
    unescaped.build(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text without one level of escapes.
    fn without(unescape: fn(&str) -> Option<Unescaped>, text: &str) -> Option<String> {
        unescape(text).map(|unescaped| unescaped.text)
    }

    #[test]
    fn every_escape_of_json_and_yaml_is_undone() {
        for (escaped, text) in [
            (r#"pa\"ss\\word"#, "pa\"ss\\word"),
            (r"a\/b\'c\ d", "a/b'c d"),
            (r"\b\f\n\r\t", "\u{8}\u{c}\n\r\t"),
            (
                r"\0\a\e\v\N\_\L\P",
                "\0\u{7}\u{1b}\u{b}\u{85}\u{a0}\u{2028}\u{2029}",
            ),
            (r"\x41\u0042\U00000043", "ABC"),
            (r"\ud83d\ude00 \u00e9\u0041", "😀 éA"),
            ("a\\\n   b", "ab"),
        ] {
            assert_eq!(without(backslashes, escaped).as_deref(), Some(text), "{escaped}");
        }
        for plain in ["", "plain", r"C:\word", r"\", r"\u12", r"\ud83d", r"\xg0"] {
            assert_eq!(without(backslashes, plain), None, "{plain}");
        }
        assert_eq!(without(backslashes, r"\w\n").as_deref(), Some("\\w\n"));
        assert_eq!(without(backslashes, r"\ud83d\u0041").as_deref(), Some(r"\ud83dA"));
    }

    #[test]
    fn the_layout_of_yaml_is_undone() {
        for (text, plain) in [
            ("a: 'it''s'' '", "a: 'it's' '"),
            ("a: 'it''''s'", "a: 'it's'"),
            ("a: |\n  one\n\n   two\n", "a: | one two "),
            ("a\n\nb", "a b"),
            ("a: one\n  two\n\n  three", "a: one two three"),
            ("a\tb  c", "a b c"),
        ] {
            assert_eq!(without(layout, text).as_deref(), Some(plain), "{text}");
            assert_eq!(without(layout, plain), None, "{plain}");
        }
        assert_eq!(without(layout, "a: 'b'"), None);
        assert_eq!(without(layout, "one"), None);
        let folded = layout("a: 'it''s\n\n  so'").unwrap();
        let at = folded.text.find("it's so").unwrap();
        assert_eq!(folded.source(&(at..at + 7)), 4..15);
    }

    #[test]
    fn a_range_is_found_in_the_escaped_text() {
        let escaped = r#"é "pa\"ss\\w" end"#;
        let unescaped = backslashes(escaped).unwrap();
        let secret = "pa\"ss\\w";
        let at = unescaped.text.find(secret).unwrap();
        let range = unescaped.source(&(at..at + secret.len()));
        assert_eq!(&escaped[range], r#"pa\"ss\\w"#);
        let all = unescaped.source(&(0..unescaped.text.len()));
        assert_eq!(&escaped[all], escaped);
    }

    #[test]
    fn a_secret_may_begin_and_end_with_an_escape() {
        let escaped = r#"a\"\u00e9\"b"#;
        let unescaped = backslashes(escaped).unwrap();
        assert_eq!(unescaped.text, "a\"é\"b");
        let range = unescaped.source(&(1..5));
        assert_eq!(&escaped[range], r#"\"\u00e9\""#);
    }
}
