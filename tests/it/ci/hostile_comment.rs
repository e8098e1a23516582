//! Whatever the texts of a plan are: the comment and the page keep their structure, hide nothing and say no more than
//! they should.

use konverge_base::model::{comment_marker::CommentMarker, permission_changes::PowerChange, plan::Action};
use konverge_report::{COMMENT_BUDGET, html, markdown, model_changes, terminal};
use proptest::prelude::*;

use crate::support::{
    hostile_plans::{self, HostileStack},
    sample_plans::{self, Sample},
};

/// The structure of GitHub's Markdown as far as it can break a page: fences and folds.
fn assert_balanced(body: &str) {
    let mut fence: Option<String> = None;
    let mut folds = 0usize;
    for raw in body.lines() {
        let line = raw.trim_start_matches("> ").trim_start();
        let ticks: String = line.chars().take_while(|c| *c == '`').collect();
        match &fence {
            Some(open) => {
                if ticks.len() >= open.len() && line.trim_end() == ticks {
                    fence = None;
                }
            }
            None if ticks.len() >= 3 && !line[ticks.len()..].contains('`') => fence = Some(ticks),
            None => {
                let raw = without_spans(raw);
                folds += raw.matches("<details").count();
                folds = folds
                    .checked_sub(raw.matches("</details>").count())
                    .expect("a fold is closed that is not open");
            }
        }
    }
    assert_eq!(fence, None, "an open fence");
    assert_eq!(folds, 0, "an open fold");
}

/// The page without code: what GitHub would link, mention or read as HTML.
fn outside_code(body: &str) -> String {
    let mut out = String::new();
    let mut fence: Option<usize> = None;
    for raw in body.lines() {
        let line = raw.trim_start_matches("> ").trim_start();
        let ticks = line.chars().take_while(|c| *c == '`').count();
        match fence {
            Some(open) => {
                if ticks >= open && line.trim_end().len() == ticks {
                    fence = None;
                }
            }
            None if ticks >= 3 && !line[ticks..].contains('`') => fence = Some(ticks),
            None => {
                out.push_str(&without_spans(raw));
                out.push('\n');
            }
        }
    }
    out
}

fn without_spans(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        out.push_str(&rest[..start]);
        let run = rest[start..].chars().take_while(|c| *c == '`').count();
        let after = &rest[start + run..];
        let mut at = 0;
        let mut end = None;
        while let Some(next) = after[at..].find('`') {
            let from = at + next;
            let length = after[from..].chars().take_while(|c| *c == '`').count();
            if length == run {
                end = Some(from + length);
                break;
            }
            at = from + length;
        }
        match end {
            Some(end) => rest = &after[end..],
            None => {
                out.push_str(&rest[start..start + run]);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

fn hostile() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "@octocat",
        "#12",
        "<img src=x>",
        "</details>",
        "<!-- konverge:v1 e30 -->",
        "-->",
        "```",
        "`",
        "````",
        "|",
        "\\|",
        "\n",
        "\r\n",
        "](javascript:x)",
        "[a](https://evil.example)",
        "https://evil.example",
        "::error::x",
        "##[group]x",
        "\u{202e}",
        "\u{1b}[31m",
        "a",
        "é",
        "𝄞",
        "**",
        "> ",
        "### ",
        "- ",
        "&lt;",
        "$(id)",
        "\u{0}",
        "{{",
        "\"",
        "'",
        "\t",
    ]);
    prop::collection::vec(pieces, 0..8).prop_map(|parts| parts.concat())
}

fn setting(key: &str, from: Option<&str>, to: Option<&str>) -> PowerChange {
    PowerChange {
        key: key.to_owned(),
        from: from.map(str::to_owned),
        to: to.map(str::to_owned),
        stacks: None,
    }
}

/// The title of the table counts right, and names the file.
#[test]
fn the_settings_that_grant_permissions_are_counted_and_their_file_is_named() {
    let approvals = setting("policy.approvals", Some("2"), None);
    let store = setting("state.url", None, Some("s3://b"));
    let owners = setting("CODEOWNERS", Some("as it is"), Some("other content"));
    for (power, title) in [
        (
            vec![approvals.clone()],
            "changes 1 setting of `konverge.yaml` that grants permissions.**",
        ),
        (
            vec![approvals.clone(), store],
            "changes 2 settings of `konverge.yaml` that grant permissions.**",
        ),
        (
            vec![owners.clone()],
            "changes the owners in `CODEOWNERS`, who grant permissions.**",
        ),
        (
            vec![approvals, owners],
            "changes 1 setting of `konverge.yaml` that grants permissions, and the owners in `CODEOWNERS`.**",
        ),
    ] {
        let mut sample = sample_plans::shop();
        sample.power = power;
        let body = markdown::comment(&sample.input(60_000)).body;
        assert!(body.contains(title), "{title}: {body}");
    }
}

