//! Overrides of policy findings by a review: an approving review of the last head that names a finding in its own
//! words, or says that it overrides all findings in the preview's comment. The review must be newer than that comment.
//!
//! Anyone who may push can edit Konverge's comment and the text of other people's reviews. So the findings and the text
//! of the comment come from the store, and GitHub tells who edited a review.

use std::collections::{BTreeMap, BTreeSet};

use crate::{policy::overrides::OverrideReasons, trust::reviewers::Reviewers};
use konverge_base::model::{
    Digest,
    review::{OVERRIDE_ALL_SHOWN, RecordedComment, ReviewRecord},
};
use konverge_forge::{ForgeError, PreviewComment, ReviewApproval};

/// The overrides in the reviews of a pull request.
#[derive(Debug, Default)]
pub(crate) struct ReviewOverrides {
    /// The reviewers who override each finding. Their permission to override it is not checked yet.
    pub given: BTreeMap<Digest, OverrideReasons>,
    /// Explanations why an intended override does not count.
    pub remarks: BTreeSet<String>,
}

/// Finds the overrides of the findings that a preview recorded.
pub(crate) async fn in_reviews(
    people: &Reviewers,
    record: &ReviewRecord,
) -> Result<ReviewOverrides, ForgeError> {
    let mut found = ReviewOverrides::default();
    let number = record.pull_request;
    if record.findings.is_empty() {
        return Ok(found);
    }
    let Some(shown) = &record.comment else {
        found.remarks.insert(format!(
            "no comment of the preview of #{number} is recorded, so no review overrides anything"
        ));
        return Ok(found);
    };
    // A review may refer to all findings in the comment, so the comment must be read and unchanged.
    let comments = people.preview_comments(number).await?;
    let is_unedited = is_shown_unedited(&comments, record, shown);
    if !is_unedited {
        found.remarks.insert(format!(
            "the comment of the preview of #{number} was edited or deleted after Konverge wrote it: it may show other findings \
             than were found, so `{OVERRIDE_ALL_SHOWN}` does not count, and a review has to name the digest"
        ));
    }
    for review in people.approvals(number).await? {
        // A review of an older head was written for other findings.
        if review.commit != record.head {
            continue;
        }
        let said = Words::parse(&review.said);
        let all = if said.all_shown && is_unedited {
            record.findings.clone()
        } else {
            BTreeSet::new()
        };
        let meant: BTreeSet<_> = said.digests.intersection(&record.findings).chain(&all).collect();
        if meant.is_empty() {
            continue;
        }
        if let Some(why) = why_none(people, &review, shown).await? {
            found.remarks.insert(why);
            continue;
        }
        for digest in meant {
            let reviewers = found.given.entry(*digest).or_default();
            reviewers.insert(review.reviewer.clone(), review.said.clone());
        }
    }
    Ok(found)
}

/// Returns why a review that names findings overrides none of them; `None` if it does override.
async fn why_none(
    people: &Reviewers,
    review: &ReviewApproval,
    shown: &RecordedComment,
) -> Result<Option<String>, ForgeError> {
    let reviewer = &review.reviewer;
    // GitHub's times are whole seconds, so a review of the same second may be older than the comment.
    if review.given.is_none_or(|given| given <= shown.written) {
        return Ok(Some(format!(
            "the review of {reviewer} was not given after the comment showed the finding"
        )));
    }
    // Others may edit a review, so only a text of its author counts.
    let editor = people.review_editor(review).await?;
    Ok(editor
        .filter(|editor| !editor.eq_ignore_ascii_case(reviewer))
        .map(|editor| format!("the review of {reviewer} was edited by {editor}")))
}

/// Returns true if the recorded comment still exists, with the text that Konverge wrote.
fn is_shown_unedited(comments: &[PreviewComment], record: &ReviewRecord, shown: &RecordedComment) -> bool {
    let of_head = comments
        .iter()
        .filter(|comment| comment.head == record.head.as_str());
    of_head
        .map(|comment| comment_digest(&comment.body, &record.run))
        .any(|digest| digest == shown.digest)
}

/// Computes the digest of a comment's text. The link to the page, which a later step adds, does not change the digest.
pub(crate) fn comment_digest(body: &str, run: &str) -> Digest {
    // A later step replaces the anchor in the link by the number of the artifact, so both forms are made equal.
    let prefix = format!("{run}/artifacts/");
    let mut parts = body.split(prefix.as_str());
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(run);
        text.push_str("#artifacts");
        text.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    // GitHub may store the text with other line endings.
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    Digest::of_bytes(lines.join("\n").trim_end().as_bytes())
}

