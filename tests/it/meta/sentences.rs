//! Plain English: the sentences of the docs are short. Code, tables and headings are left out. `scripts/measure-docs`
//! counts in the same way and names each line.

use std::fs;

use super::docs::{pages, root};

/// The average sentence of a page has fewer words than this.
const LIMIT: usize = 16;

/// No sentence of a page has more words than this.
const LONGEST: usize = 35;

/// All pages together have fewer words than this, as `wc -w` counts them: a new page has to make room, or say why not.
const MOST_WORDS: usize = 67_500;

/// The same without the pages and the sections of later capabilities: the aim that was set before these came.
const MOST_EARLIER_WORDS: usize = 45_000;

/// Pages of capabilities that came after the aim was set.
const LATER_PAGES: [&str; 21] = [
    "docs/design/021-hooks.md",
    "docs/design/022-logins.md",
    "docs/design/023-export.md",
    "docs/design/024-portal.md",
    "docs/design/025-code-changes.md",
    "docs/design/026-stack-tests.md",
    "docs/design/027-notifications.md",
    "docs/design/028-models.md",
    "docs/design/029-rollouts.md",
    "docs/design/030-editor.md",
    "docs/guides/cloud-packs.md",
    "docs/guides/code-changes.md",
    "docs/guides/develop.md",
    "docs/guides/editor.md",
    "docs/guides/export.md",
    "docs/guides/hooks.md",
    "docs/guides/live-tests.md",
    "docs/guides/models.md",
    "docs/guides/portal.md",
    "docs/guides/rollouts.md",
    "docs/reference/rego.md",
];

/// Sections of these capabilities in pages that were there before, by their headings.
const LATER_SECTIONS: [(&str, &[&str]); 5] = [
    ("docs/guides/permissions.md", &["The job with live tests"]),
    (
        "docs/reference/commands.md",
        &[
            "konverge test",
            "konverge watch",
            "konverge set",
            "konverge lsp",
            "konverge notify",
            "konverge export",
            "konverge models",
            "konverge portal",
            "konverge serve",
            "konverge rollout",
        ],
    ),
    (
        "docs/reference/konverge-yaml.md",
        &[
            "logins", "rollouts", "gates", "delivery", "set", "portal", "models",
        ],
    ),
    ("docs/reference/json.md", &["test", "watch", "Portal"]),
    (
        "docs/security.md",
        &["Live tests", "Stacks that a controller delivers", "The portal"],
    ),
];

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

/// A page without the sections of these headings, each with what is below it.
fn without_sections(page: &str, headings: &[&str]) -> String {
    let mut kept = String::new();
    let (mut left_out, mut in_code) = (None, false);
    for line in page.lines() {
        in_code ^= line.starts_with("```");
        let level = line.len() - line.trim_start_matches('#').len();
        if level > 0 && !in_code {
            left_out = left_out.filter(|above| level > *above);
            let is_named = headings.contains(&line[level..].trim());
            left_out = left_out.or_else(|| is_named.then_some(level));
        }
        if left_out.is_none() {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// The words of each page of the docs that `text` leaves something of, the most first, and their sum.
fn count_words(text: impl Fn(&str, String) -> Option<String>) -> (Vec<(usize, String)>, usize) {
    let pages = named_pages().filter(|(name, _)| name.starts_with("docs/") || name == "README.md");
    let mut counts: Vec<(usize, String)> = pages
        .filter_map(|(name, page)| Some((text(&name, page)?.split_whitespace().count(), name)))
        .collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    let all = counts.iter().map(|(words, _)| words).sum();
    (counts, all)
}

#[test]
fn a_section_is_left_out_with_what_is_below_it() {
    let page = "# a\n## set\nx\n### b\ny\n```sh\n# set\n```\n## c\n```sh\n## set\nz\n```\n";
    assert_eq!(
        without_sections(page, &["set"]),
        "# a\n## c\n```sh\n## set\nz\n```\n"
    );
}

#[test]
fn the_docs_stay_short() {
    let (counts, all) = count_words(|_, page| Some(page));
    assert!(counts.len() > 60, "only {} pages were measured", counts.len());
    assert!(
        all < MOST_WORDS,
        "{all} words, more than {MOST_WORDS}; the longest: {:#?}",
        &counts[..10]
    );
}

#[test]
fn what_the_docs_had_before_the_later_capabilities_is_short() {
    let names: Vec<String> = named_pages().map(|(name, _)| name).collect();
    let unknown = LATER_PAGES
        .iter()
        .find(|page| !names.contains(&(**page).to_owned()));
    assert!(unknown.is_none(), "{unknown:?} does not exist");
    let (counts, all) = count_words(|name, page| {
        let sections = LATER_SECTIONS.iter().find(|(page, _)| *page == name);
        let text = match sections {
            None => page,
            Some((_, headings)) => {
                for heading in *headings {
                    assert!(page.contains(&format!("# {heading}\n")), "{name}: no {heading}");
                }
                without_sections(&page, headings)
            }
        };
        (!LATER_PAGES.contains(&name)).then_some(text)
    });
    assert!(
        all < MOST_EARLIER_WORDS,
        "{all} words, more than {MOST_EARLIER_WORDS}; the longest: {:#?}",
        &counts[..10]
    );
}
