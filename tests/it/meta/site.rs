//! The docs as a site: it is whole, and its search box answers what a user would ask.

use std::{fs, path::Path};

use crate::{
    meta::docs::{pages, root},
    support::{
        browser::Browser,
        cache, executable, installed,
        process::{Konverge, Outcome},
    },
};
use axum::{
    Router,
    http::{StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};

/// The docs in a folder of their own, where the site is built.
fn docs() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(root().join("zensical.toml"), folder.path().join("zensical.toml")).unwrap();
    let copied = std::process::Command::new("cp")
        .arg("-R")
        .arg(root().join("docs"))
        .arg(folder.path())
        .status();
    assert!(copied.unwrap().success());
    folder
}

fn build(folder: &Path) -> Outcome {
    Konverge::of(&executable("site", "zensical"), ["build", "--strict"])
        .dir(folder)
        .run()
}

/// Every page is in the site's contents, and the site is made without a link or an anchor that leads nowhere.
#[test]
fn the_site_is_whole() {
    let settings = fs::read_to_string(root().join("zensical.toml")).unwrap();
    for page in pages() {
        if let Ok(name) = page.strip_prefix(root().join("docs")) {
            let entry = format!("\"{}\"", name.display());
            assert!(settings.contains(&entry), "zensical.toml has no {entry}");
        }
    }
    let folder = docs();
    build(folder.path()).expect(0);
    // A page that leads nowhere stops it.
    fs::write(folder.path().join("docs/index.md"), "[gone](gone.md)").unwrap();
    assert!(build(folder.path()).code != Some(0));
}

/// What users would type, and the part of a page that answers it.
const QUESTIONS: [(&str, &str); 23] = [
    ("lease held", "guides/sres/#the-lease-is-held"),
    ("state lock", "guides/sres/#the-lease-is-held"),
    ("approve an unreviewed change", "guides/sres/#a-stack-was-stopped"),
    ("roll back", "guides/roll-back/"),
    ("rename a stack", "guides/name-a-stack/#rename-a-stack"),
    ("OIDC AWS", "guides/oidc/#aws-eks-and-state-in-s3"),
    (
        "why is my stack affected",
        "guides/app-developers/#why-is-my-stack-affected",
    ),
    ("known after apply", "guides/app-developers/#words-in-it"),
    ("migrate from kusion", "guides/migrate/"),
    (
        "adopt existing resources",
        "guides/migrate/#adopt-existing-resources",
    ),
    ("blast radius", "guides/policies/#blast-radius"),
    ("exit code 3", "reference/errors/#exit-codes"),
    ("preview with a cluster", "guides/preview-with-a-cluster/"),
    ("log in by OIDC", "guides/oidc/"),
    (
        "recover from a half apply",
        "guides/sres/#an-apply-was-interrupted",
    ),
    ("run on GitLab", "guides/gitlab/"),
    ("run on Jenkins", "guides/jenkins/"),
    ("compare with Atlantis", "compare/#compare-with-atlantis"),
    ("migrate", "guides/migrate/"),
    ("add an application", "guides/add-an-application/"),
    ("name a stack", "guides/name-a-stack/"),
    ("read a sign", "guides/app-developers/#read-a-sign"),
    ("what adopting costs", "costs/"),
];

/// The box, opened as a reader opens it.
const OPEN_THE_SEARCH: &str = "document.querySelector('.md-search__button').click()";
/// The box lies in a tree of its own.
const FOCUSED: &str = "(() => { let at = document.activeElement; while (at?.shadowRoot) at = at.shadowRoot.activeElement; \
                       return at?.getAttribute('placeholder') === 'Search' })()";
/// What is listed below it: where each leads, once there is any.
const FOUND: &str = "(() => { const all = from => [...from.querySelectorAll('*')].flatMap(one => \
                     [one, ...(one.shadowRoot ? all(one.shadowRoot) : [])]); \
                     const links = all(document).filter(one => one.tagName === 'A' && one.href.includes('?h=')); \
                     return links.length && links.map(one => { const at = new URL(one.href); return at.pathname.slice(1) + at.hash }) \
                     })()";

/// The site as `make site` leaves it, behind a server.
async fn served() -> (tempfile::TempDir, String) {
    let folder = docs();
    build(folder.path()).expect(0);
    let site = folder.path().join("target/site");
    let drawing = installed("site", cache().join("site/package/dist/mermaid.min.js"));
    fs::copy(drawing, site.join("assets/mermaid.min.js")).unwrap();
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router = Router::new().fallback(async move |uri: Uri| page(&site, uri.path()));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (folder, url)
}

/// How it works is drawn: a picture each of affected, plan, review and state, and nothing asked of another server.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn its_pictures_are_drawn_without_another_server() {
    let (_folder, url) = served().await;
    tokio::task::spawn_blocking(move || {
        let mut browser = Browser::start();
        browser.open(&format!("{url}how-it-works/"));
        // The theme puts what is drawn in the place of its text, in a tree of its own.
        let drawn = "document.querySelectorAll('pre.mermaid').length === 0 && [...document.querySelectorAll('div.mermaid')] \
                     .filter(one => one.getBoundingClientRect().height > 100).length === 4";
        assert!(browser.wait_for(drawn).is_some());
        let asked = browser.evaluate("performance.getEntriesByType('resource').map(one => one.name)");
        let asked: Vec<String> = serde_json::from_value(asked).unwrap();
        assert!(asked.iter().any(|one| one.ends_with("/assets/mermaid.min.js")), "{asked:?}");
        assert!(asked.iter().all(|one| one.starts_with(&url)), "{asked:?}");
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn its_search_answers_what_a_user_asks() {
    let (_folder, url) = served().await;
    tokio::task::spawn_blocking(move || {
        let mut browser = Browser::start();
        let mut missed = Vec::new();
        for (question, answer) in QUESTIONS {
            browser.open(&url);
            browser.evaluate(OPEN_THE_SEARCH);
            assert!(browser.wait_for(FOCUSED).is_some(), "the box takes what is typed");
            browser.type_text(question);
            match browser.wait_for(FOUND) {
                Some(found)
                    if found
                        .as_array()
                        .unwrap()
                        .iter()
                        .take(3)
                        .any(|place| place == answer) => {}
                found => missed.push(format!("{question}: {found:#?}")),
            }
        }
        assert!(missed.is_empty(), "{}", missed.join("\n"));
    })
    .await
    .unwrap();
}

/// A file of the site as a server of pages gives it out: a folder's index, and scripts by their type.
fn page(site: &Path, path: &str) -> Response {
    let mut file = site.join(path.trim_start_matches('/'));
    if file.is_dir() {
        file.push("index.html");
    }
    let kind = match file.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    };
    match fs::read(&file) {
        Ok(bytes) => ([(CONTENT_TYPE, kind)], bytes).into_response(),
        Err(_) => StatusCode::NOT_FOUND.into_response(),
    }
}
