//! Facts from environment variables: the address of the API, the token, the run. A person outside a job may set the
//! same variables.

use std::collections::BTreeMap;

use konverge_base::variables::{self, KONVERGE_GITHUB_APP_ID as APP_ID, KONVERGE_GITHUB_APP_KEY as APP_KEY};
use konverge_forge::{ForgeError, Result};

/// The API of github.com.
pub(super) const API_URL: &str = "https://api.github.com";

/// The web address of github.com.
pub(super) const SERVER_URL: &str = "https://github.com";

/// The user name for git with a token.
pub const GIT_USER: &str = "x-access-token";

/// The credentials for GitHub.
#[derive(Clone, Copy)]
pub enum Login<'a> {
    /// A token of the job, of a person, or of an App.
    Token(&'a str),
    /// An App, which requests its own tokens.
    App {
        /// The id of the App.
        id: u64,
        /// The private key of the App (PEM).
        key: &'a str,
    },
}

/// The environment variables about a GitHub repository.
#[derive(Debug, Clone, Copy)]
pub struct Environment<'a>(&'a BTreeMap<String, String>);

impl<'a> Environment<'a> {
    /// Wraps a set of variables.
    pub fn new(variables: &'a BTreeMap<String, String>) -> Self {
        Self(variables)
    }

