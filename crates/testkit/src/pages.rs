//! Reads the pages of the documentation and their code blocks.

use std::{fs, path::PathBuf};

use super::root;

/// Returns README and the pages beside it, all of `docs/`, and the example's page.
pub fn pages() -> Vec<PathBuf> {
    let mut pages = vec![
        root().join("README.md"),
        root().join("ARCHITECTURE.md"),
        root().join("CONTRIBUTING.md"),
        root().join("SECURITY.md"),
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

/// Returns the code blocks of a language in a page.
pub fn blocks(text: &str, language: &str) -> Vec<String> {
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
