//! Records the result of the apply of a stack: the new state, and the apply record.

use super::{options::ApplyOptions, outcome::has_succeeded};
use crate::{Target, rescue_file::Unstored};
use konverge_base::{
    error::{UserError, chain},
    model::{
        CommitId, Digest,
        apply_record::ApplyRecord,
        apply_result::{ResourceResult, StackOutcome, StackResult},
        other_names::OtherNames,
        stack_output::{RecordedOutput, RecordedRead},
        state::StackState,
    },
    secrets::Secrets,
};
use konverge_engine::Publication;
use konverge_state::{Lease, WriteReason};

/// A finished apply of one stack, with the inputs of its record.
pub(super) struct EndedApply<'a> {
    pub target: &'a Target,
    pub options: &'a ApplyOptions,
    pub lease: &'a Lease,
    /// The state before the apply.
    pub recorded: &'a StackState,
    /// The other names under which policies checked the stack.
    pub known_as: &'a OtherNames,
    pub secrets: &'a Secrets,
    /// The outputs that the stack publishes, if everything succeeded.
    pub published: Option<Publication>,
    /// The outputs of other stacks that the plan used.
    pub read: &'a [RecordedRead],
    pub input_digest: Option<Digest>,
    pub spec_digest: Digest,
    pub core: Option<&'a str>,
}