/// The findings that a review names in its author's own words. Quotes, code and hidden text are left out.
#[derive(Debug, PartialEq, Eq)]
struct Words {
    digests: BTreeSet<Digest>,
    /// True if the review overrides every denial in the comment.
    all_shown: bool,
}

impl Words {
    fn parse(text: &str) -> Self {
        let lines = own_lines(text);
        let words = lines
            .iter()
            .flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric()));
        Self {
            digests: words.filter_map(|word| word.parse().ok()).collect(),
            all_shown: lines.contains(&OVERRIDE_ALL_SHOWN),
        }
    }
}

/// Returns the lines of a Markdown text that a reader sees as the words of its author.
///
/// A line is left out when in doubt: a quote continues until an empty line, and so does HTML, which may hide or quote
/// text. A comment, code or `<pre>` without an end continues until the end of the text.
fn own_lines(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut left_out = LeftOut::Nothing;
    for line in text.lines() {
        let words = line.trim();
        left_out = match left_out {
            LeftOut::Until(end) if words.to_ascii_lowercase().contains(end) => LeftOut::Paragraph,
            LeftOut::Fence(fence)
                if words.starts_with(fence) && words.trim_start_matches(&fence[..1]).is_empty() =>
            {
                LeftOut::Nothing
            }
            LeftOut::Paragraph if words.is_empty() => LeftOut::Nothing,
            LeftOut::Nothing => {
                let is_code = line.starts_with("    ") || line.starts_with('\t');
                let begun = LeftOut::begun_by(words);
                if matches!(begun, LeftOut::Nothing) && !is_code {
                    lines.push(words);
                }
                begun
            }
            same => same,
        };
    }
    lines
}

