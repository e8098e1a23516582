//! A run, its notes, a store in memory and its stacks, for unit tests.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use konverge_base::model::{
    Digest, RepoPath, StackId,
    event::NoEvents,
    file_source::{BlobId, EarlierFile, FileEntry, FileKind, FileTree, Source, SourceError},
    note::Note,
    stack::{CompileSetup, NamedBy, Stack},
    state::StackState,
};
use konverge_secrets::{HashKey, Secrets};
use konverge_state::{
    DocumentWriter, LeaseOptions, RepositoryId, StateStore, WriteReason, store::MemoryStore,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{NoNotes, Notes, RunContext, StateBackend};

/// A run with these variables only, whose notes nobody reads.
pub(crate) fn run(variables: &[(&str, &str)]) -> RunContext {
    let variables = variables.iter();
    RunContext {
        dir: PathBuf::from("/nowhere"),
        env: variables
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        secrets: secrets(),
        cancel: CancellationToken::new(),
        writes: Arc::default(),
        events: Arc::new(NoEvents),
        notes: Arc::new(NoNotes),
        recorder: konverge_trace::Recorder::default(),
    }
}

pub(crate) fn secrets() -> Secrets {
    Secrets::new(HashKey::derive("test"))
}

/// The texts of the notes of a run.
#[derive(Default)]
pub(crate) struct SaidNotes(Mutex<Vec<String>>);

impl SaidNotes {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Notes for SaidNotes {
    fn say(&self, note: Note) {
        self.0.lock().unwrap().push(note.text);
    }

    fn command(&self, _: &str) {}
}

/// A run, and what it says.
pub(crate) fn noted_run(variables: &[(&str, &str)]) -> (RunContext, Arc<SaidNotes>) {
    let notes = Arc::new(SaidNotes::default());
    let run = RunContext {
        notes: notes.clone(),
        ..run(variables)
    };
    (run, notes)
}

pub(crate) fn id(text: &str) -> StackId {
    text.parse().unwrap()
}

/// A stack of the folder `appops/ID`.
pub(crate) fn stack(name: &str) -> Stack {
    let folder = RepoPath::normalize(&format!("appops/{name}")).unwrap();
    Stack {
        id: id(name),
        names: id(name),
        earlier_names: None,
        named_by: NamedBy::Names,
        project_folder: folder.parent().unwrap(),
        manifest: folder.child("stack.yaml"),
        folder,
        compile: Ok(CompileSetup::default()),
        cluster: None,
        kubeconfig: None,
        reads: BTreeMap::new(),
    }
}

/// The states of the repository `shop` in a store in memory.
pub(crate) fn backend() -> StateBackend {
    let writer = DocumentWriter {
        run: "ada@laptop".to_owned(),
        actor: "ada".to_owned(),
    };
    let store = Arc::new(MemoryStore::default());
    StateBackend {
        states: StateStore::open(store, RepositoryId::new("shop"), writer),
        secrets: secrets(),
        is_shared: true,
        is_encrypted: false,
        age_recipients: Vec::new(),
    }
}

/// The state of a stack with these ConfigMaps.
pub(crate) fn state(name: &str, objects: &[&str]) -> StackState {
    let resources = objects.iter().map(|object| {
        let attributes = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": object, "namespace": "shop"},
        });
        let id = format!("v1:ConfigMap:shop:{object}");
        serde_json::from_value(
            json!({"id": id, "type": "Kubernetes", "cluster": "prod", "attributes": attributes}),
        )
        .unwrap()
    });
    StackState {
        resources: resources.collect(),
        ..StackState::empty(id(name), stack(name).folder)
    }
}

/// Records a state as an apply does, and returns its serial.
pub(crate) async fn record(backend: &StateBackend, state: StackState) -> u64 {
    let options = LeaseOptions {
        wait: std::time::Duration::ZERO,
        ..LeaseOptions::default()
    };
    let lease = backend.states.acquire(&state.stack, options).await.unwrap();
    lease.record(WriteReason::Apply, state, None).await.unwrap()
}

/// The files of a revision, and a file that an earlier commit had.
#[derive(Default)]
pub(crate) struct Files {
    tree: FileTree,
    contents: BTreeMap<BlobId, Arc<[u8]>>,
    earlier: Vec<EarlierFile>,
}

impl Files {
    pub(crate) fn new(texts: &[(&str, &str)]) -> Self {
        let mut files = Self::default();
        for (path, text) in texts {
            let entry = FileEntry {
                blob: files.blob(text),
                kind: FileKind::File,
            };
            files.tree.insert(RepoPath::normalize(path).unwrap(), entry);
        }
        files
    }

    pub(crate) fn with_earlier(mut self, path: &str, text: &str) -> Self {
        let earlier = EarlierFile {
            path: RepoPath::normalize(path).unwrap(),
            blob: self.blob(text),
            commit: "e".repeat(40).parse().unwrap(),
        };
        self.earlier.push(earlier);
        self
    }

    fn blob(&mut self, text: &str) -> BlobId {
        let mut blob = BlobId([0; 20]);
        blob.0
            .copy_from_slice(&Digest::of_bytes(text.as_bytes()).as_bytes()[..20]);
        self.contents.insert(blob, text.as_bytes().into());
        blob
    }
}

impl Source for Files {
    fn files(&self) -> &FileTree {
        &self.tree
    }

    fn read(&self, blob: BlobId) -> Result<Arc<[u8]>, SourceError> {
        Ok(Arc::clone(&self.contents[&blob]))
    }

    fn earlier_files(&self) -> Result<Vec<EarlierFile>, SourceError> {
        Ok(self.earlier.clone())
    }
}
