//! Manual approvals: digests of plans, and stacks that a deletion may ignore.

use std::{collections::BTreeSet, str::FromStr};

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{Digest, StackId},
};

/// The input `approve`: digests, and `without=STACK`, separated by commas or white space.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Approved {
    /// The digests of the approved plans.
    pub digests: BTreeSet<Digest>,
    /// Stacks that do not compile, but that need no object which other stacks delete.
    pub without: BTreeSet<StackId>,
}

impl Approved {
    /// Explains that digests matched nothing, and what to do about it; `None` if there are none.
    pub(crate) fn explain_unmatched(digests: &BTreeSet<Digest>) -> Option<String> {
        let names: Vec<_> = digests.iter().map(Digest::to_string).collect();
        (!names.is_empty()).then(|| {
            format!(
                "this run found no plan, no finding and no drift with the digest {}, so nothing was done for it. It was done already, it has changed since it was shown, or it belongs to another repository. Today's digests are in the open issues and in the summary of the newest run",
                names.join(", ")
            )
        })
    }

    /// Returns true if nothing is approved.
    pub(crate) fn is_empty(&self) -> bool {
        self.digests.is_empty() && self.without.is_empty()
    }
}

impl FromStr for Approved {
    type Err = UserError;

    fn from_str(text: &str) -> Result<Self, UserError> {
        let wrong = |error: String, hint: &str| UserError::new(ErrorKind::Usage, error).hint(hint);
        let mut approved = Self::default();
        for part in text.split([',', ' ', '\n']).filter(|part| !part.is_empty()) {
            if let Some(stack) = part.strip_prefix("without=") {
                let stack = stack.parse().map_err(|error: konverge_base::model::InvalidId| {
                    wrong(error.to_string(), "write `without=<project>/<stack>`")
                })?;
                approved.without.insert(stack);
            } else {
                let digest = part.parse::<Digest>().map_err(|error| {
                    wrong(
                        error.to_string(),
                        "copy the whole digest from the issue or the summary",
                    )
                })?;
                approved.digests.insert(digest);
            }
        }
        Ok(approved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_and_stacks_are_read() {
        let digest = Digest::of_bytes(b"x");
        let approved: Approved = format!("{digest}, without=shop/dev\n").parse().unwrap();
        assert_eq!(approved.digests, BTreeSet::from([digest]));
        assert_eq!(approved.without, BTreeSet::from(["shop/dev".parse().unwrap()]));
        assert!(" ,".parse::<Approved>().unwrap().is_empty());
        assert!("without=nothing".parse::<Approved>().is_err());
        assert!("no-digest".parse::<Approved>().is_err());
    }

    #[test]
    fn each_digest_that_stood_for_nothing_is_named() {
        let digests = BTreeSet::from([Digest::of_bytes(b"x"), Digest::of_bytes(b"y")]);
        let said = Approved::explain_unmatched(&digests).unwrap();
        assert!(
            digests.iter().all(|digest| said.contains(&digest.to_string())),
            "{said}"
        );
        assert_eq!(Approved::explain_unmatched(&BTreeSet::new()), None);
    }
}
