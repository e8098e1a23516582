//! Edits as one pull request. The same stacks and attributes have the same branch, so that a later value updates it.

use std::sync::Arc;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{CommitId, digest::DigestBuilder},
};
use konverge_forge::{
    CommittedFiles, DefaultBranch, FilesCommit, Forge, ForgeKind, ProposedPullRequest, if_found,
};
use konverge_report::escape::cell;
use konverge_run::{RunContext, forge};

use crate::{code_editor::EditedFile, prepared_edits::PreparedEdits};

/// The maximum number of edits that the text of a pull request lists.
const MOST_LISTED: usize = 50;

/// Edits of a commit of the default branch that become a pull request.
pub struct Proposal<'a> {
    /// The commit that was edited.
    pub commit: &'a CommitId,
    /// The edits that the pull request contains.
    pub prepared: &'a PreparedEdits,
    /// Asks the forge to merge the pull request as soon as its rules allow it.
    pub auto_merge: bool,
}

/// Result of a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProposalResult {
    /// A pull request was opened.
    Opened(String),
    /// The pull request of an earlier call was updated.
    Updated(String),
    /// The pull request is open with these files already.
    Unchanged(String),
    /// Somebody closed the pull request with exactly these files, so it is not opened again.
    Closed(String),
    /// The default branch already has the values.
    Nothing,
}

/// Connects to the repository at its forge, as the environment names it.
///
/// # Errors
/// There is no token or no repository.
pub fn forge(run: &RunContext) -> Result<Arc<dyn Forge>, UserError> {
    let connected = run
        .forge_repository()
        .map(|repository| forge::connect(run, repository))
        .transpose()?;
    connected.flatten().ok_or_else(|| {
        UserError::new(
            ErrorKind::Usage,
            "a pull request needs GITHUB_TOKEN and GITHUB_REPOSITORY (`owner/name`)",
        )
        .hint("a job has both; give the step `env: {GITHUB_TOKEN: …}` with the token of a GitHub App; a job of GitLab needs KONVERGE_GITLAB_TOKEN or GITLAB_TOKEN")
    })
}

/// Commits the files to the branch of the proposal, and opens or updates its pull request.
///
/// # Errors
/// The commit is not on the default branch, somebody else pushed to the branch, a file is not UTF-8, or errors of the
/// forge.
pub async fn propose(
    run: &RunContext,
    client: &dyn Forge,
    proposal: &Proposal<'_>,
) -> Result<ProposalResult, UserError> {
    let prepared = proposal.prepared;
    let default = client.default_branch().await?;
    require_published(client, proposal.commit, &default).await?;
    if prepared.files.is_empty() {
        return Ok(ProposalResult::Nothing);
    }
    run.begin_writes()?;
    let digest = digest(prepared);
    let branch = format!("konverge/set-{digest}");
    let title = run.secrets.mask(&prepared.title);
    let body = run.secrets.mask(&body(prepared));
    // Commit before the look at pull requests: if the run ends here, a repeated call finds the branch and continues.
    let (tip, is_new) = push(client, proposal, &branch, &digest, &title).await?;
    let known = client.proposals_of(&branch).await?;
    let open = known.iter().find(|pull| pull.open);
    // Somebody closed the pull request with exactly this tip. Respect the decision.
    let refused = known
        .first()
        .filter(|pull| !pull.merged && pull.head == tip.as_str());
    let (pull, result) = match (open, refused) {
        (Some(pull), _) if !is_new && pull.title == title && is_same_text(&pull.body, &body) => {
            (pull.clone(), ProposalResult::Unchanged(pull.url.clone()))
        }
        (Some(pull), _) => {
            client.edit_proposal(pull.number, &title, &body).await?;
            (pull.clone(), ProposalResult::Updated(pull.url.clone()))
        }
        (None, Some(pull)) if !is_new => return Ok(ProposalResult::Closed(pull.url.clone())),
        (None, _) => {
            let pull = client
                .open_proposal(&branch, &default.name, &title, &body)
                .await?;
            let result = ProposalResult::Opened(pull.url.clone());
            (pull, result)
        }
    };
    if !client.starts_workflows().await? {
        let hint = match client.kind() {
            ForgeKind::Github => {
                "give the step the token of a GitHub App (`actions/create-github-app-token`)"
            }
            forge @ (ForgeKind::Gitea | ForgeKind::Gitlab) => forge.token_hint(),
        };
        run.notes.warning(&format!(
            "the pull request was written with the job's GITHUB_TOKEN, so it starts no preview\n  hint: {hint}"
        ));
    }
    if proposal.auto_merge {
        auto_merge(client, &pull).await?;
    }
    Ok(result)
}

