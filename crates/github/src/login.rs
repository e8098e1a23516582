//! The login of our token's owner. Anybody can copy a marker of Konverge into a text, so our own texts are
//! recognized by their author.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::Client;
use super::transport::GRAPHQL;
use konverge_forge::{ForgeError, Result};
use konverge_rest::{TokenPermission, User};

/// The author of texts that GITHUB_TOKEN writes.
pub(super) const ACTIONS: &str = "github-actions[bot]";

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
    /// Returns the login of the token's owner. Requested once and then cached.
    pub(super) async fn login(&self) -> Result<&str> {
        self.login
            .get_or_try_init(|| self.viewer())
            .await
            .map(String::as_str)
    }

    /// Requests the login with GraphQL. REST returns it only for a person (`GET /user`), GraphQL also for an App
    /// installation such as GITHUB_TOKEN. If the query is forbidden, the token is assumed to be GITHUB_TOKEN.
    async fn viewer(&self) -> Result<String> {
        let query = json!({"query": "query { viewer { login } }"});
        let asked: Result<ViewerAnswer, _> = self
            .rest
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
                let said = said.collect::<Vec<_>>().join("; ");
                Err(self.rest.malformed(format!("POST {GRAPHQL}"), said))
            }
            Ok(_)
            | Err(ForgeError::Forbidden { .. } | ForgeError::NotFound { .. } | ForgeError::Refused { .. }) => {
                Ok(ACTIONS.to_owned())
            }
            Err(error) => Err(error),
        }
    }
}
