//! The record of a written secret reference in a state, and the comparison of its version.

use std::{collections::BTreeMap, convert::Infallible};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RotatedVersion, SecretReference, SecretTemplate, Secrets, reference_mark::reference_mark};
use konverge_base::model::{FieldPath, masked_value::FILE_VERSION};

/// The placeholder for a missing version in a text with several references.
const NO_VERSION: &str = "?";

/// A text with secret references, as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenReference {
    /// The text with the references, as in the Spec, but with the names of their stores.
    pub text: String,
    /// The version that was written, if the store has versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// The written references of an object, by path.
pub type WrittenReferences = BTreeMap<FieldPath, WrittenReference>;

impl WrittenReference {
    /// Creates the record of a text, with the version of each of its references.
    pub fn new(template: &SecretTemplate, versions: &[Option<String>]) -> Self {
        let is_known = versions.iter().any(Option::is_some);
        let texts: Vec<_> = versions
            .iter()
            .map(|version| version.as_deref().unwrap_or(NO_VERSION))
            .collect();
        Self {
            text: template.to_string(),
            version: is_known.then(|| texts.join(" + ")),
        }
    }

    /// Creates a record for a value that someone else wrote. No reference in the Spec is equal to it.
    pub fn unknown() -> Self {
        Self {
            text: String::new(),
            version: None,
        }
    }

    /// Returns the version for display.
    pub fn version_label(&self) -> &str {
        self.version.as_deref().unwrap_or(NO_VERSION)
    }

    /// Returns the marker of the reference: its text and its version, with a hash of the text around them.
    pub fn mark(&self, secrets: &Secrets) -> Option<Value> {
        let template = SecretTemplate::parse(&self.text).ok().flatten()?;
        let mut versions = self.version.as_deref().unwrap_or_default().split(" + ");
        let with_versions = template.try_map(|reference| {
            let version = versions
                .next()
                .filter(|version| !matches!(*version, "" | NO_VERSION));
            Ok::<_, Infallible>(SecretReference {
                at: version.map(str::to_owned),
                ..reference.clone()
            })
        });
        let text = with_versions.map_or_else(|never| match never {}, |text| text.to_string());
        reference_mark(secrets, &text)
    }

    /// Returns true if the written text is not secret, because only versions were filled in.
    pub fn is_plain(&self) -> bool {
        let template = SecretTemplate::parse(&self.text).ok().flatten();
        template.is_some_and(|template| template.is_plain())
    }

    /// Returns true unless a version is known to have moved.
    pub fn may_have_version_of(&self, other: &Self) -> bool {
        let (Some(before), Some(now)) = (&self.version, &other.version) else {
            return true;
        };
        let mut pairs = before.split(" + ").zip(now.split(" + "));
        pairs.all(|(before, now)| before == now || before == NO_VERSION || now == NO_VERSION)
    }

    /// Returns true if the same text now has another version in its store. A changed file of the repository does not
    /// count as a rotation, because a commit changed it.
    pub fn is_rotated_from(&self, before: &Self) -> bool {
        self.text == before.text && !before.may_have_version_of(self) && !self.has_other_file_than(before)
    }

    /// Returns true if a secret file of the repository changed since `before`.
    pub fn has_other_file_than(&self, before: &Self) -> bool {
        let (before, now) = (before.versions(), self.versions());
        let mut pairs = before.iter().zip(&now);
        pairs.any(|(before, now)| {
            let is_file = now.as_ref().is_some_and(|now| now.starts_with(FILE_VERSION));
            is_file && before != now
        })
    }

    /// Returns the version of each reference.
    pub fn versions(&self) -> Vec<Option<String>> {
        let versions = self.version.as_deref().unwrap_or(NO_VERSION).split(" + ");
        let known = versions.map(|version| (version != NO_VERSION).then(|| version.to_owned()));
        known.collect()
    }

