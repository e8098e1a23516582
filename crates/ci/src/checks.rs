//! Check runs at the pull request's head, one per changed stack, and whether that head is still the newest.

use std::collections::BTreeMap;

use super::publisher::Publisher;
use konverge_base::model::{CommitId, Shard, StackId, check_run::CheckRun, plan::Plan};
use konverge_forge::ForgeError;
use konverge_report::checks;
use konverge_secrets::Secrets;

impl Publisher<'_> {
    /// Creates the check runs of a plan and returns the URLs of those for one stack.
    ///
    /// A refusal of one check run does not affect the others; an error that concerns all of them ends the
    /// loop. Either is reported once.
    pub(crate) async fn checks(&self, head: &CommitId, plan: &Plan) -> BTreeMap<StackId, String> {
        let mut links = BTreeMap::new();
        // A forge without check runs shows the same in the comment.
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

    /// Asks for the state of the pull request after its preview was made. Without an answer the preview is not recorded as
    /// reviewed.
    pub(crate) async fn fetch_pull_request(&self, number: u64, head: &CommitId) -> PullRequestNow {
        let Some(client) = self.client else {
            return PullRequestNow::default();
        };
        let pull = match client.pull_request(number).await {
            Ok(pull) => pull,
            Err(error) => {
                self.warn(
                    "failed to read the pull request again, so its review is not recorded: it may be merged or have a newer head",
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

/// The current state of a previewed pull request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PullRequestNow {
    /// True if it has another head: the preview says so, and the newer run's preview stays.
    pub superseded: bool,
    /// True if the forge says that it is not merged. Otherwise the preview may be a re-run, and nobody saw it before the
    /// merge.
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
