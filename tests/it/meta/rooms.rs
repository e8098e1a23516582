//! The crates against the tables of ARCHITECTURE.md, and what Cargo cannot say: the directions and no circle inside a
//! crate, and the doors of foreign crates.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use regex::Regex;

use super::import_graph::ModuleGraph;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The rows of the table under a heading: first cell → the comma-separated second.
fn table(heading: &str) -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let section = text
        .split(&format!("## {heading}\n"))
        .nth(1)
        .expect("the section is there");
    let section = section
        .split("\n## ")
        .next()
        .expect("split gives one part at least");
    section
        .lines()
        .filter(|line| line.starts_with('|') && !line.starts_with("|---"))
        .skip(1)
        .map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            let name = cells.next().expect("a first cell").to_owned();
            let others = cells
                .next()
                .unwrap_or_default()
                .split(',')
                .map(|s| s.trim().to_owned());
            (name, others.filter(|s| !s.is_empty()).collect())
        })
        .collect()
}

pub(super) fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            into.push(path);
        }
    }
}

/// The crate that only tests use.
pub(super) const TESTKIT: &str = "testkit";

/// The sources of the package and of its crates, without what only tests use.
pub(super) fn source_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for (_, folder) in crates().iter().filter(|(name, _)| *name != TESTKIT) {
        rust_files(&folder.join("src"), &mut files);
    }
    files
}

/// The source files without those of modules that only tests have.
pub(super) fn program_files() -> Vec<PathBuf> {
    let declared =
        r#"(#\[cfg\(test\)\]\s+)?(?:#\[path = "([^"]+)\.rs"\]\s+)?(?:pub(?:\([a-z]+\))? )?mod (\w+);"#;
    let declared = Regex::new(declared).expect("a pattern");
    let mut files = source_files();
    let is_of =
        |file: &Path, module: &PathBuf| file.starts_with(module) || file.with_extension("") == *module;
    let (mut of_tests, mut known): (Vec<PathBuf>, usize) = (Vec::new(), usize::MAX);
    // What a module of tests declares is of tests, too.
    while known != of_tests.len() {
        known = of_tests.len();
        of_tests = test_modules(&files, &declared, |file| {
            of_tests.iter().any(|module| is_of(file, module))
        });
    }
    files.retain(|file| !of_tests.iter().any(|module| is_of(file, module)));
    files
}

/// The modules, without the end of their files, that sources declare for tests alone.
fn test_modules(files: &[PathBuf], declared: &Regex, is_of_tests: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for file in files {
        let folder = file.parent().expect("a file is in a folder");
        let below = match file.file_stem().and_then(|stem| stem.to_str()) {
            Some("mod" | "lib" | "main") => folder.to_owned(),
            _ => file.with_extension(""),
        };
        let (text, whole) = (code(file), is_of_tests(file));
        let modules = declared.captures_iter(&text);
        for module in modules.filter(|module| whole || module.get(1).is_some()) {
            let at_path = module.get(2).map(|path| folder.join(path.as_str()));
            found.push(at_path.unwrap_or_else(|| below.join(&module[3])));
        }
    }
    found
}

#[test]
fn the_files_of_the_program_are_those_without_tests() {
    let (all, program) = (source_files(), program_files());
    assert!(
        program.len() > 900 && all.len() - program.len() > 50,
        "{} of {}",
        program.len(),
        all.len()
    );
    let is_there = |path: &str| program.contains(&root().join(path));
    // Names as those of tests; a module of tests, with a path, and in a module of tests.
    assert!(is_there("crates/ci/src/stack_test_job.rs") && is_there("src/commands/check/kcl_tests.rs"));
    for path in [
        "crates/policy-sets/src/tests.rs",
        "crates/export/src/target_tests.rs",
        "crates/export/src/target_size_tests.rs",
    ] {
        assert!(all.contains(&root().join(path)) && !is_there(path), "{path}");
    }
}

/// The folders of the crates by their short names, and the package itself as `konverge`.
fn crates() -> BTreeMap<String, PathBuf> {
    let members = fs::read_dir(root().join("crates")).expect("the crates");
    let members = members.map(|entry| entry.expect("an entry").path());
    let named = members.map(|folder| {
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        (name, folder)
    });
    named.chain([("konverge".to_owned(), root())]).collect()
}

fn manifest(folder: &Path) -> toml::Table {
    let text = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
    text.parse().expect("a manifest is TOML")
}

/// The dependencies of a crate, without those that only its tests have.
fn dependencies(folder: &Path) -> BTreeSet<String> {
    let manifest = manifest(folder);
    let listed = manifest.get("dependencies").and_then(toml::Value::as_table);
    listed
        .into_iter()
        .flat_map(|table| table.keys().cloned())
        .collect()
}

#[test]
fn the_directions_are_those_of_the_map() {
    let crates = crates();
    let actual: BTreeMap<_, _> = crates
        .iter()
        .map(|(name, folder)| {
            let used = dependencies(folder);
            let ours = used.iter().filter_map(|name| name.strip_prefix("konverge-"));
            (name.clone(), ours.map(str::to_owned).collect::<BTreeSet<_>>())
        })
        .collect();
    assert_eq!(table("Directions"), actual);
}

