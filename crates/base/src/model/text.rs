//! Text for display: characters that are invisible, or that change how other text looks, are escaped.

use std::borrow::{Borrow, Cow};

use serde::Serialize;

/// Returns the name of an enum's value as JSON documents have it.
pub fn json_name(value: impl Serialize) -> String {
    let json = serde_json::to_value(value).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

/// Returns true for a character that is invisible or changes how its neighbours are shown: controls,
/// bidirectional marks, joiners and fillers of zero width, variation selectors and tags, letters that are blank.
///
/// These are Unicode's general categories Cc, Cf, Zl and Zp without the `Prepended_Concatenation_Mark`s, which are
/// visible, its `Default_Ignorable_Code_Point`s, and the blank letters and symbols, which have no property of their
/// own and are recognized by their names (BLANK, FILLER, NULL). Spaces are not hidden.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                // Format controls of Egyptian hieroglyphs, and two blank signs.
                | '\u{13430}'..='\u{13442}'
                | '\u{16fe4}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d159}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Escapes each hidden character of a text, such as `\u{202e}`.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            out.extend(c.escape_unicode())
        } else {
            out.push(c)
        }
    }
    out
}

/// Returns the first `most` bytes of a text, with a note that says how many bytes are missing.
pub fn truncate(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let end = text.floor_char_boundary(most);
    format!("{}… ({} more bytes)", &text[..end], text.len() - end).into()
}

/// Returns at most `most` names, and the number of the others: `a, b and 3 more`.
pub fn first_few<N: Borrow<str>>(names: impl ExactSizeIterator<Item = N>, most: usize) -> String {
    let more = names.len().saturating_sub(most);
    let shown = names.take(most).collect::<Vec<_>>().join(", ");
    match more {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Returns at most `most` texts, followed by the number of the others: `and 3 more`.
pub fn with_rest(texts: impl ExactSizeIterator<Item = String>, most: usize) -> Vec<String> {
    let more = texts.len().saturating_sub(most);
    let rest = (more > 0).then(|| format!("and {more} more"));
    texts.take(most).chain(rest).collect()
}

/// Adds to the first line of a message the number of other locations with the same cause.
pub fn with_place_count(message: &str, more: usize) -> String {
    let (first, rest) = match message.split_once('\n') {
        Some((first, rest)) => (first, format!("\n{rest}")),
        None => (message, String::new()),
    };
    let count = match more {
        0 => String::new(),
        1 => format!("{COUNT}1 more place)"),
        more => format!("{COUNT}{more} more places)"),
    };
    format!("{first}{count}{rest}")
}

/// Splits a line into the cause and the count: the inverse of [`with_place_count`].
pub fn split_place_count(line: &str) -> (&str, &str) {
    let is_count = |rest: &str| {
        let digits = rest
            .trim_end_matches("s)")
            .trim_end_matches(')')
            .strip_suffix(" more place");
        digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    match line.rfind(COUNT) {
        Some(at) if is_count(&line[at + COUNT.len()..]) => line.split_at(at),
        _ => (line, ""),
    }
}

/// The text before the count in a line.
const COUNT: &str = " (and in ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_written_out() {
        assert_eq!(
            visible("a\u{202e}b\u{3164}\u{e0041}"),
            "a\\u{202e}b\\u{3164}\\u{e0041}"
        );
        for plain in ["Größe", "日本語", "naïve ✓", "a b"] {
            assert_eq!(visible(plain), plain);
        }
    }

    /// The table is the one of Unicode, as the tables of the `regex` crate have it.
    #[test]
    fn every_character_that_unicode_hides_is_hidden_and_no_other() {
        let by_property = [
            r"\p{Cc}",
            r"[\p{Cf}--\p{Prepended_Concatenation_Mark}]",
            r"\p{Zl}",
            r"\p{Zp}",
            r"\p{Default_Ignorable_Code_Point}",
        ];
        let by_property = regex::Regex::new(&format!("^(?:{})$", by_property.join("|"))).expect("a pattern");
        let mut buffer = [0; 4];
        let others: Vec<String> = ('\0'..=char::MAX)
            .filter(|c| is_hidden(*c) != by_property.is_match(c.encode_utf8(&mut buffer)))
            .map(|c| format!("{:x}", u32::from(c)))
            .collect();
        // BRAILLE PATTERN BLANK, EGYPTIAN HIEROGLYPH MIRROR HORIZONTALLY, FULL BLANK and HALF BLANK, KHITAN SMALL
        // SCRIPT FILLER, MUSICAL SYMBOL NULL NOTEHEAD.
        assert_eq!(others, ["2800", "13440", "13441", "13442", "16fe4", "1d159"]);
    }

    #[test]
    fn the_number_of_more_places_stands_in_the_first_line() {
        for (more, count) in [
            (0, ""),
            (1, " (and in 1 more place)"),
            (12, " (and in 12 more places)"),
        ] {
            let message = with_place_count("a: b\n    c", more);
            assert_eq!(message, format!("a: b{count}\n    c"));
            assert_eq!(
                split_place_count(message.lines().next().unwrap_or_default()),
                ("a: b", count)
            );
        }
        assert_eq!(
            split_place_count("a (and in the end)"),
            ("a (and in the end)", "")
        );
    }

    #[test]
    fn names_beyond_the_first_few_are_counted() {
        let names = ["a", "b", "c"].into_iter();
        assert_eq!(first_few(names.clone(), 2), "a, b and 1 more");
        assert_eq!(first_few(names, 3), "a, b, c");
        let texts = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(with_rest(texts.clone().into_iter(), 2), ["a", "b", "and 1 more"]);
        assert_eq!(with_rest(texts.clone().into_iter(), 3), texts);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(truncate("äöü", 3), "ä… (4 more bytes)");
        assert_eq!(truncate("äöü", 6), "äöü");
    }
}
