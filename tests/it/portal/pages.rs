//! The pages in a browser.

use std::{collections::BTreeMap, fs, path::PathBuf};

use jiff::{SignedDuration, Timestamp};
use konverge_base::model::{apply_result::StackResult, rollout::RolloutPhase};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    readers,
    recorded::{RecordedStacks, config_map, deployment},
    visitor::{KEY, Served, Visitor, csrf},
};
use crate::support::{browser::Browser, cache, installed, openid::OpenIdProvider};

/// A site with a stack of each kind of condition that the store alone knows.
async fn site() -> (RecordedStacks, PathBuf) {
    let recorded = RecordedStacks::new().await;
    for value in ["1", "2", "3"] {
        let resources = vec![
            deployment("web", &format!("registry.example/shop/web:{value}")),
            config_map(
                "web",
                &json!({"level": value, "text": "a long line of text ".repeat(8)}),
            ),
        ];
        recorded
            .apply("storefront/prod", resources, StackResult::Applied)
            .await;
    }
    for (stack, result) in [
        ("media/prod", StackResult::Failed),
        ("orders/staging", StackResult::Waiting),
    ] {
        recorded
            .apply(stack, vec![config_map("web", &json!({}))], result)
            .await;
    }
    for n in 0..50 {
        recorded
            .apply(
                &format!("team{n:02}/dev"),
                vec![config_map("web", &json!({}))],
                StackResult::Applied,
            )
            .await;
    }
    recorded
        .states()
        .begin_freeze("the database is being moved")
        .await
        .unwrap();
    seen(&recorded).await;
    let out = recorded.folder.path().join("site");
    recorded.build(&out);
    (recorded, out)
}

/// What drift checks, previews and rollouts recorded of some of them.
async fn seen(recorded: &RecordedStacks) {
    recorded.at_github();
    let repository = &recorded.repository;
    repository.write("kcl.mod", "[package]\nname = \"shop\"\n");
    for project in ["storefront", "media", "orders"] {
        let folder = format!("apps/{project}");
        repository.write(&format!("{folder}/project.yaml"), format!("name: {project}\n"));
        for stack in ["prod", "staging"] {
            repository
                .write(
                    &format!("{folder}/{stack}/stack.yaml"),
                    format!("name: {stack}\n"),
                )
                .write(&format!("{folder}/{stack}/main.k"), "x = 1\n");
        }
    }
    let config = readers::configure(recorded, readers::ROLLOUT);
    let now = Timestamp::now();
    readers::weeks(recorded, now).await;
    let stack = "storefront/prod";
    let ago = |hours| now - SignedDuration::from_hours(hours);
    let mut checks = vec![(stack, readers::drifted(stack, ago(3)))];
    checks.push(("media/prod", readers::calm(ago(3))));
    recorded.look(checks, BTreeMap::new()).await;
    let text = "a long line of text ".repeat(12);
    let units = vec![
        readers::unit(stack, "/data/level", json!("info"), json!("warn")),
        readers::unit(stack, "/data/text", json!(text), json!(format!("{text}and more"))),
        readers::unit(
            stack,
            "/metadata/labels/tier",
            json!("a"),
            json!({"$secret": "9a31cf02"}),
        ),
    ];
    readers::preview(recorded, 318, stack, units).await;
    readers::rollout(recorded, &config, RolloutPhase::Gate, ago(2)).await;
}

fn address(folder: &std::path::Path, page: &str) -> String {
    format!("file://{}", folder.join(page).display())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn the_script_filters_by_the_address_and_searches_all_stacks() {
    let (_recorded, out) = site().await;
    let mut browser = Browser::start();
    browser.resize(1200, 900);
    let shown = "[...document.querySelectorAll('li.row')].filter((row) => row.checkVisibility()).length";
    browser.open(&address(&out, "index.html?condition=failed"));
    assert_eq!(browser.evaluate(shown), 1);
    assert_eq!(
        browser.evaluate("document.getElementById('found').textContent"),
        "1 of 57 stacks"
    );
    browser.open(&address(&out, "index.html?q=team0"));
    assert_eq!(browser.evaluate(shown), 10);
    browser.open(&address(&out, "search.html?q=deployment%20web"));
    assert_eq!(
        browser.evaluate("document.querySelectorAll('#hits li').length"),
        1
    );
    assert_eq!(
        browser.evaluate("document.querySelector('#hits a').getAttribute('href')"),
        "stacks/storefront@prod/index.html"
    );
}

/// The header of a server does not reach a file: the script does it, and says so.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn a_static_page_refreshes_itself_if_asked_and_keeps_its_filter() {
    let (_recorded, out) = site().await;
    let mut browser = Browser::start();
    browser.resize(1200, 900);
    let chosen = "document.querySelector('#refresh a[aria-current]').textContent";
    browser.open(&address(&out, "index.html?condition=failed"));
    assert_eq!(browser.evaluate(chosen), "off");
    browser.open(&address(&out, "index.html?condition=failed&refresh=60"));
    assert_eq!(browser.evaluate(chosen), "every minute");
    let filter = "document.querySelector('#filter select')";
    assert_eq!(browser.evaluate(&format!("{filter}.value")), "failed");
    // What the filter writes into the address keeps the wish.
    browser.evaluate(&format!(
        "{filter}.value = ''; document.querySelector('#filter').requestSubmit(); true"
    ));
    assert_eq!(browser.evaluate("location.search"), "?refresh=60");
    browser.open(&address(&out, "index.html?refresh=5"));
    assert_eq!(browser.evaluate(chosen), "off");
}