#[test]
fn the_profile_of_make_build_names_each_of_our_crates() {
    let profile = &manifest(&root())["profile"]["fast"]["package"];
    let named = profile.as_table().expect("the profile's packages").keys();
    let named: BTreeSet<_> = named
        .map(|name| name.strip_prefix("konverge-").unwrap_or(name).to_owned())
        .collect();
    let program = crates().into_keys().filter(|name| name != TESTKIT);
    assert_eq!(named, program.collect());
}

/// The code without line comments: a doc link names rooms too, and is no import.
pub(super) fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a source file");
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The names that stand behind `crate::` in a text: `crate::a::b`, `crate::{a, b::{c, d}}`.
fn uses(text: &str) -> BTreeSet<String> {
    let ident = |s: &str| {
        s.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect::<String>()
    };
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        if !rest.starts_with('{') {
            found.insert(ident(rest));
            continue;
        }
        let mut depth = 0;
        let mut expecting = false;
        for (index, c) in rest.char_indices() {
            match c {
                '{' => {
                    depth += 1;
                    expecting = depth == 1;
                }
                '}' => {
                    depth -= 1;
                    if depth == 0 {
                        break;
                    }
                }
                ',' => expecting = depth == 1,
                c if c.is_whitespace() => {}
                _ if expecting => {
                    found.insert(ident(&rest[index..]));
                    expecting = false;
                }
                _ => {}
            }
        }
    }
    found.remove("");
    found
}

/// The room of a source file, `CRATE/ROOM`, if its crate has several: its first folder or file, or else the crate's
/// own.
fn room_of(name: &str, inside: &Path, rooms: &BTreeMap<String, BTreeSet<String>>) -> String {
    let first = inside.components().next().expect("a component").as_os_str();
    let first = first.to_string_lossy();
    room_named(name, first.trim_end_matches(".rs"), rooms)
}

fn room_named(name: &str, first: &str, rooms: &BTreeMap<String, BTreeSet<String>>) -> String {
    let (room, own) = (format!("{name}/{first}"), format!("{name}/{name}"));
    if !rooms.contains_key(&room) && rooms.contains_key(&own) {
        own
    } else {
        room
    }
}

#[test]
fn every_import_inside_a_crate_is_in_the_table() {
    let rooms = table("Directions inside a crate");
    let several: BTreeSet<_> = rooms.keys().filter_map(|room| room.split('/').next()).collect();
    let mut wrong = Vec::new();
    for (name, folder) in crates()
        .iter()
        .filter(|(name, _)| several.contains(name.as_str()))
    {
        let source = folder.join("src");
        let mut files = Vec::new();
        rust_files(&source, &mut files);
        let doors = [source.join("lib.rs"), source.join("main.rs")];
        let has_own = rooms.contains_key(&format!("{name}/{name}"));
        for file in files.iter().filter(|file| has_own || !doors.contains(file)) {
            let inside = file.strip_prefix(&source).expect("below the folder");
            let room = room_of(name, inside, &rooms);
            let Some(listed) = rooms.get(&room) else {
                wrong.push(format!("{}: `{room}` is not in ARCHITECTURE.md", file.display()));
                continue;
            };
            for used in uses(&code(file)) {
                let used = room_named(name, &used, &rooms);
                let short = used.split('/').nth(1).unwrap_or_default();
                if used != room && !listed.contains(short) {
                    wrong.push(format!("{}: `{room}` must not use `{used}`", file.display()));
                }
            }
        }
    }
    assert!(several.len() > 5, "{several:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn foreign_crates_stay_behind_their_doors() {
    let doors = table("Foreign crates");
    assert!(doors.len() > 10, "{doors:?}");
    let mut wrong = Vec::new();
    for file in source_files() {
        let relative = file.strip_prefix(root()).expect("below the root");
        let relative = relative.to_string_lossy();
        let text = code(&file);
        for (name, places) in &doors {
            let used = [
                format!("use {name}::"),
                format!(" {name}::"),
                format!("({name}::"),
                format!("<{name}::"),
            ]
            .iter()
            .any(|pattern| text.contains(pattern.as_str()));
            if used && !places.iter().any(|place| relative.starts_with(place.as_str())) {
                wrong.push(format!("{relative}: `{name}` belongs to {places:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_reader_of_imports_reads_groups() {
    let found = uses(
        "use crate::{\n error::Failure,\n model::{Digest, path::RepoPath},\n};\nlet x = crate::yaml::to_string(&v);",
    );
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["error", "model", "yaml"]);
}

#[test]
fn no_two_files_of_a_crate_import_each_other() {
    let crates = crates().into_iter().filter(|(name, _)| name != TESTKIT);
    let folders = crates.map(|(_, folder)| folder.join("src"));
    let circles = folders.flat_map(|folder| ModuleGraph::read(&folder).circles());
    let mut wrong = Vec::new();
    for (circle, edges) in circles {
        let names: Vec<_> = circle.iter().map(String::as_str).collect();
        wrong.push(format!(
            "these files import each other: {}\n    {}\n  hint: move what they share into a file of its own, or pass it in",
            names.join(", "),
            edges.join("\n    ")
        ));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