/// The reason why the following lines of a Markdown text are not the words of its author.
#[derive(Clone, Copy)]
enum LeftOut<'a> {
    Nothing,
    /// The lines are a quote or HTML, until an empty line.
    Paragraph,
    /// The lines are left out until a line with this text.
    Until(&'static str),
    /// The lines are code, until a line of at least these characters.
    Fence(&'a str),
}

impl<'a> LeftOut<'a> {
    fn begun_by(words: &'a str) -> Self {
        let fence = words.len() - words.trim_start_matches(['`', '~']).len();
        if fence >= 3 {
            return Self::Fence(&words[..fence]);
        }
        let lower = words.to_ascii_lowercase();
        let blocks = [
            ("<!--", "-->"),
            ("<pre", "</pre"),
            ("<script", "</script"),
            ("<style", "</style"),
            ("<textarea", "</textarea"),
            ("<blockquote", "</blockquote"),
            ("<details", "</details"),
            ("<code", "</code"),
        ];
        for (begin, end) in blocks {
            if let Some(at) = lower.find(begin) {
                return if lower[at..].contains(end) {
                    Self::Paragraph
                } else {
                    Self::Until(end)
                };
            }
        }
        // A quote may also be inside a list item, and a quote is no override.
        let item = words.trim_start_matches(['-', '*', '+', ' ']);
        if item.starts_with(['>', '<']) {
            return Self::Paragraph;
        }
        Self::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::reviewers::KnownPeople;

    #[test]
    fn only_own_words_name_a_finding() {
        let digest = Digest::of_bytes(b"finding");
        let named = BTreeSet::from([digest]);
        let words = |digests: &BTreeSet<Digest>, all_shown| Words {
            digests: digests.clone(),
            all_shown,
        };
        let none = BTreeSet::new();
        for (text, expected) in [
            (String::new(), words(&none, false)),
            ("agreed".to_owned(), words(&none, false)),
            (digest.to_string(), words(&named, false)),
            (format!("The vendor is late.\n(`{digest}`)"), words(&named, false)),
            (
                format!("> approve: {digest}\n  > {digest}\nwhy?"),
                words(&none, false),
            ),
            (format!("x{digest}"), words(&none, false)),
            (format!("{digest}0"), words(&none, false)),
            (digest.to_string()[..40].to_owned(), words(&none, false)),
            ("Fine.\r\nkonverge override\r\n".to_owned(), words(&none, true)),
            (format!("konverge override\n{digest}"), words(&named, true)),
            ("> konverge override".to_owned(), words(&none, false)),
            ("no konverge override, please".to_owned(), words(&none, false)),
            // Hidden, shown as code, or somebody else's.
            ("<!--\nkonverge override\n-->".to_owned(), words(&none, false)),
            (
                format!("Fine. <!-- see\n{digest}\nkonverge override"),
                words(&none, false),
            ),
            (
                format!("Why?\n```\nkonverge override\n{digest}\n```\n"),
                words(&none, false),
            ),
            (
                "````text\n```\nkonverge override\n````".to_owned(),
                words(&none, false),
            ),
            ("~~~\nkonverge override".to_owned(), words(&none, false)),
            (format!("- > {digest}"), words(&none, false)),
            ("Try:\n\n    konverge override\n".to_owned(), words(&none, false)),
            (
                format!("> they say\nkonverge override\n{digest}"),
                words(&none, false),
            ),
            (
                "<blockquote>\n\nkonverge override\n\n</blockquote>".to_owned(),
                words(&none, false),
            ),
            (
                "<div hidden>\nkonverge override\n</div>".to_owned(),
                words(&none, false),
            ),
            // Own words after them.
            ("> they say\n\nkonverge override".to_owned(), words(&none, true)),
            ("```\ncode\n```\nkonverge override".to_owned(), words(&none, true)),
            (
                "<!-- draft -->\n\nkonverge override".to_owned(),
                words(&none, true),
            ),
        ] {
            assert_eq!(Words::parse(&text), expected, "{text}");
        }
    }

    #[test]
    fn the_link_of_the_page_is_no_edit() {
        let run = "https://github.com/acme/konfig/actions/runs/7";
        let written = format!("a\n[page]({run}#artifacts)\nb\n");
        let digest = comment_digest(&written, run);
        let linked = format!("a\r\n[page]({run}/artifacts/31)\r\nb");
        assert_eq!(comment_digest(&linked, run), digest);
        for edited in [
            "a\nb\n".to_owned(),
            written.replace('b', "c"),
            format!("{written}more"),
            written.replace("#artifacts", "/artifacts/1/evil"),
        ] {
            assert_ne!(comment_digest(&edited, run), digest, "{edited}");
        }
    }

    fn record(run: &str, shown: &RecordedComment) -> ReviewRecord {
        ReviewRecord {
            version: 1,
            pull_request: 7,
            head: "a".repeat(40).parse().unwrap(),
            base: "b".repeat(40).parse().unwrap(),
            power: None,
            run: run.to_owned(),
            findings: BTreeSet::from([Digest::of_bytes(b"finding")]),
            stacks: Vec::new(),
            comment: Some(shown.clone()),
        }
    }

    #[test]
    fn only_the_comment_of_this_head_as_it_was_written_shows_the_findings() {
        let run = "https://github.com/acme/konfig/actions/runs/7";
        let shown = RecordedComment {
            digest: comment_digest("a\n", run),
            written: "2026-11-01T10:00:00Z".parse().unwrap(),
        };
        let record = record(run, &shown);
        let comment = |head: char, body: &str| PreviewComment {
            head: head.to_string().repeat(40),
            body: body.to_owned(),
        };
        let is_there = |comments: &[PreviewComment]| is_shown_unedited(comments, &record, &shown);
        assert!(is_there(&[comment('c', "b"), comment('a', "a")]));
        assert!(!is_there(&[comment('c', "a")]));
        assert!(!is_there(&[comment('a', "a, and more")]));
        assert!(!is_there(&[]));
    }

    /// What reviews of #7 override of the finding `finding`: the reviewers, and the remarks.
    async fn overridden(
        change: impl FnOnce(&mut ReviewRecord),
        reviews: &[(&str, char, &str)],
        body: &str,
    ) -> (Vec<String>, Vec<String>) {
        let run = "https://github.com/acme/konfig/actions/runs/7";
        let mut record = record(
            run,
            &RecordedComment {
                digest: comment_digest("shown\n", run),
                written: "2026-11-01T10:00:00Z".parse().unwrap(),
            },
        );
        change(&mut record);
        let reviews = reviews.iter().map(|(reviewer, head, said)| {
            let review = ReviewApproval {
                reviewer: (*reviewer).to_owned(),
                commit: head.to_string().repeat(40).parse().unwrap(),
                given: Some("2026-11-01T10:05:00Z".parse().unwrap()),
                said: (*said).to_owned(),
                node: (*reviewer).to_owned(),
            };
            (7, review)
        });
        let comment = PreviewComment {
            head: "a".repeat(40),
            body: body.to_owned(),
        };
        let known = KnownPeople {
            reviews: reviews.collect(),
            comments: vec![(7, comment)],
            edited: vec![("eve", "mallory")],
            ..KnownPeople::default()
        };
        let found = in_reviews(&Reviewers::knowing(known, ""), &record).await.unwrap();
        let people = found.given.into_iter().flat_map(|(digest, people)| {
            assert_eq!(digest, Digest::of_bytes(b"finding"));
            people.into_keys()
        });
        (people.collect(), found.remarks.into_iter().collect())
    }

    #[tokio::test]
    async fn a_review_of_the_last_head_overrides_by_the_digest_or_by_the_phrase() {
        let digest = Digest::of_bytes(b"finding").to_string();
        let other = Digest::of_bytes(b"another").to_string();
        let reviews = [
            ("ann", 'a', digest.as_str()),
            ("bob", 'a', "konverge override"),
            ("carol", 'a', "looks good"),
            ("dora", 'a', other.as_str()),
            // Of an older head, and one whose text somebody else wrote.
            ("fay", 'c', digest.as_str()),
            ("eve", 'a', digest.as_str()),
        ];
        let (people, remarks) = overridden(|_| {}, &reviews, "shown\n").await;
        assert_eq!(people, ["ann", "bob"]);
        assert_eq!(remarks, ["the review of eve was edited by mallory"]);
        // An edited comment: only the digest in the review's own words counts.
        let (people, remarks) = overridden(|_| {}, &reviews, "shown, and more\n").await;
        assert_eq!(people, ["ann"]);
        assert!(
            remarks
                .iter()
                .any(|remark| remark.contains("was edited or deleted")),
            "{remarks:?}"
        );
    }

    #[tokio::test]
    async fn without_a_recorded_finding_or_comment_nothing_is_overridden() {
        let digest = Digest::of_bytes(b"finding").to_string();
        let reviews = [("ann", 'a', digest.as_str()), ("bob", 'a', "konverge override")];
        let none = overridden(|record| record.findings.clear(), &reviews, "shown\n").await;
        assert_eq!(none, (Vec::new(), Vec::new()));
        let (people, remarks) = overridden(|record| record.comment = None, &reviews, "shown\n").await;
        assert!(people.is_empty());
        assert!(
            remarks[0].contains("no comment of the preview of #7 is recorded"),
            "{remarks:?}"
        );
        // A digest that the preview did not record names nothing.
        let others = |record: &mut ReviewRecord| record.findings = BTreeSet::from([Digest::of_bytes(b"x")]);
        assert!(overridden(others, &reviews[..1], "shown\n").await.0.is_empty());
    }

    #[tokio::test]
    async fn a_review_counts_only_if_it_came_after_the_comment_and_is_its_authors_own() {
        let shown = RecordedComment {
            digest: Digest::of_bytes(b"comment"),
            written: "2026-11-01T10:00:00Z".parse().unwrap(),
        };
        let known = |edited| KnownPeople {
            edited,
            ..KnownPeople::default()
        };
        let unedited = Reviewers::new(None);
        let counts_of = async |people: &Reviewers, given: Option<&str>| {
            let review = ReviewApproval {
                reviewer: "bob".to_owned(),
                commit: "a".repeat(40).parse().unwrap(),
                given: given.map(|time| time.parse().unwrap()),
                said: String::new(),
                node: "PRR".to_owned(),
            };
            why_none(people, &review, &shown).await.unwrap().is_none()
        };
        let counts = async |given| counts_of(&unedited, given).await;
        assert!(counts(Some("2026-11-01T10:00:01Z")).await);
        // Of the same second, earlier, or nobody knows when.
        assert!(!counts(Some("2026-11-01T10:00:00Z")).await);
        assert!(!counts(Some("2026-11-01T09:59:59Z")).await);
        assert!(!counts(None).await);
        // Others may put words into it; its author may find better ones.
        let later = Some("2026-11-01T10:00:01Z");
        let by = |editor| Reviewers::knowing(known(vec![("PRR", editor)]), "");
        assert!(!counts_of(&by("eve"), later).await);
        assert!(counts_of(&by("Bob"), later).await);
    }
}
