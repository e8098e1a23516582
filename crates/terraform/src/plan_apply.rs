//! Applies a saved plan, and updates the state while Terraform works.

mod plan_execution;
mod results;
mod state_sync;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    time::{Duration, Instant},
};

use plan_execution::Application;

use super::{
    binary::BinaryKind,
    context::Terraform,
    error::TerraformError,
    log_messages::LogMessage,
    resource_state::ResourceState,
    state_document::{InFlight, TerraformState},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ResourceId, plan::Action},
};
use konverge_engine::runtime::{AppliedResource, ApplySink, PlannedResource, StackScope};

/// The interval at which the state and a request to stop are checked while the log is silent.
const TICK: Duration = Duration::from_millis(200);

/// Applies a batch.
pub(super) async fn apply(
    runtime: &Terraform,
    scope: &StackScope,
    planned: Vec<PlannedResource>,
    sink: &dyn ApplySink,
) -> Result<(), UserError> {
    // Several batches of a stack may be applied concurrently. They share its open state, so that none
    // overwrites the results of another.
    runtime.books.enter(runtime.key(), scope).await?;
    let result = apply_all(runtime, scope, planned, sink).await;
    runtime.books.leave(&scope.stack).await;
    result
}

async fn apply_all(
    runtime: &Terraform,
    scope: &StackScope,
    planned: Vec<PlannedResource>,
    sink: &dyn ApplySink,
) -> Result<(), UserError> {
    let mut groups: BTreeMap<String, Vec<ResourceId>> = BTreeMap::new();
    for planned in planned {
        if planned.preparation.is_none() {
            forget(runtime, scope, sink, &planned.item.id).await?;
        } else {
            let token: &String = planned.preparation.get()?;
            groups.entry(token.clone()).or_default().push(planned.item.id);
        }
    }
    for (token, ids) in groups {
        let prepared = runtime.take(&token).filter(|p| p.is_applicable(&ids));
        let Some(prepared) = prepared else {
            let what = "the saved plan is gone or was made by another run";
            let gone = UserError::new(ErrorKind::Terraform, what).hint("plan again: run `konverge apply`");
            for id in ids {
                sink.record_result(&id, Err(gone.clone())).await?;
            }
            continue;
        };
        let application = Application::new(runtime, scope, sink, prepared, &ids);
        application.run().await?;
    }
    Ok(())
}

async fn forget(
    runtime: &Terraform,
    scope: &StackScope,
    sink: &dyn ApplySink,
    id: &ResourceId,
) -> Result<(), UserError> {
    runtime.books.change(&scope.stack, |book| book.forget(id)).await;
    runtime.books.store(runtime.key(), &scope.stack, sink).await?;
    let applied = AppliedResource::unread(id.clone(), None);
    sink.record_result(id, Ok(applied)).await
}

