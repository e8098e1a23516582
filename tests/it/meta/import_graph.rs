//! Which source file of the crate uses which, read from the sources. Paths are resolved through imports and re-exports,
//! so that a re-export does not hide who uses whom. Comments, texts and test modules do not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use super::rooms::rust_files;

/// A path as it is written: `["super", "plan", "Action"]`.
type Segments = Vec<String>;

/// A module that has a file of its own, without its test module.
struct SourceModule {
    /// What its `use` items bring into scope, by name.
    imports: BTreeMap<String, Segments>,
    /// The paths that its code names.
    paths: BTreeSet<Segments>,
}

/// The modules of a crate by name (`runtime::kubernetes::plan`), and what each uses of the others.
pub struct ModuleGraph {
    modules: BTreeMap<String, SourceModule>,
    /// From module to module, with the names that are used.
    edges: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

impl ModuleGraph {
    /// Reads every source file below a folder.
    pub fn read(src: &Path) -> Self {
        let mut files = Vec::new();
        rust_files(src, &mut files);
        let sources = files.iter().map(|file| {
            let path = file.strip_prefix(src).expect("a file below the folder");
            let mut name: Vec<_> = path
                .with_extension("")
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            if name.last().is_some_and(|last| last == "mod" || last == "lib") {
                name.pop();
            }
            (name.join("::"), fs::read_to_string(file).expect("a source file"))
        });
        Self::of_sources(sources.collect())
    }

    /// The graph of sources by module name.
    pub fn of_sources(sources: BTreeMap<String, String>) -> Self {
        let modules = sources
            .into_iter()
            .map(|(name, text)| (name, SourceModule::parse(&text)));
        let mut graph = Self {
            modules: modules.collect(),
            edges: BTreeMap::new(),
        };
        for (name, module) in &graph.modules {
            for path in &module.paths {
                let Some(used) = graph.resolve(name, path, 0).filter(|used| used != name) else {
                    continue;
                };
                let names = graph
                    .edges
                    .entry(name.clone())
                    .or_default()
                    .entry(used)
                    .or_default();
                names.extend(path.last().cloned());
            }
        }
        graph
    }

    /// The groups of modules that reach each other, each with the edges that make it.
    pub fn circles(&self) -> BTreeMap<BTreeSet<String>, Vec<String>> {
        let reached: BTreeMap<&String, BTreeSet<&String>> = self
            .modules
            .keys()
            .map(|name| (name, self.reachable(name)))
            .collect();
        let mut circles = BTreeMap::new();
        for (name, reaches) in &reached {
            let circle: BTreeSet<String> = reaches
                .iter()
                .filter(|other| reached[*other].contains(name))
                .map(|other| (*other).clone())
                .collect();
            if circle.len() > 1 {
                let edges = self.edges_within(&circle);
                circles.insert(circle, edges);
            }
        }
        circles
    }

    fn reachable<'a>(&'a self, from: &'a String) -> BTreeSet<&'a String> {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(at) = next.pop() {
            let used = self.edges.get(at).into_iter().flat_map(BTreeMap::keys);
            next.extend(used.filter(|used| seen.insert(*used)));
        }
        seen
    }

    fn edges_within(&self, circle: &BTreeSet<String>) -> Vec<String> {
        let edges = circle.iter().flat_map(|from| {
            self.edges
                .get(from)
                .into_iter()
                .flatten()
                .map(move |to| (from, to))
        });
        edges
            .filter(|(_, (to, _))| circle.contains(*to))
            .map(|(from, (to, names))| format!("{from} -> {to} {names:?}"))
            .collect()
    }

