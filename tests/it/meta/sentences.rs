//! Plain English: the sentences of the docs are short. Code, tables and headings are left out. `scripts/measure-docs`
//! counts in the same way and names each line.

use std::fs;

use super::docs::{pages, root};

/// The average sentence of a page has fewer words than this.
const LIMIT: usize = 16;

/// No sentence of a page has more words than this.
const LONGEST: usize = 35;

/// All pages together have fewer words than this, as `wc -w` counts them: a new page has to make room, or say why not.
const MOST_WORDS: usize = 70_000;

/// Pages that the program or the benches write.
const LEFT_OUT: [&str; 4] = [
    "docs/reference/action.md",
    "docs/reference/commands.md",
    "docs/reference/errors.md",
    "docs/reference/konverge-yaml.md",
];

/// Each page by its path from the root, with its text.
fn named_pages() -> impl Iterator<Item = (String, String)> {
    pages().into_iter().map(|page| {
        let name = page.strip_prefix(root()).expect("below the root");
        (
            name.display().to_string(),
            fs::read_to_string(&page).expect("a page"),
        )
    })
}

/// The paragraphs and list items of a page, each on one line.
fn paragraphs(page: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut in_code = false;
    for line in page.lines() {
        let line = line.trim();
        let fence = line.starts_with("```");
        in_code ^= fence;
        let is_item = line.starts_with("- ")
            || line
                .split_once(". ")
                .is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        let is_prose =
            !fence && !in_code && !["|", "#", "![", "<!--"].iter().any(|sign| line.starts_with(sign));
        if !is_prose || is_item || line.is_empty() {
            paragraphs.push(String::new());
        }
        if is_prose {
            let text =
                line.trim_start_matches(|c: char| is_item && (c.is_ascii_digit() || "-. ".contains(c)));
            let last = paragraphs.last_mut().expect("there is one from the start");
            last.push_str(text);
            last.push(' ');
        }
    }
    paragraphs.retain(|paragraph| !paragraph.trim().is_empty());
    paragraphs
}

/// The number of words of each sentence. What is in code style is one word, and of a link its text counts.
fn sentences(paragraph: &str) -> Vec<usize> {
    let mut text = String::new();
    for (number, part) in paragraph.split('`').enumerate() {
        text.push_str(if number % 2 == 0 { part } else { "code" });
    }
    while let Some(at) = text.find("](") {
        let end = text[at..].find(')').map_or(text.len(), |end| at + end + 1);
        text.replace_range(at..end, "");
    }
    let mut counts = vec![0];
    for word in text.split_whitespace() {
        if word.contains(char::is_alphanumeric) {
            *counts.last_mut().expect("there is one from the start") += 1;
        }
        if word.trim_end_matches(['*', ')', '"']).ends_with(['.', '!', '?']) {
            counts.push(0);
        }
    }
    counts.retain(|count| *count > 0);
    counts
}

fn measure(page: &str) -> (usize, usize) {
    let counts: Vec<usize> = paragraphs(page)
        .iter()
        .flat_map(|paragraph| sentences(paragraph))
        .collect();
    (counts.iter().sum(), counts.len())
}

#[test]
fn sentences_are_measured_without_code_and_tables() {
    let page = "# A heading of many words that does not count\n\nOne two `three four` [five six](seven.md). Seven?\n\
                - eight nine\n\n| a | table |\n|---|---|\n\n```sh\nkonverge affected --base HEAD~1\n```\n1. ten eleven.\n";
    assert_eq!(measure(page), (10, 4));
    assert_eq!(
        sentences("**Bold.** Then v1.2 is one sentence (so it is)."),
        [1, 8]
    );
}

#[test]
fn the_average_sentence_of_each_page_is_short() {
    let (mut long, mut measured) = (Vec::new(), 0);
    for (name, text) in named_pages() {
        if LEFT_OUT.contains(&name.as_str()) {
            continue;
        }
        let (words, sentences) = measure(&text);
        measured += 1;
        if words >= LIMIT * sentences.max(1) {
            long.push(format!(
                "{name}: {words} words in {sentences} sentences; split the long ones"
            ));
        }
    }
    assert!(measured > 20, "only {measured} pages were measured");
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn no_sentence_is_too_long() {
    let (mut long, mut measured) = (Vec::new(), 0);
    for (name, text) in named_pages() {
        if !(name.starts_with("docs/") || name == "README.md") {
            continue;
        }
        measured += 1;
        for paragraph in paragraphs(&text) {
            let counts = sentences(&paragraph);
            if let Some(words) = counts.into_iter().filter(|words| *words > LONGEST).max() {
                long.push(format!("{name}: {words} words in one sentence of: {paragraph}"));
            }
        }
    }
    assert!(measured > 20, "only {measured} pages were measured");
    assert!(long.is_empty(), "split these:\n{}", long.join("\n"));
}

#[test]
fn the_docs_stay_short() {
    let pages = named_pages().filter(|(name, _)| name.starts_with("docs/") || name == "README.md");
    let mut counts: Vec<(usize, String)> = pages
        .map(|(name, text)| (text.split_whitespace().count(), name))
        .collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    let all: usize = counts.iter().map(|(words, _)| words).sum();
    assert!(counts.len() > 60, "only {} pages were measured", counts.len());
    assert!(
        all < MOST_WORDS,
        "{all} words, more than {MOST_WORDS}; the longest: {:#?}",
        &counts[..10]
    );
}
