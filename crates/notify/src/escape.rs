//! Escaping of names. Projects and stacks are named by pull requests, so a name must not mention, link or format.

use konverge_base::model::text::is_hidden;

/// The maximum length of a shown name.
const LONGEST: usize = 120;

/// A name on one line, for a place that a chat shows as it is: hidden characters are spaces, and angle brackets, with
/// which mentions begin everywhere, are others.
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

/// A name for a place that a chat searches for markup, mentions and addresses. No vendor documents an escape that holds
/// in all of its clients, so each character that means something is replaced by one that looks like it.
pub(crate) fn inert(name: &str) -> String {
    let name = plain(name);
    let mut shown = String::with_capacity(name.len());
    let mut chars = name.chars().peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        let after = chars.peek().copied().unwrap_or(' ');
        shown.push(match c {
            // A dot inside a word makes a domain of it, which a chat links.
            '.' if after.is_alphanumeric() => '․',
            // An underscore inside a word formats nothing.
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

/// The form of a printable ASCII character as wide as a Chinese one.
fn full_width(c: char) -> char {
    char::from_u32(c as u32 + 0xfee0).unwrap_or(' ')
}