    /// Returns true if this version stays although the store has a newer one (`secrets.rotation: leave`).
    pub fn stays(&self, now: &Self, rotated: RotatedVersion) -> bool {
        rotated == RotatedVersion::Keep && now.is_rotated_from(self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::HashKey;

    fn written(text: &str, versions: &[Option<&str>]) -> WrittenReference {
        let template = SecretTemplate::parse(text).unwrap().unwrap();
        let versions: Vec<_> = versions
            .iter()
            .map(|version| version.map(str::to_owned))
            .collect();
        WrittenReference::new(&template, &versions)
    }

    #[test]
    fn versions_stand_in_the_label_and_in_the_mark() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let one = written("ref+db://pay/db#/password", &[Some("7")]);
        assert_eq!(one.version_label(), "7");
        let mark = json!({"$secret": {"ref": "db:pay/db#/password", "version": "7"}});
        assert_eq!(one.mark(&secrets), Some(mark));
        let unknown = written("ref+db://pay/db#/password", &[None]);
        assert_eq!(unknown.version_label(), "?");
        let mark = json!({"$secret": {"ref": "db:pay/db#/password"}});
        assert_eq!(unknown.mark(&secrets), Some(mark));
        let two = written("ref+db://a#/k+:ref+db://b#/k", &[Some("1"), None]);
        assert_eq!(two.version_label(), "1 + ?");
        assert_eq!(two.versions(), [Some("1".to_owned()), None]);
    }

    #[test]
    fn a_place_of_others_is_equal_to_no_reference() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let (left, one) = (
            WrittenReference::unknown(),
            written("ref+db://a#/k", &[Some("1")]),
        );
        assert!(!left.is_plain() && left.text != one.text && !one.is_rotated_from(&left));
        assert_eq!(left.mark(&secrets), None);
    }

    const ONE: &str = "ref+db://a#/k";
    const TWO: &str = "ref+db://a#/k+:ref+db://b#/k";

    #[test]
    fn a_version_moved_only_if_both_are_known_and_differ() {
        for (text, before, now, may) in [
            (ONE, &[Some("7")] as &[_], &[Some("7")] as &[_], true),
            (ONE, &[Some("7")], &[Some("8")], false),
            (ONE, &[None], &[Some("8")], true),
            (ONE, &[Some("7")], &[None], true),
            (TWO, &[Some("1"), None], &[Some("1"), Some("5")], true),
            (TWO, &[Some("1"), Some("5")], &[Some("1"), None], true),
            (TWO, &[Some("1"), None], &[Some("2"), Some("5")], false),
            (TWO, &[Some("1"), Some("2")], &[Some("1"), Some("3")], false),
        ] {
            let (before, now) = (written(text, before), written(text, now));
            assert_eq!(
                before.may_have_version_of(&now),
                may,
                "{} {}",
                before.version_label(),
                now.version_label()
            );
        }
    }

    #[test]
    fn a_rotation_moves_a_version_of_a_store_under_the_same_text() {
        for (text, before, now, rotated, other_file) in [
            (ONE, &[Some("7")] as &[_], &[Some("8")] as &[_], true, false),
            (ONE, &[Some("7")], &[Some("7")], false, false),
            (ONE, &[None], &[Some("8")], false, false),
            (ONE, &[Some("file-1")], &[Some("file-2")], false, true),
            (ONE, &[Some("file-1")], &[Some("file-1")], false, false),
            (ONE, &[None], &[Some("file-1")], false, true),
            (ONE, &[Some("file-1")], &[Some("7")], true, false),
            (
                TWO,
                &[Some("file-1"), Some("1")],
                &[Some("file-1"), Some("2")],
                true,
                false,
            ),
            (
                TWO,
                &[Some("file-1"), Some("1")],
                &[Some("file-2"), Some("2")],
                false,
                true,
            ),
        ] {
            let (before, now) = (written(text, before), written(text, now));
            let says = format!("{} {}", before.version_label(), now.version_label());
            assert_eq!(now.is_rotated_from(&before), rotated, "{says}");
            assert_eq!(now.has_other_file_than(&before), other_file, "{says}");
            assert_eq!(before.stays(&now, RotatedVersion::Keep), rotated, "{says}");
            assert!(!before.stays(&now, RotatedVersion::Write), "{says}");
        }
        let other = written("ref+db://b#/k", &[Some("8")]);
        assert!(!other.is_rotated_from(&written(ONE, &[Some("7")])));
    }

    #[test]
    fn only_versions_make_a_plain_text() {
        assert!(written("a ref+db://a?as=version", &[Some("7")]).is_plain());
        assert!(!written(ONE, &[Some("7")]).is_plain());
        assert!(!written("ref+db://a?as=version+ref+db://b#/k", &[None, None]).is_plain());
    }

    #[test]
    fn each_reference_of_a_text_has_its_version_in_the_mark() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let mark = written(TWO, &[Some("1"), None]).mark(&secrets).unwrap();
        let hash = secrets.hash(TWO.as_bytes());
        let shown = json!({"$secret": {"ref": "db:a#/k + db:b#/k", "version": "1 + ?", "text": hash}});
        assert_eq!(mark, shown);
    }
}
