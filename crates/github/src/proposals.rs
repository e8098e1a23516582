//! Branches and pull requests that Konverge writes: a commit of a few files, on a branch that is never
//! force-pushed, with one pull request.

use async_trait::async_trait;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    client::{Client, PAGE},
    login::ACTIONS,
    transport::GRAPHQL,
};
use konverge_base::model::{CommitId, InvalidId, RepoPath};
use konverge_forge::{
    Changes as _, CommittedFiles, FilesCommit, ForgeError, ForgeKind, Proposals, ProposedPullRequest, Result,
};
use konverge_rest::{ListedPullRequest, TokenPermission, encoded};

const READ: TokenPermission = TokenPermission("contents: read");
const WRITE: TokenPermission = TokenPermission("contents: write");
const PULLS: TokenPermission = TokenPermission("pull-requests: write");

/// The result of updating a branch.
enum BranchMove {
    /// The commit is the tip of the branch.
    Moved,
    /// Somebody else created or updated the branch in the meantime.
    Conflict,
}

#[derive(Deserialize)]
struct GitObject {
    sha: String,
}

/// The fields of a commit that proposals need.
#[derive(Deserialize)]
struct GitCommit {
    message: String,
    tree: GitObject,
}

#[async_trait]
impl Proposals for Client {
    async fn commit_files(&self, commit: FilesCommit<'_>) -> Result<CommittedFiles> {
        // Trees and commits are on no branch until the last request, so a run that is killed before that leaves
        // nothing visible.
        let base = self.git_commit(commit.base).await?;
        let tree = self.make_tree(&base.tree.sha, commit.files).await?;
        let tip = self.branch_tip(commit.branch).await?;
        let mut parents = vec![commit.base];
        if let Some(tip) = &tip {
            let found = self.git_commit(tip).await?;
            if !commit.is_own(&found.message, &found.tree.sha) {
                return Ok(CommittedFiles::Conflict);
            }
            if found.tree.sha == tree {
                return Ok(CommittedFiles::Present(tip.clone()));
            }
            // If the branch does not contain the base commit, the base is merged. So the branch never needs a
            // force-push.
            parents = match self.commits_after(commit.base, tip).await? {
                Some(_) => vec![tip],
                None => vec![tip, commit.base],
            };
        }
        let made = self.make_commit(&commit.message(&tree), &tree, &parents).await?;
        Ok(
            match self.move_branch(commit.branch, tip.as_ref(), &made).await? {
                BranchMove::Moved => CommittedFiles::Committed(made),
                BranchMove::Conflict => CommittedFiles::Conflict,
            },
        )
    }

    async fn proposals_of(&self, branch: &str) -> Result<Vec<ProposedPullRequest>> {
        let head = encoded(&format!("{}:{branch}", self.owner()));
        let path = self.path(&format!("/pulls?state=all&head={head}&per_page={PAGE}"));
        let raw: Vec<ListedPullRequest> = self
            .rest
            .list(&path, TokenPermission("pull-requests: read"))
            .await?;
        let mut found: Vec<ProposedPullRequest> = raw.into_iter().map(ProposedPullRequest::from).collect();
        found.sort_by_key(|pull| std::cmp::Reverse(pull.number));
        Ok(found)
    }

    async fn open_proposal(
        &self,
        branch: &str,
        base: &str,
        title: &str,
        body: &str,
    ) -> Result<ProposedPullRequest> {
        let open = || self.open_proposal_of(branch);
        let pull = json!({"title": title, "head": branch, "base": base, "body": body});
        let convert = <ProposedPullRequest as From<ListedPullRequest>>::from;
        let path = self.path("/pulls");
        // 422 also means that the pull request already exists: another run has opened it.
        match self.rest.create(&path, &pull, PULLS, convert, open).await {
            Err(error @ ForgeError::Refused { status: 422, .. }) => open().await?.ok_or(error),
            done => done,
        }
    }

    async fn edit_proposal(&self, number: u64, title: &str, body: &str) -> Result<()> {
        let path = self.path(&format!("/pulls/{number}"));
        let text = json!({"title": title, "body": body});
        self.rest.set::<Value>(Method::PATCH, &path, &text, PULLS).await?;
        Ok(())
    }

