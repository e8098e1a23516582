//! The differences between the runners of GitHub and Gitea.

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

#[cfg(test)]
mod tests {
    use super::*;

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
