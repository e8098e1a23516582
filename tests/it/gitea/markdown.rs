//! The hostile names and texts of a pull request in the comments and issues that Konverge writes, through Gitea's own
//! Markdown: its HTML is read for what a reader would get. It differs from GitHub's: it links `!1`, `owner/name@commit`
//! and mail addresses, has math and footnotes, and shows the code behind an address of its own.

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        Digest,
        apply_result::{ApplyReport, StackOutcome, StackResult},
        authorization::Authorization,
        plan::StackPlan,
        review::stack_units,
    },
};
use konverge_report::{
    COMMENT_BUDGET,
    markdown::{self, DriftKeeping, DriftSeen, Failed, ManualStart},
};
use regex::Regex;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    gitea_jobs::JobStage,
    gitea_stage::{GiteaStage, KONFIG},
    hostile_plans::{self, HostileStack},
    sample_plans::Sample,
    service::eventually,
};

/// What Gitea would obey or show as more than text, of a repository that has an issue 1 and a commit.
fn hostile(url: &str, commit: &str) -> Vec<String> {
    let short = &commit[..10];
    let mut texts: Vec<_> = [
        "@octocat",
        "@acme/outsiders",
        "(@octocat)",
        "see @octocat, please",
        "#1",
        "(#1)",
        "!1",
        "(!1)",
        "closes #1",
        "fixes: #1 @2h",
        "acme/konfig#1",
        "acme/konfig!1",
        "ABC-123",
        "https://evil.example/a.png",
        "www.evil.example",
        "http://evil.example",
        "mailto:eve@evil.example",
        "eve@evil.example",
        "<https://evil.example>",
        "[a](https://evil.example)",
        "[a][b]\n\n[b]: https://evil.example",
        "![x](https://evil.example/x.png)",
        "<img src=https://evil.example/x.png>",
        "<a href=https://evil.example>x</a>",
        "<input type=checkbox checked>",
        "<script>alert(1)</script>",
        "</details></summary>",
        "<!-- konverge:v1 e30 -->",
        "-->",
        "[[README|https://evil.example]]",
        "- [ ] done",
        "* [x] done",
        "1. one",
        "# heading",
        "heading\n===",
        "| a | b |\n| - | - |\n| c | d |",
        "\\|",
        "|",
        "[^1]",
        "[^1]: a note",
        "term\n: what it means",
        "$a$",
        "$$a$$",
        "\\(a\\)",
        "$`a`$",
        "```math\na\n```",
        "```",
        "`",
        "````",
        ":tada:",
        ":+1:",
        "see :tada: here",
        "---",
        "---\ntitle: a\n---",
        "***",
        "**bold**",
        "__bold__",
        "~~gone~~",
        "> [!WARNING]\n> now",
        "{#id .class}",
        "#ff0000",
        "rgb(1,2,3)",
        "&lt;img&gt;",
        "\u{202e}",
        "<sub>x",
        "<b>",
    ]
    .map(str::to_owned)
    .into();
    texts.extend([
        commit.to_owned(),
        short.to_owned(),
        format!("({short})"),
        format!("acme/konfig@{short}"),
        format!("{url}/{KONFIG}/issues/1"),
        format!("{url}/{KONFIG}/commit/{commit}"),
        format!("{url}/{KONFIG}/compare/{commit}...{commit}"),
        format!("{url}/{KONFIG}/src/commit/{commit}/README.md#L1-L2"),
    ]);
    texts
}

/// Everything that Konverge writes about these stacks.
fn bodies(texts: &[String]) -> Vec<(&'static str, String)> {
    let stacks = texts.iter().enumerate().map(|(at, text)| HostileStack {
        name: text.clone(),
        key: text.clone(),
        value: text.clone(),
        kind: at % 5,
    });
    let message = texts.join(" and ");
    let file = texts.concat();
    let Sample {
        run, plan, marker, ..
    } = hostile_plans::sample(stacks.clone(), &message, &file);
    let sample = hostile_plans::sample(stacks, &message, &file);
    let failed = |text: &str| {
        let error = UserError::new(ErrorKind::Kcl, text).at(text, Some(1), None);
        error.hint(text).hint(format!("see {text}, then `{text}`"))
    };
    let mut bodies = vec![(
        "the preview",
        markdown::comment(&sample.input(COMMENT_BUDGET)).body,
    )];
    for (stack, text) in plan.stacks.iter().zip(texts) {
        let units = stack_units(stack);
        let unreviewed = markdown::unreviewed(stack, &units, &run, &marker, COMMENT_BUDGET);
        bodies.push(("the issue of a stopped stack", unreviewed));
        let failure = failed(text);
        for unrestorable in [None, Some(&failure)] {
            let seen = DriftSeen {
                since: text,
                unrestorable,
                workflow: "konverge.yml",
                start: ManualStart::Workflow,
                keeping: DriftKeeping::BySet,
            };
            let drift = markdown::drift_issue(stack, &run, &marker, &seen, COMMENT_BUDGET);
            bodies.push(("the issue of a drifted stack", drift));
        }
        let failure = markdown::failure(Failed::Apply, &failure, &run, Some(&marker));
        bodies.push(("a failure", failure));
    }
    let outcome = |((stack, text), at): ((&StackPlan, &String), usize)| StackOutcome {
        stack: stack.stack.clone(),
        id: stack.id.clone(),
        result: [StackResult::Failed, StackResult::Stopped, StackResult::Applied][at % 3],
        digest: Digest::of_bytes(b"plan"),
        serial: Some(1),
        grounds: Authorization {
            agreed_by: vec![text.clone()],
            why: Some(text.clone()),
            ..Authorization::default()
        },
        waiting: None,
        resources: Vec::new(),
        error: (at % 3 < 2).then(|| failed(text).body()),
    };
    let report = ApplyReport {
        version: 1,
        stacks: plan.stacks.iter().zip(texts).zip(0..).map(outcome).collect(),
    };
    let outcome = markdown::outcome(&report, &run, Some(&marker), COMMENT_BUDGET);
    bodies.push(("the result of an apply", outcome));
    bodies
}

