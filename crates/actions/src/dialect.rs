//! The differences between the runners of GitHub and Gitea.

use konverge_base::variables;
use konverge_forge::{ForgeKind, Unsupported};

/// The web address of github.com.
const GITHUB: &str = "https://github.com";

/// The forge of a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// GitHub Actions.
    Github,
    /// Gitea Actions. There is no job summary and no identity token, and the URL of a run has no attempt.
    Gitea,
}

impl Dialect {
    /// Returns the forge of the runner.
    pub fn kind(self) -> ForgeKind {
        match self {
            Self::Github => ForgeKind::Github,
            Self::Gitea => ForgeKind::Gitea,
        }
    }

    /// Returns the web address of the forge, for a runner that does not set the variable.
    pub(crate) fn default_server(self) -> Option<&'static str> {
        match self {
            Self::Github => Some(GITHUB),
            Self::Gitea => None,
        }
    }

    /// Returns the folder of the workflow files in the repository.
    pub(crate) fn workflow_folder(self) -> &'static str {
        match self {
            Self::Github => ".github/workflows",
            Self::Gitea => ".gitea/workflows",
        }
    }

    /// Returns the full ref of a run. Forgejo starts a schedule with the name of the default branch alone.
    pub(crate) fn full_ref(self, event_name: &str, given: String) -> String {
        if self == Self::Gitea && event_name == "schedule" && !given.starts_with("refs/") {
            return format!("refs/heads/{given}");
        }
        given
    }

    /// Returns the issuer of identity tokens for jobs on a server.
    ///
    /// # Errors
    /// The forge has no identity tokens.
    pub(crate) fn token_issuer(self, server_url: &str) -> Result<String, Unsupported> {
        match self {
            Self::Github => Ok(match server_url.trim_end_matches('/') {
                GITHUB => "https://token.actions.githubusercontent.com".to_owned(),
                server => format!("{server}/_services/token"),
            }),
            Self::Gitea => Err(Unsupported {
                forge: self.kind(),
                what: "identity tokens for jobs",
            }),
        }
    }
}

/// Returns the number in the URL of a job's run: on Gitea the id of the run, on Forgejo its number in the repository.
/// `variable` returns the value of an environment variable.
pub fn gitea_page_number<'a>(variable: impl Fn(&str) -> Option<&'a str>) -> Option<u64> {
    let is_forgejo = variable(variables::FORGEJO_ACTIONS) == Some("true");
    let number = is_forgejo
        .then(|| variable(variables::GITHUB_RUN_NUMBER))
        .flatten();
    number
        .or_else(|| variable(variables::GITHUB_RUN_ID))?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_of_forgejo_has_the_bare_name_of_its_branch() {
        let full = |dialect: Dialect, event, given: &str| dialect.full_ref(event, given.to_owned());
        assert_eq!(full(Dialect::Gitea, "schedule", "main"), "refs/heads/main");
        for (dialect, event, given) in [
            (Dialect::Gitea, "schedule", "refs/heads/main"),
            (Dialect::Gitea, "schedule", "refs/tags/main"),
            (Dialect::Gitea, "workflow_dispatch", "main"),
            (Dialect::Github, "schedule", "main"),
        ] {
            assert_eq!(full(dialect, event, given), given);
        }
    }

    #[test]
    fn servers_have_issuers_of_their_own() {
        let issuer = |server| Dialect::Github.token_issuer(server).unwrap();
        assert_eq!(
            issuer("https://github.com/"),
            "https://token.actions.githubusercontent.com"
        );
        assert_eq!(
            issuer("https://git.example.com"),
            "https://git.example.com/_services/token"
        );
        let none = Dialect::Gitea
            .token_issuer("https://git.example.com")
            .unwrap_err();
        assert_eq!(none.to_string(), "Gitea has no identity tokens for jobs");
    }
}
