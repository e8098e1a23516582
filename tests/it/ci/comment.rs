//! The comment: as reviewers see it (golden files), and what holds for any input (properties).
//!
//! `UPDATE_GOLDEN=1 cargo test --test it comment::` writes the golden files; look at the difference before committing.

use std::{fs, path::PathBuf};

use konverge::{
    model::{
        affected::InputChange,
        comment_marker::CommentMarker,
        plan::{Action, ChangeOrigin},
        policy_finding::{Enforcement, PolicyFinding},
        power::PowerChange,
        text::is_hidden,
    },
    report::{COMMENT_BUDGET, Merging, html, markdown, terminal},
};
use proptest::prelude::*;
use serde_json::json;

use crate::support::{
    golden::golden,
    sample::{self, Sample},
};

#[test]
fn everything_once() {
    let shop = sample::shop();
    let comment = markdown::comment(&shop.input(COMMENT_BUDGET));
    assert_eq!(comment.step, 0, "nothing has to give way");
    golden("comment-shop.md", &comment.body);
    golden("comment-shop.html", &html::report(&shop.input(0)));
    golden(
        "terminal-shop.txt",
        &terminal::plan(&shop.plan, terminal::Style::default()),
    );
}

#[test]
fn nothing_affected() {
    let mut shop = sample::shop();
    shop.plan.stacks.clear();
    shop.affected.stacks.clear();
    shop.findings.clear();
    golden(
        "comment-nothing.md",
        &markdown::comment(&shop.input(COMMENT_BUDGET)).body,
    );
}

#[test]
fn a_fork() {
    let mut shop = sample::shop();
    shop.mode.merging = Merging::Outside;
    shop.mode.superseded = true;
    shop.plan.stacks.retain(|s| s.error.is_none());
    golden(
        "comment-fork.md",
        &markdown::comment(&shop.input(COMMENT_BUDGET)).body,
    );
}

#[test]
fn a_stack_that_fails_in_part_shows_the_rest() {
    let id = "hashicorp:aws:aws_db_instance:orders";
    let mut shop = sample::shop();
    shop.findings.clear();
    shop.plan
        .stacks
        .retain(|stack| stack.id.as_str() == "search/dev" || stack.error.is_none());
    let stack = shop
        .plan
        .stacks
        .iter_mut()
        .find(|stack| stack.error.is_some())
        .unwrap();
    let map = sample::resource("search/dev", "v1:ConfigMap:search:words", Action::Create, vec![]);
    let error = stack.error.take();
    *stack = sample::stack("search/dev", vec![map]);
    stack.error = error;
    stack.held_back = vec![id.parse().unwrap()];
    let comment = markdown::comment(&shop.input(COMMENT_BUDGET)).body;
    let page = html::report(&shop.input(0));
    let log = terminal::plan(&shop.plan, terminal::Style::default());
    let check = konverge::report::checks::checks(&shop.plan, 50, "").remove(0);
    let rest = "skip 1 resource";
    for (place, text) in [
        ("comment", &comment),
        ("page", &page),
        ("log", &log),
        ("check", &check.summary),
    ] {
        assert!(text.contains(rest), "{place}: {text}");
    }
    for (place, text) in [("comment", &comment), ("page", &page), ("check", &check.summary)] {
        assert!(text.contains("could not be planned in full"), "{place}: {text}");
    }
    for (place, text) in [
        ("log", &log),
        ("check", &check.text),
        ("page", &page),
        ("comment", &comment),
    ] {
        assert!(text.contains("search/words"), "{place}: {text}");
    }
    assert!(comment.contains("**failed in part** 1 created"), "{comment}");
    assert!(
        comment.contains("**Merging** applies what could be planned."),
        "{comment}"
    );
    shop.mode.merging = Merging::NoStore;
    let comment = markdown::comment(&shop.input(COMMENT_BUDGET)).body;
    assert!(!comment.contains("applies what could be planned"), "{comment}");
}

#[test]
fn two_thousand_stacks_fit_and_lose_no_alert() {
    let large = sample::large(2_000);
    let comment = markdown::comment(&large.input(COMMENT_BUDGET));
    assert!(comment.body.len() <= COMMENT_BUDGET, "{}", comment.body.len());
    for stack in large.plan.stacks.iter().filter(|s| s.summary.delete > 0) {
        let line = format!(
            "delete `Service {}/old` in `{}`",
            stack.id.as_str().replace('/', "-"),
            stack.id
        );
        assert!(comment.body.contains(&line), "{line}");
    }
    assert!(comment.body.contains("Same change in 2000 stacks"));
    golden("comment-large.md", &comment.body);
}

