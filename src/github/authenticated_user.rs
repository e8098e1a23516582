//! Who we are at GitHub: anybody can write a marker of ours into a text of theirs, so what is ours is told by its author.

use std::sync::Arc;

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{
    client::{Client, TokenPermission, User},
    error::GithubError,
};

/// GraphQL's path, which the client knows to lie beside a server's REST API.
pub(super) const GRAPHQL: &str = "/graphql";

/// Whoever GITHUB_TOKEN writes as.
const ACTIONS: &str = "github-actions[bot]";

/// The login under which the token writes, once it is known.
#[derive(Clone, Default)]
pub(super) struct AuthenticatedUser(Arc<OnceCell<String>>);

#[derive(Deserialize)]
struct ViewerAnswer {
    data: Option<Data>,
    #[serde(default)]
    errors: Vec<Value>,
}

#[derive(Deserialize)]
struct Data {
    viewer: Option<User>,
}

impl Client {
    /// Those of `texts` that we wrote, by the login that `author` finds in each. Who we are is asked once, and only
    /// where there is anything to tell apart.
    pub(super) async fn filter_own<T>(
        &self,
        mut texts: Vec<T>,
        author: impl Fn(&T) -> Option<&User>,
    ) -> Result<Vec<T>, GithubError> {
        if texts.is_empty() {
            return Ok(texts);
        }
        let us = self.identity.0.get_or_try_init(|| self.viewer()).await?;
        texts.retain(|text| author(text).is_some_and(|user| user.login.eq_ignore_ascii_case(us)));
        Ok(texts)
    }

    /// REST tells a person alone who they are (`GET /user`), GraphQL an App's installation too, and GITHUB_TOKEN is
    /// one. Where it may not be asked, the token is taken for GITHUB_TOKEN.
    async fn viewer(&self) -> Result<String, GithubError> {
        let query = json!({"query": "query { viewer { login } }"});
        let asked: Result<ViewerAnswer, _> = self
            .set(Method::POST, GRAPHQL, &query, TokenPermission("metadata: read"))
            .await;
        match asked {
            Ok(ViewerAnswer {
                data: Some(Data {
                    viewer: Some(viewer), ..
                }),
                ..
            }) => Ok(viewer.login),
            Ok(ViewerAnswer { errors, .. }) if !errors.iter().all(|error| error["type"] == "FORBIDDEN") => {
                let said = errors.iter().filter_map(|error| error["message"].as_str());
                Err(GithubError::Malformed {
                    operation: format!("POST {GRAPHQL}"),
                    cause: said.collect::<Vec<_>>().join("; "),
                })
            }
            Ok(_)
            | Err(
                GithubError::Forbidden { .. } | GithubError::NotFound { .. } | GithubError::Refused { .. },
            ) => Ok(ACTIONS.to_owned()),
            Err(error) => Err(error),
        }
    }
}
