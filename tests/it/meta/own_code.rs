//! The table of parts that are ours although a crate exists: its rows point at files, and count them right.

use std::{
    fs,
    path::{Path, PathBuf},
};

use regex::Regex;

use super::docs::root;

/// The lines of code of a file: without comments, empty lines and its tests.
fn lines_of_code(file: &Path) -> usize {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let program = text.split("\n#[cfg(test)]").next().unwrap_or_default();
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    program.lines().filter(is_code).count()
}

/// The files of a row: in backticks, a folder stands for all of its files, and a bare name is beside the one before.
fn files(cell: &str) -> Vec<PathBuf> {
    let named = Regex::new("`([^`]+)`").unwrap();
    let mut found: Vec<PathBuf> = Vec::new();
    for name in named.captures_iter(cell).map(|name| name[1].to_owned()) {
        let beside = found.last().and_then(|last| last.parent().map(Path::to_owned));
        let path = match (name.contains('/'), beside) {
            (false, Some(folder)) => folder.join(&name),
            _ => root().join(&name),
        };
        if path.is_dir() {
            let files = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
            found.extend(files.filter(|path| path.extension().is_some_and(|end| end == "rs")));
        } else {
            found.push(path);
        }
    }
    found
}

#[test]
fn each_row_points_at_files_and_counts_them() {
    let page = fs::read_to_string(root().join("docs/design/014-own-code.md")).unwrap();
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| part"))
        .map(|line| line.trim_matches('|').split(" | ").collect())
        .collect();
    assert!(rows.len() > 15, "{rows:?}");
    let mut wrong = Vec::new();
    for row in rows {
        let [part, lines, why] = row[..] else {
            panic!("{row:?}")
        };
        assert!(!why.trim().is_empty(), "{part}");
        let files = files(part);
        assert!(!files.is_empty(), "{part}");
        let stated: usize = lines.replace(',', "").trim().parse().unwrap();
        let counted: usize = files.iter().map(|file| lines_of_code(file)).sum();
        // Small changes need no change of the page.
        if stated.abs_diff(counted) > 5.max(counted / 10) {
            wrong.push(format!("{part}: {counted}, not {stated}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
