//! Check runs at the pull request's head, one per changed stack, and the current state of the pull request.

use std::collections::BTreeMap;

use super::publisher::Publisher;
use konverge_base::model::{CommitId, Shard, StackId, check_run::CheckRun, plan::Plan};
use konverge_forge::ForgeError;
use konverge_report::checks;
use konverge_secrets::Secrets;

impl Publisher<'_> {
    /// Creates the check runs of a plan, and returns the URL of the check run of each stack.
    ///
    /// If one check run is refused, the others are still created. An error that concerns all of them ends the loop.
    /// Both are reported once.
    pub(crate) async fn checks(&self, head: &CommitId, plan: &Plan) -> BTreeMap<StackId, String> {
        let mut links = BTreeMap::new();
        // A forge without check runs has the same text in the comment.
        let Some(Ok(forge)) = self.client.map(|client| client.checks()) else {
            return links;
        };
        let runner = &self.job.runner;
        let external = format!("{}/{}", runner.info().run_id, runner.info().run_attempt);
        let url = runner.run_url();
        let named: BTreeMap<_, _> = plan
            .stacks
            .iter()
            .map(|stack| (checks::name(&stack.id), &stack.id))
            .collect();
        let mut refused = None;
        let share = self.job.options.part.share();
        let most = forge.most_checks();
        let most = share.map_or(most, |share| share.part_of(most));
        let scope = share.as_ref().map(Shard::to_string).unwrap_or_default();
        for check in checks::checks(plan, most, &scope) {
            let check = mask_check(check, &self.job.run.secrets);
            match forge.create_check(head, &check, &external, Some(&url)).await {
                Ok(page) => {
                    if let (Some(stack), Some(page)) = (named.get(&check.name), page) {
                        links.insert((*stack).clone(), page);
                    }
                }
                Err(error) => {
                    let of_this_one =
                        matches!(error, ForgeError::Refused { .. } | ForgeError::TooLong { .. });
                    refused = Some(error);
                    if !of_this_one {
                        break;
                    }
                }
            }
        }
        if let Some(error) = refused {
            self.warn("not every stack has a check run", error);
        }
        links
    }

    /// Reads the state of the pull request after its preview was made. If that fails, the preview is not recorded as
    /// reviewed.
    pub(crate) async fn fetch_pull_request(&self, number: u64, head: &CommitId) -> PullRequestNow {
        let Some(client) = self.client else {
            return PullRequestNow::default();
        };
        let pull = match client.pull_request(number).await {
            Ok(pull) => pull,
            Err(error) => {
                self.warn(
                    "failed to read the pull request again, so its review is not recorded: the pull request may be merged or have a newer head",
                    error,
                );
                return PullRequestNow::default();
            }
        };
        let meanwhile = PullRequestNow {
            superseded: pull.head != *head,
            unmerged: !pull.merged,
        };
        if meanwhile.superseded {
            self.job.run.notes.note(&format!(
                "the pull request's head is {} by now; this preview is of {}",
                pull.head.short(),
                head.short()
            ));
        }
        if !meanwhile.unmerged {
            self.job.run.notes.note(
                "the pull request was merged before this preview ended, so the preview is not recorded as reviewed",
            );
        }
        meanwhile
    }
}

/// The state of a pull request after its preview was made.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PullRequestNow {
    /// True if the pull request has a newer head. The preview then says so, and does not replace that of the newer run.
    pub superseded: bool,
    /// True if the forge confirms that the pull request is not merged. Otherwise this may be a re-run whose preview
    /// nobody saw before the merge.
    pub unmerged: bool,
}

pub(super) fn mask_check(mut check: CheckRun, secrets: &Secrets) -> CheckRun {
    let annotated = check.annotations.iter_mut().map(|note| &mut note.message);
    for text in [&mut check.title, &mut check.summary, &mut check.text]
        .into_iter()
        .chain(annotated)
    {
        *text = secrets.mask_finished(text);
    }
    check
}