/// Whatever a merge would add, in whatever length: what it takes out is in sight, and so is where two values differ.
#[test]
fn no_number_and_no_length_of_settings_hides_what_a_merge_takes_out() {
    let mut sample = sample_plans::shop();
    let long = format!("[\"{}\"", "a".repeat(5000));
    let providers = (format!("{long},\"good\"]"), format!("{long},\"evil\"]"));
    sample.power = (0..500)
        .map(|n| setting(&format!("clusters.a{n}.context"), None, Some(&"c".repeat(3000))))
        .chain((0..500).map(|n| setting(&format!("apply.{n}"), None, Some("x"))))
        .collect();
    sample.power.push(setting(
        &format!("apply.health_rules: {}", "d".repeat(9000)),
        Some("as it is"),
        Some("other content"),
    ));
    sample.power.push(setting("policy.approvals", Some("2"), None));
    sample.power.push(setting(
        "terraform.providers",
        Some(&providers.0),
        Some(&providers.1),
    ));
    for budget in [8_000, 60_000] {
        let body = markdown::comment(&sample.input(budget)).body;
        assert!(
            body.contains("| `policy.approvals` | `2` | not set | all |"),
            "{budget}: {body}"
        );
        let count = "changes 1003 settings of `konverge.yaml` that grant permissions";
        assert!(
            body.contains(count) && body.contains(" more**, of `apply`, `clusters`"),
            "{budget}: {body}"
        );
    }
    let body = markdown::comment(&sample.input(60_000)).body;
    let providers = body
        .lines()
        .find(|line| line.contains("terraform.providers"))
        .unwrap();
    assert!(
        providers.contains("good") && providers.contains("evil"),
        "{providers}"
    );
    assert!(body.contains("`other content`"), "{body}");
}

fn hostile_sample() -> impl Strategy<Value = Sample> {
    let stacks = prop::collection::vec((hostile(), hostile(), hostile(), 0..5usize), 0..25);
    (stacks, hostile(), hostile()).prop_map(|(stacks, message, file)| {
        let stacks = stacks.into_iter().map(|(name, key, value, kind)| HostileStack {
            name,
            key,
            value,
            kind,
        });
        hostile_plans::sample(stacks, &message, &file)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever the input and the budget: it fits, it is closed, alerts are kept, the same input gives the same bytes.
    #[test]
    fn any_comment_fits_and_is_whole(sample in hostile_sample(), budget in 4_096usize..60_000) {
        let comment = markdown::comment(&sample.input(budget));
        prop_assert!(comment.body.len() <= budget, "{} > {budget}", comment.body.len());
        assert_balanced(&comment.body);
        let again = markdown::comment(&sample.input(budget));
        prop_assert_eq!(&comment.body, &again.body);
        let failed = sample.plan.stacks.iter().filter(|s| s.error.is_some()).count();
        if failed > 0 {
            prop_assert!(comment.body.contains("could not be planned"));
        }
        let deleted = sample.plan.stacks.iter().flat_map(|s| &s.resources).filter(|r| r.action == Action::Delete).count();
        if deleted > 0 {
            prop_assert!(comment.body.contains("will be deleted"));
        }
    }

    /// Names, paths, values and messages forge nothing: no marker, mention, link, element, table cell, command.
    #[test]
    fn nothing_hostile_gets_out_of_code(sample in hostile_sample()) {
        let comment = markdown::comment(&sample.input(COMMENT_BUDGET));
        prop_assert_eq!(CommentMarker::parse(&comment.body), Some(sample.marker.clone()));
        let text = outside_code(&comment.body);
        let (first, rest) = text.split_once('\n').unwrap();
        prop_assert_eq!(first, sample.marker.line());
        // In a summary the foreign text stands in an HTML code element, escaped; there GitHub links nothing either.
        let rest: String = rest.split("<code>").enumerate().map(|(i, part)| {
            if i == 0 { part.to_owned() } else { part.split_once("</code>").map_or(String::new(), |(_, after)| after.to_owned()) }
        }).collect();
        for forbidden in ["<!--", "@octocat", "#12", "<img", "evil.example", "javascript:", "::error", "##[", "\u{202e}", "\u{1b}", "\u{0}"] {
            prop_assert!(!rest.contains(forbidden), "{forbidden:?} in {rest}");
        }
        let known = ["<details open>", "<details>", "</details>", "<summary>", "</summary>", "<b>", "</b>", "<sub>", "</sub>"];
        let mut stripped = rest.clone();
        for tag in known {
            stripped = stripped.replace(tag, "");
        }
        prop_assert!(!stripped.contains('<'), "{stripped}");
    }

    /// The same for a terminal that GitHub's runner reads.
    #[test]
    fn a_log_obeys_nothing(sample in hostile_sample()) {
        let style = terminal::Style::default();
        let log = terminal::plan(&sample.plan, style) + &model_changes::terminal(&sample.models, style);
        for line in log.lines() {
            prop_assert!(!line.trim().starts_with("::"), "{line:?}");
            prop_assert!(!line.contains("##["), "{line:?}");
            prop_assert!(!line.contains('\u{1b}'), "{line:?}");
        }
    }

    /// The same for the HTML page: the only elements are ours.
    #[test]
    fn the_page_holds_foreign_text_as_text(sample in hostile_sample()) {
        let page = html::report(&sample.input(0));
        prop_assert!(!page.contains("<img") && !page.contains("<!-- konverge"));
        prop_assert_eq!(page.matches("<script").count(), 1);
        prop_assert_eq!(page.matches("<details").count(), page.matches("</details>").count());
    }
}