/// A change of its own in each stack but some, so that no group takes the room of many.
fn distinct(n: usize) -> Sample {
    let mut shop = sample::large(n);
    for (at, stack) in shop.plan.stacks.iter_mut().enumerate() {
        let name = stack.id.to_string();
        let text = |value: usize| {
            let line = |line: usize| format!("setting {line} is {}\n", if line == 6 { value } else { at });
            Some(json!((1..=12).map(line).collect::<String>()))
        };
        let change = sample::change("/data/conf", text(at), text(at + 10_000), ChangeOrigin::Change);
        let id = format!("v1:ConfigMap:{}:own", name.replace('/', "-"));
        let mut resources = std::mem::take(&mut stack.resources);
        match at % 10 {
            9 => resources.clear(),
            _ => resources.push(sample::resource(&name, &id, Action::Update, vec![change])),
        }
        *stack = sample::stack(&name, resources);
    }
    shop
}

#[test]
fn it_gives_way_in_order() {
    let shop = distinct(60);
    let mut last = 0;
    let mut seen = Vec::new();
    for budget in (8..160).rev().map(|at| at * 512) {
        let comment = markdown::comment(&shop.input(budget));
        assert!(comment.body.len() <= budget, "{budget}");
        assert!(comment.step >= last, "less room never shows more");
        last = comment.step;
        seen.push(comment.step);
        assert!(
            comment.body.contains("delete `Service"),
            "the alert stays at {budget}"
        );
    }
    seen.dedup();
    assert!(seen.len() >= 4, "{seen:?}");
}

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

