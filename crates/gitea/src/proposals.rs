//! Branches and pull requests that Konverge writes. Our commits are recognized by message and committer.

use std::time::Duration;

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Method;
use konverge_base::{
    model::{CommitId, InvalidId, RepoPath},
    retry::{RetryDecision, RetryPolicy},
};
use konverge_forge::{
    Changes as _, CommittedFiles, FilesCommit, ForgeError, ForgeKind, Proposals, ProposedPullRequest, Result,
    if_found,
};
use konverge_rest::{BranchFile, BranchFiles, ListedPullRequest, TokenPermission, User, encoded};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{client::Client, pages::Page, publishing::ACTIONS, title::without_references};

const READ: TokenPermission = TokenPermission("read:repository");
const WRITE: TokenPermission = TokenPermission("write:repository");

/// The number of pages to search for the pull requests of a branch, the last updated first: Gitea has no filter for
/// the head.
const PAGES: usize = 10;

/// The retries of a merge request while Gitea still checks for conflicts.
const CONFLICT_LOOKS: RetryPolicy = RetryPolicy {
    attempts: 60,
    first: Duration::from_secs(1),
    longest: Duration::from_secs(1),
    total: Duration::from_secs(30),
};

/// Gitea's message during the check for conflicts.
const LATER: &str = "Please try again later";

/// The mail address of commits by a job's token. They name no account.
const ACTIONS_ADDRESS: &str = "teabot@gitea.io";

#[derive(Deserialize)]
struct CommitBody {
    commit: CommitText,
    committer: Option<User>,
    #[serde(default)]
    parents: Vec<Parent>,
    /// The changed files; `null` if there are none.
    files: Option<Vec<ChangedFile>>,
}

#[derive(Deserialize)]
struct Parent {
    sha: String,
}

#[derive(Deserialize)]
struct ChangedFile {
    filename: String,
}

#[derive(Deserialize)]
struct CommitText {
    message: String,
    committer: Person,
}

#[derive(Deserialize)]
struct Person {
    email: String,
}

#[async_trait]
impl Proposals for Client {
    async fn commit_files(&self, commit: FilesCommit<'_>) -> Result<CommittedFiles> {
        let tip = match self.branch_tip(commit.branch).await? {
            Some(tip) => tip,
            None => {
                if self.make_branch(commit.branch, commit.base).await?.is_none() {
                    return Ok(CommittedFiles::Conflict);
                }
                commit.base.clone()
            }
        };
        self.commit_to(commit, Some(tip)).await
    }

    async fn proposals_of(&self, branch: &str) -> Result<Vec<ProposedPullRequest>> {
        let path = self.path("/pulls?state=all&sort=recentupdate");
        let is_of_branch =
            |raw: &ListedPullRequest| raw.is_home() && raw.head.label.as_deref() == Some(branch);
        let (mut found, mut before) = (Vec::new(), 0);
        for page in 1..=PAGES {
            let Page { items, is_last } = self.page::<ListedPullRequest>(&path, READ, page, before).await?;
            before += items.len();
            found.extend(
                items
                    .into_iter()
                    .filter(is_of_branch)
                    .map(ProposedPullRequest::from),
            );
            if is_last {
                break;
            }
        }
        found.sort_by_key(|pull| std::cmp::Reverse(pull.number));
        // A pull request that is updated between two requests may be on both pages.
        found.dedup_by_key(|pull| pull.number);
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
        let title = without_references(title);
        let pull = json!({"title": title, "head": branch, "base": base, "body": body});
        let convert = <ProposedPullRequest as From<ListedPullRequest>>::from;
        let opened = self
            .rest
            .create(&self.path("/pulls"), &pull, WRITE, convert, open)
            .await;
        match opened {
            Err(error @ ForgeError::Refused { status: 409, .. }) => open().await?.ok_or(error),
            done => done,
        }
    }

    async fn edit_proposal(&self, number: u64, title: &str, body: &str) -> Result<()> {
        let path = self.path(&format!("/pulls/{number}"));
        let text = json!({"title": without_references(title), "body": body});
        self.rest.set::<Value>(Method::PATCH, &path, &text, WRITE).await?;
        Ok(())
    }

    async fn ask_for_merge(&self, pull: &ProposedPullRequest) -> Result<()> {
        #[derive(Deserialize)]
        struct Settings {
            default_branch: String,
            #[serde(default)]
            default_merge_style: String,
        }
        #[derive(Deserialize)]
        struct Rules {
            #[serde(default)]
            required_approvals: u64,
            #[serde(default)]
            enable_status_check: bool,
        }
        let settings: Settings = self.rest.get(&self.path(""), READ).await?;
        let branch = self.path(&format!("/branches/{}", encoded(&settings.default_branch)));
        let rules: Rules = self.rest.get(&branch, READ).await?;
        let path = self.path(&format!("/pulls/{}/merge", pull.number));
        // Without any rule Gitea would merge at once, which nobody has asked for.
        if rules.required_approvals == 0 && !rules.enable_status_check {
            return Err(ForgeError::Refused {
                forge: ForgeKind::Gitea,
                operation: format!("POST {path}"),
                status: 200,
                message: format!(
                    "no rule of `{}` asks for approvals or statuses, so nothing stands in the way of a merge",
                    settings.default_branch.escape_debug()
                ),
            });
        }
        let style = match settings.default_merge_style.as_str() {
            "" => "merge",
            style => style,
        };
        let body = json!({"do": style, "merge_when_checks_succeed": true});
        self.ask_until_conflicts_are_known(&path, &body).await
    }