/// The elements of a page, without code, which is text, and without what colors it.
fn elements(html: &str) -> Vec<String> {
    let tags = Regex::new(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)([^>]*)>").unwrap();
    let mut elements = Vec::new();
    let mut inside = 0;
    for tag in tags.captures_iter(html) {
        let (closes, name, attributes) = (&tag[1] == "/", &tag[2], tag[3].trim());
        if matches!(name, "pre" | "code") {
            inside = if closes { inside - 1 } else { inside + 1 };
        }
        if inside > 0 && name == "span" || matches!(name, "code" | "pre") {
            continue;
        }
        elements.push(format!("{}{name} {attributes}", &tag[1]).trim().to_owned());
    }
    assert_eq!(inside, 0, "{html}");
    elements
}

/// The text of a page, as a reader sees it.
fn text(html: &str) -> String {
    let text = Regex::new("<[^>]*>").unwrap().replace_all(html, "").into_owned();
    let entities = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&quot;", "\""),
        ("&amp;", "&"),
    ];
    entities
        .iter()
        .fold(text, |text, (entity, plain)| text.replace(entity, plain))
}

/// Posts comments as Konverge to an issue of their own, and gives the HTML that a reader of its page gets.
async fn rendered(stage: &GiteaStage, bodies: impl IntoIterator<Item = &str>) -> Vec<String> {
    let (bot, issues) = (&stage.bot.token, format!("/repos/{KONFIG}/issues"));
    let issue = stage.gitea.post(bot, &issues, json!({"title": "Comments"})).await;
    let comments = format!("{issues}/{}/comments", issue["number"]);
    let mut marks = Vec::new();
    for body in bodies {
        let comment = stage.gitea.post(bot, &comments, json!({"body": body})).await;
        marks.push(format!("<div id=\"issuecomment-{}-raw\"", comment["id"]));
    }
    let page = reqwest::get(issue["html_url"].as_str().unwrap()).await.unwrap();
    let page = page.error_for_status().unwrap().text().await.unwrap();
    let html = |mark: &String| {
        let (before, _) = page.split_once(mark).unwrap_or_else(|| panic!("{mark}: {page}"));
        let (_, html) = before
            .rsplit_once("<div class=\"render-content markup\"")
            .unwrap();
        let (_, html) = html.split_once('>').unwrap();
        html.rsplit_once("</div>").unwrap().0.to_owned()
    };
    marks.iter().map(html).collect()
}

