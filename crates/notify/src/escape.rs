//! Escapes names. Pull requests choose the names of projects and stacks, so a name must not mention, link or format
//! anything.

use konverge_base::model::text::is_hidden;

/// The maximum length of a shown name.
const LONGEST: usize = 120;

/// Returns a name on one line, for a place that a chat shows literally: hidden characters become spaces, and angle
/// brackets, which start mentions in every chat, become similar characters.
pub(crate) fn plain(name: &str) -> String {
    let shown = name.chars().take(LONGEST).map(|c| match c {
        c if is_hidden(c) => ' ',
        '<' => '‹',
        '>' => '›',
        c => c,
    });
    let rest = name.chars().nth(LONGEST).map(|_| '…');
    shown.chain(rest).collect()
}

/// Returns a name for a place where a chat looks for markup, mentions and addresses. No vendor documents an escape that
/// works in all of its clients, so each special character is replaced by one that looks similar.
pub(crate) fn inert(name: &str) -> String {
    let name = plain(name);
    let mut shown = String::with_capacity(name.len());
    let mut chars = name.chars().peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        let after = chars.peek().copied().unwrap_or(' ');
        shown.push(match c {
            // A dot inside a word would make it a domain, which a chat links.
            '.' if after.is_alphanumeric() => '․',
            // An underscore inside a word is no markup.
            '_' if !(before.is_alphanumeric() && after.is_alphanumeric()) => '＿',
            '`' => '\'',
            '*' => '∗',
            '~' => '∼',
            '@' | '#' | '&' | ':' | '|' | '\\' | '(' | ')' | '[' | ']' | '!' => full_width(c),
            c => c,
        });
        before = c;
    }
    shown
}

/// Returns the full-width form of a printable ASCII character, which looks similar.
fn full_width(c: char) -> char {
    char::from_u32(c as u32 + 0xfee0).unwrap_or(' ')
}
