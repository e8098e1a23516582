//! Merge requests and branches, and the commits between two commits. The last head of a merged merge request
//! selects its review record.

use std::{
    collections::{BTreeMap, BTreeSet},
    slice,
};

use async_trait::async_trait;
use konverge_base::model::CommitId;
use konverge_forge::{
    Changes, Contribution, DefaultBranch, ForgeError, ForgeKind, PullRequest, Result, if_found,
};
use konverge_rest::{RestClient, TokenPermission, co_authors, encoded};
use serde::Deserialize;

use crate::{
    client::{Client, User},
    pages::PAGE,
};

pub(super) const READ: TokenPermission = TokenPermission("the scope `api` and the role Developer");

/// The maximum number of commits. If there are more, the contributors are unknown.
const MOST_COMMITS: usize = 1_000;

/// A merge request, with the fields for changes and for proposals.
#[derive(Deserialize)]
pub(super) struct MergeRequestBody {
    pub(super) iid: u64,
    author: Option<User>,
    /// The last head. It does not change when the branch moves after the merge. Missing while GitLab prepares a new
    /// merge request.
    pub(super) sha: Option<String>,
    source_branch: String,
    target_branch: String,
    /// The project of the source branch. Missing if the fork was deleted.
    pub(super) source_project_id: Option<u64>,
    pub(super) target_project_id: u64,
    merge_commit_sha: Option<String>,
    squash_commit_sha: Option<String>,
    pub(super) state: String,
    #[serde(default)]
    pub(super) web_url: String,
    #[serde(default)]
    pub(super) title: String,
    pub(super) description: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct CommitBody {
    id: String,
    /// The parents. Empty in the list of a merge request's commits.
    #[serde(default)]
    pub(super) parent_ids: Vec<String>,
    #[serde(default)]
    pub(super) author_email: String,
    #[serde(default)]
    committer_email: String,
    #[serde(default)]
    pub(super) message: String,
}

#[async_trait]
impl Changes for Client {
    async fn pull_request(&self, number: u64) -> Result<PullRequest> {
        let path = self.path(&format!("/merge_requests/{number}"));
        let raw: MergeRequestBody = self.rest.get(&path, READ).await?;
        let pull = convert(&self.rest, &path, raw)?;
        let headless = || self.rest.malformed(format!("GET {path}"), "it has no head");
        let mut pull = pull.ok_or_else(headless)?;
        self.fill_in_fast_forwards(slice::from_mut(&mut pull)).await?;
        Ok(pull)
    }

    async fn pull_requests_of_commit(&self, sha: &CommitId) -> Result<Vec<PullRequest>> {
        let path = format!("/repository/commits/{sha}/merge_requests");
        Ok(if_found(self.merge_requests(&path).await)?.unwrap_or_default())
    }

    async fn open_pull_requests_from(&self, owner: &str, branch: &str) -> Result<Vec<PullRequest>> {
        #[derive(Deserialize)]
        struct Project {
            path_with_namespace: String,
        }
        let path = self.path(&format!(
            "/merge_requests?scope=all&state=opened&source_branch={}",
            encoded(branch)
        ));
        let mut found = Vec::new();
        for raw in self.list::<MergeRequestBody>(&path, READ).await? {
            let Some(source) = raw.source_project_id else {
                continue;
            };
            // GitLab has no filter for the owner of the source, so the source project is looked up.
            let source: Project = self.rest.get(&format!("/projects/{source}"), READ).await?;
            let namespace = source.path_with_namespace.rsplit_once('/');
            if namespace.is_some_and(|(of, _)| of.eq_ignore_ascii_case(owner)) {
                found.extend(convert(&self.rest, &path, raw)?);
            }
        }
        Ok(found)
    }

    async fn recent_pull_requests(&self, numbers: &BTreeSet<u64>, _: usize) -> Result<Vec<PullRequest>> {
        // Merge requests are requested by number, so even old ones are found.
        let numbers: Vec<String> = numbers.iter().map(|number| format!("&iids[]={number}")).collect();
        let mut found = Vec::new();
        for some in numbers.chunks(PAGE) {
            let path = format!("/merge_requests?scope=all&state=all{}", some.concat());
            found.extend(self.merge_requests(&path).await?);
        }
        if numbers.is_empty() {
            let path = self.path("/merge_requests?scope=all&state=all");
            self.page::<MergeRequestBody>(&path, READ, 1).await?;
        }
        Ok(found)
    }

