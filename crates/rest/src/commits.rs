//! Commits in the form of the forges' lists, and the people whom they name. A commit itself only claims its author
//! and committer.

use std::collections::BTreeMap;

use konverge_base::model::{CommitId, InvalidId};
use konverge_forge::{Contribution, ForgeError, ForgeKind, Result};
use serde::Deserialize;

use crate::User;

/// A commit in a list of a forge.
#[derive(Debug, Deserialize)]
pub struct ListedCommit {
    sha: String,
    #[serde(default)]
    parents: Vec<Parent>,
    commit: Text,
    author: Option<User>,
    committer: Option<User>,
}

#[derive(Debug, Deserialize)]
struct Parent {
    sha: String,
}

#[derive(Debug, Deserialize)]
struct Text {
    author: Option<Person>,
    committer: Option<Person>,
    message: String,
}

#[derive(Debug, Deserialize)]
struct Person {
    email: Option<String>,
}

/// The names of people in the commits of a forge.
#[derive(Debug, Clone, Copy)]
pub struct CommitNames {
    /// The forge, for errors.
    pub forge: ForgeKind,
    /// The login of the forge itself as the committer of merges, if it has one.
    pub itself: Option<&'static str>,
    /// Returns the login in an address that the forge gives to people with a private address.
    pub private_address: fn(&str) -> Option<&str>,
}

impl CommitNames {
    /// Parses commits, and finds the logins of the people whom they name.
    ///
    /// # Errors
    /// A commit with an invalid id.
    pub fn read(self, path: &str, raw: Vec<ListedCommit>) -> Result<Vec<Contribution>> {
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        for commit in &raw {
            for (person, account) in [
                (&commit.commit.author, &commit.author),
                (&commit.commit.committer, &commit.committer),
            ] {
                if let (Some(email), Some(account)) =
                    (person.as_ref().and_then(|p| p.email.as_ref()), account)
                {
                    known.insert(email.to_lowercase(), account.login.clone());
                }
            }
        }
        let id = |sha: &str| -> Result<CommitId> {
            let operation = format!("GET {path}");
            sha.parse()
                .map_err(|error: InvalidId| ForgeError::malformed(self.forge, operation, error))
        };
        raw.into_iter()
            .map(|raw| {
                let committer = raw.committer.filter(|account| !self.is_itself(&account.login));
                let named = raw
                    .author
                    .into_iter()
                    .chain(committer)
                    .map(|account| account.login);
                let co_authors = co_authors(&raw.commit.message);
                let co_authors = co_authors.filter_map(|email| self.login(&email, &known));
                let parents = raw.parents.iter().map(|parent| id(&parent.sha));
                Ok(Contribution {
                    people: named.chain(co_authors).collect(),
                    parents: parents.collect::<Result<_, _>>()?,
                    commit: id(&raw.sha)?,
                })
            })
            .collect()
    }

    /// Returns the error of a list that has more commits than the limit.
    pub fn too_many(self, path: &str) -> ForgeError {
        ForgeError::malformed(
            self.forge,
            format!("GET {}", path.split('?').next().unwrap_or_default()),
            "too many commits to read, so their authors are unknown",
        )
    }

    fn is_itself(self, login: &str) -> bool {
        self.itself == Some(login)
    }

    /// Returns the login of an address: as the forge reports it for another commit, or as the private address
    /// contains it.
    fn login(self, email: &str, known: &BTreeMap<String, String>) -> Option<String> {
        if let Some(login) = known.get(email) {
            return Some(login.clone()).filter(|login| !self.is_itself(login));
        }
        (self.private_address)(email).map(str::to_owned)
    }
}

/// Returns the lower-case addresses in the lines `Co-authored-by: NAME <ADDRESS>` of a message.
pub fn co_authors(message: &str) -> impl Iterator<Item = String> {
    message.lines().filter_map(|line| {
        let (key, value) = line.trim().split_once(':')?;
        let (_, rest) = value.split_once('<')?;
        let (email, _) = rest.split_once('>')?;
        key.trim()
            .eq_ignore_ascii_case("co-authored-by")
            .then(|| email.trim().to_lowercase())
    })
}
