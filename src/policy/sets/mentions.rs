//! Which unknown values a rule may read, from the words in its source.
//!
//! A rule that reads a value names its key, or the key of the object around it, or goes through everything.
//! So a rule whose source has neither of the two keys does not read the value. The other way round a rule may
//! have the word and never read the value: it is then called undecided although it is not. It is never called
//! decided although it reads the value in one of these ways.

use std::collections::BTreeSet;

use crate::model::spec::RuntimeKind;

/// Functions that go through a value without naming its keys.
const READ_ALL: [&str; 4] = ["walk", "marshal", "reachable", "reachable_paths"];

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
            self.reads_all |= READ_ALL.contains(&word);
            self.words.insert(word.to_owned());
        }
    }

    /// Returns true if a rule may read the value at a path of a resource.
    pub fn may_read(&self, runtime: RuntimeKind, path: &str) -> bool {
        // The id that a provider chooses says nothing: rules name it as the id of the resource.
        if runtime == RuntimeKind::Terraform && path == "/id" {
            return false;
        }
        if self.reads_all {
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

    /// A key such as `app.kubernetes.io/name` is several words in a source.
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
    fn the_id_of_a_terraform_resource_does_not_count() {
        let mut mentions = Mentions::default();
        mentions.add("r.id; r.after.region");
        assert!(!mentions.may_read(RuntimeKind::Terraform, "/id"));
        assert!(mentions.may_read(RuntimeKind::Terraform, "/region"));
        assert!(mentions.may_read(RuntimeKind::Kubernetes, "/id"));
    }
}
