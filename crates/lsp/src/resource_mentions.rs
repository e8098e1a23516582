//! Finds texts that look like resources: ids, as in `dependsOn` and golden files, and references (`$kusion_path`).

use std::sync::LazyLock;

use konverge_base::model::reference::MARK;
use regex::Regex;

/// The maximum number of links in one file.
const MOST: usize = 2_000;

/// Matches a reference with its path, the id of a Kubernetes object, or the id of a Terraform resource.
static PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"\$kusion_path\.[A-Za-z0-9_.:/\-\[\]]+|(?:[a-z0-9][a-z0-9.-]*/)?v[0-9][a-z0-9]*:[A-Z][A-Za-z0-9]*(?::[A-Za-z0-9._-]+){1,2}|[a-z][a-z0-9-]*:[a-z0-9][a-z0-9-]*:[a-z0-9_]+:[A-Za-z0-9._-]+",
    )
    .expect("a constant pattern")
});

/// A text that looks like a resource. Whether the resource exists is checked in the Spec later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceMention {
    /// The line, from 0.
    pub(crate) line: u32,
    /// The start in the line, in bytes.
    pub(crate) start: usize,
    /// The end in the line, in bytes.
    pub(crate) end: usize,
    /// The text: an id, or a reference with its prefix.
    pub(crate) text: String,
}

/// Finds all mentions in a text, in order.
pub(crate) fn find(text: &str) -> Vec<ResourceMention> {
    let lines = (0..).zip(text.lines());
    lines
        .flat_map(|(number, line)| in_line(number, line))
        .take(MOST)
        .collect()
}

/// Finds the mention at a byte offset of a line.
pub(crate) fn find_at(line: &str, byte: usize) -> Option<ResourceMention> {
    in_line(0, line)
        .into_iter()
        .find(|mention| (mention.start..=mention.end).contains(&byte))
}

fn in_line(number: u32, line: &str) -> Vec<ResourceMention> {
    let found = PATTERN.find_iter(line).filter(|found| {
        let before = line[..found.start()].chars().next_back();
        // An id must begin at a word boundary; a reference may begin anywhere.
        found.as_str().starts_with('$') || before.is_none_or(|c| !c.is_alphanumeric() && !"_-./:".contains(c))
    });
    found
        .map(|found| {
            let text = found.as_str().trim_end_matches(['.', ':', '-', '/', '[']);
            ResourceMention {
                line: number,
                start: found.start(),
                end: found.start() + text.len(),
                text: text.to_owned(),
            }
        })
        .filter(|mention| mention.text.len() > MARK.len() || !mention.text.starts_with('$'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(text: &str) -> Vec<String> {
        find(text).into_iter().map(|mention| mention.text).collect()
    }

    #[test]
    fn ids_and_references_are_found_and_other_words_are_not() {
        for (text, expected) in [
            ("dependsOn = [\"v1:Namespace:shop\"]", &["v1:Namespace:shop"][..]),
            (
                "- id: apps/v1:Deployment:shop:web.a",
                &["apps/v1:Deployment:shop:web.a"],
            ),
            (
                "id: networking.k8s.io/v1:Ingress:shop:web",
                &["networking.k8s.io/v1:Ingress:shop:web"],
            ),
            (
                "'hashicorp:local:local_file:greeting'",
                &["hashicorp:local:local_file:greeting"],
            ),
            (
                "a = \"http://$kusion_path.v1:Service:ns:web.spec.ports[0].port/x\"",
                &["$kusion_path.v1:Service:ns:web.spec.ports[0].port/x"],
            ),
            ("see v1:Secret:a:b.", &["v1:Secret:a:b"]),
            ("image: registry:5000/team/app:v1", &[]),
            ("apiVersion: apps/v1", &[]),
            ("at 10:20:30:40", &[]),
            ("$kusion_path.", &[]),
            ("xv1:Secret:a:b", &[]),
        ] {
            assert_eq!(texts(text), expected, "{text}");
        }
    }

    #[test]
    fn a_mention_is_found_at_each_of_its_bytes() {
        let line = "ü [\"v1:Namespace:shop\"]";
        let at = line.find("v1").unwrap();
        for byte in at..=at + "v1:Namespace:shop".len() {
            assert_eq!(find_at(line, byte).unwrap().text, "v1:Namespace:shop");
        }
        assert_eq!(find_at(line, at - 1), None);
    }

    proptest! {
        #[test]
        fn every_mention_stands_in_its_line(text in "[v1:A-Za-z0-9./$ü\\[\\]\"\n -]{0,200}") {
            for mention in find(&text) {
                let line = text.lines().nth(mention.line as usize).unwrap();
                prop_assert_eq!(&line[mention.start..mention.end], mention.text);
            }
        }
    }
}
