//! Facts from environment variables: the address of the API, the token, the URL of the run. Gitea's runner sets
//! GitHub's variables; this file handles the differences.

use std::collections::BTreeMap;

use konverge_actions::gitea_page_number;
use konverge_base::variables;

/// The user name for git with a token. Gitea accepts any.
pub const GIT_USER: &str = "x-access-token";

/// The environment variables about a Gitea repository.
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

    /// Returns the token of a person or a bot, or else the token of the job. In a fork's workflow the first is an
    /// empty text.
    pub fn token(self) -> Option<&'a str> {
        [
            variables::GITEA_TOKEN,
            "INPUT_GITHUB-TOKEN",
            variables::GITHUB_TOKEN,
        ]
        .iter()
        .find_map(|name| self.var(name))
    }

    /// Returns the token from a variable, ignoring the action's input.
    pub fn variable_token(self) -> Option<&'a str> {
        self.var(variables::GITEA_TOKEN)
            .or_else(|| self.var(variables::GITHUB_TOKEN))
    }

    /// Returns the web address of the server, without a trailing `/`.
    pub fn server_url(self) -> Option<&'a str> {
        self.var(variables::GITHUB_SERVER_URL)
            .map(|url| url.trim_end_matches('/'))
    }

    /// Returns the address of the API.
    pub fn api_url(self) -> Option<String> {
        let named = self.var(variables::GITHUB_API_URL).map(str::to_owned);
        named.or_else(|| Some(format!("{}/api/v1", self.server_url()?)))
    }

    /// Returns the URL of the run. An attempt has no URL of its own.
    pub fn run_url(self) -> Option<String> {
        let (server, repository) = (self.server_url()?, self.var(variables::GITHUB_REPOSITORY)?);
        let run = gitea_page_number(|name| self.var(name))?;
        Some(format!("{server}/{repository}/actions/runs/{run}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_a_bot_comes_before_that_of_the_job() {
        let set = |variables: &[(&str, &str)]| -> BTreeMap<String, String> {
            let variables = variables.iter();
            variables
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        let both = set(&[("GITEA_TOKEN", "bot"), ("GITHUB_TOKEN", "job")]);
        assert_eq!(Environment::new(&both).token(), Some("bot"));
        // In a fork's pull request, the secret exists but is empty.
        let fork = set(&[("GITEA_TOKEN", ""), ("GITHUB_TOKEN", "job")]);
        assert_eq!(Environment::new(&fork).token(), Some("job"));
    }

    #[test]
    fn the_url_of_a_run_at_forgejo_has_its_number_in_the_repository() {
        let names = [
            "GITHUB_SERVER_URL",
            "GITHUB_REPOSITORY",
            "GITHUB_RUN_ID",
            "GITHUB_RUN_NUMBER",
        ];
        let values = ["https://acme.example", "acme/konfig", "7", "3"];
        let names = names.map(str::to_owned).into_iter();
        let mut job: BTreeMap<_, _> = names.zip(values.map(str::to_owned)).collect();
        let page = |number| Some(format!("https://acme.example/acme/konfig/actions/runs/{number}"));
        assert_eq!(Environment::new(&job).run_url(), page(7));
        job.insert("FORGEJO_ACTIONS".to_owned(), "true".to_owned());
        assert_eq!(Environment::new(&job).run_url(), page(3));
    }

    #[test]
    fn an_instance_below_a_path_has_its_api_there() {
        let server = [(
            "GITHUB_SERVER_URL".to_owned(),
            "https://acme.example/git/".to_owned(),
        )];
        let here = BTreeMap::from(server);
        let api = Environment::new(&here).api_url();
        assert_eq!(api.as_deref(), Some("https://acme.example/git/api/v1"));
        assert_eq!(Environment::new(&BTreeMap::new()).api_url(), None);
    }
}
