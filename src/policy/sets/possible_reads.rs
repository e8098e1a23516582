//! Which unknown values a rule may read, from the words in its source.
//!
//! A rule that reads a value mentions its key or a parent key, or iterates over the whole input.
//! So a rule whose source has neither of the two keys does not read the value. The other way round a rule may
//! have the word and never read the value: it is then called undecided although it is not. It is never called
//! decided although it reads the value in one of these ways.

use std::collections::BTreeSet;

use crate::model::spec::RuntimeKind;

/// Words with which a rule reads values without naming their keys: functions that go through a value, and the list of
/// differences, which has every value.
const READ_ALL: [&str; 6] = [
    "walk",
    "marshal",
    "marshal_with_options",
    "reachable",
    "reachable_paths",
    "changes",
];
/// The same for what is not one word: the keys of an object, and values two levels below a name.
const READ_ALL_TEXTS: [&str; 2] = ["object.keys", "[_][_]"];

/// The words in the source of rules.
#[derive(Debug, Clone, Default)]
pub(super) struct Mentions {
    words: BTreeSet<String>,
    reads_all: bool,
}

impl Mentions {
    /// Adds the words of a source: names, and the parts of its literals.
    pub fn add(&mut self, source: &str) {
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let words = source
            .split(|c: char| !is_word(c))
            .filter(|word| !word.is_empty());
        for word in words {
            // `a-b` is a key, or a difference of two values.
            for word in std::iter::once(word).chain(word.split('-')) {
                self.reads_all |= READ_ALL.contains(&word);
                self.words.insert(word.to_owned());
            }
        }
        let dense: String = source.chars().filter(|c| !c.is_whitespace()).collect();
        self.reads_all |= READ_ALL_TEXTS.iter().any(|text| dense.contains(text));
    }

    /// Returns true if a rule may read the value at a path of a resource.
    pub fn may_read(&self, runtime: RuntimeKind, path: &str) -> bool {
        // The id that a provider chooses says nothing: rules name it as the id of the resource.
        if runtime == RuntimeKind::Terraform && path == "/id" {
            return false;
        }
        // The path of the whole value has no key.
        if self.reads_all || path.is_empty() {
            return true;
        }
        let keys = path
            .split('/')
            .skip(1)
            .map(|component| component.replace("~1", "/").replace("~0", "~"))
            .filter(|component| component.parse::<usize>().is_err());
        let keys: Vec<_> = keys.collect();
        keys.iter().rev().take(2).any(|key| self.has(key))
    }

    /// Returns true if the source has this word.
    pub fn has_word(&self, word: &str) -> bool {
        self.words.contains(word)
    }

    /// Returns true if the source contains all words of a key. `app.kubernetes.io/name` has several words.
    fn has(&self, key: &str) -> bool {
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let mut parts = key.split(|c: char| !is_word(c)).filter(|part| !part.is_empty());
        parts.all(|part| self.words.contains(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_or_the_key_around_it_counts() {
        let mut mentions = Mentions::default();
        mentions.add("input.after.spec.containers[_].image; labels[k] == \"x\"; a[\"app.io/tier\"]");
        let reads = |path| mentions.may_read(RuntimeKind::Kubernetes, path);
        assert!(reads("/spec/containers/0/image"));
        assert!(reads("/metadata/labels/team"));
        assert!(reads("/x/app.io~1tier"));
        assert!(!reads("/spec/template/hostname"));
        assert!(!reads("/metadata/app.io~1other"));
        mentions.add("walk(input, [path, value])");
        assert!(mentions.may_read(RuntimeKind::Kubernetes, "/spec/template/hostname"));
    }

    #[test]
    fn what_reads_without_a_key_reads_all() {
        for source in [
            "some c in r.changes; endswith(c.to, \":latest\")",
            "count(object.keys(r.after)) > 3",
            "x := input.spec[_] [_]",
            "json.marshal(r.after)",
        ] {
            let mut mentions = Mentions::default();
            mentions.add(source);
            assert!(mentions.may_read(RuntimeKind::Terraform, "/acl"), "{source}");
        }
        let mut mentions = Mentions::default();
        mentions.add("r.after.max_size-r.after.min_size > 10");
        assert!(mentions.may_read(RuntimeKind::Terraform, "/max_size"));
        assert!(!mentions.may_read(RuntimeKind::Terraform, "/size"));
        assert!(mentions.may_read(RuntimeKind::Terraform, ""));
    }

    #[test]
    fn the_id_of_a_terraform_resource_does_not_count() {
        let mut mentions = Mentions::default();
        mentions.add("r.id; r.after.region");
        assert!(!mentions.may_read(RuntimeKind::Terraform, "/id"));
        assert!(mentions.may_read(RuntimeKind::Terraform, "/region"));
        assert!(mentions.may_read(RuntimeKind::Kubernetes, "/id"));
    }
}
