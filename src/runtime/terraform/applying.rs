//! Applies a saved plan, and keeps the book while Terraform works.
//!
//! Terraform writes its state (a file in memory) after each resource. It is read several times a second and written
//! through to the stack's state, so that whatever ends this run, what was reported complete is remembered. OpenTofu writes
//! its state every 20 seconds at most, and when it is interrupted: until then the ids it reports are remembered.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::OsString,
    time::{Duration, Instant},
};

use serde_json::{Map, Value};

use super::{
    Terraform,
    binary::Make,
    book::{self, Book},
    error::TerraformError,
    holding::{self, Holding},
    messages::{Message, plain},
    presenting::{self, Prepared, Ready},
    progress::Progress,
};
use crate::{
    error::Failure,
    model::{ResourceId, StackId, plan::Action, value},
    runtime::{Applied, ApplySink, Planned, Scope},
};

/// How often the log's silence is broken to look at the state and at the wish to stop.
const TICK: Duration = Duration::from_millis(200);
/// The least time between two writes of the book. With the tick and the write itself it must stay below two seconds.
const BETWEEN_WRITES: Duration = Duration::from_millis(500);
/// Terraform writes its state right after it reported a resource complete; after this long it has.
const WRITTEN_AFTER: Duration = Duration::from_millis(400);

/// The books of stacks under way. Several segments of a stack may be applied at once.
#[derive(Default)]
pub(super) struct Books(tokio::sync::Mutex<HashMap<StackId, (usize, Book)>>);

impl Books {
    async fn enter(&self, runtime: &Terraform, scope: &Scope) -> Result<(), TerraformError> {
        let mut all = self.0.lock().await;
        if let Some((users, _)) = all.get_mut(&scope.stack) {
            *users += 1;
            return Ok(());
        }
        let book = Book::open(&scope.data, runtime.options.key.as_deref())?;
        all.insert(scope.stack.clone(), (1, book));
        Ok(())
    }

    async fn leave(&self, stack: &StackId) {
        let mut all = self.0.lock().await;
        if let Some((users, _)) = all.get_mut(stack) {
            *users -= 1;
            if *users == 0 {
                all.remove(stack);
            }
        }
    }

    /// Changes a stack's book, and writes it through if it is another one then.
    async fn change(
        &self,
        runtime: &Terraform,
        stack: &StackId,
        sink: &dyn ApplySink,
        change: impl FnOnce(&mut Book),
    ) -> Result<(), Failure> {
        let mut all = self.0.lock().await;
        let Some((_, book)) = all.get_mut(stack) else {
            return Ok(());
        };
        let before = book.clone();
        change(book);
        if *book == before {
            return Ok(());
        }
        let sealed = book.sealed(runtime.options.key.as_deref())?;
        sink.runtime_data(book::STATE, sealed).await
    }
}

/// Applies what was planned.
pub(super) async fn apply(
    runtime: &Terraform,
    scope: &Scope,
    planned: Vec<Planned>,
    sink: &dyn ApplySink,
) -> Result<(), Failure> {
    runtime.books.enter(runtime, scope).await?;
    let result = apply_all(runtime, scope, planned, sink).await;
    runtime.books.leave(&scope.stack).await;
    result
}