impl EndedApply<'_> {
    /// Writes the state and the apply record, if they differ from the stored ones. If the write fails, the outcome
    /// becomes a failure.
    pub(super) async fn record(
        self,
        mut state: StackState,
        outcome: &mut StackOutcome,
        unstored: &mut Unstored,
    ) {
        let succeeded = has_succeeded(outcome.result);
        self.describe(&mut state, succeeded);
        self.describe_outputs(&mut state, succeeded);
        let reason = self.reason();
        if self.is_recorded_already(&mut state, outcome, reason) {
            outcome.serial = self.lease.prior().map(|prior| prior.serial);
            // Without this call, the index would still show that a run works on the stack.
            if succeeded && let Err(error) = self.lease.mark_unchanged().await {
                tracing::debug!(error = %chain(&error), "failed to remove the mark of this run from the index");
            }
            return;
        }
        let used = self.used_pull_requests(succeeded);
        let record = ApplyRecord {
            digest: outcome.digest,
            commit: self.commit().cloned(),
            merged: self.options.merged.filter(|_| self.target.recorded.is_none()),
            result: outcome.result,
            grounds: outcome.grounds.clone(),
        };
        let note = match self.options.rolled_back_to {
            Some(to) => Some(format!("rolled back to serial {to}")),
            None => self
                .options
                .restore
                .then(|| "restored what was applied last".to_owned()),
        };
        match self.lease.conclude(reason, state, used, record, note).await {
            Ok(serial) => {
                unstored.all_stored();
                outcome.serial = Some(serial);
            }
            Err(error) => {
                // The changes are applied but not recorded, so the outcome must not be a success.
                outcome.result = StackResult::Failed;
                let done = outcome.resources.iter();
                let done = done
                    .filter(|resource| resource.result == ResourceResult::Done)
                    .count();
                let failure = UserError::from(error)
                    .context(format!(
                        "{} done, but the end of the apply could not be recorded",
                        match done {
                            1 => "1 resource is".to_owned(),
                            count => format!("{count} resources are"),
                        }
                    ))
                    .hint(
                        "the changes that were started are recorded: the next run checks them, and continues",
                    );
                outcome.error.get_or_insert_with(|| failure.body());
                outcome.serial = None;
            }
        }
    }

    /// Sets the folder, the identity and the applied revision in the state.
    fn describe(&self, state: &mut StackState, succeeded: bool) {
        state.guarded_as.extend(self.known_as);
        let head = self.target.head.as_ref();
        state.folder = self.target.stack_folder.clone();
        state.named_by = head.map(|stack| stack.named_by).unwrap_or_default();
        if succeeded {
            state.earlier_identities.clear();
            state.input_digest = self.input_digest;
            state.spec_digest = Some(self.spec_digest);
            state.commit = self.commit().cloned();
            state.core = self.core.map(str::to_owned);
        } else if self.options.restore {
            // A restore applies no new desired resources, so the recorded digest stays: an object that was not restored
            // is still drift.
            state.input_digest = self.recorded.input_digest;
        } else {
            // A failed apply records no digest. So the stack is pending, and the next run applies it again.
            state.input_digest = None;
        }
    }

    /// Sets the outputs that the stack publishes and reads in the state. After a failure the earlier values stay,
    /// except those that the stack may no longer publish.
    fn describe_outputs(&self, state: &mut StackState, succeeded: bool) {
        let Some(published) = &self.published else { return };
        if !succeeded {
            state
                .outputs
                .retain(|name, _| !published.refused.contains_key(name));
            return;
        }
        let serial = self.lease.prior().map_or(0, |prior| prior.serial) + 1;
        let earlier = std::mem::take(&mut state.outputs);
        let outputs = published.values.iter().map(|(name, output)| {
            let digest = self.secrets.hash(output.value.to_string().as_bytes());
            let since = earlier.get(name).filter(|earlier| earlier.digest == digest);
            let recorded = RecordedOutput {
                value: output.value.clone(),
                serial: since.map_or(serial, |since| since.serial),
                digest,
                resources: output.resources.clone(),
            };
            (name.clone(), recorded)
        });
        state.outputs = outputs.collect();
        let earlier = std::mem::take(&mut state.reads);
        let same = |read: &RecordedRead| {
            let mut earlier = earlier.iter();
            earlier.find(|earlier| earlier.output == read.output && earlier.digest == read.digest)
        };
        state.reads = self
            .read
            .iter()
            .map(|read| same(read).unwrap_or(read).clone())
            .collect();
    }

    /// Returns the commit that is applied, if there is one.
    fn commit(&self) -> Option<&CommitId> {
        match &self.target.recorded {
            Some(recorded) => recorded.commit.as_ref(),
            None => self.options.commit.as_ref(),
        }
    }

    fn reason(&self) -> WriteReason {
        match (&self.target.head, self.options.rolled_back_to) {
            (None, _) => WriteReason::Destroy,
            (Some(_), Some(_)) => WriteReason::Rollback,
            (Some(_), None) => WriteReason::Apply,
        }
    }

    /// Returns the pull requests whose reviews this apply has used.
    fn used_pull_requests(&self, succeeded: bool) -> &[u64] {
        if succeeded {
            &self.options.pull_requests
        } else {
            &[]
        }
    }

    /// Returns true if the store already has everything that this apply would record.
    fn is_recorded_already(
        &self,
        state: &mut StackState,
        outcome: &StackOutcome,
        reason: WriteReason,
    ) -> bool {
        let (prior, succeeded) = (self.lease.prior(), has_succeeded(outcome.result));
        // A repeated failure with the same result is recorded only once.
        let record = prior.and_then(|prior| prior.receipt.as_ref());
        let is_same_failure =
            record.is_some_and(|last| (last.digest, last.result) == (outcome.digest, outcome.result));
        // The removal of a stack that was never applied leaves nothing to record.
        let never_there = reason == WriteReason::Destroy && prior.is_none() && state.resources.is_empty();
        // Without changes, a new commit with the same desired resources is not worth a new serial.
        let commit = state.commit.clone();
        if outcome.result == StackResult::Unchanged {
            state.commit.clone_from(&self.recorded.commit);
        }
        // If an earlier removal left only a journal, this removal must still be recorded.
        let is_left = reason == WriteReason::Destroy && prior.is_some_and(|prior| !prior.retired);
        let is_same = *state == *self.recorded && !is_left;
        let known = prior.map(|prior| &prior.applied_reviews);
        let is_known = |pull: &u64| known.is_some_and(|known| known.contains(pull));
        let uses_nothing_new = self.used_pull_requests(succeeded).iter().all(is_known);
        state.commit = commit;
        // A restore is recorded for the history, although the state does not change.
        let restored = self.options.restore && outcome.result == StackResult::Applied;
        (is_same || never_there) && uses_nothing_new && (succeeded || is_same_failure) && !restored
    }
}
