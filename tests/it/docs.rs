//! The docs: pages that are generated are up to date, links lead somewhere, YAML blocks of konverge.yaml are valid, and
//! every `konverge` command that is shown is one that the program knows.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::CommandFactory;
use konverge::{cli::Cli, config::Config};

use crate::support::process::Konverge;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<PathBuf> {
    let mut pages = vec![
        root().join("README.md"),
        root().join("ARCHITECTURE.md"),
        root().join("CONTRIBUTING.md"),
    ];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "md") {
                pages.push(path);
            }
        }
    }
    pages.push(root().join("konfig-example/README.md"));
    pages
}

/// The blocks of a language in a page.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let body: Vec<_> = lines
                .by_ref()
                .take_while(|line| !line.starts_with("```"))
                .collect();
            if info == language {
                blocks.push(body.join("\n"));
            }
        }
    }
    blocks
}

#[test]
fn generated_pages_are_up_to_date() {
    for (page, file) in [("commands", "commands.md"), ("config", "konverge-yaml.md")] {
        let made = Konverge::new(["__reference", page]).run().expect(0).stdout;
        let path = root().join("docs/reference").join(file);
        let there = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            made == there,
            "{} is old: `konverge __reference {page} > {}`",
            path.display(),
            path.display()
        );
    }
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for (at, _) in text.match_indices("](") {
            let target: String = text[at + 2..].chars().take_while(|c| *c != ')').collect();
            let file = target.split('#').next().unwrap_or_default();
            let outside = target.contains("://") || file.is_empty();
            if !outside && !page.parent().unwrap().join(Path::new(file)).exists() {
                wrong.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn configurations_that_are_shown_are_valid() {
    let mut seen = 0;
    for page in pages() {
        for block in blocks(&fs::read_to_string(&page).unwrap(), "yaml") {
            if block.starts_with("version: 1") {
                seen += 1;
                Config::parse(&block).unwrap_or_else(|error| panic!("{}: {error}\n{block}", page.display()));
            }
        }
    }
    assert!(seen >= 2, "{seen} blocks");
}

#[test]
fn commands_that_are_shown_are_known() {
    let mut seen = 0;
    for page in pages() {
        for block in blocks(&fs::read_to_string(&page).unwrap(), "sh") {
            let commands = block
                .lines()
                .map(|line| line.split('#').next().unwrap_or_default().trim());
            for line in commands.filter(|line| line.starts_with("konverge ")) {
                seen += 1;
                let words = words(line);
                let parsed = Cli::command().try_get_matches_from(&words);
                assert!(
                    parsed.is_ok(),
                    "{}: `{line}`: {}",
                    page.display(),
                    parsed.unwrap_err()
                );
            }
        }
    }
    assert!(seen >= 10, "{seen} commands");
}

/// Words of a command line, with double quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
