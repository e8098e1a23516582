//! Branches and merge requests that Konverge writes. GitLab writes and commits files in one request. It reports
//! neither the tree of a commit nor the account that made it, so our commits are recognized by message, mail
//! address and changed files.

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Method;
use konverge_base::model::{CommitId, InvalidId, RepoPath};
use konverge_forge::{
    Changes as _, CommittedFiles, FilesCommit, ForgeError, ForgeKind, Proposals, ProposedPullRequest, Result,
    if_found,
};
use konverge_rest::{BranchFile, BranchFiles, TokenPermission, encoded};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    changes::{CommitBody, MergeRequestBody, READ},
    client::Client,
    quick_actions::disarmed,
};

const WRITE: TokenPermission = TokenPermission("the scope `api` and the role Developer");

impl From<MergeRequestBody> for ProposedPullRequest {
    fn from(raw: MergeRequestBody) -> Self {
        Self {
            node: raw.iid.to_string(),
            number: raw.iid,
            url: raw.web_url,
            open: matches!(raw.state.as_str(), "opened" | "locked"),
            merged: raw.state == "merged",
            head: raw.sha.unwrap_or_default(),
            title: raw.title,
            body: raw.description.unwrap_or_default(),
        }
    }
}

#[derive(Deserialize)]
struct ChangedFile {
    old_path: String,
    new_path: String,
}

#[async_trait]
impl Proposals for Client {
    async fn commit_files(&self, commit: FilesCommit<'_>) -> Result<CommittedFiles> {
        let tip = self.branch_tip(commit.branch).await?;
        self.commit_to(commit, tip).await
    }

    async fn proposals_of(&self, branch: &str) -> Result<Vec<ProposedPullRequest>> {
        let path = self.path(&format!(
            "/merge_requests?scope=all&state=all&order_by=created_at&sort=asc&source_branch={}",
            encoded(branch)
        ));
        let all: Vec<MergeRequestBody> = self.list(&path, READ).await?;
        let is_home = |raw: &MergeRequestBody| raw.source_project_id == Some(raw.target_project_id);
        let found = all.into_iter().filter(is_home).map(ProposedPullRequest::from);
        let mut found: Vec<_> = found.collect();
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
        let pull = json!({
            "title": title, "source_branch": branch, "target_branch": base, "description": disarmed(body),
        });
        let convert = <ProposedPullRequest as From<MergeRequestBody>>::from;
        let path = self.path("/merge_requests");
        match self.rest.create(&path, &pull, WRITE, convert, open).await {
            Err(error @ ForgeError::Refused { status: 409, .. }) => open().await?.ok_or(error),
            done => done,
        }
    }

    async fn edit_proposal(&self, number: u64, title: &str, body: &str) -> Result<()> {
        let path = self.path(&format!("/merge_requests/{number}"));
        let text = json!({"title": title, "description": disarmed(body)});
        self.rest.set::<Value>(Method::PUT, &path, &text, WRITE).await?;
        Ok(())
    }

    async fn ask_for_merge(&self, pull: &ProposedPullRequest) -> Result<()> {
        #[derive(Deserialize)]
        struct Settings {
            #[serde(default)]
            only_allow_merge_if_pipeline_succeeds: bool,
        }
        #[derive(Deserialize)]
        struct Approvals {
            /// The number of required approvals. Missing in the free tier.
            #[serde(default)]
            approvals_required: u64,
        }
        let of_pull = |rest: &str| self.path(&format!("/merge_requests/{}{rest}", pull.number));
        let settings: Settings = self.rest.get(&self.path(""), READ).await?;
        let rules: Approvals = self.rest.get(&of_pull("/approvals"), READ).await?;
        let path = of_pull("/merge");
        // Without any rule GitLab would merge at once, which nobody has asked for.
        if !settings.only_allow_merge_if_pipeline_succeeds && rules.approvals_required == 0 {
            return Err(ForgeError::Refused {
                forge: ForgeKind::Gitlab,
                operation: format!("PUT {path}"),
                status: 200,
                message: "no setting of the project asks for a pipeline that succeeds or for approvals, so nothing stands in the way of a merge"
                    .to_owned(),
            });
        }
        // With the head that was checked, GitLab refuses to merge a newer one that somebody pushed since.
        let body = json!({"auto_merge": true, "sha": pull.head});
        self.rest.set::<Value>(Method::PUT, &path, &body, WRITE).await?;
        Ok(())
    }