#[tokio::test]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn a_hostile_text_is_text_for_who_reads_it_at_gitea() {
    let stage = GiteaStage::start().await;
    let octocat = stage.gitea.user("octocat").await;
    stage
        .gitea
        .team(&stage.ada, "acme", "outsiders", "read", &[&octocat])
        .await;
    // Who is in a team watches its repositories. Without that only a mention calls them.
    let watched = format!("/repos/{KONFIG}/subscription");
    stage
        .gitea
        .call(&octocat.token, Method::DELETE, &watched, Value::Null)
        .await;
    let issues = format!("/repos/{KONFIG}/issues");
    let somebodys = json!({"title": "Somebody's"});
    stage.gitea.post(&stage.ada.token, &issues, somebodys).await;

    let texts = hostile(stage.gitea.url(), &stage.konfig.rev("main"));
    let mut wrong = String::new();
    for (at, texts) in texts.chunks(8).enumerate() {
        let harmless: Vec<_> = (0..texts.len()).map(|n| format!("w{at}o{n}rd")).collect();
        let (bodies, harmless) = (bodies(texts), bodies(&harmless));
        let html = rendered(&stage, bodies.iter().map(|(_, body)| body.as_str())).await;
        let wanted = rendered(&stage, harmless.iter().map(|(_, body)| body.as_str())).await;
        for (((what, body), html), wanted) in bodies.iter().zip(html).zip(wanted) {
            let (found, wanted) = (elements(&html), elements(&wanted));
            if found != wanted {
                let (found, wanted): (BTreeSet<_>, BTreeSet<_>) =
                    (found.iter().collect(), wanted.iter().collect());
                let more: Vec<_> = found.difference(&wanted).collect();
                let less: Vec<_> = wanted.difference(&found).collect();
                let _ = writeln!(
                    wrong,
                    "{what} of {texts:?}: more {more:?}, less {less:?}\n{body}\n{html}\n"
                );
            }
            // The text is there, as it is.
            if *what == "the preview" {
                for piece in texts
                    .iter()
                    .filter(|text| !text.contains(['\n', '\u{202e}', '|', '`', '$']))
                {
                    assert!(text(&html).contains(piece.as_str()), "{piece}: {html}");
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");

    // Nobody was called, and no issue was named. Of what is not in code Gitea does both, and links it.
    let called = async |token: &str| {
        let all = stage.gitea.get(token, "/notifications?all=true").await;
        all.as_array().unwrap().len()
    };
    let referring = references(&stage, 1).await;
    assert!(referring.is_empty(), "{}", referring.join("\n\n"));
    let grace = stage.gitea.user("grace").await;
    let plain = rendered(&stage, ["@grace sees https://evil.example/x.png and #1"]).await;
    let links = elements(&plain[0]);
    let links = links.iter().filter(|element| element.starts_with("a "));
    assert_eq!(links.count(), 3, "{plain:?}");
    assert_eq!(references(&stage, 1).await.len(), 1);
    // One queue has all mentions, in their order.
    eventually("a mention", Duration::from_secs(30), || async {
        (called(&grace.token).await > 0).then_some(())
    })
    .await;
    assert_eq!(called(&octocat.token).await, 0);
}

/// What refers to an issue: the comments, or the titles.
async fn references(stage: &GiteaStage, number: u64) -> Vec<String> {
    let path = format!("/repos/{KONFIG}/issues/{number}/timeline");
    let timeline = stage.gitea.get(&stage.bot.token, &path).await;
    // Without an event it is null.
    let events = timeline.as_array().into_iter().flatten();
    let references = events.filter(|event| event["type"].as_str().is_some_and(|kind| kind.ends_with("_ref")));
    let text = |event: &Value| {
        let comment = event["ref_comment"]["body"].as_str();
        comment
            .or(event["ref_issue"]["title"].as_str())
            .unwrap_or_default()
            .to_owned()
    };
    references.map(text).collect()
}

/// A title is no Markdown at Gitea, and yet it refers: `acme/konfig#1` is the name of a stack.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn the_name_of_a_stack_in_a_title_refers_to_nothing() {
    let mut jobs = JobStage::start("").await;
    let ada = jobs.stage.ada.clone();
    let issues = format!("/repos/{KONFIG}/issues");
    for title in ["Somebody's", "see acme/konfig#1: it refers"] {
        let issue = json!({"title": title});
        jobs.stage.gitea.post(&ada.token, &issues, issue).await;
    }
    assert_eq!(references(&jobs.stage, 1).await.len(), 1, "a title refers");
    let commit = jobs.stage.fetched_main();
    let names = ["acme/konfig#1", "acme/konfig!1", "shop/(#1)"].map(str::to_owned);
    let names = [
        &names[..],
        &[
            format!("shop/({})", &commit[..10]),
            format!("acme/konfig@{}", &commit[..10]),
        ],
    ]
    .concat();
    for (at, name) in names.iter().enumerate() {
        jobs.stack(name, &format!("gitea-title-{at}"), "one");
    }
    jobs.stage.commit_as(&ada, "Straight to main");
    jobs.stage.gitea.push(&jobs.stage.konfig, &ada, KONFIG, &["main"]);
    jobs.next("push").await.outcome.check(3);
    let stopped = jobs.issues("konverge-unreviewed").await;
    assert_eq!(stopped.len(), names.len());
    for issue in stopped {
        let page = reqwest::get(issue["html_url"].as_str().unwrap()).await.unwrap();
        let page = page.text().await.unwrap();
        let (_, title) = page.split_once("id=\"issue-title-display\">").unwrap();
        let (title, _) = title.split_once("</h1>").unwrap();
        assert!(
            title.contains("blocked: unreviewed change") && !title.contains("<a "),
            "{title}"
        );
    }
    let referring = references(&jobs.stage, 1).await;
    assert_eq!(referring.len(), 1, "{referring:?}");
}
