//! Every `konverge` command that the documentation shows is one that the program knows.

use std::fs;

use clap::CommandFactory;
use konverge_testkit::pages::{blocks, pages};

use super::Cli;

#[test]
fn commands_that_are_shown_are_known() {
    let mut seen = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for block in ["sh", "yaml", "groovy"]
            .map(|language| blocks(&text, language))
            .concat()
        {
            let commands = block.lines().map(command);
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

/// A line of a shell, of a pipeline's list or of a Jenkinsfile as the command that it holds, without where its output
/// goes.
fn command(line: &str) -> &str {
    let line = line.split(['#', '>']).next().unwrap_or_default();
    let line = line.split("||").next().unwrap_or_default().trim();
    let line = line.strip_prefix("- ").unwrap_or(line);
    line.strip_prefix("sh '")
        .map_or(line, |line| line.trim_end_matches('\''))
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