    async fn default_branch(&self) -> Result<DefaultBranch> {
        #[derive(Deserialize)]
        struct Project {
            default_branch: String,
        }
        let Project { default_branch } = self.rest.get(&self.path(""), READ).await?;
        self.branch(&default_branch).await
    }

    async fn branch(&self, name: &str) -> Result<DefaultBranch> {
        #[derive(Deserialize)]
        struct Branch {
            commit: CommitBody,
            protected: bool,
        }
        let path = self.path(&format!("/repository/branches/{}", encoded(name)));
        let branch: Branch = self.rest.get(&path, READ).await?;
        Ok(DefaultBranch {
            name: name.to_owned(),
            tip: self.rest.commit_id(&path, &branch.commit.id)?,
            protected: branch.protected,
        })
    }

    async fn commits_after(&self, commit: &CommitId, tip: &CommitId) -> Result<Option<BTreeSet<CommitId>>> {
        if self.merge_base(commit, tip).await?.as_ref() != Some(commit) {
            return Ok(None);
        }
        let path = self.range_path(commit, tip);
        let listed: Vec<CommitBody> = self.list(&path, READ).await?;
        let after = listed.iter().map(|one| self.rest.commit_id(&path, &one.id));
        let after: BTreeSet<CommitId> = after.collect::<Result<_, _>>()?;
        // For an unknown range GitLab returns an empty list, so the result must contain the tip.
        if commit != tip && !after.contains(tip) {
            return Err(self.without_head(&path));
        }
        Ok(Some(after))
    }

    async fn contributions_between(&self, base: &CommitId, head: &CommitId) -> Result<Vec<Contribution>> {
        let found = self.contributions(&self.range_path(base, head)).await?;
        // The list lacks the head only if the base contains it. Otherwise GitLab did not know the range, and the
        // result would be incomplete.
        if found.iter().all(|one| one.commit != *head)
            && self.merge_base(base, head).await?.as_ref() != Some(head)
        {
            return Err(self.without_head(&self.range_path(base, head)));
        }
        Ok(found)
    }

    async fn contributions_to_folder(&self, head: &CommitId, folder: &str) -> Result<Vec<Contribution>> {
        // For an unknown head the list would be empty, as if no commit had changed the folder. This request fails
        // in that case.
        let path = self.path(&format!("/repository/commits/{head}?stats=false"));
        let _: CommitBody = self.rest.get(&path, READ).await?;
        let path = self.path(&format!(
            "/repository/commits?ref_name={head}&path={}",
            encoded(folder)
        ));
        self.contributions(&path).await
    }

    async fn contributions_to_pull_request(&self, number: u64) -> Result<Vec<Contribution>> {
        self.contributions(&self.path(&format!("/merge_requests/{number}/commits")))
            .await
    }
}

impl Client {
    /// Returns the best common ancestor of two commits, if there is one.
    async fn merge_base(&self, one: &CommitId, other: &CommitId) -> Result<Option<CommitId>> {
        let path = self.path(&format!("/repository/merge_base?refs[]={one}&refs[]={other}"));
        match self.rest.get::<CommitBody>(&path, READ).await {
            Ok(base) => self.rest.commit_id(&path, &base.id).map(Some),
            Err(ForgeError::NotFound { .. }) => Ok(None),
            // GitLab responds with 400 if it does not have one of the commits.
            Err(ForgeError::Refused {
                status: 400,
                operation,
                ..
            }) => Err(ForgeError::NotFound {
                forge: ForgeKind::Gitlab,
                operation,
                permission: READ.0.to_owned(),
            }),
            Err(error) => Err(error),
        }
    }

    /// Returns the path of the list of commits that are in `of` and not in `without`.
    fn range_path(&self, without: &CommitId, of: &CommitId) -> String {
        self.path(&format!("/repository/commits?ref_name={without}..{of}"))
    }

