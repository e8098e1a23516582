//! What functions take: a struct with named fields says more than a tuple, and an enum more than `true`.

use std::path::Path;

use super::rooms::{code, source_files};

/// A function as it is declared.
pub(super) struct Signature<'t> {
    pub(super) name: &'t str,
    /// Its line, from 1.
    pub(super) line: usize,
    /// True for `pub fn`.
    pub(super) is_public: bool,
    /// The types of its parameters, without `self`.
    pub(super) parameters: Vec<&'t str>,
    /// From its name to its body.
    pub(super) text: &'t str,
}

/// Where a mark stands outside brackets, and where the text ends or a bracket closes that was opened before it.
fn find_marks(text: &str, mark: char) -> (Vec<usize>, usize) {
    let (mut depth, mut found, mut before) = (0_u32, Vec::new(), ' ');
    for (at, letter) in text.char_indices() {
        match letter {
            '>' if matches!(before, '-' | '=') => {}
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' if depth == 0 => return (found, at),
            ')' | ']' | '}' | '>' => depth -= 1,
            letter if letter == mark && depth == 0 => found.push(at),
            _ => {}
        }
        before = letter;
    }
    (found, text.len())
}

/// What stands between the commas of a list, up to its closing bracket, and what follows that bracket.
fn split_list(text: &str) -> (Vec<&str>, &str) {
    let (commas, end) = find_marks(text, ',');
    let starts = std::iter::once(0).chain(commas.iter().map(|comma| comma + 1));
    let ends = commas.iter().copied().chain([end]);
    let parts = starts.zip(ends).map(|(start, end)| text[start..end].trim());
    let parts = parts.filter(|part| !part.is_empty()).collect();
    (parts, text.get(end + 1..).unwrap_or_default())
}

/// The type of a parameter; none for `self`.
fn type_of(parameter: &str) -> Option<&str> {
    let (colons, _) = find_marks(parameter, ':');
    let is_path = |at: usize| parameter[..at].ends_with(':') || parameter[at + 1..].starts_with(':');
    let colon = colons.into_iter().find(|colon| !is_path(*colon))?;
    Some(parameter[colon + 1..].trim())
}

/// The functions that a source declares. The source has no comments.
pub(super) fn signatures(source: &str) -> Vec<Signature<'_>> {
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, keyword) in source.match_indices("fn ") {
        let text = &source[at + keyword.len()..];
        let (name, mut rest) = text.split_at(text.find(|c| !is_of_name(c)).unwrap_or(text.len()));
        if let Some(generics) = rest.strip_prefix('<') {
            rest = split_list(generics).1;
        }
        let Some(list) = rest.strip_prefix('(') else {
            continue;
        };
        if name.is_empty() || source[..at].ends_with(is_of_name) {
            continue;
        }
        let (parameters, rest) = split_list(list);
        let body = rest.find('{').unwrap_or(rest.len());
        let (ends, _) = find_marks(&rest[..body], ';');
        let end = ends.first().copied().unwrap_or(body);
        let line = source[..at].rsplit('\n').next().unwrap_or_default();
        found.push(Signature {
            name,
            line: source[..at].matches('\n').count() + 1,
            is_public: line.trim_start().starts_with("pub "),
            parameters: parameters.into_iter().filter_map(type_of).collect(),
            text: &text[..text.len() - rest.len() + end],
        });
    }
    found
}

/// Returns true if a type is a tuple, or an `Option`, a reference or an array of one. A list of pairs may have any length.
fn is_tuple(kind: &str) -> bool {
    let kind = kind.trim_start();
    if let Some(referred) = kind.strip_prefix('&') {
        let referred = match referred.strip_prefix('\'') {
            Some(lifetime) => lifetime.split_once(' ').map_or("", |(_, referred)| referred),
            None => referred,
        };
        return is_tuple(referred.strip_prefix("mut ").unwrap_or(referred));
    }
    if let Some(inner) = kind.strip_prefix("Option<") {
        return is_tuple(inner);
    }
    if let Some(inner) = kind.strip_prefix('[') {
        let length = inner.rsplit_once(';').map_or("", |(_, length)| length.trim());
        return length.starts_with(|c: char| c.is_ascii_digit()) && is_tuple(inner);
    }
    let inner = kind.strip_prefix('(');
    inner.is_some_and(|inner| !find_marks(inner, ',').0.is_empty())
}

