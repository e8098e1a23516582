//! Branches and pull requests that Konverge writes: a commit of a few files, a branch that only moves forward, one pull
//! request for it.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    client::{Client, GRAPHQL, PAGE, TokenPermission},
    error::GithubError,
    pull_requests::encoded,
};
use konverge_base::model::{CommitId, RepoPath};

const WRITE: TokenPermission = TokenPermission("contents: write");
const PULLS: TokenPermission = TokenPermission("pull-requests: write");

/// A commit, as far as a proposal asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedCommit {
    /// Its message.
    pub message: String,
    /// The id of its tree.
    pub tree: String,
}

/// A pull request of a branch of this repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedPullRequest {
    /// Its number.
    pub number: u64,
    /// Its page.
    pub url: String,
    /// True if it is neither merged nor closed.
    pub open: bool,
    /// True if it was merged.
    pub merged: bool,
    /// The last head.
    pub head: String,
    /// Its title.
    pub title: String,
    /// Its text.
    pub body: String,
    /// Its id in GraphQL.
    pub node: String,
}

/// The result of moving a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchMove {
    /// It stands at the commit.
    Moved,
    /// Somebody else created or moved it meanwhile.
    Conflict,
}

#[derive(Deserialize)]
struct GitObject {
    sha: String,
}

#[derive(Deserialize)]
struct ProposalBody {
    number: u64,
    #[serde(default)]
    html_url: String,
    state: String,
    merged_at: Option<String>,
    head: GitObject,
    #[serde(default)]
    title: String,
    body: Option<String>,
    #[serde(default)]
    node_id: String,
}

impl From<ProposalBody> for ProposedPullRequest {
    fn from(raw: ProposalBody) -> Self {
        Self {
            number: raw.number,
            url: raw.html_url,
            open: raw.state == "open",
            merged: raw.merged_at.is_some(),
            head: raw.head.sha,
            title: raw.title,
            body: raw.body.unwrap_or_default(),
            node: raw.node_id,
        }
    }
}

impl Client {
    /// The newest commit of a branch; `None` if there is no branch.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn branch_tip(&self, name: &str) -> Result<Option<CommitId>, GithubError> {
        match self.branch(name).await {
            Ok(branch) => Ok(Some(branch.tip)),
            Err(GithubError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A commit. [`GithubError::NotFound`] also means that GitHub does not have it.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn proposed_commit(&self, commit: &CommitId) -> Result<ProposedCommit, GithubError> {
        #[derive(Deserialize)]
        struct Commit {
            message: String,
            tree: GitObject,
        }
        let path = self.path(&format!("/git/commits/{commit}"));
        let found: Commit = self.get(&path, TokenPermission("contents: read")).await?;
        Ok(ProposedCommit {
            message: found.message,
            tree: found.tree.sha,
        })
    }

    /// The id of the tree `base` with other contents of some plain files. The same files give the same id.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn make_tree(&self, base: &str, files: &[(RepoPath, String)]) -> Result<String, GithubError> {
        let entry = |(path, content): &(RepoPath, String)| json!({"path": path, "mode": "100644", "type": "blob", "content": content});
        let entries: Vec<_> = files.iter().map(entry).collect();
        let tree = json!({"base_tree": base, "tree": entries});
        let path = self.path("/git/trees");
        let made: GitObject = self.set(Method::POST, &path, &tree, WRITE).await?;
        Ok(made.sha)
    }

    /// A commit of a tree, on no branch yet. A second one after a lost answer is on no branch either.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn make_commit(
        &self,
        message: &str,
        tree: &str,
        parents: &[&CommitId],
    ) -> Result<CommitId, GithubError> {
        let path = self.path("/git/commits");
        let commit = json!({"message": message, "tree": tree, "parents": parents});
        let made: GitObject = self.set(Method::POST, &path, &commit, WRITE).await?;
        made.sha
            .parse()
            .map_err(|error: konverge_base::model::InvalidId| GithubError::Malformed {
                operation: format!("POST {path}"),
                cause: error.to_string(),
            })
    }

