//! Masks the messages of rules before they are shown. Rules see true values, and their messages may quote them.

use std::collections::BTreeSet;

use super::rule::{RuleFinding, shorten};
use konverge_base::secrets::Secrets;

/// The text that replaces a secret.
const MASK: &str = "***";

/// The secrets that a finding must not show.
#[derive(Clone, Copy)]
pub(super) struct FindingMask<'a> {
    pub secrets: &'a Secrets,
    /// Texts of the document that are shown masked. They may be common words, so only whole words of a message are
    /// masked.
    pub hidden: &'a BTreeSet<String>,
}

impl FindingMask<'_> {
    /// Returns the masked finding, and a keyed hash of the unmasked message. The hash distinguishes findings that
    /// look alike after masking. Because it has a key, nobody can guess the secret from it.
    pub(super) fn finding(self, found: &RuleFinding) -> (RuleFinding, String) {
        let said = [
            found.resource.as_deref().unwrap_or_default(),
            found.path.as_deref().unwrap_or_default(),
            &found.message,
        ];
        let said = self.secrets.hash(said.join("\0").as_bytes());
        let masked = |text: &Option<String>| text.as_deref().map(|text| self.text(text));
        let details = found.details.iter();
        let shown = RuleFinding {
            message: self.text(&found.message),
            resource: masked(&found.resource),
            path: masked(&found.path),
            details: details
                .map(|(key, value)| (self.text(key), self.text(value)))
                .collect(),
            ..found.clone()
        };
        (shown, said)
    }

    fn text(self, text: &str) -> String {
        // The longest texts are masked first: otherwise a shorter one would mask only a part of a longer one.
        let mut hidden: Vec<_> = self
            .hidden
            .iter()
            .filter(|hidden| text.contains(hidden.as_str()))
            .collect();
        hidden.sort_by_key(|hidden| std::cmp::Reverse(hidden.len()));
        let text = hidden
            .into_iter()
            .fold(text.to_owned(), |text, hidden| without_word(&text, hidden));
        shorten(&self.secrets.mask(&text))
    }
}

/// Masks a word in a text, but not inside a longer word.
fn without_word(text: &str, word: &str) -> String {
    let is_inside = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let (mut masked, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(word).filter(|_| !word.is_empty()) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        masked.push_str(before);
        let joins = is_inside(masked.chars().next_back()) && is_inside(word.chars().next())
            || is_inside(word.chars().next_back()) && is_inside(after.chars().next());
        masked.push_str(if joins { word } else { MASK });
        rest = after;
    }
    masked.push_str(rest);
    masked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Severity;
    use konverge_base::secrets::HashKey;
    use std::collections::BTreeMap;

    #[test]
    fn a_word_is_masked_and_a_part_of_a_word_stays() {
        for (text, word, masked) in [
            ("the password is blue", "blue", "the password is ***"),
            ("blueberry, blue.berry", "blue", "blueberry, ***.berry"),
            ("a=1, b=12, c=1", "1", "a=***, b=12, c=***"),
            ("größer groß", "groß", "größer ***"),
            ("x", "", "x"),
            ("blue", "blue", "***"),
        ] {
            assert_eq!(without_word(text, word), masked);
        }
    }

    #[test]
    fn two_findings_that_look_alike_have_two_digests() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let hidden = ["blue", "green", "bluegreen"].map(str::to_owned).into();
        let mask = FindingMask {
            secrets: &secrets,
            hidden: &hidden,
        };
        let finding = |message: &str| {
            mask.finding(&RuleFinding {
                rule: "r".to_owned(),
                severity: Severity::Deny,
                message: message.to_owned(),
                resource: None,
                path: Some("/blue".to_owned()),
                details: BTreeMap::from([("of".to_owned(), "green".to_owned())]),
            })
        };
        let (blue, of_blue) = finding("it is blue");
        let (green, of_green) = finding("it is green");
        assert_eq!(
            (blue.message.as_str(), &blue.message),
            ("it is ***", &green.message)
        );
        assert_eq!(
            (blue.path.as_deref(), blue.details["of"].as_str()),
            (Some("/***"), "***")
        );
        assert_ne!(of_blue, of_green);
        assert_eq!(finding("it is blue").1, of_blue);
        let plain = RuleFinding {
            path: None,
            ..RuleFinding::error("r", "red")
        };
        assert_eq!(mask.finding(&plain).0, plain);
    }
}