/// Lua hands the arguments of a call over as one tuple.
fn is_called_by_lua(signature: &Signature<'_>) -> bool {
    signature.parameters.len() == 2 && signature.parameters[0] == "&Lua"
}

/// The place of each function outside tests for which a rule holds, and the number of functions.
fn find_functions(folder: &Path, is_wrong: impl Fn(&Signature<'_>) -> bool) -> (Vec<String>, usize) {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for file in source_files().iter().filter(|file| file.starts_with(folder)) {
        let name = file.display().to_string();
        if name.ends_with("tests.rs") || name.contains("/tests/") {
            continue;
        }
        let text = code(file);
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for signature in signatures(text) {
            seen += 1;
            if is_wrong(&signature) {
                wrong.push(format!("{name}:{}: `{}`", signature.line, signature.name));
            }
        }
    }
    (wrong, seen)
}

#[test]
fn no_function_takes_a_tuple() {
    let takes_tuple = |signature: &Signature<'_>| {
        signature.parameters.iter().any(|kind| is_tuple(kind)) && !is_called_by_lua(signature)
    };
    let (wrong, seen) = find_functions(Path::new(env!("CARGO_MANIFEST_DIR")), takes_tuple);
    assert!(seen > 5_000, "only {seen} functions were read");
    assert!(
        wrong.is_empty(),
        "these take a tuple: two parameters, or a struct with named fields, say more:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn no_public_function_of_a_crate_takes_a_bare_boolean() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let takes_boolean =
        |signature: &Signature<'_>| signature.is_public && signature.parameters.contains(&"bool");
    let (wrong, seen) = find_functions(&crates, takes_boolean);
    assert!(seen > 5_000, "only {seen} functions were read");
    assert!(
        wrong.is_empty(),
        "who reads a call in another crate sees `true` and not what it means: give these an enum:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_parameters_of_a_function_are_read() {
    let types = |source| signatures(source).remove(0).parameters;
    assert_eq!(
        types("pub async fn a<F: Fn(&A) -> (B, C)>(&self, mut b: Vec<(A, B)>, f: F) -> Option<(A, B)> {"),
        ["Vec<(A, B)>", "F"]
    );
    assert_eq!(
        types("fn a(Part { b, c: d }: Part<'_>, (e, f): (u8, u8), Kind::One(g): Kind,\n) where A: B;"),
        ["Part<'_>", "(u8, u8)", "Kind"]
    );
    let two = signatures(
        "fn a(b: [u8; 2]) -> Result<[u8; 2], C>;\n    pub fn d() {\n        let e = fn_of(f);\n    }",
    );
    let read: Vec<_> = two
        .iter()
        .map(|one| (one.line, one.is_public, one.text.trim()))
        .collect();
    assert_eq!(
        read,
        [
            (1, false, "a(b: [u8; 2]) -> Result<[u8; 2], C>"),
            (2, true, "d()")
        ]
    );
}

#[test]
fn tuples_are_found() {
    for kind in [
        "(u8, u8)",
        "(A, Box<dyn B>)",
        "Option<(A, B)>",
        "Option<&(A, B)>",
        "&'a mut (A, B)",
        "&(A, B)",
        "[(A, Option<B>); 2]",
    ] {
        assert!(is_tuple(kind), "{kind}");
    }
    for kind in [
        "()",
        "&(dyn A + Send)",
        "&mut (dyn FnMut(A, B) + Send)",
        "&[(A, B)]",
        "[(A, B); N]",
        "[u8; 2]",
        "Vec<(A, B)>",
        "impl Fn(A, B) -> (A, B)",
        "Path<(A, B)>",
        "Option<Vec<(A, B)>>",
    ] {
        assert!(!is_tuple(kind), "{kind}");
    }
}
