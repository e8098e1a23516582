//! What functions take: a struct with named fields says more than a tuple, and an enum more than `true`.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::rooms::{code, program_files};

/// A function as it is declared.
pub(super) struct Signature<'t> {
    pub(super) name: &'t str,
    /// Its line, from 1.
    pub(super) line: usize,
    /// True for `pub fn`. A method of a trait has no `pub`.
    pub(super) is_public: bool,
    /// Its parameters, without `self`.
    pub(super) parameters: Vec<Parameter<'t>>,
    /// From its name to its body.
    pub(super) text: &'t str,
}

/// A parameter as it is declared.
pub(super) struct Parameter<'t> {
    pub(super) pattern: &'t str,
    pub(super) type_name: &'t str,
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

/// A parameter; none for `self`.
fn parameter(text: &str) -> Option<Parameter<'_>> {
    let (colons, _) = find_marks(text, ':');
    let is_path = |at: usize| text[..at].ends_with(':') || text[at + 1..].starts_with(':');
    let colon = colons.into_iter().find(|colon| !is_path(*colon))?;
    Some(Parameter {
        pattern: text[..colon].trim(),
        type_name: text[colon + 1..].trim(),
    })
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
            parameters: parameters.into_iter().filter_map(parameter).collect(),
            text: &text[..text.len() - rest.len() + end],
        });
    }
    found
}

/// Returns true if a type is a tuple, one of the names of tuples, or an `Option`, a reference or an array of one. A list of
/// pairs may have any length, and what a generic type other than `Option` holds is not looked at.
fn is_tuple(type_name: &str, names: &BTreeSet<String>) -> bool {
    let type_name = type_name.trim_start();
    if let Some(referred) = type_name.strip_prefix('&') {
        let referred = match referred.strip_prefix('\'') {
            Some(lifetime) => lifetime.split_once(' ').map_or("", |(_, referred)| referred),
            None => referred,
        };
        return is_tuple(referred.strip_prefix("mut ").unwrap_or(referred), names);
    }
    if let Some(inner) = type_name.strip_prefix("Option<") {
        return is_tuple(inner, names);
    }
    if let Some(inner) = type_name.strip_prefix('[') {
        let length = inner.rsplit_once(';').map_or("", |(_, length)| length.trim());
        return length.starts_with(|c: char| c.is_ascii_digit()) && is_tuple(inner, names);
    }
    if let Some(inner) = type_name.strip_prefix('(') {
        return !find_marks(inner, ',').0.is_empty();
    }
    let end = type_name.find(|c: char| !c.is_alphanumeric() && c != '_');
    names.contains(&type_name[..end.unwrap_or(type_name.len())])
}

/// Returns true for a tuple, and for an array that is taken apart into values with names.
fn takes_tuple(parameter: &Parameter<'_>, names: &BTreeSet<String>) -> bool {
    is_tuple(parameter.type_name, names) || parameter.pattern.starts_with(['(', '['])
}

/// The names that a source gives to tuples: those that other files may use, or its own.
fn tuple_names(source: &str, are_public: bool) -> impl Iterator<Item = String> + '_ {
    source.match_indices("type ").filter_map(move |(at, keyword)| {
        let (name, value) = source[at + keyword.len()..].split_once('=')?;
        let name = name.split('<').next()?.trim();
        let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
        let line = source[..at].rsplit('\n').next().unwrap_or_default();
        let is_public = line.trim_start().starts_with("pub");
        (is_name && is_public == are_public && is_tuple(value, &BTreeSet::new())).then(|| name.to_owned())
    })
}

/// The place of each function outside tests for which a rule holds, and the number of functions that the rule is for. The
/// rule sees the source, too.
fn find_functions<'f>(
    files: impl Iterator<Item = &'f PathBuf>,
    is_concerned: impl Fn(&Signature<'_>) -> bool,
    is_wrong: impl Fn(&str, &Signature<'_>) -> bool,
) -> (Vec<String>, usize) {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for file in files {
        let text = code(file);
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for signature in signatures(text).into_iter().filter(&is_concerned) {
            seen += 1;
            if is_wrong(text, &signature) {
                wrong.push(format!(
                    "{}:{}: `{}`",
                    file.display(),
                    signature.line,
                    signature.name
                ));
            }
        }
    }
    (wrong, seen)
}

#[test]
fn no_function_takes_a_tuple() {
    let files = program_files();
    let names = files
        .iter()
        .flat_map(|file| tuple_names(&code(file), true).collect::<Vec<_>>());
    let public: BTreeSet<String> = names.collect();
    let is_wrong = |source: &str, signature: &Signature<'_>| {
        let names = tuple_names(source, false).chain(public.clone()).collect();
        let mut parameters = signature.parameters.iter();
        // Lua hands the arguments of a call over as one tuple: `crates/kubernetes/src/health/lua/library.rs`.
        parameters
            .any(|parameter| takes_tuple(parameter, &names) && !parameter.type_name.ends_with("Arguments"))
    };
    let (wrong, seen) = find_functions(files.iter(), |_| true, is_wrong);
    assert!(seen > 5_000, "only {seen} functions were read");
    assert!(
        wrong.is_empty(),
        "these take a tuple: two parameters, or a struct with named fields, say more:\n{}",
        wrong.join("\n")
    );
}

fn takes_boolean(signature: &Signature<'_>) -> bool {
    let mut parameters = signature.parameters.iter();
    parameters.any(|parameter| parameter.type_name == "bool")
}

#[test]
fn no_public_function_of_a_crate_takes_a_bare_boolean() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let files = program_files();
    let files = files.iter().filter(|file| file.starts_with(&crates));
    let (wrong, seen) = find_functions(
        files,
        |signature| signature.is_public,
        |_, signature| takes_boolean(signature),
    );
    assert!(seen > 1_000, "only {seen} public functions were read");
    assert!(
        wrong.is_empty(),
        "a call from another crate shows `true`, not what it means: give these an enum:\n{}",
        wrong.join("\n")
    );
    let found = signatures("pub async fn a(b: bool) {}\nfn c(d: bool) {}\npub fn e(f: &[bool]) {}");
    let found = found.iter().map(|one| one.is_public && takes_boolean(one));
    assert_eq!(found.collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn the_parameters_of_a_function_are_read() {
    let types = |source| {
        let parameters = signatures(source).remove(0).parameters.into_iter();
        parameters
            .map(|parameter| parameter.type_name)
            .collect::<Vec<_>>()
    };
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
    let source = "pub(crate) type Pair<'a> = (&'a A, B);\ntype Other = Vec<(A, B)>;\ntype Own = (A, B);";
    let names: BTreeSet<String> = tuple_names(source, true).collect();
    assert_eq!(names, ["Pair".to_owned()].into());
    assert_eq!(tuple_names(source, false).collect::<Vec<_>>(), ["Own"]);
    for type_name in [
        "Option<&Pair<'_>>",
        "(u8, u8)",
        "(A, Box<dyn B>)",
        "Option<(A, B)>",
        "Option<&(A, B)>",
        "&'a mut (A, B)",
        "&(A, B)",
        "[(A, Option<B>); 2]",
    ] {
        assert!(is_tuple(type_name, &names), "{type_name}");
    }
    for type_name in [
        "Pairs",
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
        assert!(!is_tuple(type_name, &names), "{type_name}");
    }
    let takes = |source| takes_tuple(&signatures(source)[0].parameters[0], &names);
    assert!(
        takes("fn a([b, c]: [&str; 2]) {}") && takes("fn a((b, c): D) {}") && !takes("fn a(b: [&str; 2]) {}")
    );
}