    fn var(self, name: &str) -> Option<&'a str> {
        let value = self.0.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// Returns the token: from the action's input, or else from a variable.
    pub fn token(self) -> Option<&'a str> {
        ["INPUT_GITHUB-TOKEN", variables::GITHUB_TOKEN, variables::GH_TOKEN]
            .iter()
            .find_map(|name| self.var(name))
    }

    /// Returns the credentials: an App, or else a token.
    ///
    /// # Errors
    /// Only one of the two variables of an App is set, or the id is not a number.
    pub fn login(self) -> Result<Option<Login<'a>>> {
        let unusable = |message: String| ForgeError::Runner {
            message,
            hint: format!(
                "{APP_ID} is the App's number and {APP_KEY} its private key; without both, GITHUB_TOKEN logs in"
            ),
        };
        match (self.var(APP_ID), self.var(APP_KEY)) {
            (Some(id), Some(key)) => {
                let id = id.trim().parse();
                let id = id.map_err(|_| unusable(format!("{APP_ID} is not a number")))?;
                Ok(Some(Login::App { id, key }))
            }
            (None, None) => Ok(self.token().map(Login::Token)),
            // For a fork's pull request, GitHub sets each secret to an empty text. So the key exists but is empty,
            // and the job's token is used.
            (Some(_), None) if self.0.contains_key(APP_KEY) => Ok(self.token().map(Login::Token)),
            (Some(_), None) => Err(unusable(format!("{APP_ID} is set without {APP_KEY}"))),
            (None, Some(_)) => Err(unusable(format!("{APP_KEY} is set without {APP_ID}"))),
        }
    }

    /// Returns the token from the variable that the runner and `gh` also use.
    pub fn variable_token(self) -> Option<&'a str> {
        self.var(variables::GITHUB_TOKEN)
    }

    /// Returns the repository, as `owner/name`.
    pub fn repository(self) -> Option<&'a str> {
        self.var(variables::GITHUB_REPOSITORY)
    }

    /// Returns the address of the API, `https://HOST/api/v3` for a GitHub Enterprise Server.
    pub fn api_url(self) -> &'a str {
        self.var(variables::GITHUB_API_URL).unwrap_or(API_URL)
    }

    /// Returns the web address of the server, if the variable is set.
    pub fn server_url(self) -> Option<&'a str> {
        self.var(variables::GITHUB_SERVER_URL)
            .map(|url| url.trim_end_matches('/'))
    }

    /// Returns the id of the run.
    pub fn run_id(self) -> Option<u64> {
        self.var(variables::GITHUB_RUN_ID)?.parse().ok()
    }

    /// Returns the attempt of the run, from 1.
    pub fn run_attempt(self) -> Option<u32> {
        self.var(variables::GITHUB_RUN_ATTEMPT)?.parse().ok()
    }

    /// Returns the URL of this attempt of the run.
    pub fn attempt_url(self) -> Option<String> {
        let (server, repository) = (self.server_url()?, self.repository()?);
        let page = format!(
            "{server}/{repository}/actions/runs/{}",
            self.var(variables::GITHUB_RUN_ID)?
        );
        Some(match self.var(variables::GITHUB_RUN_ATTEMPT) {
            Some(attempt) => format!("{page}/attempts/{attempt}"),
            None => page,
        })
    }

    /// Returns the user who started or re-ran the run.
    pub fn actor(self) -> Option<&'a str> {
        self.var(variables::GITHUB_TRIGGERING_ACTOR)
            .or_else(|| self.var(variables::GITHUB_ACTOR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_is_that_of_github_com_or_nothing() {
        let nothing = BTreeMap::from([("GITHUB_TOKEN".to_owned(), String::new())]);
        let here = Environment::new(&nothing);
        assert_eq!(here.api_url(), "https://api.github.com");
        assert_eq!(
            (here.token(), here.attempt_url(), here.actor()),
            (None, None, None)
        );
    }

    #[test]
    fn the_input_of_the_action_comes_before_the_variables() {
        let set = [
            ("INPUT_GITHUB-TOKEN", "input"),
            ("GITHUB_TOKEN", "variable"),
            ("GH_TOKEN", "gh"),
        ];
        let set = set.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let here = BTreeMap::from(set);
        let here = Environment::new(&here);
        assert_eq!(
            (here.token(), here.variable_token()),
            (Some("input"), Some("variable"))
        );
    }

    #[test]
    fn an_app_comes_before_the_token_and_half_of_one_is_an_error() {
        let login = |set: &[(&str, &str)]| {
            let set = set
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let set = BTreeMap::from_iter(set);
            match Environment::new(&set).login() {
                Ok(Some(Login::App { id, key })) => format!("{id} {key}"),
                Ok(Some(Login::Token(token))) => token.to_owned(),
                Ok(None) => "nothing".to_owned(),
                Err(error) => error.to_string(),
            }
        };
        assert_eq!(login(&[]), "nothing");
        let token = ("GITHUB_TOKEN", "ghs");
        assert_eq!(login(&[token, (APP_ID, "12"), (APP_KEY, "pem")]), "12 pem");
        // In a fork's pull request, the secret exists but is empty.
        assert_eq!(login(&[token, (APP_ID, "12"), (APP_KEY, "")]), "ghs");
        for half in [(APP_ID, "12"), (APP_KEY, "pem")] {
            let said = login(&[token, half]);
            assert!(said.contains("is set without"), "{said}");
        }
        let said = login(&[token, (APP_ID, "x"), (APP_KEY, "pem")]);
        assert!(said.contains("is not a number"), "{said}");
    }

    #[test]
    fn the_page_of_a_run_is_that_of_its_attempt() {
        let all = [
            ("GITHUB_SERVER_URL", "https://ghes.example/"),
            ("GITHUB_REPOSITORY", "acme/konfig"),
            ("GITHUB_RUN_ID", "42"),
            ("GITHUB_RUN_ATTEMPT", "3"),
        ];
        let page = |without: &str| {
            let set = all.iter().filter(|(name, _)| *name != without);
            let set = set.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            Environment::new(&set.collect()).attempt_url()
        };
        let run = "https://ghes.example/acme/konfig/actions/runs/42";
        assert_eq!(page(""), Some(format!("{run}/attempts/3")));
        assert_eq!(page("GITHUB_RUN_ATTEMPT").as_deref(), Some(run));
        for needed in ["GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"] {
            assert_eq!(page(needed), None, "without {needed}");
        }
    }

    /// Whoever starts a run again answers for it, and not whoever started it first.
    #[test]
    fn the_actor_is_who_started_this_attempt() {
        let actor = |set: &[(&str, &str)]| {
            let set = set
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            Environment::new(&set.collect()).actor().map(str::to_owned)
        };
        let first = ("GITHUB_ACTOR", "ada");
        assert_eq!(
            actor(&[first, ("GITHUB_TRIGGERING_ACTOR", "bob")]).as_deref(),
            Some("bob")
        );
        assert_eq!(
            actor(&[first, ("GITHUB_TRIGGERING_ACTOR", "")]).as_deref(),
            Some("ada")
        );
    }

    #[test]
    fn a_run_that_is_no_number_is_no_run() {
        let set = [("GITHUB_RUN_ID", "42x"), ("GITHUB_RUN_ATTEMPT", "-1")];
        let set = set
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let here = Environment::new(&set);
        assert_eq!((here.run_id(), here.run_attempt()), (None, None));
    }
}
