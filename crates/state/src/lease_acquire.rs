//! Acquires a lease: waits for its holder, takes over from a dead holder, and closes the documents that the
//! dead holder could still write to.

use std::time::Duration;

use super::{
    DocumentWriter, Lease, StateError, StateStore,
    document_format::Header,
    keys,
    lease::LeaseDocument,
    lease_fencing::TakeoverReason,
    lease_holder::Holder,
    lease_options::{LeaseOptions, WaitVerdict},
    state_store::Reading,
};
use konverge_base::{model::StackId, spans};
use tracing::Instrument as _;

/// The condition of the newest lease of a stack.
enum LeaseCondition {
    /// The last holder released the lease.
    Free,
    /// The lease ended without a release. Its last holder may still be running, so a takeover must make its next write
    /// fail.
    Ended,
    Held(Holder),
}

/// The renewals that a waiting run has observed.
struct Watch {
    started: Duration,
    seen: Option<(u64, u64)>,
    since: Duration,
}

impl StateStore {
    /// Acquires the lease of a stack, and waits for its holder if there is one. A holder whose term passed
    /// without a renewal is taken over, measured by this process's monotonic clock only.
    ///
    /// # Errors
    /// [`StateError::Held`] if the holder did not release the lease in time. Other errors if the store fails, or
    /// the state is damaged.
    pub async fn acquire(&self, stack: &StackId, options: LeaseOptions) -> Result<Lease, StateError> {
        let now = self.clock.monotonic();
        let mut watch = Watch {
            started: now,
            seen: None,
            since: now,
        };
        // A listing may miss a state that is written at the same time, so a state counts as missing only
        // after a second reading.
        let mut read_again = false;
        loop {
            // A response shows the store at the time of the request, however late it arrives.
            let asked = self.clock.monotonic();
            let mut reading = self.read_for_lease(stack, &options).await?;
            // With `over_vanished` or `over_damaged`, the caller has accepted that the newest document is
            // lost, and continues from an older one.
            if !options.over_vanished && !options.over_damaged {
                reading = self.require_document(stack, reading).await?;
            }
            let condition = match self.read_condition(stack, &reading, asked, &mut watch).await {
                // The state document that released the lease is gone, but the index shows that it existed.
                Ok(LeaseCondition::Held(holder))
                    if options.over_vanished && self.is_ended(stack, &reading, holder.epoch).await? =>
                {
                    LeaseCondition::Free
                }
                // The holder of the lease saw a later state, which is lost. The caller has accepted that, so
                // the lease counts as ended.
                Err(StateError::Vanished { .. }) if options.over_vanished => LeaseCondition::Ended,
                Err(StateError::Vanished { .. }) if !std::mem::replace(&mut read_again, true) => continue,
                // The lease cannot be read, so nobody knows its holder. As after an unlock, this run waits
                // until a holder must have stopped.
                Err(StateError::Damaged { .. } | StateError::Foreign { .. }) if options.over_damaged => {
                    LeaseCondition::Ended
                }
                condition => condition?,
            };
            let claim = match condition {
                LeaseCondition::Free => TakeoverReason::Free,
                LeaseCondition::Ended => TakeoverReason::Ended,
                LeaseCondition::Held(holder) => {
                    match self.wait_for(stack, &holder, &mut watch, &options).await? {
                        Some(claim) => claim,
                        None => continue,
                    }
                }
            };
            if let Some(lease) = self.take(stack, reading, claim, &options).await? {
                self.finished().leased.insert(stack.clone(), lease.epoch());
                return Ok(lease);
            }
        }
    }

    /// Ends the current lease on a person's request. `id` must be its id.
    ///
    /// # Errors
    /// [`StateError::Missing`] if that lease does not exist or has already ended. Other errors if the store fails.
    pub async fn unlock(&self, stack: &StackId, id: &str, reason: &str) -> Result<Holder, StateError> {
        let holder = self.holder(stack).await?;
        let other = |text: String| Err(StateError::Missing(text));
        match holder {
            None => other(format!("nobody holds the lease of stack `{stack}`")),
            Some(holder) if holder.id != id => other(format!(
                "the lease of stack `{stack}` is {}, not {}: another run has taken it in the meantime; check the holder again",
                holder.id,
                id.escape_debug()
            )),
            Some(holder) => {
                let ended = LeaseDocument::Unlocked {
                    reason: reason.to_owned(),
                };
                self.end_lease(stack, holder.epoch, &ended).await?;
                Ok(holder)
            }
        }
    }

    /// Returns the current holder of a stack's lease, if any.
    ///
    /// # Errors
    /// The store fails, or a document is damaged.
    pub async fn holder(&self, stack: &StackId) -> Result<Option<Holder>, StateError> {
        let reading = self.read(stack).await?;
        self.holder_of(stack, &reading).await
    }

    /// Returns the holder at the time of a reading.
    pub(super) async fn holder_of(
        &self,
        stack: &StackId,
        reading: &Reading,
    ) -> Result<Option<Holder>, StateError> {
        let mut watch = Watch {
            started: Duration::ZERO,
            seen: None,
            since: Duration::ZERO,
        };
        Ok(
            match self
                .read_condition(stack, reading, Duration::ZERO, &mut watch)
                .await?
            {
                LeaseCondition::Held(holder) => Some(holder),
                LeaseCondition::Free | LeaseCondition::Ended => None,
            },
        )
    }