    async fn contributions(&self, path: &str) -> Result<Vec<Contribution>> {
        let (mut all, mut next) = (Vec::new(), Some(1));
        while let Some(page) = next {
            let found = self.page::<CommitBody>(path, READ, page).await?;
            all.extend(found.items);
            next = found.next;
            if all.len() > MOST_COMMITS {
                let cause = "too many commits to read, so their authors are unknown";
                return Err(self.rest.malformed(format!("GET {path}"), cause));
            }
        }
        all.into_iter()
            .map(|raw| contribution(&self.rest, path, &raw))
            .collect()
    }

    /// Reads merge requests, without those that have no head yet.
    async fn merge_requests(&self, rest: &str) -> Result<Vec<PullRequest>> {
        let path = self.path(rest);
        let raw: Vec<MergeRequestBody> = self.list(&path, READ).await?;
        let found: Vec<Option<PullRequest>> = raw
            .into_iter()
            .map(|raw| convert(&self.rest, &path, raw))
            .collect::<Result<_, _>>()?;
        let mut found: Vec<PullRequest> = found.into_iter().flatten().collect();
        self.fill_in_fast_forwards(&mut found).await?;
        Ok(found)
    }

    /// Fills in the merge commit of merge requests that were merged by a fast-forward to their head. A merge train
    /// may rebase them first without recording the new commit. Then the head is not on the target branch, and the
    /// merge commit stays unknown.
    async fn fill_in_fast_forwards(&self, pulls: &mut [PullRequest]) -> Result<()> {
        let mut tips: BTreeMap<String, Option<CommitId>> = BTreeMap::new();
        for pull in pulls {
            if !pull.merged || pull.merge_commit.is_some() {
                continue;
            }
            if !tips.contains_key(&pull.base_branch) {
                let tip = self.branch_tip(&pull.base_branch).await?;
                tips.insert(pull.base_branch.clone(), tip);
            }
            if let Some(tip) = &tips[&pull.base_branch]
                && self.is_in(&pull.head, tip).await?
            {
                pull.merge_commit = Some(pull.head.clone());
            }
        }
        Ok(())
    }

    /// Returns true if `tip` contains `commit`. False also if GitLab does not have the commit any more.
    async fn is_in(&self, commit: &CommitId, tip: &CommitId) -> Result<bool> {
        let base = if_found(self.merge_base(commit, tip).await)?.flatten();
        Ok(base.as_ref() == Some(commit))
    }

    /// Returns the error for a list of commits that must have the head of its range, and does not.
    fn without_head(&self, path: &str) -> ForgeError {
        let cause = "the list does not have the head of the merge request";
        self.rest.malformed(format!("GET {path}"), cause)
    }
}

/// Converts a merge request; `None` if it has no head yet. The state shows if it was merged, not the time of the
/// merge: GitLab writes that time a moment later, and never for an imported merge request.
fn convert(rest: &RestClient, path: &str, raw: MergeRequestBody) -> Result<Option<PullRequest>> {
    let is_merged = raw.state == "merged";
    let unreadable = |cause: &str| rest.malformed(format!("GET {path}"), format!("!{}: {cause}", raw.iid));
    let Some(sha) = raw.sha else {
        return if is_merged {
            Err(unreadable("it was merged without a head"))
        } else {
            Ok(None)
        };
    };
    let head = rest.commit_id(path, &sha)?;
    let merged_as = raw.merge_commit_sha.or(raw.squash_commit_sha);
    let merged_as = merged_as.filter(|_| is_merged);
    Ok(Some(PullRequest {
        number: raw.iid,
        author: raw.author.map_or_else(String::new, |author| author.username),
        head,
        head_branch: raw.source_branch,
        base_branch: raw.target_branch,
        merge_commit: merged_as.map(|sha| rest.commit_id(path, &sha)).transpose()?,
        merged: is_merged,
        // A merge request is `locked` while it is being merged.
        open: matches!(raw.state.as_str(), "opened" | "locked"),
        from_fork: raw.source_project_id != Some(raw.target_project_id),
    }))
}

/// Converts a commit. GitLab names no accounts, so only people whose address contains their account are included.
fn contribution(rest: &RestClient, path: &str, raw: &CommitBody) -> Result<Contribution> {
    let named = [
        raw.author_email.to_lowercase(),
        raw.committer_email.to_lowercase(),
    ];
    let people = named.into_iter().chain(co_authors(&raw.message));
    Ok(Contribution {
        commit: rest.commit_id(path, &raw.id)?,
        parents: raw
            .parent_ids
            .iter()
            .map(|parent| rest.commit_id(path, parent))
            .collect::<Result<_, _>>()?,
        people: people.filter_map(|address| login_of_address(&address)).collect(),
    })
}

/// Returns the account in a private address of GitLab: `ID-LOGIN@users.noreply.HOST`.
fn login_of_address(address: &str) -> Option<String> {
    let (local, host) = address.split_once('@')?;
    let (id, login) = local.split_once('-')?;
    let is_private = host.starts_with("users.noreply.") && id.parse::<u64>().is_ok();
    is_private.then(|| login.to_owned())
}

#[cfg(test)]
mod tests {
    use konverge_base::model::CommitId;
    use serde_json::{Value, json};

