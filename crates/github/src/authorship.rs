//! Which texts are ours: anybody can write a marker of ours into a text, so its author decides.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    client::{Client, GRAPHQL, TokenPermission, User},
    error::GithubError,
    pull_requests::ReviewApproval,
};

/// The author of what GITHUB_TOKEN writes.
const ACTIONS: &str = "github-actions[bot]";

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

/// The query for the last editor of a review.
const EDITOR: &str = "query($id: ID!) { node(id: $id) { ... on PullRequestReview { editor { login } } } }";

#[derive(Deserialize)]
struct EditorAnswer {
    data: Option<EditedNode>,
    #[serde(default)]
    errors: Vec<Value>,
}

#[derive(Deserialize)]
struct EditedNode {
    node: Option<Edited>,
}

#[derive(Deserialize)]
struct Edited {
    editor: Option<User>,
}

impl Client {
    /// The login of the last editor of a review; `None` if it was not edited. A person who may push may edit the texts of
    /// others.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn review_editor(&self, review: &ReviewApproval) -> Result<Option<String>, GithubError> {
        let query = json!({"query": EDITOR, "variables": {"id": review.node}});
        let need = TokenPermission("pull-requests: read");
        let answer: EditorAnswer = self.set(Method::POST, GRAPHQL, &query, need).await?;
        match answer.data.and_then(|data| data.node) {
            Some(edited) if answer.errors.is_empty() => Ok(edited.editor.map(|user| user.login)),
            _ => {
                let said = answer.errors.iter().filter_map(|error| error["message"].as_str());
                Err(GithubError::Malformed {
                    operation: format!("POST {GRAPHQL}"),
                    cause: format!(
                        "it does not say who edited the review of {}: {}",
                        review.reviewer,
                        said.collect::<Vec<_>>().join("; ")
                    ),
                })
            }
        }
    }

    /// The `texts` that we wrote, by the login that `author` finds in each. Our login is requested once, and
    /// only if there is something to filter.
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

    /// The same with those that a job's GITHUB_TOKEN wrote.
    pub(super) async fn filter_jobs<T>(
        &self,
        mut texts: Vec<T>,
        author: impl Fn(&T) -> &User,
    ) -> Result<Vec<T>, GithubError> {
        if texts
            .iter()
            .all(|text| author(text).login.eq_ignore_ascii_case(ACTIONS))
        {
            return Ok(texts);
        }
        let us = self.identity.0.get_or_try_init(|| self.viewer()).await?;
        texts.retain(|text| {
            let author = &author(text).login;
            author.eq_ignore_ascii_case(us) || author.eq_ignore_ascii_case(ACTIONS)
        });
        Ok(texts)
    }

    /// Returns false for the job's GITHUB_TOKEN: a pull request that it opens starts no workflow.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn starts_workflows(&self) -> Result<bool, GithubError> {
        let us = self.identity.0.get_or_try_init(|| self.viewer()).await?;
        Ok(!us.eq_ignore_ascii_case(ACTIONS))
    }

    /// REST returns the login only for a person (`GET /user`); GraphQL also for an App installation, which
    /// GITHUB_TOKEN is. If the query is not allowed, the token is assumed to be GITHUB_TOKEN.
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
