//! The pages in a browser.

use std::{fs, path::PathBuf, process::Command};

use konverge_base::model::apply_result::StackResult;
use serde_json::{Value, json};

use super::recorded::{RecordedStacks, config_map, deployment};
use crate::support::browser::Browser;

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
        .set_freeze(true, "the database is being moved")
        .await
        .unwrap();
    let out = recorded.folder.path().join("site");
    recorded.build(&out);
    (recorded, out)
}

const PAGES: [&str; 5] = [
    "index.html",
    "stacks/storefront@prod/index.html",
    "stacks/storefront@prod/2-3.html",
    "search.html",
    "kinds/v1=3AConfigMap.html",
];

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
        "1 of 53 stacks"
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

/// On a phone nothing is wider than the screen, in every page, with and without script.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn no_page_is_wider_than_a_phone() {
    let (_recorded, out) = site().await;
    let mut browser = Browser::start();
    browser.resize(360, 700);
    for page in PAGES {
        browser.open(&address(&out, page));
        browser.evaluate("document.querySelectorAll('details').forEach((item) => { item.open = true; })");
        let wide =
            browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!(wide, 0, "{page}");
    }
}

/// axe-core, from npm: `KONVERGE_AXE` is the path of its `axe.min.js`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install all` and KONVERGE_AXE; run it by hand"]
async fn axe_finds_nothing_at_any_width_light_and_dark() {
    let axe = fs::read_to_string(std::env::var("KONVERGE_AXE").expect("KONVERGE_AXE")).unwrap();
    let (_recorded, out) = site().await;
    let mut browser = Browser::start();
    for (width, height) in [(1200, 900), (360, 700)] {
        browser.resize(width, height);
        for scheme in ["light", "dark"] {
            browser.prefer(scheme);
            for page in PAGES {
                browser.open(&address(&out, page));
                browser.evaluate(
                    "document.querySelectorAll('details').forEach((item) => { item.open = true; })",
                );
                browser.evaluate(&format!("{axe}; true"));
                let run = "axe.run().then((found) => JSON.stringify(found.violations.map((one) => [one.id, one.nodes[0].html])))";
                let found: Value = serde_json::from_str(browser.evaluate(run).as_str().unwrap()).unwrap();
                assert_eq!(found, json!([]), "{page} at {width} {scheme}");
            }
        }
    }
}

/// Writes pictures of the pages into the folder of `KONVERGE_SCREENSHOTS`, to be looked at.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes pictures; run it by hand with KONVERGE_SCREENSHOTS"]
async fn pictures() {
    let folder = PathBuf::from(std::env::var("KONVERGE_SCREENSHOTS").expect("KONVERGE_SCREENSHOTS"));
    let (_recorded, out) = site().await;
    for (name, size) in [("desktop", "1200,1000"), ("phone", "500,1000")] {
        for (n, page) in PAGES.iter().enumerate() {
            for dark in [false, true] {
                let scheme = if dark { "dark" } else { "light" };
                let file = folder.join(format!("{name}-{n}-{scheme}.png"));
                let mut command = Command::new("chromium");
                command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
                if dark {
                    command.arg("--blink-settings=preferredColorScheme=0");
                }
                command.arg(format!("--window-size={size}"));
                command
                    .arg(format!("--screenshot={}", file.display()))
                    .arg(address(&out, page));
                assert!(command.output().unwrap().status.success());
            }
        }
    }
}
