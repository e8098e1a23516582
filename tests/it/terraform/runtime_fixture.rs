//! A test harness for the Terraform runtime without the engine: one stack with a minimal state.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ResourceId,
        plan::Action,
        spec::{Resource, RuntimeKind},
        state::Recorded,
    },
};
use konverge_engine::runtime::{
    AppliedResource, ApplySink, Item, Needs, PlannedResource, RecordFailure, Runtime, StackScope,
};
use konverge_secrets::{HashKey, Secrets};
use konverge_state::Sealer;
use konverge_terraform::{AllowedProvider, StateEncryption, Terraform, TerraformOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::terraform;

/// The provider of the mirror, as a Spec names it.
pub const LOCAL: &str = "registry.terraform.io/hashicorp/local/2.9.0";

/// A stack, its runtime, and what was remembered.
pub struct Rig {
    pub runtime: Terraform,
    pub scope: StackScope,
    pub recorded: BTreeMap<ResourceId, Recorded>,
    /// Where the resources' files go.
    pub outside: TempDir,
    /// What the runtime learned.
    pub secrets: Secrets,
    pub scratch: TempDir,
}

impl Rig {
    pub fn new(binary: PathBuf) -> Self {
        Self::with(binary, |_| {})
    }

    pub fn with(binary: PathBuf, change: impl FnOnce(&mut TerraformOptions)) -> Self {
        let scratch = TempDir::new().unwrap();
        let secrets = Secrets::new(HashKey::derive("test"));
        let mut options = TerraformOptions::new(secrets.clone());
        options.binary = Some(binary);
        options.mirror = Some(terraform::mirror());
        options.scratch = Some(scratch.path().to_owned());
        options.key = Some(Arc::new(StateSeal(Sealer::generate())));
        let allowed = |source: &str, version: &str| AllowedProvider {
            source: source.to_owned(),
            version: version.to_owned(),
            hashes: Vec::new(),
        };
        options.providers = vec![
            allowed("hashicorp/local", terraform::LOCAL_PROVIDER),
            allowed("konverge/trace", terraform::TRACE_PROVIDER),
        ];
        // Some tests give the trace provider a token without a secret store, or misspell it.
        options.credential_settings = vec!["token".to_owned(), "tokn".to_owned()];
        change(&mut options);
        Self {
            runtime: Terraform::new(options),
            scope: StackScope {
                ignore: Vec::new(),
                stack: "shop/prod".parse().unwrap(),
                earlier: Vec::new(),
                data: BTreeMap::new(),
                read: std::sync::Arc::default(),
                pending: std::sync::Arc::default(),
                hooks: std::sync::Arc::default(),
                references: Default::default(),
                only_compares: false,
            },
            recorded: BTreeMap::new(),
            outside: TempDir::new().unwrap(),
            secrets,
            scratch,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.outside.path().join(name)
    }

    /// A `local_file` with this content.
    pub fn file(&self, name: &str, content: Value) -> Resource {
        let path = self.path(name);
        resource(
            &format!("hashicorp:local:local_file:{name}"),
            json!({"filename": path, "content": content}),
        )
    }

    /// A `trace_object` of this name, with more attributes.
    pub fn trace(&self, name: &str, more: Value) -> Resource {
        let mut object = resource(
            &format!("konverge:trace:trace_object:{name}"),
            json!({"folder": self.outside.path(), "name": name}),
        );
        let more = more.as_object().unwrap().clone();
        object.attributes.extend(more);
        let extensions = &mut object.extensions;
        extensions.insert("provider".to_owned(), json!(terraform::trace()));
        object
    }

    /// What the provider was asked to do, in order: `create one`.
    pub fn calls(&self) -> Vec<String> {
        calls(self.outside.path())
    }

    fn items(&self, wanted: &[Resource]) -> (Vec<Item>, Vec<Item>) {
        let prior = |id: &ResourceId| self.recorded.get(id).cloned();
        let desired = wanted
            .iter()
            .map(|r| Item {
                id: r.id.clone(),
                cluster: None,
                prior: prior(&r.id),
                desired: Some(r.clone()),
                needs: Needs::default(),
            })
            .collect();
        let gone = self
            .recorded
            .values()
            .filter(|recorded| !wanted.iter().any(|r| r.id == recorded.id))
            .map(|recorded| Item {
                id: recorded.id.clone(),
                cluster: None,
                prior: Some(recorded.clone()),
                desired: None,
                needs: Needs::default(),
            })
            .collect();
        (desired, gone)
    }

    /// Plans what is wanted, then what is to go, as the engine does.
    pub async fn try_plan(&self, wanted: &[Resource]) -> Vec<Vec<Result<PlannedResource, UserError>>> {
        let (desired, gone) = self.items(wanted);
        let mut segments = Vec::new();
        for items in [desired, gone] {
            if !items.is_empty() {
                let answers = self.runtime.plan(&self.scope, items).await.unwrap().into_iter();
                segments.push(answers.map(|answer| answer.map_err(UserError::from)).collect());
            }
        }
        segments
    }

    pub async fn plan(&self, wanted: &[Resource]) -> Vec<Vec<PlannedResource>> {
        let all = self.try_plan(wanted).await;
        all.into_iter()
            .map(|segment| segment.into_iter().map(|answer| answer.unwrap()).collect())
            .collect()
    }

    /// What would happen to each resource, by the last part of its id.
    pub async fn actions(&self, wanted: &[Resource]) -> BTreeMap<String, Action> {
        actions(&self.plan(wanted).await)
    }

    /// Plans and applies, and remembers what came of it. Every item must have ended well.
    pub async fn apply(&mut self, wanted: &[Resource]) -> Sink {
        let sink = Sink::default();
        self.apply_into(wanted, &sink).await.unwrap();
        for (id, result) in sink.ended() {
            if let Err(failure) = result {
                panic!("{id}: {failure:?}");
            }
        }
        sink
    }

    /// Plans and applies with a sink of the test's own.
    pub async fn apply_into(&mut self, wanted: &[Resource], sink: &Sink) -> Result<(), UserError> {
        let mut result = Ok(());
        for planned in self.plan(wanted).await {
            let asked: Vec<_> = planned.iter().map(|p| p.item.id.clone()).collect();
            result = self.runtime.apply(&self.scope, planned, sink).await;
            self.remember(sink);
            if result.is_err() {
                break;
            }
            for id in asked {
                let times = sink.ended().iter().filter(|(other, _)| *other == id).count();
                assert_eq!(times, 1, "{id} ended {times} times");
            }
        }
        result
    }

    /// Takes over what a sink heard.
    pub fn remember(&mut self, sink: &Sink) {
        for event in sink.events.lock().unwrap().iter() {
            match event {
                Event::Data(key, value) => {
                    self.scope.data.insert(key.clone(), value.clone());
                }
                Event::Written(recorded) => {
                    self.recorded.insert(recorded.id.clone(), recorded.clone());
                }
                Event::Ended(id, Ok(applied)) => match &applied.recorded {
                    Some(recorded) => {
                        self.recorded.insert(id.clone(), recorded.clone());
                    }
                    None => {
                        self.recorded.remove(id);
                    }
                },
                Event::Ended(_, Err(_)) => {}
            }
        }
    }

    /// The files that any process of the runtime left or keeps on disk.
    pub fn files_on_disk(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(self.scratch.path(), &mut found);
        found
    }
}

/// The calls that left a trace in a folder, in order, without the random end of each name.
pub fn calls(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("calls.log")).unwrap_or_default();
    let without_end = |line: &str| line.rsplit_once('.').map(|(call, _)| call.to_owned());
    text.lines().filter_map(without_end).collect()
}

pub fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            walk(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}

/// All files below a folder.
pub fn walk_all(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(folder, &mut found);
    found
}

pub fn actions(segments: &[Vec<PlannedResource>]) -> BTreeMap<String, Action> {
    segments
        .iter()
        .flatten()
        .map(|p| (name(&p.item.id), p.public.action))
        .collect()
}

/// The last part of an id.
pub fn name(id: &ResourceId) -> String {
    id.as_str().rsplit(':').next().unwrap().to_owned()
}

pub fn resource(id: &str, attributes: Value) -> Resource {
    let mut extensions = serde_json::Map::new();
    if id.starts_with("hashicorp:local:") {
        extensions.insert("provider".to_owned(), json!(LOCAL));
    }
    Resource {
        id: id.parse().unwrap(),
        runtime: RuntimeKind::Terraform,
        attributes: attributes.as_object().unwrap().clone(),
        depends_on: Vec::new(),
        extensions,
        sharing: konverge_base::model::spec::Sharing::default(),
    }
}

pub fn data(name: &str, attributes: Value) -> Resource {
    resource(&format!("terraform:builtin:terraform_data:{name}"), attributes)
}

/// What `ops` gives to the runtime.
pub struct StateSeal(pub Sealer);

impl StateEncryption for StateSeal {
    fn seal(&self, document: &Value) -> Result<Value, UserError> {
        Ok(self.0.seal_value(document)?)
    }

    fn open(&self, sealed: &Value) -> Result<Value, UserError> {
        Ok(self.0.open_value(sealed)?)
    }
}

/// What a sink hears.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a test keeps a few of them")]
pub enum Event {
    Data(String, Value),
    Written(Recorded),
    Ended(ResourceId, Result<AppliedResource, UserError>),
}

/// Keeps what it hears, in order.
#[derive(Default)]
pub struct Sink {
    pub events: Mutex<Vec<Event>>,
    pub cancelled: AtomicBool,
    /// Fails from now on, as a journal does whose lease is lost.
    pub lost: AtomicBool,
    /// Stores nothing of the runtime's data from now on, for this reason.
    pub away: Mutex<Option<ErrorKind>>,
    /// How often it was tried meanwhile.
    pub tries: AtomicUsize,
    pub words: Mutex<Vec<String>>,
}

impl Sink {
    pub fn ended(&self) -> Vec<(ResourceId, Result<AppliedResource, UserError>)> {
        let events = self.events.lock().unwrap();
        events
            .iter()
            .filter_map(|event| match event {
                Event::Ended(id, result) => Some((id.clone(), result.clone())),
                _ => None,
            })
            .collect()
    }

    /// How one resource ended, by the last part of its id.
    pub fn end_of(&self, wanted: &str) -> Option<Result<AppliedResource, UserError>> {
        let ended = self.ended();
        ended
            .into_iter()
            .find(|(id, _)| name(id) == wanted)
            .map(|(_, result)| result)
    }

    /// Waits until something is so.
    pub async fn until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) -> Duration {
        let started = Instant::now();
        while !is_so(self) {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "waited in vain: {what}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        started.elapsed()
    }

    fn hear(&self, event: Event) -> Result<(), UserError> {
        if self.lost.load(Ordering::Relaxed) {
            return Err(UserError::new(ErrorKind::LeaseHeld, "another run took over"));
        }
        self.events.lock().unwrap().push(event);
        Ok(())
    }
}

#[async_trait]
impl ApplySink for Sink {
    fn progress(&self, id: &ResourceId, message: &str) {
        self.words.lock().unwrap().push(format!("{id}: {message}"));
    }

    async fn record_written(&self, _: &ResourceId, recorded: Recorded) -> Result<(), UserError> {
        self.hear(Event::Written(recorded))
    }

    async fn record_result(
        &self,
        id: &ResourceId,
        result: Result<AppliedResource, UserError>,
    ) -> Result<(), UserError> {
        self.hear(Event::Ended(id.clone(), result))
    }

    async fn runtime_data(&self, key: &str, value: Value) -> Result<(), RecordFailure> {
        if let Some(kind) = *self.away.lock().unwrap() {
            self.tries.fetch_add(1, Ordering::Relaxed);
            return Err(RecordFailure {
                error: Box::new(UserError::new(kind, "the store is away")),
                may_retry: kind == ErrorKind::Store,
            });
        }
        Ok(self.hear(Event::Data(key.to_owned(), value))?)
    }

    fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    async fn check_lease(&self) -> Result<(), UserError> {
        self.hear(Event::Data("fence".to_owned(), Value::Null))
    }
}