    async fn starts_workflows(&self) -> Result<bool> {
        // In GitLab a push by a bot starts pipelines like any other push.
        Ok(true)
    }
}

#[async_trait]
impl BranchFiles for Client {
    const CHANGED: u16 = 400;

    async fn parent_of_own(&self, commit: &FilesCommit<'_>, at: &CommitId) -> Result<Option<CommitId>> {
        let path = self.path(&format!("/repository/commits/{at}?stats=false"));
        let found: CommitBody = self.rest.get(&path, READ).await?;
        let us = self.account().await?.commit_email.as_deref();
        // The author is compared and not the committer: if GitLab signs its commits, the committer is GitLab.
        let is_by_us = us.is_some_and(|us| us.eq_ignore_ascii_case(&found.author_email));
        let (true, [parent]) = (
            is_by_us && commit.has_message(&found.message),
            found.parent_ids.as_slice(),
        ) else {
            return Ok(None);
        };
        let changed = self.path(&format!("/repository/commits/{at}/diff"));
        let changed: Vec<ChangedFile> = self.list(&changed, READ).await?;
        let is_meant = |path: &str| commit.files.iter().any(|(meant, _)| meant.as_str() == path);
        let is_own = changed
            .iter()
            .all(|file| is_meant(&file.old_path) && is_meant(&file.new_path));
        if is_own {
            self.rest.commit_id(&path, parent).map(Some)
        } else {
            Ok(None)
        }
    }

    async fn file(&self, commit: &CommitId, path: &RepoPath) -> Result<Option<BranchFile>> {
        #[derive(Deserialize)]
        struct Contents {
            content: String,
            last_commit_id: String,
        }
        let path = self.path(&format!(
            "/repository/files/{}?ref={commit}",
            encoded(path.as_str())
        ));
        let Some(found) = if_found(self.rest.get::<Contents>(&path, READ).await)? else {
            return Ok(None);
        };
        let content = STANDARD.decode(found.content);
        Ok(Some(BranchFile {
            content: content.map_err(|error| self.rest.malformed(format!("GET {path}"), error))?,
            version: found.last_commit_id,
        }))
    }

    async fn write_files(
        &self,
        commit: &FilesCommit<'_>,
        is_new: bool,
        there: &[Option<BranchFile>],
    ) -> Result<CommitId> {
        #[derive(Deserialize)]
        struct Made {
            id: String,
        }
        let action = |((path, content), there): (&(RepoPath, String), &Option<BranchFile>)| {
            let content = STANDARD.encode(content);
            let mut action = json!({"file_path": path, "content": content, "encoding": "base64"});
            match there {
                Some(there) => {
                    // GitLab refuses the update if somebody has changed the file since this commit.
                    action["action"] = json!("update");
                    action["last_commit_id"] = json!(there.version);
                }
                None => action["action"] = json!("create"),
            }
            action
        };
        let actions: Vec<Value> = commit.files.iter().zip(there).map(action).collect();
        let mut body = json!({
            "branch": commit.branch, "commit_message": commit.plain_message(), "actions": actions,
        });
        if is_new {
            // With a start commit GitLab creates the branch, and refuses if somebody else has created it.
            body["start_sha"] = json!(commit.base);
        }
        let path = self.path("/repository/commits");
        let made: Made = self.rest.post_once(&path, &body, WRITE).await?;
        made.id
            .parse()
            .map_err(|error: InvalidId| self.rest.malformed(format!("POST {path}"), error))
    }
}
