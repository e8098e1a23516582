//! The kinds of forges, the detection of the forge that runs a job, and features that a forge lacks.

use std::{collections::BTreeMap, fmt};

use konverge_base::variables;

/// A kind of forge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ForgeKind {
    /// github.com, or a GitHub Enterprise Server.
    Github,
    /// Gitea, or Forgejo.
    Gitea,
    /// gitlab.com, or a self-managed GitLab.
    Gitlab,
}

impl fmt::Display for ForgeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Github => "GitHub",
            Self::Gitea => "Gitea",
            Self::Gitlab => "GitLab",
        })
    }
}

impl ForgeKind {
    /// Returns the hint for a job without a token.
    pub fn token_hint(self) -> &'static str {
        match self {
            Self::Github => "set the input `github-token`",
            Self::Gitea => "give the step the token of a bot in `GITEA_TOKEN`",
            Self::Gitlab => "set the CI/CD variable KONVERGE_GITLAB_TOKEN or GITLAB_TOKEN",
        }
    }
}

/// A feature that a forge lacks. It is a value and not an error, because the caller decides what follows. A
/// decision that needs the feature turns it into a [`ForgeError`](crate::ForgeError), and so fails closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{forge} has no {what}")]
pub struct Unsupported {
    /// The forge that lacks the feature.
    pub forge: ForgeKind,
    /// The missing feature, as a noun: `deployments`.
    pub what: &'static str,
}

/// The environment has the variables of two forges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the environment has the variables of two forges: {} of {} and {} of {} are both `true`",
    first.variable, first.kind, second.variable, second.kind
)]
pub struct TwoForges {
    /// One of the two forges.
    pub first: DetectedForge,
    /// The other forge.
    pub second: DetectedForge,
}

/// The forge that runs the job, and the variable that identified it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DetectedForge {
    /// The detected forge.
    pub kind: ForgeKind,
    /// The variable that the forge's runner sets to `true`.
    pub variable: &'static str,
}

/// The variables by which a forge is detected. Forgejo's runner also sets Gitea's.
const MARKS: [DetectedForge; 3] = [
    DetectedForge {
        kind: ForgeKind::Github,
        variable: variables::GITHUB_ACTIONS,
    },
    DetectedForge {
        kind: ForgeKind::Gitea,
        variable: variables::GITEA_ACTIONS,
    },
    DetectedForge {
        kind: ForgeKind::Gitlab,
        variable: variables::GITLAB_CI,
    },
];

impl DetectedForge {
    /// Detects the forge that runs this job; `None` outside a CI job.
    ///
    /// # Errors
    /// The environment has the variables of two forges. Konverge prefers neither, because the token may belong to
    /// the other one.
    pub fn from_env(env: &BTreeMap<String, String>) -> Result<Option<Self>, TwoForges> {
        let is_set = |mark: &&Self| env.get(mark.variable).is_some_and(|value| value == "true");
        let mut found: Vec<Self> = MARKS.iter().filter(is_set).copied().collect();
        // Gitea's runner also sets GitHub's variable, because many actions look for it.
        if found.iter().any(|mark| mark.kind == ForgeKind::Gitea) {
            found.retain(|mark| mark.kind != ForgeKind::Github);
        }
        // Two forges are an error, because a token of one must not be sent to the other.
        match found[..] {
            [] => Ok(None),
            [only] => Ok(Some(only)),
            [first, second, ..] => Err(TwoForges { first, second }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(names: &[&str]) -> Result<Option<ForgeKind>, String> {
        let env = names.iter().map(|name| ((*name).to_owned(), "true".to_owned()));
        let found = DetectedForge::from_env(&env.collect());
        found
            .map(|found| found.map(|found| found.kind))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_runner_s_own_variable_tells_the_forge() {
        assert_eq!(detect(&[]), Ok(None));
        assert_eq!(detect(&["CI"]), Ok(None));
        assert_eq!(detect(&["CI", "GITHUB_ACTIONS"]), Ok(Some(ForgeKind::Github)));
        assert_eq!(detect(&["GITLAB_CI"]), Ok(Some(ForgeKind::Gitlab)));
        // These two variables are both set by the runner of Gitea.
        let gitea = ["GITHUB_ACTIONS", "GITEA_ACTIONS"];
        assert_eq!(detect(&gitea), Ok(Some(ForgeKind::Gitea)));
        let off = BTreeMap::from([("GITHUB_ACTIONS".to_owned(), "false".to_owned())]);
        assert_eq!(DetectedForge::from_env(&off), Ok(None));
    }

    #[test]
    fn two_forges_are_an_error_that_names_both() {
        let said = detect(&["GITHUB_ACTIONS", "GITLAB_CI"]).unwrap_err();
        assert_eq!(
            said,
            "the environment has the variables of two forges: GITHUB_ACTIONS of GitHub and GITLAB_CI of GitLab are both `true`"
        );
        assert!(detect(&["GITHUB_ACTIONS", "GITEA_ACTIONS", "GITLAB_CI"]).is_err());
    }
}