    /// Returns true if the index shows that a state document released this lease, but that document is gone.
    async fn is_ended(&self, stack: &StackId, reading: &Reading, epoch: u64) -> Result<bool, StateError> {
        let entry = self
            .written_entry(stack)
            .await?
            .filter(|entry| reading.rows.serial().is_none_or(|newest| newest < entry.serial));
        Ok(entry.is_some_and(|entry| !entry.open && entry.epoch >= epoch))
    }

    pub(super) async fn read_for_lease(
        &self,
        stack: &StackId,
        options: &LeaseOptions,
    ) -> Result<Reading, StateError> {
        match self.read(stack).await {
            Err(StateError::Damaged { .. } | StateError::Foreign { .. }) if options.over_damaged => {
                self.read_last_good(stack).await
            }
            other => other,
        }
    }

    async fn read_condition(
        &self,
        stack: &StackId,
        reading: &Reading,
        asked: Duration,
        watch: &mut Watch,
    ) -> Result<LeaseCondition, StateError> {
        let Some((epoch, renewal)) = reading.rows.lease() else {
            return Ok(LeaseCondition::Free);
        };
        let document = reading.document.as_ref().map(|(_, document)| document);
        // A state document also releases its lease, without a separate document.
        if document.is_some_and(|document| document.epoch >= epoch && document.closes_lease) {
            return Ok(LeaseCondition::Free);
        }
        let key = keys::lease(stack, epoch, renewal);
        // Silence is measured from the time when this run first saw the renewal, because the clock of the
        // holder may be wrong.
        if watch.seen != Some((epoch, renewal)) {
            watch.seen = Some((epoch, renewal));
            watch.since = self.clock.monotonic();
        }
        let Some(bytes) = self.store.get(&key).await? else {
            // The renewal was deleted after the listing; the next reading shows what followed it.
            return Ok(LeaseCondition::Ended);
        };
        let quiet = asked.saturating_sub(watch.since);
        let read = self.envelopes.read_marked("lease", &key, &bytes)?;
        let Some((header, lease)): Option<(Header, LeaseDocument)> = read else {
            // This lease has no mark of a known key, so its content proves nothing, not even that it has
            // ended. So this run waits as for a silent holder.
            return Ok(LeaseCondition::Held(Holder {
                id: "unknown".to_owned(),
                epoch,
                writer: DocumentWriter {
                    run: "an unknown run".to_owned(),
                    actor: "unknown".to_owned(),
                },
                since: self.clock.wall_clock(),
                term: Duration::ZERO,
                quiet,
            }));
        };
        Ok(match lease {
            LeaseDocument::Released => LeaseCondition::Free,
            LeaseDocument::TakenOver { .. } | LeaseDocument::Unlocked { .. } => LeaseCondition::Ended,
            LeaseDocument::Held {
                serial: Some(serial), ..
            } if reading.rows.serial() < Some(serial) => {
                return Err(StateError::Vanished {
                    stack: stack.clone(),
                    serial,
                    newest: reading.rows.serial(),
                });
            }
            LeaseDocument::Held {
                id, term_ms, since, ..
            } => LeaseCondition::Held(Holder {
                id,
                epoch,
                writer: header.writer,
                since,
                term: Duration::from_millis(term_ms),
                quiet,
            }),
        })
    }

    /// Waits for a moment, unless the holder may be taken over now.
    async fn wait_for(
        &self,
        stack: &StackId,
        holder: &Holder,
        watch: &mut Watch,
        options: &LeaseOptions,
    ) -> Result<Option<TakeoverReason>, StateError> {
        // The longer term counts, so that a run with a short term does not take over from a holder that
        // renews less often.
        let term = holder.term.max(options.term);
        if holder.quiet >= term {
            let renewal = watch.seen.map_or(0, |(_, renewal)| renewal);
            return Ok(Some(TakeoverReason::Silent { renewal }));
        }
        let held = || StateError::Held {
            stack: stack.clone(),
            holder: Box::new(holder.clone()),
        };
        let waited = self.clock.monotonic().saturating_sub(watch.started);
        if let Some(observer) = &options.watch {
            match observer.waiting(holder, waited).await {
                WaitVerdict::KeepWaiting => {}
                WaitVerdict::HolderIsOver => return Ok(Some(TakeoverReason::Over)),
                WaitVerdict::GiveUp => return Err(held()),
            }
        }
        if waited >= options.wait {
            return Err(held());
        }
        let look_again = (term / 12).clamp(Duration::from_millis(100), Duration::from_secs(5));
        let pause = look_again
            .min(options.wait - waited)
            .max(Duration::from_millis(1));
        // A request to stop ends the pause; the watch then ends the wait at the next reading.
        let paused = async {
            tokio::select! {
                () = self.clock.sleep(pause) => {}
                () = options.until_stopped() => {}
            }
        };
        paused.instrument(spans::wait("the lease of another run")).await;
        Ok(None)
    }
}

#[cfg(test)]
#[path = "lease_acquire_tests.rs"]
mod tests;