async fn apply_all(
    runtime: &Terraform,
    scope: &Scope,
    planned: Vec<Planned>,
    sink: &dyn ApplySink,
) -> Result<(), Failure> {
    let mut groups: BTreeMap<String, Vec<ResourceId>> = BTreeMap::new();
    for planned in planned {
        let token = presenting::token_of(&planned);
        if token.is_empty() {
            forget(runtime, scope, sink, &planned.item.id).await?;
        } else {
            groups.entry(token).or_default().push(planned.item.id);
        }
    }
    for (token, ids) in groups {
        let prepared = runtime.take(&token).filter(|p| p.is_applicable(&ids));
        let Some(prepared) = prepared else {
            for id in ids {
                sink.ended(&id, Err(TerraformError::PlanGone.into())).await?;
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
    scope: &Scope,
    sink: &dyn ApplySink,
    id: &ResourceId,
) -> Result<(), Failure> {
    let change = |book: &mut Book| {
        book.resources.remove(id);
        book.in_flight.remove(id);
    };
    runtime.books.change(runtime, &scope.stack, sink, change).await?;
    let applied = Applied {
        id: id.clone(),
        recorded: None,
        live: None,
    };
    sink.ended(id, Ok(applied)).await
}

/// One saved plan being applied.
struct Application<'a> {
    runtime: &'a Terraform,
    scope: &'a Scope,
    sink: &'a dyn ApplySink,
    prepared: Prepared,
    progress: Progress,
    /// Whom the sink waits for.
    asked: HashSet<ResourceId>,
    ended: HashSet<usize>,
    last_write: Instant,
    last_seen: Option<super::memory::Stamp>,
    /// Whether its state is written after each resource (Terraform), or now and then (OpenTofu).
    writes_each_time: bool,
    /// When Terraform was asked to stop.
    interrupted: Option<Instant>,
    /// Why nothing can be remembered any more.
    lost: Option<Failure>,
}

impl<'a> Application<'a> {
    fn new(
        runtime: &'a Terraform,
        scope: &'a Scope,
        sink: &'a dyn ApplySink,
        prepared: Prepared,
        ids: &[ResourceId],
    ) -> Self {
        Self {
            progress: Progress::new(&prepared.ready),
            asked: ids.iter().cloned().collect(),
            runtime,
            scope,
            sink,
            prepared,
            ended: HashSet::new(),
            last_write: Instant::now(),
            last_seen: None,
            writes_each_time: false,
            interrupted: None,
            lost: None,
        }
    }

    async fn run(mut self) -> Result<(), Failure> {
        self.sink.fence().await?;
        self.begin().await?;
        if self.prepared.ready.iter().any(|r| r.touched) {
            match self.carry_out().await {
                Ok(output) => self.finish(output.0, &output.1).await?,
                Err(error) => {
                    for index in 0..self.prepared.ready.len() {
                        self.end(index, Err(error.clone().into())).await?;
                    }
                }
            }
        }
        match self.lost.take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// What needs no Terraform: states that move, objects that are gone, resources that stay.
    async fn begin(&mut self) -> Result<(), Failure> {
        let prepared = &self.prepared;
        let change = |book: &mut Book| {
            for (provider, hashes) in &prepared.hashes {
                book.remember_hashes(provider, hashes);
            }
            for ready in &prepared.ready {
                let subject = &ready.subject;
                if let (Some(old), Some(holding)) = (&subject.moved_from, &subject.holding) {
                    book.resources.remove(old);
                    let address = subject.address.clone();
                    let holding = Holding {
                        address,
                        ..holding.clone()
                    };
                    book.resources.insert(subject.id().clone(), holding);
                }
                if ready.action == Action::Forget {
                    book.resources.remove(subject.id());
                    book.in_flight.remove(subject.id());
                }
            }
        };
        let stack = &self.scope.stack;
        self.runtime
            .books
            .change(self.runtime, stack, self.sink, change)
            .await?;
        for index in 0..self.prepared.ready.len() {
            if !self.prepared.ready[index].touched {
                let applied = self.applied(index, None);
                self.end(index, Ok(applied)).await?;
            }
        }
        Ok(())
    }

    /// Runs `terraform apply` to its end; gives its exit code and the start of its standard error.
    async fn carry_out(&mut self) -> Result<(Option<i32>, String), TerraformError> {
        let toolbox = self.runtime.toolbox().await?;
        self.writes_each_time = toolbox.binary.make == Make::Terraform;
        let _turn = toolbox.processes.acquire().await;
        let mut args: Vec<OsString> = ["-json", "-input=false", "-lock=false", "-no-color", "-backup=-"]
            .map(OsString::from)
            .to_vec();
        args.push(format!("-parallelism={}", self.runtime.options.parallelism).into());
        args.push(self.prepared.workspace.plan.path().into_os_string());
        let mut terraform = self.prepared.workspace.start("apply", args)?;
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                line = terraform.line() => {
                    let Some(line) = line else { break };
                    if let Some(message) = Message::read(&line)
                        && let Some((index, words)) = self.progress.hear(message)
                    {
                        self.sink.progress(self.prepared.ready[index].subject.id(), &words);
                    }
                }
                _ = tick.tick() => {
                    self.look().await;
                    match self.interrupted {
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
        Ok((output.code, output.stderr))
    }

    /// Writes the book if it is time, and ends what is complete.
    async fn look(&mut self) {
        if self.lost.is_some() || self.last_write.elapsed() < BETWEEN_WRITES {
            return;
        }
        let (before, written) = (Instant::now(), self.last_seen);
        if let Err(failure) = self.write().await {
            self.lost = Some(failure);
            return;
        }
        self.last_write = Instant::now();
        // OpenTofu writes when it likes: only a write that came after the report has it in.
        let each_time = self.writes_each_time || self.last_seen != written;
        let complete = |index: usize| {
            let complete = self.progress.complete(index);
            each_time && complete.is_some_and(|since| before.duration_since(since) > WRITTEN_AFTER)
        };
        let complete: Vec<_> = (0..self.prepared.ready.len()).filter(|&i| complete(i)).collect();
        for index in complete {
            let state = self.entry(index).await;
            let ready = &self.prepared.ready[index];
            let visible = (ready.action == Action::Delete) == state.is_none();
            if visible && !self.ended.contains(&index) {
                let applied = self.applied(index, state.as_ref());
                if let Err(failure) = self.end(index, Ok(applied)).await {
                    self.lost = Some(failure);
                    return;
                }
            }
        }
    }

    /// Brings the book up to what Terraform's state says now.
    async fn write(&mut self) -> Result<(), Failure> {
        let files = |error: std::io::Error| TerraformError::Files(error.to_string());
        let stamp = self.prepared.workspace.state.stamp().map_err(files)?;
        let mut entries = None;
        if self.last_seen != Some(stamp) {
            let text = self.prepared.workspace.state.read().map_err(files)?;
            entries = holding::read_document(&text);
            if entries.is_some() {
                self.last_seen = Some(stamp);
            }
        }
        let ready = &self.prepared.ready;
        let progress = &self.progress;
        let change = |book: &mut Book| {
            for ready in ready {
                let subject = &ready.subject;
                book.in_flight.remove(subject.id());
                let Some(entries) = &entries else { continue };
                match entries.get(&subject.address) {
                    Some(entry) => {
                        let holding = Holding {
                            address: subject.address.clone(),
                            provider: (subject.provider.source.clone(), subject.provider.version.clone()),
                            meta: subject.meta.clone(),
                            entry: entry.clone(),
                        };
                        book.resources.insert(subject.id().clone(), holding);
                    }
                    None => {
                        book.resources.remove(subject.id());
                    }
                }
            }
            let in_flight = progress.in_flight(ready, |id| book.resources.contains_key(id));
            book.in_flight.extend(in_flight);
        };
        let stack = &self.scope.stack;
        self.runtime
            .books
            .change(self.runtime, stack, self.sink, change)
            .await
    }

    async fn entry(&self, index: usize) -> Option<Holding> {
        let books = self.runtime.books.0.lock().await;
        let (_, book) = books.get(&self.scope.stack)?;
        book.resources
            .get(self.prepared.ready[index].subject.id())
            .cloned()
    }

    /// After Terraform ended: the last write, and an end for everybody.
    async fn finish(&mut self, code: Option<i32>, stderr: &str) -> Result<(), Failure> {
        if self.lost.is_none()
            && let Err(failure) = self.write().await
        {
            self.lost = Some(failure);
        }
        for index in 0..self.prepared.ready.len() {
            if self.ended.contains(&index) {
                continue;
            }
            let state = self.entry(index).await;
            let ready = &self.prepared.ready[index];
            let well = self.progress.complete(index).is_some()
                || (code == Some(0) && self.progress.doing(index).is_none());
            if well {
                let applied = self.applied(index, state.as_ref());
                self.end(index, Ok(applied)).await?;
                continue;
            }
            // Whatever may be there is remembered, half made or not.
            let may_exist = state.is_some() || self.progress.doing(index).is_some();
            if may_exist
                && self.progress.begun(index)
                && self.lost.is_none()
                && let Some(recorded) = &ready.recorded
            {
                let recorded = recorded.clone();
                let id = ready.subject.id().clone();
                if let Err(failure) = self.sink.written(&id, recorded).await {
                    self.lost = Some(failure);
                }
            }
            let error = self.error_of(index, stderr);
            self.end(index, Err(error.into())).await?;
        }
        Ok(())
    }

    fn error_of(&self, index: usize, stderr: &str) -> TerraformError {
        let secrets = &self.runtime.options.secrets;
        let subject = &self.prepared.ready[index].subject;
        let id = subject.id().clone();
        let address = subject.address.to_string();
        if let Some(diagnostic) = self.progress.error_of(&address) {
            return diagnostic.of(&id, secrets);
        }
        if let Some(action) = self.progress.doing(index) {
            let action = match action {
                "create" => "created",
                "delete" => "deleted",
                _ => "changed",
            };
            return TerraformError::InFlight { id, address, action };
        }
        if self.interrupted.is_some() {
            return TerraformError::Interrupted { id };
        }
        let why = match self.progress.first_error() {
            Some(diagnostic) => format!("something before it failed: {}", diagnostic.text(secrets)),
            None => match plain(secrets, stderr) {
                text if text.is_empty() => "Terraform ended before its turn".to_owned(),
                text => format!("Terraform ended before its turn: {text}"),
            },
        };
        TerraformError::NotTried { id, why }
    }

    fn applied(&self, index: usize, state: Option<&Holding>) -> Applied {
        let ready = &self.prepared.ready[index];
        let live = ready
            .expected
            .as_ref()
            .map(|expected| fill(expected, state.and_then(Holding::attributes)));
        Applied {
            id: ready.subject.id().clone(),
            recorded: ready.recorded.clone().filter(|_| ready.action != Action::Forget),
            live,
        }
    }

    /// Tells the sink, once.
    async fn end(&mut self, index: usize, result: Result<Applied, Failure>) -> Result<(), Failure> {
        let id = self.prepared.ready[index].subject.id();
        if !self.ended.insert(index) || !self.asked.contains(id) {
            return Ok(());
        }
        self.sink.ended(id, result).await
    }
}

/// The planned object with what was not known then, from the state.
fn fill(expected: &Value, attributes: Option<&Map<String, Value>>) -> Value {
    let (Value::Object(expected), Some(attributes)) = (expected, attributes) else {
        return expected.clone();
    };
    let known = |key: &String, planned: Option<&Value>, actual: &Value| match planned {
        Some(planned) if !value::holds_unknown(planned) => (key.clone(), planned.clone()),
        _ => (key.clone(), untyped(actual)),
    };
    attributes
        .iter()
        .map(|(key, actual)| known(key, expected.get(key), actual))
        .collect::<Map<_, _>>()
        .into()
}

/// A state writes an attribute whose schema leaves its type open as `{"type": …, "value": …}`.
fn untyped(attribute: &Value) -> Value {
    let is_type = |kind: &Value| match kind {
        Value::String(name) => ["string", "number", "bool", "dynamic"].contains(&name.as_str()),
        Value::Array(parts) => {
            let first = parts.first().and_then(Value::as_str);
            matches!(first, Some("list" | "set" | "map" | "object" | "tuple")) && parts.len() >= 2
        }
        _ => false,
    };
    match attribute {
        Value::Object(map) if map.len() == 2 && map.get("type").is_some_and(is_type) => {
            map.get("value").unwrap_or(attribute).clone()
        }
        other => other.clone(),
    }
}

impl Prepared {
    /// Whether these are the resources it was made for, and all values are known.
    fn is_applicable(&self, ids: &[ResourceId]) -> bool {
        self.ready
            .iter()
            .all(|r| !r.provisional && (!r.touched || ids.contains(r.subject.id())))
    }

    /// Whether another plan is for the same resources of the same stack.
    pub(super) fn is_for_the_same(&self, other: &Self) -> bool {
        let ids = |p: &Self| -> Vec<ResourceId> {
            p.ready.iter().map(|r: &Ready| r.subject.id().clone()).collect()
        };
        self.stack == other.stack && ids(self) == ids(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_not_known_comes_from_the_state() {
        let expected = json!({"input": {"a": 1}, "output": {"$unknown": true}, "id": {"$unknown": true}, "odd": {"$unknown": true}});
        let state = json!({"input": {"type": ["object", {"a": "number"}], "value": {"a": 1}},
            "output": {"type": ["object", {"a": "number"}], "value": {"a": 1}}, "id": "x", "odd": {"type": "t3.micro", "value": 2}});
        assert_eq!(
            fill(&expected, state.as_object()),
            json!({"input": {"a": 1}, "output": {"a": 1}, "id": "x", "odd": {"type": "t3.micro", "value": 2}})
        );
        assert_eq!(fill(&expected, None), expected);
    }
}