    /// The module that defines what a path names; `None` for another crate or a local name.
    fn resolve(&self, module: &str, path: &[String], depth: usize) -> Option<String> {
        if depth > 8 {
            return None;
        }
        let mut at: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (at, rest) = (Vec::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    at.pop();
                    rest = &rest[1..];
                }
            }
            first => {
                let child = [at.as_slice(), &[first]].concat().join("::");
                if !self.modules.contains_key(&child) {
                    let import = self.modules.get(module)?.imports.get(first)?;
                    let longer = [import.as_slice(), &path[1..]].concat();
                    return self.resolve(module, &longer, depth + 1);
                }
            }
        }
        while let Some((first, after)) = rest.split_first() {
            let here = at.join("::");
            let child = [at.as_slice(), &[first.as_str()]].concat().join("::");
            if self.modules.contains_key(&child) {
                at.push(first);
                rest = after;
                continue;
            }
            let module = self.modules.get(&here)?;
            let elsewhere = match module.imports.get(first) {
                // Another crate defines it.
                Some(import) if import[0].starts_with("konverge_") => return None,
                Some(import) => {
                    let path = [import.as_slice(), after].concat();
                    self.resolve(&here, &path, depth + 1)
                }
                None => None,
            };
            return Some(elsewhere.unwrap_or(here));
        }
        Some(at.join("::"))
    }
}

impl SourceModule {
    fn parse(text: &str) -> Self {
        let tokens = without_tests(tokens(text));
        let (mut imports, mut paths, mut code) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        let mut at = 0;
        while at < tokens.len() {
            if tokens[at] != "use" {
                code.push(tokens[at].clone());
                at += 1;
                continue;
            }
            let end = (at..tokens.len())
                .find(|index| tokens[*index] == ";")
                .unwrap_or(tokens.len());
            let is_exported = matches!(code.last().map(String::as_str), Some("pub" | ")"));
            for (path, name) in leaves(&tokens[at + 1..end]) {
                if !is_exported && is_inside(&path) {
                    paths.insert(path.clone());
                }
                imports.insert(name, path);
            }
            at = end + 1;
        }
        for path in written_paths(&code) {
            match imports.get(&path[0]) {
                // A name that is imported, or exported and used here too.
                Some(import) => {
                    paths.insert([import.as_slice(), &path[1..]].concat());
                }
                None if path.len() > 1 => {
                    paths.insert(path);
                }
                None => {}
            }
        }
        Self { imports, paths }
    }
}

fn is_inside(path: &[String]) -> bool {
    matches!(path.first().map(String::as_str), Some("crate" | "self" | "super"))
}

/// The paths of a `use` tree, each with the name that it brings into scope.
fn leaves(tree: &[String]) -> Vec<(Segments, String)> {
    let mut found = Vec::new();
    let mut rest = tree;
    while !rest.is_empty() {
        let mut path = Segments::new();
        while let Some((token, after)) = rest.split_first() {
            match token.as_str() {
                "," | "{" | "as" => break,
                "::" => {}
                part => path.push(part.to_owned()),
            }
            rest = after;
        }
        if rest.first().is_some_and(|token| token == "{") {
            let end = closing(rest);
            let inner = leaves(&rest[1..end]).into_iter();
            found.extend(inner.map(|(below, name)| {
                let whole = [path.as_slice(), below.as_slice()].concat();
                match below.as_slice() {
                    [itself] if itself == "self" => (path.clone(), path.last().cloned().unwrap_or_default()),
                    _ => (whole, name),
                }
            }));
            rest = &rest[end + 1..];
        } else if let Some(last) = path.last().cloned().filter(|last| last != "*") {
            let alias = rest
                .first()
                .filter(|token| *token == "as")
                .and(rest.get(1))
                .cloned();
            found.push((path, alias.unwrap_or(last)));
        }
        let comma = rest.iter().position(|token| token == ",");
        rest = comma.map_or(&[][..], |comma| &rest[comma + 1..]);
    }
    found
}

/// Where the brace that comes first is closed.
fn closing(tokens: &[String]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        depth += i32::from(token == "{") - i32::from(token == "}");
        if depth == 0 {
            return at;
        }
    }
    tokens.len() - 1
}

