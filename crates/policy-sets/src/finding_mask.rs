//! Masks the messages of rules before they are shown. Rules see true values, and their messages may quote them.

use std::collections::BTreeSet;

use super::rule::{RuleFinding, shorten};
use konverge_secrets::{Secrets, without_words};

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
        let text = without_words(text, self.hidden);
        shorten(&self.secrets.mask(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Severity;
    use konverge_secrets::HashKey;
    use std::collections::BTreeMap;

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