    /// Creates a branch, or moves it forward from `from`. It is never forced: commits that came meanwhile stay.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn move_branch(
        &self,
        name: &str,
        from: Option<&CommitId>,
        to: &CommitId,
    ) -> Result<BranchMove, GithubError> {
        let moved: Result<Value, _> = match from {
            None => {
                let branch = json!({"ref": format!("refs/heads/{name}"), "sha": to});
                let path = self.path("/git/refs");
                self.set(Method::POST, &path, &branch, WRITE).await
            }
            Some(_) => {
                let path = self.path(&format!("/git/refs/{}", encoded(&format!("heads/{name}"))));
                let branch = json!({"sha": to, "force": false});
                self.set(Method::PATCH, &path, &branch, WRITE).await
            }
        };
        match moved {
            Ok(_) => Ok(BranchMove::Moved),
            // It exists, or is not an ancestor; or the request was carried out and its answer was lost; or a rule of the
            // repository forbids it.
            Err(GithubError::Refused {
                status: 422,
                operation,
                message,
            }) => match self.branch_tip(name).await? {
                Some(tip) if tip == *to => Ok(BranchMove::Moved),
                tip if tip.as_ref() != from || says_moved(&message) => Ok(BranchMove::Conflict),
                _ => Err(GithubError::Refused {
                    operation,
                    status: 422,
                    message,
                }),
            },
            Err(error) => Err(error),
        }
    }

    /// The pull requests of a branch of this repository, the newest first.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn proposals_of(&self, branch: &str) -> Result<Vec<ProposedPullRequest>, GithubError> {
        let head = encoded(&format!("{}:{branch}", self.owner()));
        let path = self.path(&format!("/pulls?state=all&head={head}&per_page={PAGE}"));
        let raw: Vec<ProposalBody> = self.list(&path, TokenPermission("pull-requests: read")).await?;
        let mut found: Vec<ProposedPullRequest> = raw.into_iter().map(ProposedPullRequest::from).collect();
        found.sort_by_key(|pull| std::cmp::Reverse(pull.number));
        Ok(found)
    }

    /// Opens a pull request. If another run has opened one for the branch, returns that one.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn open_proposal(
        &self,
        branch: &str,
        base: &str,
        title: &str,
        body: &str,
    ) -> Result<ProposedPullRequest, GithubError> {
        let open = async || {
            let all = self.proposals_of(branch).await?;
            Ok(all.into_iter().find(|pull| pull.open))
        };
        let pull = json!({"title": title, "head": branch, "base": base, "body": body});
        let path = self.path("/pulls");
        let find = || async {
            let Some(open) = open().await? else {
                return Ok(None);
            };
            Ok(Some(json!({
                "number": open.number, "html_url": open.url, "state": "open", "head": {"sha": open.head},
                "title": open.title, "body": open.body, "node_id": open.node,
            })))
        };
        match self.create::<Value, _, _>(&path, &pull, PULLS, find).await {
            Ok(raw) => read_proposal(raw),
            Err(error @ GithubError::Refused { status: 422, .. }) => open().await?.ok_or(error),
            Err(error) => Err(error),
        }
    }

    /// Gives a pull request another title and text.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn edit_proposal(&self, number: u64, title: &str, body: &str) -> Result<(), GithubError> {
        let path = self.path(&format!("/pulls/{number}"));
        let text = json!({"title": title, "body": body});
        self.set::<Value>(Method::PATCH, &path, &text, PULLS).await?;
        Ok(())
    }

    /// Asks GitHub to merge a pull request as soon as its rules allow it.
    ///
    /// # Errors
    /// Errors of GitHub; the repository does not allow it, or nothing stands in the way of a merge.
    pub async fn ask_for_merge(&self, pull: &ProposedPullRequest) -> Result<(), GithubError> {
        let query = "mutation($id: ID!) { enablePullRequestAutoMerge(input: {pullRequestId: $id}) { clientMutationId } }";
        let query = json!({"query": query, "variables": {"id": pull.node}});
        let answer: Value = self.set(Method::POST, GRAPHQL, &query, PULLS).await?;
        match answer["errors"][0]["message"].as_str() {
            None => Ok(()),
            Some(message) => Err(GithubError::Refused {
                operation: "enablePullRequestAutoMerge".to_owned(),
                status: 200,
                message: message.chars().take(300).collect(),
            }),
        }
    }
}

/// GitHub's words for a branch that somebody else created or moved.
fn says_moved(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    message.contains("fast forward") || message.contains("already exists")
}

fn read_proposal(raw: Value) -> Result<ProposedPullRequest, GithubError> {
    let read = serde_json::from_value::<ProposalBody>(raw);
    read.map(ProposedPullRequest::from)
        .map_err(|error| GithubError::Malformed {
            operation: "POST /pulls".to_owned(),
            cause: error.to_string(),
        })
}