    async fn ask_for_merge(&self, pull: &ProposedPullRequest) -> Result<()> {
        let query = "mutation($id: ID!) { enablePullRequestAutoMerge(input: {pullRequestId: $id}) { clientMutationId } }";
        let query = json!({"query": query, "variables": {"id": pull.node}});
        let answer: Value = self.rest.set(Method::POST, GRAPHQL, &query, PULLS).await?;
        match answer["errors"][0]["message"].as_str() {
            None => Ok(()),
            Some(message) => Err(ForgeError::Refused {
                forge: ForgeKind::Github,
                operation: "enablePullRequestAutoMerge".to_owned(),
                status: 200,
                message: message.chars().take(300).collect(),
            }),
        }
    }

    async fn starts_workflows(&self) -> Result<bool> {
        // GitHub starts no workflow for anything that GITHUB_TOKEN writes.
        Ok(!self.login().await?.eq_ignore_ascii_case(ACTIONS))
    }
}

impl Client {
    /// Reads a commit. [`ForgeError::NotFound`] means that GitHub does not have it, or that the token cannot see
    /// the repository.
    async fn git_commit(&self, commit: &CommitId) -> Result<GitCommit> {
        self.rest
            .get(&self.path(&format!("/git/commits/{commit}")), READ)
            .await
    }

    /// Creates a tree from `base` with new contents of some files, and returns its id. The same files give the same
    /// id, so the request may be repeated.
    async fn make_tree(&self, base: &str, files: &[(RepoPath, String)]) -> Result<String> {
        let entry = |(path, content): &(RepoPath, String)| json!({"path": path, "mode": "100644", "type": "blob", "content": content});
        let entries: Vec<_> = files.iter().map(entry).collect();
        let tree = json!({"base_tree": base, "tree": entries});
        let path = self.path("/git/trees");
        let made: GitObject = self.rest.set(Method::POST, &path, &tree, WRITE).await?;
        Ok(made.sha)
    }

    /// Creates a commit that is on no branch yet. If the response is lost, a second commit does no harm, because it
    /// is on no branch either.
    async fn make_commit(&self, message: &str, tree: &str, parents: &[&CommitId]) -> Result<CommitId> {
        let path = self.path("/git/commits");
        let commit = json!({"message": message, "tree": tree, "parents": parents});
        let made: GitObject = self.rest.set(Method::POST, &path, &commit, WRITE).await?;
        made.sha
            .parse()
            .map_err(|error: InvalidId| self.rest.malformed(format!("POST {path}"), error))
    }

    /// Creates a branch, or moves it forward from `from`. Never forces, so commits that others pushed in the
    /// meantime stay.
    async fn move_branch(&self, name: &str, from: Option<&CommitId>, to: &CommitId) -> Result<BranchMove> {
        let moved: Result<Value, _> = match from {
            None => {
                let branch = json!({"ref": format!("refs/heads/{name}"), "sha": to});
                let path = self.path("/git/refs");
                self.rest.set(Method::POST, &path, &branch, WRITE).await
            }
            Some(_) => {
                let path = self.path(&format!("/git/refs/{}", encoded(&format!("heads/{name}"))));
                let branch = json!({"sha": to, "force": false});
                self.rest.set(Method::PATCH, &path, &branch, WRITE).await
            }
        };
        match moved {
            Ok(_) => Ok(BranchMove::Moved),
            // 422 has four possible reasons: the branch already exists; the move is no fast-forward; an earlier
            // attempt succeeded and its response was lost; or a rule of the repository forbids it. The tip and the
            // message distinguish them.
            Err(ForgeError::Refused {
                status: 422,
                operation,
                message,
                ..
            }) => match self.branch_tip(name).await? {
                Some(tip) if tip == *to => Ok(BranchMove::Moved),
                tip if tip.as_ref() != from || says_moved(&message) => Ok(BranchMove::Conflict),
                _ => Err(ForgeError::Refused {
                    forge: ForgeKind::Github,
                    operation,
                    status: 422,
                    message,
                }),
            },
            Err(error) => Err(error),
        }
    }
}

/// Returns true if GitHub's message says that somebody else created or updated the branch.
fn says_moved(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    message.contains("fast forward") || message.contains("already exists")
}

#[cfg(test)]
mod tests {
    use super::says_moved;

    /// The texts are GitHub's. What is no conflict is refused: the next run would not get further either.
    #[test]
    fn a_branch_that_moved_is_told_from_one_that_is_forbidden() {
        for (message, moved) in [
            ("Update is not a fast forward", true),
            ("Reference already exists", true),
            ("Reference update failed", false),
            (
                "Repository rule violations found\n\nCommits must have verified signatures.",
                false,
            ),
            ("", false),
        ] {
            assert_eq!(says_moved(message), moved, "{message}");
        }
    }
}
