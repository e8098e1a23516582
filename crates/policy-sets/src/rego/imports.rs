//! Resolves calls of imported functions. The engine resolves an import for values but not for calls. So with
//! `import data.lib.units`, `units.bytes(x)` is rewritten to `data.lib.units.bytes(x)`. Line numbers stay the same.

use std::{borrow::Cow, collections::BTreeMap};

/// Returns a source in which calls of imported functions have their full paths.
pub(super) fn with_full_calls(source: &str) -> Cow<'_, str> {
    let imports = imports(source);
    if imports.is_empty() {
        return Cow::Borrowed(source);
    }
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    let mut before = None;
    while let Some(first) = rest.chars().next() {
        let length = token(rest, first);
        let (token, after) = rest.split_at(length);
        let is_call = before != Some('.') && is_call(after);
        match imports.get(token).filter(|_| is_call) {
            Some(path) => text.push_str(path),
            None => text.push_str(token),
        }
        before = token.chars().last();
        rest = after;
    }
    Cow::Owned(text)
}

/// Returns the imported paths below `data`, by their name in the source.
fn imports(source: &str) -> BTreeMap<&str, &str> {
    let lines = source.lines().filter_map(|line| {
        let words: Vec<_> = line.split('#').next()?.split_whitespace().collect();
        match words[..] {
            ["import", path] => Some((path.rsplit('.').next()?, path)),
            ["import", path, "as", name] => Some((name, path)),
            _ => None,
        }
    });
    lines.filter(|(_, path)| path.starts_with("data.")).collect()
}

/// Returns the length of the first token: a name, a string, a comment, or one character.
fn token(rest: &str, first: char) -> usize {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    match first {
        '"' => {
            let mut escaped = false;
            let end = rest.char_indices().skip(1).find(|(_, c)| {
                let ends = !escaped && matches!(c, '"' | '\n');
                escaped = !escaped && *c == '\\';
                ends
            });
            end.map_or(rest.len(), |(at, _)| at + 1)
        }
        '`' => rest[1..].find('`').map_or(rest.len(), |at| at + 2),
        '#' => rest.find('\n').unwrap_or(rest.len()),
        _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
        _ => first.len_utf8(),
    }
}

/// Returns true if a call follows: further names, then a parenthesis.
fn is_call(mut after: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    while let Some(rest) = after.strip_prefix('.') {
        after = rest.trim_start_matches(is_word);
    }
    after.starts_with('(')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_get_their_path_and_nothing_else_does() {
        let source = "package a\nimport data.lib.units # ours\nimport data.lib.exempt.is_exempt as skip\nimport input.x\n\
            deny if { units.bytes(units.x) > x.f(1); not skip(c); a.units.bytes(1); units[0]; \"units.bytes(1)\" == `skip(` } # skip(c)\n";
        let full = with_full_calls(source);
        assert_eq!(
            full,
            source
                .replace("{ units.bytes(units.x)", "{ data.lib.units.bytes(units.x)")
                .replace("not skip(c)", "not data.lib.exempt.is_exempt(c)")
        );
        let after_raw = "import data.a.b as skip\nx := `abc`; y := skip(`(`)\n";
        assert_eq!(
            with_full_calls(after_raw),
            "import data.a.b as skip\nx := `abc`; y := data.a.b(`(`)\n"
        );
        for whole in [
            "package a\n",
            "import data.a\n\"",
            "import data.a\n`a(",
            "import data.a\n\"\\",
        ] {
            assert_eq!(with_full_calls(whole), whole);
        }
    }
}