/// Every path in code: names joined by `::`. What follows a dot is a field or a method.
fn written_paths(code: &[String]) -> Vec<Segments> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let is_start = is_name(&code[at])
            && !matches!(
                at.checked_sub(1).map(|before| code[before].as_str()),
                Some("." | "::" | "fn" | "mod")
            );
        if !is_start {
            at += 1;
            continue;
        }
        let mut path = vec![code[at].clone()];
        while code.get(at + 1).is_some_and(|token| token == "::")
            && code.get(at + 2).is_some_and(|token| is_name(token))
        {
            path.push(code[at + 2].clone());
            at += 2;
        }
        found.push(path);
        at += 1;
    }
    found
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Leaves out `#[cfg(test)] mod … { … }`.
fn without_tests(tokens: Vec<String>) -> Vec<String> {
    let start = tokens
        .windows(7)
        .position(|seven| seven.join("") == "#[cfg(test)]");
    let Some(start) = start else { return tokens };
    let is_module = tokens[start..].iter().take(40).any(|token| token == "mod");
    if is_module {
        tokens[..start].to_vec()
    } else {
        [&tokens[..start], &without_tests(tokens[start + 7..].to_vec())].concat()
    }
}

/// Names, `::` and single signs of a source; comments, texts, characters and lifetimes are left out.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = raw_text(rest) {
            length
        } else if first == '"' {
            quoted(rest)
        } else if first == '\'' {
            character(rest)
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            tokens.push(rest[..end].to_owned());
            end
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else {
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

/// The length of `r#"…"#` or `br"…"`.
fn raw_text(text: &str) -> Option<usize> {
    let after = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let inner = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let start = text.len() - inner.len();
    Some(inner.find(&end).map_or(text.len(), |at| start + at + end.len()))
}

fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// `'a'`, `'\n'`; of a lifetime only the apostrophe.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => text[3..].find('\'').map_or(1, |at| at + 4),
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}

#[test]
fn circles_are_found_through_reexports() {
    let circles = |sources: &[(&str, &str)]| {
        let sources = sources
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let circles = ModuleGraph::of_sources(sources.collect()).circles();
        circles
            .into_keys()
            .map(|names| names.into_iter().collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
    };
    let room = (
        "room",
        "mod a;\nmod b;\nmod c;\npub use b::{Thing, Other as Renamed};",
    );
    // The room's door hands `Thing` on: `a` uses `b`, whatever the path says.
    for path in [
        "super::Thing",
        "crate::room::Renamed",
        "super::{Thing as T, c}",
        "crate::{room::{b::{self, Thing}}, error}",
    ] {
        let uses = format!("use {path};");
        assert_eq!(
            circles(&[
                room,
                ("room::a", &uses),
                ("room::b", "fn f() { super::a::g() }"),
                ("room::c", "")
            ]),
            ["room::a room::b"],
            "{path}"
        );
    }
    // A module that is used by its name, and a re-exported name that is used in the same file.
    let parent = ("room", "mod a;\npub use a::Thing;\nfn f(thing: Thing) {}");
    assert_eq!(
        circles(&[parent, ("room::a", "struct Thing; use super::f;")]),
        ["room room::a"]
    );
    assert_eq!(
        circles(&[
            ("x", "mod y; fn f() { y::g() }"),
            ("x::y", "fn g() { super::f() }")
        ]),
        ["x x::y"]
    );
    for harmless in [
        "// use super::b::Thing;",
        "const TEXT: &str = r#\"use \"super::b::Thing;\"#;",
        "const QUOTE: char = '\"'; /* super::b::f() */",
        "#[cfg(test)]\nmod tests {\n    use super::super::b::Thing;\n}",
        "fn f(b: u8) -> u8 { self.b }",
    ] {
        assert_eq!(
            circles(&[
                room,
                ("room::a", harmless),
                ("room::b", "use super::a;"),
                ("room::c", "")
            ]),
            Vec::<String>::new(),
            "{harmless}"
        );
    }
}
