//! What somebody meets who opens an issue, a pull request or a security report: GitHub reads it, and what it names is
//! there.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::meta::docs::root;

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn yaml(file: &str) -> Value {
    konverge_base::yaml::from_str(&read(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The form of GitHub's issue forms: each question has a type that GitHub knows, an id of its own and a label.
#[test]
fn issue_forms_are_forms() {
    for form in ["bug", "feature"] {
        let file = format!(".github/ISSUE_TEMPLATE/{form}.yml");
        let form = yaml(&file);
        for key in ["name", "description"] {
            assert!(form[key].is_string(), "{file}: {key}");
        }
        let (mut ids, mut required) = (BTreeSet::new(), 0);
        for question in form["body"].as_array().unwrap() {
            let kind = question["type"].as_str().unwrap();
            if kind == "markdown" {
                assert!(question["attributes"]["value"].is_string(), "{file}");
                continue;
            }
            assert!(
                ["input", "textarea", "dropdown", "checkboxes"].contains(&kind),
                "{file}: {kind}"
            );
            assert!(ids.insert(question["id"].as_str().unwrap()), "{file}: {question}");
            assert!(question["attributes"]["label"].is_string(), "{file}: {question}");
            assert_eq!(
                kind == "dropdown",
                question["attributes"]["options"].is_array(),
                "{file}: {question}"
            );
            required += usize::from(question["validations"]["required"] == true);
        }
        assert!(required > 0, "{file}");
    }
    assert!(read(".github/pull_request_template.md").contains("make lint"));
}

/// One private address for vulnerabilities, in each place where somebody would look.
#[test]
fn vulnerabilities_are_reported_privately() {
    let address = format!("{}/security/advisories/new", env!("CARGO_PKG_REPOSITORY"));
    let links = yaml(".github/ISSUE_TEMPLATE/config.yml");
    let links = links["contact_links"].as_array().unwrap().clone();
    assert!(
        links.iter().any(|link| link["url"] == address.as_str()),
        "{links:?}"
    );
    assert!(read("SECURITY.md").contains(&address));
    for page in ["CONTRIBUTING.md", ".github/ISSUE_TEMPLATE/bug.yml"] {
        assert!(read(page).contains("SECURITY.md"), "{page}");
    }
    let site = read("zensical.toml");
    let site = site
        .lines()
        .find_map(|line| line.strip_prefix("site_url = "))
        .unwrap()
        .trim_matches('"');
    for link in links {
        let url = link["url"].as_str().unwrap();
        let page = url
            .strip_prefix(site)
            .map(|page| format!("docs/{}.md", page.trim_matches('/')));
        assert!(
            url == address || page.is_some_and(|page| root().join(page).is_file()),
            "{url}"
        );
    }
}