/// Opens every page at the width of a desk and of a phone, light and dark, and everything on it.
fn each_view(browser: &mut Browser, pages: &[(&str, String)], mut check: impl FnMut(&mut Browser, &str)) {
    for (size, width, height) in [("desk", 1200, 900), ("phone", 360, 700)] {
        browser.resize(width, height);
        for scheme in ["light", "dark"] {
            browser.prefer(scheme);
            for (name, address) in pages {
                browser.open(address);
                browser.evaluate(
                    "document.querySelectorAll('details').forEach((item) => { item.open = true; })",
                );
                check(browser, &format!("{name}-{size}-{scheme}"));
            }
        }
    }
}

/// Everybody can use each page: axe-core finds nothing, and on a phone nothing is wider than the screen. With
/// `KONVERGE_PICTURES` the pictures of all views are written into that folder.
fn check_pages(browser: &mut Browser, pages: &[(&str, String)]) {
    let axe = cache().join("axe-core/node_modules/axe-core/axe.min.js");
    let axe = fs::read_to_string(installed("axe-core", axe)).unwrap();
    let pictures = std::env::var_os("KONVERGE_PICTURES").map(PathBuf::from);
    each_view(browser, pages, |browser, view| {
        if let Some(folder) = &pictures {
            fs::write(folder.join(format!("{view}.png")), browser.picture()).unwrap();
        }
        let wide =
            browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!(wide, 0, "{view} is wider than the window");
        browser.evaluate(&format!("{axe}; true"));
        let run = "axe.run().then((found) => JSON.stringify(found.violations.map((one) => [one.id, one.nodes[0].html])))";
        let found: Value = serde_json::from_str(browser.evaluate(run).as_str().unwrap()).unwrap();
        assert_eq!(found, json!([]), "{view}");
    });
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn everybody_can_use_the_static_pages_at_any_width_light_and_dark() {
    let (_recorded, out) = site().await;
    let pages = [
        ("overview", "index.html"),
        ("projects", "by-project.html"),
        ("rollouts", "rollouts.html"),
        ("trends", "trends.html"),
        ("permissions", "permissions.html"),
        ("stack", "stacks/storefront@prod/index.html"),
        ("difference", "stacks/storefront@prod/2-3.html"),
        ("search", "search.html?q=web"),
        ("kind", "kinds/v1=3AConfigMap.html"),
    ];
    let pages = pages.map(|(name, page)| (name, address(&out, page)));
    check_pages(&mut Browser::start(), &pages);
}

/// What only somebody with a login sees, and what the portal shows around the login. The login itself is a page of the
/// provider.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn everybody_can_use_the_pages_behind_the_login() {
    let (recorded, _) = site().await;
    let provider = OpenIdProvider::start();
    Served::configure(
        &recorded,
        &provider,
        "  roles: [{groups: [sre], role: operator, match: '**'}]\n",
    );
    let served = Served::start(&recorded, &provider.portal(), Some(KEY));
    let root = served.root.clone();
    let mut ada = Visitor::new();
    ada.sign_in(&root, "ada").await;
    let token = csrf(&ada.get(&format!("{root}/account.html")).await.text);
    for (path, fields) in [
        ("stacks/storefront@prod/operations/drift-check", ""),
        ("stacks/storefront@prod/operations/rollback", "&serial=1"),
        ("freeze", "&reason=the+database+is+being+moved+to+another+region"),
    ] {
        let body = Some(format!("csrf={token}{fields}"));
        let sent = ada.send(Method::POST, &format!("{root}/{path}"), &[], body).await;
        assert!(sent.status.is_success(), "{path}: {}", sent.text);
    }
    let mut browser = Browser::start();
    for ((host, name), value) in &ada.cookies {
        if *host == provider.portal() {
            browser.set_cookie(&root, name, value);
        }
    }
    let pages = [
        ("served-overview", "/"),
        ("served-stack", "/stacks/storefront@prod/index.html"),
        ("operations", "/stacks/storefront@prod/operations.html"),
        ("served-search", "/search.html?q=web"),
        ("served-rollouts", "/rollouts.html?refresh=60"),
        ("served-trends", "/trends.html"),
        ("served-permissions", "/permissions.html"),
        ("audit", "/audit.html"),
        ("freeze", "/freeze.html"),
        ("account", "/account.html"),
        ("unknown", "/stacks/none@prod/index.html"),
    ];
    let pages = pages.map(|(name, path)| (name, format!("{root}{path}")));
    tokio::task::block_in_place(|| check_pages(&mut browser, &pages));
}
