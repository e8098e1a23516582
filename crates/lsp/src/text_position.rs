//! Positions in a text. The protocol counts UTF-16 units from 0, `konverge check` counts characters from 1.

use lsp_types::{Position, Range};

/// Returns the range of a finding: the word at its column, or else the line without its indentation.
pub(crate) fn range_at(text: &str, line: Option<u32>, column: Option<u32>) -> Range {
    let number = line.unwrap_or(1).saturating_sub(1);
    // The line may not exist any more, if the file was changed in the meantime.
    let content = text.lines().nth(number as usize).unwrap_or_default();
    let chars: Vec<char> = content.chars().collect();
    let (start, end) = match column {
        Some(column) if line.is_some() => {
            let start = (column.saturating_sub(1) as usize).min(chars.len());
            let word = chars[start..].iter().take_while(|c| is_word(**c)).count();
            (start, (start + word.max(1)).min(chars.len()))
        }
        _ => {
            let indent = chars.iter().take_while(|c| c.is_whitespace()).count();
            (indent, chars.len())
        }
    };
    range(number, units(&chars[..start]), units(&chars[..end]))
}

/// Creates a range within a line.
pub(crate) fn range(line: u32, start: u32, end: u32) -> Range {
    Range::new(Position::new(line, start), Position::new(line, end))
}

/// Returns the number of UTF-16 units before a byte offset of a line.
pub(crate) fn column_of(line: &str, byte: usize) -> u32 {
    let chars: Vec<char> = line[..byte].chars().collect();
    units(&chars)
}

/// Returns the byte offset of a UTF-16 column in a line, at most the length of the line.
pub(crate) fn byte_of(line: &str, column: u32) -> usize {
    let mut passed = 0;
    for (byte, c) in line.char_indices() {
        if passed >= column {
            return byte;
        }
        passed += c.len_utf16() as u32;
    }
    line.len()
}

fn units(chars: &[char]) -> u32 {
    chars.iter().map(|c| c.len_utf16() as u32).sum()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends(text: &str, line: Option<u32>, column: Option<u32>) -> (u32, u32, u32) {
        let range = range_at(text, line, column);
        (range.start.line, range.start.character, range.end.character)
    }

    #[test]
    fn a_finding_marks_its_word_or_its_line() {
        let text = "a = 1\n  😀name = x\n";
        assert_eq!(ends(text, Some(2), Some(4)), (1, 4, 8));
        assert_eq!(ends(text, Some(2), None), (1, 2, 12));
        assert_eq!(ends(text, None, Some(3)), (0, 0, 5));
        assert_eq!(ends(text, Some(1), Some(3)), (0, 2, 3));
        for (line, column) in [(0, 0), (9, 9), (u32::MAX, u32::MAX), (2, 400)] {
            let (_, start, end) = ends(text, Some(line), Some(column));
            assert!(start <= end);
        }
    }

    proptest! {
        #[test]
        fn a_column_and_a_byte_are_inverse(line in "[^\n]{0,20}") {
            for (byte, _) in line.char_indices() {
                prop_assert_eq!(byte_of(&line, column_of(&line, byte)), byte);
            }
        }

        #[test]
        fn no_column_is_a_panic(line: String, column: u32) {
            prop_assert!(line.is_char_boundary(byte_of(&line, column)));
        }
    }
}
