//! Titles of issues and pull requests. Gitea turns numbers and commit ids in a title into links, and adds a note to
//! the mentioned issue, in any repository of the instance. A title contains the name of a stack, and anybody may
//! choose that name.

/// Replaces the characters that begin a reference with their full-width forms, which look almost the same.
pub(super) fn without_references(title: &str) -> String {
    let mut out = String::with_capacity(title.len());
    for (at, c) in title.char_indices() {
        let rest = &title.as_bytes()[at + c.len_utf8()..];
        let hex = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        out.push(match c {
            '#' if rest.first().is_some_and(u8::is_ascii_digit) => '\u{ff03}',
            '!' if rest.first().is_some_and(u8::is_ascii_digit) => '\u{ff01}',
            '@' if hex >= SHORTEST_COMMIT => '\u{ff20}',
            '(' if hex >= SHORTEST_COMMIT => '\u{ff08}',
            '[' if hex >= SHORTEST_COMMIT => '\u{ff3b}',
            other => other,
        });
    }
    out
}

/// The minimum number of digits that Gitea recognizes as a commit id.
const SHORTEST_COMMIT: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_refers_to_nothing() {
        for (title, plain) in [
            ("acme/konfig#1: blocked", "acme/konfig\u{ff03}1: blocked"),
            ("shop/(!12): blocked", "shop/(\u{ff01}12): blocked"),
            ("a/b@0123abc: blocked", "a/b\u{ff20}0123abc: blocked"),
            ("a/(0123abc)[0123abc]", "a/\u{ff08}0123abc)\u{ff3b}0123abc]"),
            ("shop/dev (3) @team #x!", "shop/dev (3) @team #x!"),
        ] {
            assert_eq!(without_references(title), plain);
        }
    }
}