    use super::*;
    use crate::client::tests::silent;

    fn sha(digit: char) -> String {
        digit.to_string().repeat(40)
    }

    fn merge_request(more: &Value) -> Result<Option<PullRequest>> {
        let mut raw = json!({
            "iid": 12, "author": {"username": "ada"}, "sha": sha('a'), "source_branch": "topic", "target_branch": "main",
            "source_project_id": 7, "target_project_id": 7, "merge_commit_sha": null, "squash_commit_sha": null,
            "state": "opened",
        });
        for (key, value) in more.as_object().unwrap() {
            raw[key] = value.clone();
        }
        convert(&silent().rest, "/x", serde_json::from_value(raw).unwrap())
    }

    #[test]
    fn a_merge_is_a_commit_or_a_squash_and_else_not_known_yet() {
        let merged_as = |more: Value| {
            let mut merged = json!({"state": "merged"});
            merged
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            merge_request(&merged)
                .unwrap()
                .unwrap()
                .merge_commit
                .map(|sha| sha.to_string())
        };
        assert_eq!(merged_as(json!({"merge_commit_sha": sha('b')})), Some(sha('b')));
        let both = json!({"merge_commit_sha": sha('b'), "squash_commit_sha": sha('c')});
        assert_eq!(merged_as(both), Some(sha('b')));
        assert_eq!(merged_as(json!({"squash_commit_sha": sha('c')})), Some(sha('c')));
        assert_eq!(merged_as(json!({})), None);
    }

    #[test]
    fn one_that_is_being_merged_is_open_and_one_without_a_head_is_none_yet() {
        let locked = merge_request(&json!({"state": "locked"})).unwrap().unwrap();
        assert!(locked.open && !locked.merged && locked.merge_commit.is_none());
        let closed = merge_request(&json!({"state": "closed"})).unwrap().unwrap();
        assert!(!closed.open && !closed.merged);
        assert_eq!(merge_request(&json!({"sha": null})).unwrap(), None);
        for broken in [json!({"sha": null, "state": "merged"}), json!({"sha": "main"})] {
            assert!(merge_request(&broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_source_elsewhere_or_nowhere_is_a_fork() {
        let from_fork = |source: Value| {
            merge_request(&json!({"source_project_id": source}))
                .unwrap()
                .unwrap()
                .from_fork
        };
        assert!(!from_fork(json!(7)));
        assert!(from_fork(json!(8)) && from_fork(json!(null)));
    }

    #[test]
    fn people_are_those_whose_address_names_them() {
        let raw = json!({
            "id": sha('a'), "parent_ids": [sha('b'), sha('c')], "author_email": "12-ada@users.noreply.acme.example",
            "committer_email": "bob@acme.example",
            "message": "x\n\nCo-authored-by: Eve <7-eve.x@Users.noreply.gitlab.com>\nCo-authored-by: M <9-mallory@evil.example>\n",
        });
        let found = contribution(&silent().rest, "/x", &serde_json::from_value(raw).unwrap()).unwrap();
        assert_eq!(found.parents.len(), 2);
        let people: Vec<_> = found.people.iter().map(String::as_str).collect();
        assert_eq!(people, ["ada", "eve.x"]);
        let _: CommitId = found.commit;
    }
}