    async fn starts_workflows(&self) -> Result<bool> {
        // Gitea starts no workflow for anything that the token of a job writes.
        Ok(!self.login().await?.eq_ignore_ascii_case(ACTIONS))
    }
}

impl Client {
    /// Requests a merge, and repeats the request while Gitea still checks for conflicts.
    async fn ask_until_conflicts_are_known(&self, path: &str, body: &Value) -> Result<()> {
        let looks_for_conflicts = |error: &ForgeError| match error {
            ForgeError::Refused {
                status: 405, message, ..
            } if message == LATER => RetryDecision::Retry,
            _ => RetryDecision::GiveUp,
        };
        CONFLICT_LOOKS
            .run(looks_for_conflicts, || self.ask_once(path, body))
            .await
    }

    async fn ask_once(&self, path: &str, body: &Value) -> Result<()> {
        match self.rest.repeatable(Method::POST, path, Some(body), WRITE).await {
            // 409 means that the merge is already scheduled.
            Ok(_) | Err(ForgeError::Refused { status: 409, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates a branch at a commit; `None` if somebody else created it at another commit in the meantime.
    async fn make_branch(&self, name: &str, at: &CommitId) -> Result<Option<()>> {
        let branch = json!({"new_branch_name": name, "old_ref_name": at});
        let path = self.path("/branches");
        match self.rest.set::<Value>(Method::POST, &path, &branch, WRITE).await {
            Ok(_) => Ok(Some(())),
            Err(error @ ForgeError::Refused { status: 409, .. }) => match self.branch_tip(name).await? {
                Some(tip) => Ok((tip == *at).then_some(())),
                // No such branch, but a conflict of names: git cannot have both `a` and `a/b`.
                None => Err(error),
            },
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl BranchFiles for Client {
    const CHANGED: u16 = 422;

    async fn parent_of_own(&self, commit: &FilesCommit<'_>, at: &CommitId) -> Result<Option<CommitId>> {
        let path = self.path(&format!(
            "/git/commits/{at}?stat=false&files=true&verification=false"
        ));
        let found: CommitBody = self.rest.get(&path, READ).await?;
        let is_of_files = |changed: &ChangedFile| {
            commit
                .files
                .iter()
                .any(|(path, _)| path.as_str() == changed.filename)
        };
        let us = self.login().await?;
        // Commits by a job's token name no account, so the mail address identifies them.
        let is_by_us = match found.committer {
            Some(committer) => committer.login.eq_ignore_ascii_case(us),
            None => us == ACTIONS && found.commit.committer.email == ACTIONS_ADDRESS,
        };
        let is_own = is_by_us
            && commit.has_message(&found.commit.message)
            && found.files.iter().flatten().all(is_of_files);
        match found.parents.as_slice() {
            [parent] if is_own => self.rest.commit_id(&path, &parent.sha).map(Some),
            _ => Ok(None),
        }
    }

    async fn file(&self, commit: &CommitId, path: &RepoPath) -> Result<Option<BranchFile>> {
        #[derive(Deserialize)]
        struct Contents {
            sha: String,
            content: Option<String>,
        }
        let parts: Vec<_> = path.as_str().split('/').map(encoded).collect();
        let path = self.path(&format!("/contents/{}?ref={commit}", parts.join("/")));
        let Some(found) = if_found(self.rest.get::<Contents>(&path, READ).await)? else {
            return Ok(None);
        };
        let content = STANDARD.decode(found.content.unwrap_or_default());
        Ok(Some(BranchFile {
            content: content.map_err(|error| self.rest.malformed(format!("GET {path}"), error))?,
            version: found.sha,
        }))
    }

    async fn write_files(
        &self,
        commit: &FilesCommit<'_>,
        _: bool,
        there: &[Option<BranchFile>],
    ) -> Result<CommitId> {
        #[derive(Deserialize)]
        struct Written {
            commit: Made,
        }
        #[derive(Deserialize)]
        struct Made {
            sha: String,
        }
        let file = |((path, content), there): (&(RepoPath, String), &Option<BranchFile>)| {
            let content = STANDARD.encode(content);
            match there {
                Some(there) => {
                    json!({"operation": "update", "path": path, "content": content, "sha": there.version})
                }
                None => json!({"operation": "create", "path": path, "content": content}),
            }
        };
        let files: Vec<_> = commit.files.iter().zip(there).map(file).collect();
        let body = json!({"branch": commit.branch, "message": commit.plain_message(), "files": files});
        let path = self.path("/contents");
        let written: Written = self.rest.post_once(&path, &body, WRITE).await?;
        let sha = written.commit.sha;
        sha.parse()
            .map_err(|error: InvalidId| self.rest.malformed(format!("POST {path}"), error))
    }
}
