//! Text for display: characters that are invisible or that make other text look different are escaped.

/// Returns true for a character that is invisible or changes how its neighbours are shown: controls,
/// bidirectional marks, joiners and fillers of zero width, variation selectors and tags, letters that are blank.
///
/// These are Unicode's general categories Cc, Cf, Zl and Zp without the `Prepended_Concatenation_Mark`s, which are
/// visible, its `Default_Ignorable_Code_Point`s, and the blank letters and symbols, which have no property of their
/// own: they are known by their names (BLANK, FILLER, NULL). Spaces stay.
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
                // Controls of Egyptian hieroglyphs, and two that are blank.
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
        match is_hidden(c) {
            true => out.extend(c.escape_unicode()),
            false => out.push(c),
        }
    }
    out
}

/// The first `most` bytes of a text, with a note of how many bytes are missing.
pub fn truncate(text: &str, most: usize) -> std::borrow::Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let end = text.floor_char_boundary(most);
    format!("{}… ({} more bytes)", &text[..end], text.len() - end).into()
}

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
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(truncate("äöü", 3), "ä… (4 more bytes)");
        assert_eq!(truncate("äöü", 6), "äöü");
    }
}