/// Returns true if the forge has this text. A forge may remove the line break at its end.
fn is_same_text(there: &str, text: &str) -> bool {
    there.trim_end() == text.trim_end()
}

/// Checks that the edited commit is on the default branch: otherwise the pull request would contain more than the edit.
async fn require_published(
    client: &dyn Forge,
    commit: &CommitId,
    default: &DefaultBranch,
) -> Result<(), UserError> {
    let after = if_found(client.commits_after(commit, &default.tip).await)?;
    let contained = after.flatten().is_some();
    let forge = client.kind();
    if contained {
        Ok(())
    } else {
        Err(UserError::new(
            ErrorKind::Git,
            format!(
                "the commit {commit} is not on {forge}'s branch `{}`",
                default.name.escape_debug()
            ),
        )
        .hint(format!(
            "check out the default branch as {forge} has it: the pull request is made from HEAD"
        )))
    }
}

/// Commits the files to the branch. Returns its tip, and whether the tip is new.
async fn push(
    client: &dyn Forge,
    proposal: &Proposal<'_>,
    branch: &str,
    digest: &str,
    title: &str,
) -> Result<(CommitId, bool), UserError> {
    let files = proposal.prepared.files.iter().map(|file: &EditedFile| {
        let text = std::str::from_utf8(&file.after).map_err(|_| {
            UserError::new(
                ErrorKind::Layout,
                "the file is not UTF-8, so no pull request can carry it",
            )
            .at(file.path.to_string(), None, None)
        })?;
        Ok((file.path.clone(), text.to_owned()))
    });
    let files = files.collect::<Result<Vec<_>, UserError>>()?;
    let committed = client.commit_files(FilesCommit {
        branch,
        base: proposal.commit,
        files: &files,
        title,
        digest,
    });
    match committed.await? {
        CommittedFiles::Committed(tip) => Ok((tip, true)),
        CommittedFiles::Present(tip) => Ok((tip, false)),
        CommittedFiles::Conflict => Err(moved(branch)),
    }
}

fn moved(branch: &str) -> UserError {
    UserError::new(
        ErrorKind::Git,
        format!("somebody else pushed to the branch `{branch}`, and their commits must not be lost"),
    )
    .hint("merge or close the pull request of the branch and delete the branch; then run the command again")
}

async fn auto_merge(client: &dyn Forge, pull: &ProposedPullRequest) -> Result<(), UserError> {
    client.ask_for_merge(pull).await.map_err(|error| {
        let failure = UserError::from(error).context(format!("{} is not merged automatically", pull.url));
        failure.hint(format!(
            "allow auto-merge in the settings of the repository; without required checks {} refuses it",
            client.kind()
        ))
    })
}

/// Returns the digest of the stacks and attributes, without their values: a later value updates the same pull
/// request.
fn digest(prepared: &PreparedEdits) -> String {
    let mut digest = DigestBuilder::new("konverge set");
    for target in &prepared.targets {
        digest.part(target.as_bytes());
    }
    digest.finish().short()
}

fn body(prepared: &PreparedEdits) -> String {
    let mut text = String::from("| stack | attribute | place |\n|---|---|---|\n");
    for line in prepared.lines.iter().take(MOST_LISTED) {
        let place = format!("{}:{}", line.file, line.line);
        let [stack, path, place] = [line.stack.as_str(), &line.path.to_string(), &place].map(cell);
        text.push_str(&format!("| {stack} | {path} | {place} |\n"));
    }
    let more = prepared.lines.len().saturating_sub(MOST_LISTED);
    if more > 0 {
        text.push_str(&format!("\nand {more} more\n"));
    }
    text.push_str("\nWritten by `konverge set`. A later value for the same attributes updates this pull request. The preview shows what it does.\n");
    text
}
