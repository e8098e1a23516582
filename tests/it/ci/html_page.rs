//! The page: its order, its contrast and its speed in a real browser.

use std::{collections::BTreeMap, fs, path::PathBuf};

use konverge_base::model::{
    Digest,
    policy_finding::{Enforcement, PolicyFinding, SetPlace},
};
use konverge_report::{checks, html};
use serde_json::json;

use crate::support::sample_plans;

#[test]
fn a_finding_shows_where_it_is_and_what_to_do() {
    let mut sample = sample_plans::shop();
    sample.findings.push(PolicyFinding {
        verdict: Enforcement::Warn,
        rule: "house/main.warn".into(),
        stack: Some("media/prod".parse().unwrap()),
        message: "the image has no <digest>".into(),
        hint: Some("pin the image".into()),
        place: Some(SetPlace {
            set: "house".into(),
            resource: Some("apps/v1:Deployment:media:media".parse().unwrap()),
            path: Some("/spec/image".into()),
            details: BTreeMap::new(),
            digest: Digest::of_bytes(b"house"),
            passed_by: None,
        }),
    });
    let page = html::report(&sample.input(0));
    let section = page.split("<h2>Policies</h2>").nth(1).unwrap();
    for part in [
        "apps/v1:Deployment:media:media",
        "/spec/image",
        "the image has no &lt;digest",
        "pin the image",
    ] {
        assert!(section.contains(part), "{part}: {section}");
    }
    let notes = checks::finding_annotations(&sample.findings);
    assert_eq!(
        notes[0].message,
        "media/prod apps/v1:Deployment:media:media/spec/image: the image has no <digest>\nhint: pin the image"
    );
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
        ("shop", sample_plans::shop()),
        ("equal", sample_plans::equal(45)),
        ("specs", sample_plans::spec_only()),
        ("pushed", sample_plans::pushed()),
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
/// `KONVERGE_WRITE_PERFORMANCE=1` the times go into `benches/figures.md`.
#[test]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
fn a_page_of_2000_stacks_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let page = html::report(&sample_plans::large(2_000).input(0));
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
        "## The page of 2000 stacks in a browser\n\nA headless Chromium without a graphics card, on the same machine under load. The page has {} KiB and {nodes} elements.\n\n| | time |\n|---|---|\n| loaded, script included | {} |\n| first search, a stack found and the group that names it | {} |\n| next search, 200 stacks found | {} |\n| all stacks shown again | {} |\n| a frame while scrolling through the page, median | {} |\n| the longest of 100 frames | {} |\n\nA search waits 120 ms for the next letter; that is part of its time. `KONVERGE_WRITE_PERFORMANCE=1 cargo test --test it -- --ignored a_page_of_2000_stacks` writes this.",
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
    let mut shop = sample_plans::shop();
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

/// Without script nothing on the page is dead: what needs script is not there, every fold opens, every link leads to
/// something, and nothing is wider than the window.
#[test]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
fn nothing_is_dead_without_script() {
    const LOOK: &str = r##"
(() => {
  const shown = (node) => node.getClientRects().length > 0;
  const name = (node) => `${node.tagName} ${node.id || node.getAttribute("href") || node.textContent.slice(0, 40)}`;
  const dead = [];
  let used = 0;
  const scripted = "button, input, select, textarea, [onclick], [role=button], [contenteditable]";
  for (const node of document.querySelectorAll(scripted)) if (shown(node)) dead.push(name(node));
  for (const summary of document.querySelectorAll("summary")) {
    const fold = summary.parentElement;
    fold.open = false;
    summary.click();
    used += 1;
    if (!fold.open || [...fold.children].some((child) => !shown(child))) dead.push(name(summary));
  }
  for (const link of document.querySelectorAll("a")) {
    const to = link.getAttribute("href");
    used += 1;
    if (!to || to === "#" || /^javascript:/i.test(to)) dead.push(name(link));
    if (to && to.startsWith("#")) {
      const target = document.getElementById(to.slice(1));
      if (!target || !shown(target)) dead.push(name(link));
    }
  }
  const wide = document.documentElement.scrollWidth - innerWidth;
  return {dead, used, wide, scripted: document.querySelectorAll(scripted).length};
})()
"##;
    let folder = tempfile::tempdir().unwrap();
    let mut browser = crate::support::browser::Browser::start();
    browser.forbid_scripts();
    for (name, sample) in [
        ("shop", sample_plans::shop()),
        ("equal", sample_plans::equal(45)),
        ("specs", sample_plans::spec_only()),
        ("pushed", sample_plans::pushed()),
    ] {
        let path = folder.path().join(format!("{name}.html"));
        fs::write(&path, html::report(&sample.input(0))).unwrap();
        for width in [1280, 390] {
            browser.resize(width, 800);
            browser.open(&format!("file://{}?{width}", path.display()));
            let found = browser.evaluate(LOOK);
            assert_eq!(found["dead"], json!([]), "{name} at {width}");
            assert!(found["wide"].as_i64().unwrap() <= 0, "{name} at {width}: {found}");
            assert!(
                found["used"].as_u64().unwrap() > 1 && found["scripted"].as_u64().unwrap() > 1,
                "{found}"
            );
        }
    }
}

/// The page begins with what is dangerous, the worst first, then shows the changes, then why.
#[test]
fn the_page_begins_with_the_worst() {
    let page = html::report(&sample_plans::shop().input(0));
    let specs = html::report(&sample_plans::spec_only().input(0));
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