impl Application<'_> {
    async fn run(mut self) -> Result<(), UserError> {
        // Checked first: without the lease, another run may be changing the same objects.
        self.sink.check_lease().await?;
        self.begin().await?;
        if self.prepared.ready.iter().any(|r| r.touched) {
            let result = self.carry_out().await;
            // Terraform may have created objects even if it failed, so the state is stored in any case.
            if let Err(failure) = self.write_last().await {
                self.unstored = Some(failure.clone());
                self.lost = Some(failure);
            }
            match result {
                Ok((code, stderr)) => self.finish(code, &stderr).await,
                Err(error) => {
                    for index in 0..self.prepared.ready.len() {
                        self.end(index, Err(error.clone().into())).await;
                    }
                }
            }
        }
        match self.lost.take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Does the work that needs no Terraform: moved states, objects that are gone, unchanged resources.
    /// Resources to create are recorded as in flight first, because their objects may exist if this run is
    /// killed.
    async fn begin(&mut self) -> Result<(), UserError> {
        let prepared = &self.prepared;
        let earlier = &mut self.earlier;
        let change = |book: &mut TerraformState| {
            for (provider, hashes) in &prepared.hashes {
                book.remember_hashes(provider, hashes);
            }
            for ready in &prepared.ready {
                let subject = &ready.subject;
                if let (Some(old), Some(holding)) = (&subject.moved_from, &subject.holding) {
                    // The state is under its new id before Terraform runs, so that no later run finds the
                    // object under the old one.
                    book.resources.remove(old);
                    let address = subject.address.clone();
                    let holding = ResourceState {
                        address,
                        ..holding.clone()
                    };
                    book.resources.insert(subject.id().clone(), holding);
                }
                if let Some(replacement) = &ready.replacement {
                    book.begun.insert(subject.id().clone(), replacement.clone());
                }
                if let Some(created) = &ready.same_object {
                    book.taken.insert(created.clone(), subject.id().clone());
                }
                if ready.action == Action::Forget {
                    book.forget(subject.id());
                }
                if ready.makes() {
                    book.taken.remove(subject.id());
                    // An entry of an earlier run is kept: it may hold the id of an object, which a new entry
                    // would lose.
                    match book.in_flight.get(subject.id()) {
                        Some(flight) => {
                            earlier.insert(subject.id().clone(), flight.clone());
                        }
                        None => {
                            book.in_flight
                                .insert(subject.id().clone(), InFlight::planned(&subject.address));
                        }
                    }
                }
            }
        };
        let stack = &self.scope.stack;
        // Stored before Terraform starts, so that a killed run leaves a record of every object that may
        // exist.
        self.runtime.books.change(stack, change).await;
        self.runtime
            .books
            .store(self.runtime.key(), stack, self.sink)
            .await?;
        for index in 0..self.prepared.ready.len() {
            if !self.prepared.ready[index].touched {
                let applied = self.applied(index, None);
                self.end(index, Ok(applied)).await;
            }
        }
        match self.lost.take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Runs `terraform apply` and returns its exit code and the start of its standard error.
    async fn carry_out(&mut self) -> Result<(Option<i32>, String), TerraformError> {
        let toolbox = self.runtime.toolbox().await?;
        self.writes_each_time = toolbox.binary.make == BinaryKind::Terraform;
        let _turn = toolbox.processes.acquire().await;
        // `-lock=false`: the lease of the stack is the lock. `-backup=-`: a backup would be a copy of the
        // secret state on a disk.
        let mut args: Vec<OsString> = ["-json", "-input=false", "-lock=false", "-no-color", "-backup=-"]
            .map(OsString::from)
            .to_vec();
        args.push(format!("-parallelism={}", self.runtime.options.parallelism).into());
        args.push(self.prepared.workspace.plan.path().into_os_string());
        // New credentials, because those of the plan may have expired since.
        let credentials = self.runtime.credentials().await?;
        let mut terraform = self
            .prepared
            .workspace
            .start("apply", args, &credentials.variables)?;
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                line = terraform.line() => {
                    let Some(line) = line else { break };
                    if let Some(message) = LogMessage::read(&line)
                        && let Some((index, words)) = self.progress.hear(message)
                    {
                        self.sink.progress(self.prepared.ready[index].subject.id(), &words);
                    }
                }
                _ = tick.tick() => {
                    self.sync().await;
                    match self.interrupted {
                        // If results can no longer be recorded, no further operation may start either.
                        None if self.sink.cancelled() || self.lost.is_some() => {
                            terraform.interrupt();
                            self.interrupted = Some(Instant::now());
                        }
                        Some(since) if since.elapsed() > self.runtime.options.grace => terraform.kill(),
                        _ => {}
                    }
                }
            }
        }
        let output = terraform.end().await?;
        if output.code != Some(0) {
            self.expiry_hints = self.runtime.expiry_hints(&credentials).await;
        }
        // Killed by a signal, Terraform may have left operations running at the provider: these stay in
        // flight.
        if output.code.is_some() {
            self.progress.finish_deposed();
        }
        Ok((output.code, output.stderr))
    }
}