/// Whatever a merge would add, in whatever length: what it takes out is in sight, and so is where two values differ.
#[test]
fn no_number_and_no_length_of_settings_hides_what_a_merge_takes_out() {
    let mut sample = sample::shop();
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
        let count = "1003 settings that grant power would change";
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

/// What may stand in a name or in a path.
fn cleaned(text: &str) -> String {
    let may = |c: &char| !is_hidden(*c) && !c.is_whitespace() && !"/\\".contains(*c);
    text.chars().filter(may).collect()
}

fn hostile_sample() -> impl Strategy<Value = Sample> {
    let stacks = prop::collection::vec((hostile(), hostile(), hostile(), 0..5usize), 0..25);
    (stacks, hostile(), hostile()).prop_map(|(stacks, message, file)| {
        let mut sample = sample::shop();
        sample.plan.stacks.clear();
        sample.affected.stacks.clear();
        sample.findings = vec![PolicyFinding {
            verdict: Enforcement::Deny,
            rule: message.clone(),
            stack: None,
            message: file.clone(),
            hint: Some(message.clone()),
            place: None,
        }];
        for (index, (name, key, value, kind)) in stacks.into_iter().enumerate() {
            let clean = cleaned(&name);
            let id = format!("p{index}{clean}/s");
            sample.power.push(PowerChange {
                key: format!("apply.health_rules: {key}"),
                from: Some(value.repeat(kind * 40)),
                to: Some(format!("{}{name}", value.repeat(kind * 40))),
                stacks: Some(vec![id.parse().unwrap()]),
            });
            let thing: String = format!("v1:ConfigMap:ns:{clean}x");
            let action = [
                Action::Create,
                Action::Update,
                Action::Replace,
                Action::Delete,
                Action::Update,
            ][kind];
            let path = match action {
                Action::Create | Action::Delete => String::new(),
                _ => format!("/data/{}", key.replace('~', "~0").replace('/', "~1")),
            };
            let origin = if kind == 4 {
                ChangeOrigin::Drift
            } else {
                ChangeOrigin::Change
            };
            let mut resource = sample::resource(
                &id,
                &thing,
                action,
                vec![sample::change(
                    &path,
                    Some(json!({&key: &value})),
                    Some(json!(&value)),
                    origin,
                )],
            );
            resource.notes = vec![value.clone()];
            resource.replace = vec![path.clone()];
            let mut stack = sample::stack(&id, vec![resource]);
            if kind == 2 {
                stack.error = Some(
                    konverge::error::UserError::new(konverge::error::ErrorKind::Kcl, message.clone())
                        .at(file.clone(), Some(1), None)
                        .hint(value)
                        .body(),
                );
            }
            sample.plan.stacks.push(stack);
            let file = format!("base/{}.k", cleaned(&key));
            let chain = [file.as_str(), "base/base.k"];
            let change = InputChange::Modified;
            sample
                .affected
                .stacks
                .push(sample::affected_stack(&id, change, &[&chain]));
        }
        sample
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
        let log = terminal::plan(&sample.plan, terminal::Style::default());
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

#[test]
fn one_check_for_all_and_own_ones_for_what_is_grave() {
    let checks = |plan, most, scope| konverge::report::checks::checks(plan, most, scope);
    let plan = sample::large(2_000).plan;
    let all = checks(&plan, 50, "");
    let grave = plan.stacks.iter().filter(|s| s.summary.delete > 0).count();
    assert_eq!(all.len(), grave + 1);
    assert_eq!(all[grave].name, "konverge: plan");
    assert_eq!(all[grave].title, "200 created, 1980 updated in 1980 stacks");
    // Of a share there are fewer, and its rest is not another's.
    let of_share = checks(&plan, 7, "2/8");
    assert_eq!(of_share.len(), 7);
    assert_eq!(of_share[6].name, "konverge: plan 2/8");
    assert!(checks(&plan, 0, "60/256").is_empty());
    assert!(all[..grave].iter().all(|c| c.text.contains("delete")));
    assert!(all.iter().all(|c| c.text.len() <= 65_000));
    let shop = sample::shop();
    let of_shop = checks(&shop.plan, 50, "");
    let names: Vec<_> = of_shop.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(
        names,
        ["konverge: search/dev", "konverge: media/prod", "konverge: plan"]
    );
    assert_eq!(of_shop[0].annotations[0].line, Some(12));
    // Drift is apart, and so are the diffs of each stack.
    let rest = &of_shop[2];
    assert_eq!(rest.title, "1 created, 5 updated in 3 stacks");
    for part in [
        "`orders/prod`: 3 updated; 1 resource differs already",
        "Already different on the cluster",
        "+          image: registry.example/base:1.5",
    ] {
        assert!(rest.text.contains(part), "{part}: {}", rest.text);
    }
    assert_eq!(konverge::report::checks::annotations(&shop.plan).len(), 1);
}

/// A change of the base reads as one change, with names and fields, before everything else.
#[test]
fn forty_five_equal_changes_are_one() {
    let equal = sample::equal(45);
    let body = markdown::comment(&equal.input(COMMENT_BUDGET)).body;
    assert!(
        body.contains("### Konverge preview: 45 updated in 45 stacks\n"),
        "{body}"
    );
    assert!(
        !body.contains("| Stack |") && !body.contains("| Project |"),
        "{body}"
    );
    assert_eq!(body.matches("```diff").count(), 1, "{body}");
    golden("comment-equal.md", &body);
}

/// Without a cluster the comment says what it cannot know, once, and warns by the published rules.
#[test]
fn a_preview_of_specs_says_what_it_cannot_know() {
    let specs = sample::spec_only();
    let body = markdown::comment(&specs.input(COMMENT_BUDGET)).body;
    assert_eq!(body.matches("Not validated").count(), 1, "{body}");
    for part in [
        "2 resources may have to be replaced",
        "`spec.selector.matchLabels.app` cannot be changed in place",
        "whether a change replaces a resource or deletes data",
        "data is permanently deleted",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
    golden("comment-specs.md", &body);
    let page = html::report(&specs.input(0));
    assert!(
        page.contains("may have to be replaced") && page.contains("Not validated."),
        "{page}"
    );
}

/// What a push changed in the plan, and errors of several stacks once.
#[test]
fn a_push_is_compared_with_the_one_before_and_equal_errors_are_one() {
    let pushed = sample::pushed();
    let body = markdown::comment(&pushed.input(COMMENT_BUDGET)).body;
    for part in [
        "<b>Since your last push</b> (<code>0123456</code>): 1 resource added or changed, 1 taken back or changed",
        "- now: update `Deployment orders-dev/orders` in `orders/dev`: `spec.replicas = 3`",
        "- no longer: delete `ConfigMap orders-dev/old` in `orders/dev`",
        "`a/dev`, `b/dev`, `c/dev` could not be planned at `base/base.k:7`",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
    assert_eq!(body.matches("attribute 'replica' not found").count(), 1, "{body}");
    golden("comment-pushed.md", &body);
}

/// The line that says what merging does.
fn merging_line(shop: &Sample) -> String {
    let body = markdown::comment(&shop.input(COMMENT_BUDGET)).body;
    let mut lines = body.lines().filter(|line| line.starts_with("**Merging**"));
    let line = lines.next().unwrap_or_default().to_owned();
    assert!(lines.next().is_none(), "{body}");
    line
}

#[test]
fn the_comment_says_what_merging_does() {
    let shop = sample::shop();
    let plain = || {
        let mut plain = sample::shop();
        plain.findings.clear();
        plain.plan.stacks.retain(|stack| stack.error.is_none());
        plain
    };
    let failed = || {
        let mut failed = plain();
        failed.plan.stacks.clone_from(&shop.plan.stacks);
        failed
    };
    let in_part = || {
        let mut in_part = failed();
        for stack in in_part
            .plan
            .stacks
            .iter_mut()
            .filter(|stack| stack.error.is_some())
        {
            stack.held_back = vec!["v1:ConfigMap:a:b".parse().unwrap()];
        }
        in_part
    };
    let denied = || {
        let mut denied = failed();
        denied.findings.clone_from(&shop.findings);
        assert!(denied.findings.iter().any(|f| f.verdict == Enforcement::Deny));
        denied
    };
    let nothing = || {
        let mut nothing = plain();
        nothing.plan.stacks.clear();
        nothing
    };
    for (merging, [of_plain, of_failed, of_in_part, of_denied]) in [
        (
            Merging::Applies,
            [
                "applies exactly this",
                "leaves the failed stacks",
                "applies what could be planned",
                "stops at the policies",
            ],
        ),
        (Merging::OtherBranch, ["a branch that is not deployed"; 4]),
        (Merging::NoStore, ["configures no store"; 4]),
        (Merging::Unreviewed, ["wait for an approval by digest"; 4]),
        (Merging::Outside, ["comes from outside"; 4]),
        (Merging::Queued, ["only Specs are compared"; 4]),
    ] {
        for (mut sample, said) in [
            (plain(), of_plain),
            (failed(), of_failed),
            (in_part(), of_in_part),
            (denied(), of_denied),
        ] {
            sample.mode.merging = merging;
            let line = merging_line(&sample);
            assert!(line.contains(said), "{merging:?}: {line}");
        }
    }
    let line = merging_line(&nothing());
    assert!(line.contains("makes no infrastructure changes"), "{line}");
}

/// What somebody else changed belongs to its stack, not to the group of equal changes, and is counted apart.
#[test]
fn drift_of_one_stack_is_not_that_of_a_group() {
    let mut equal = sample::equal(3);
    let scaled = sample::change(
        "/spec/replicas",
        Some(json!(9)),
        Some(json!(3)),
        ChangeOrigin::Drift,
    );
    let first = &mut equal.plan.stacks[0];
    let mut resources = std::mem::take(&mut first.resources);
    resources[0].changes.push(scaled.clone());
    let id = first.id.to_string();
    let by_hand = sample::resource(&id, "apps/v1:Deployment:ns:by-hand", Action::Update, vec![scaled]);
    resources.push(by_hand);
    *first = sample::stack(&id, resources);
    let page = html::report(&equal.input(0));
    let (group, stacks) = page.split_once("<h2>Stacks</h2>").unwrap();
    assert!(
        group.contains("in 3 stacks") && !group.contains("Already different"),
        "{page}"
    );
    assert!(
        stacks.contains("Already different on the cluster, not from this pull request"),
        "{page}"
    );
    let said = terminal::plan(&equal.plan, terminal::Style::default());
    assert!(
        said.contains("app-00/dev: 1 updated, 1 resource already different on the cluster\n"),
        "{said}"
    );
    assert!(
        said.ends_with("3 stacks: 3 updated, 1 resource already different on the cluster.\n"),
        "{said}"
    );
}

/// What the comment warns of stands in the terminal and on the page too.
#[test]
fn every_surface_warns_of_the_same() {
    let specs = sample::spec_only();
    let said = terminal::plan(&specs.plan, terminal::Style::default());
    assert!(
        said.contains("may have to be replaced: spec.selector.matchLabels.app cannot be changed in place"),
        "{said}"
    );
    let mut equal = sample::equal(3);
    equal.plan.stacks[1].resources[0].validated = konverge::model::plan::Validation::None;
    let unchecked = "the server could not check yet";
    let body = markdown::comment(&equal.input(COMMENT_BUDGET)).body;
    let page = html::report(&equal.input(0));
    assert!(body.contains(unchecked), "{body}");
    assert!(
        page.contains("the server could not check yet: <code>Deployment app-01-dev/api</code> in <code>app-01/dev</code>"),
        "{page}"
    );
    assert!(!html::report(&sample::equal(3).input(0)).contains(unchecked));
}

/// In a real browser every text stands out from its ground (4.5:1), and every control (3:1), light and dark.
#[test]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
fn the_page_has_contrast() {
    const MEASURE: &str = r#"
(() => {
  document.querySelectorAll("details").forEach((item) => { item.open = true; });
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = (color) => {
    const parts = [...rgba(color)].slice(0, 3).map((part) => part / 255);
    const [r, g, b] = parts.map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (rgba(color)[3] === 255) return color;
    }
    return "white";
  };
  const wrong = [];
  let measured = 0;
  const hold = (what, a, b, least) => {
    measured += 1;
    if (ratio(a, b) < least) wrong.push(`${what}: ${a} on ${b} is ${ratio(a, b).toFixed(2)}`);
  };
  const name = (node) => `${node.tagName}.${node.getAttribute("class")}`;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || ["SCRIPT", "STYLE", "title"].includes(node.tagName)) continue;
    const style = getComputedStyle(node);
    if (node.closest("svg")) {
      const box = node.closest("g") && node.closest("g").querySelector("rect");
      hold(name(node), style.fill, box ? getComputedStyle(box).fill : ground(node), 4.5);
    } else {
      hold(name(node), style.color, ground(node), 4.5);
    }
  }
  for (const control of document.querySelectorAll("button, input[type=search]")) {
    const style = getComputedStyle(control);
    hold(`border of ${name(control)}`, style.borderTopColor, ground(control.parentElement), 3);
    hold(`text of ${name(control)}`, style.color, ground(control), 4.5);
  }
  const search = document.getElementById("search");
  hold("placeholder", getComputedStyle(search, "::placeholder").color, ground(search), 4.5);
  for (const control of document.querySelectorAll("summary, button, input, a")) {
    control.focus({focusVisible: true});
    const style = getComputedStyle(control);
    if (control.matches(":focus-visible")) hold(`focus of ${name(control)}`, style.outlineColor, ground(control.parentElement), 3);
  }
  return {measured, wrong: [...new Set(wrong)]};
})()
"#;
    let folder = tempfile::tempdir().unwrap();
    let mut browser = crate::support::browser::Browser::start();
    for (name, sample) in [
        ("shop", sample::shop()),
        ("equal", sample::equal(45)),
        ("specs", sample::spec_only()),
        ("pushed", sample::pushed()),
    ] {
        let path = folder.path().join(format!("{name}.html"));
        fs::write(&path, html::report(&sample.input(0))).unwrap();
        for scheme in ["light", "dark"] {
            browser.prefer(scheme);
            browser.open(&format!("file://{}?{scheme}", path.display()));
            let found = browser.evaluate(MEASURE);
            assert!(found["measured"].as_u64().unwrap() > 20, "{name}: {found}");
            assert_eq!(found["wrong"], json!([]), "{name} in {scheme}");
        }
    }
}

/// A page of 2,000 stacks in a real browser: only what is open costs, and a search finds. With
/// `KONVERGE_WRITE_PERFORMANCE=1` the times go into `docs/performance.md`.
#[test]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
fn a_page_of_2000_stacks_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let page = html::report(&sample::large(2_000).input(0));
    fs::write(&path, &page).unwrap();
    let mut browser = crate::support::browser::Browser::start();
    browser.open(&format!("file://{}", path.display()));
    let stacks = browser
        .evaluate("document.querySelectorAll('.item').length")
        .as_u64()
        .unwrap();
    assert!(stacks >= 2_000, "{stacks}");
    let nodes = browser
        .evaluate("document.getElementsByTagName('*').length")
        .as_u64()
        .unwrap();
    assert!(nodes < 60_000, "{nodes} elements");
    // The first search reads the texts; the second one finds them read.
    let search = r#"
(async (words) => {
  const input = document.getElementById("search");
  const found = document.getElementById("found");
  const before = found.textContent;
  input.value = words;
  const started = performance.now();
  input.dispatchEvent(new Event("input"));
  while (found.textContent === before) await new Promise((next) => setTimeout(next, 1));
  document.body.getBoundingClientRect();
  return {ms: performance.now() - started, found: found.textContent};
})"#;
    let first = browser.evaluate(&format!("{search}('app-0007/prod')"));
    assert!(first["found"].as_str().unwrap().starts_with("2 of "), "{first}");
    let second = browser.evaluate(&format!("{search}('settings')"));
    assert!(
        second["found"].as_str().unwrap().starts_with("200 of "),
        "{second}"
    );
    let all = browser.evaluate(&format!("{search}('')"));
    let frames = browser.evaluate(
        r#"
(async () => {
  const frame = () => new Promise(requestAnimationFrame);
  const height = document.documentElement.scrollHeight;
  const times = [];
  let last = await frame();
  for (let at = 0; at < 100; at += 1) {
    scrollTo(0, (height * at) / 100);
    const now = await frame();
    times.push(now - last);
    last = now;
  }
  times.sort((a, b) => a - b);
  return {median: times[50], worst: times[99]};
})()"#,
    );
    let load = browser.evaluate(
        "(() => { const [entry] = performance.getEntriesByType('navigation'); return entry.domContentLoadedEventEnd; })()",
    );
    if std::env::var_os("KONVERGE_WRITE_PERFORMANCE").is_none() {
        return;
    }
    let ms = |value: &serde_json::Value| format!("{:.0} ms", value.as_f64().unwrap());
    let section = format!(
        "## The page of 2000 stacks in a browser\n\nA headless Chromium without a graphics card, on the machine of the other figures under load. The page has {} KiB and {nodes} elements.\n\n| | time |\n|---|---|\n| loaded, script included | {} |\n| first search, a stack found and the group that names it | {} |\n| next search, 200 stacks found | {} |\n| all stacks shown again | {} |\n| a frame while scrolling through the page, median | {} |\n| the longest of 100 frames | {} |\n\nA search waits 120 ms for the next letter; that is part of its time. `KONVERGE_WRITE_PERFORMANCE=1 cargo test --test it -- --ignored a_page_of_2000_stacks` writes this.",
        page.len() >> 10,
        ms(&load),
        ms(&first["ms"]),
        ms(&second["ms"]),
        ms(&all["ms"]),
        ms(&frames["median"]),
        ms(&frames["worst"])
    );
    crate::support::performance::write("page", &section);
}

/// The page in a real browser: its own script runs under its policy, foreign script does not, and search works.
#[test]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
fn the_page_in_a_browser() {
    let mut shop = sample::shop();
    shop.findings[0].message =
        "</p><script>document.title='captured'</script><img src=x onerror=\"document.title='captured'\">"
            .into();
    let page = html::report(&shop.input(0));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    fs::write(&path, &page).unwrap();
    let dom = crate::support::browser::dom(&path);
    assert!(
        dom.contains("<title>Konverge preview · acme/konfig</title>"),
        "nothing foreign ran"
    );
    assert!(dom.contains("<svg"));
    assert!(!dom.contains("hidden="), "everything is shown before a search");
    // A linked search: `report.html?q=…`. `dom` takes a path, so the question is part of it.
    let asked = crate::support::browser::dom(&PathBuf::from(format!("{}?q=targetport", path.display())));
    assert!(
        asked.contains("1 of 6 shown"),
        "{}",
        asked
            .split("id=\"found\"")
            .nth(1)
            .unwrap_or_default()
            .chars()
            .take(80)
            .collect::<String>()
    );
    // The policy is by hash: one more byte of script and the browser refuses it.
    let broken = page.replace("\"use strict\";", "\"use strict\"; document.title='captured';");
    fs::write(&path, broken).unwrap();
    assert!(!crate::support::browser::dom(&path).contains("<title>captured</title>"));
}

/// The page begins with what is dangerous, the worst first, then shows the changes, then why.
#[test]
fn the_page_begins_with_the_worst() {
    let page = html::report(&sample::shop().input(0));
    let specs = html::report(&sample::spec_only().input(0));
    for (page, parts) in [
        (
            &page,
            &[
                "could not be planned",
                "policy.reviewers",
                "replace <code>aws_s3_bucket uploads",
                "delete <code>Job media-prod/migrate",
                "<h2>Stacks</h2>",
                "<h2>Why these stacks</h2>",
            ][..],
        ),
        (
            &specs,
            &[
                "delete <code>PersistentVolumeClaim",
                "may have to be replaced",
                "Not validated",
            ],
        ),
    ] {
        let places: Vec<_> = parts.iter().map(|part| page.find(part).expect(part)).collect();
        assert!(places.is_sorted(), "{parts:?}: {places:?}");
    }
}
