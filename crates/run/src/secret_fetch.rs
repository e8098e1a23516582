//! The references of the stacks of a run: which are admitted, which version each secret has, and the values of
//! the stacks that are being applied.
//!
//! A secret is asked at most once a run for its version, and once for its value. The values of a stack are read before
//! its lease, so that a missing one stops the stack untouched, and are overwritten when the run ends.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard},
};

use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use tokio::sync::OnceCell;

use crate::{RunContext, Target, secret_stores, sops_copies::SopsCopies};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ClusterName, RepoPath, StackId, file_source::Source, spec::Spec},
    secrets::{RotatedVersion, SecretReference, SecretResolver, SecretValue, Secrets, StoreName},
};
use konverge_cloud::secret_stores::{
    ClusterSecrets, FetchedSecret, SecretProblem, SecretQuery, SecretRights, SecretStore, SecretStoreError,
};
use konverge_config::{Rotation, SecretTarget, SecretsConfig};
use konverge_policy::{self as policy, SecretReader};

/// The number of secrets read at once.
const AT_ONCE: usize = 16;

/// A secret: its store and what is read of it.
type SecretKey = (String, SecretQuery);

/// The version of a secret, or why there is none: asked once.
type VersionCell = Arc<OnceCell<Result<Option<String>, SecretStoreError>>>;

/// The value of a secret, read once.
type ValueCell = Arc<OnceCell<Arc<FetchedSecret>>>;

/// The secret references of a run.
pub struct SecretReferences {
    config: SecretsConfig,
    stores: BTreeMap<String, Arc<dyn SecretStore>>,
    copies: SopsCopies,
    secrets: Secrets,
    notes: Arc<dyn crate::Notes>,
    /// The runtimes ask by stack.
    stacks: Mutex<HashMap<StackId, StackReferences>>,
    /// The values that were read.
    values: Mutex<HashMap<SecretKey, ValueCell>>,
    /// The stores that gave no version to previews, because of a problem of the whole store.
    silent: Mutex<BTreeSet<String>>,
    /// By secret, and whether the stack that asked is being applied.
    versions: Mutex<HashMap<(SecretKey, bool), VersionCell>>,
}

/// What belongs to one stack.
#[derive(Default)]
struct StackReferences {
    /// What it may use.
    admitted: BTreeSet<SecretReference>,
    /// Its folder, once it was applied: rules name folders.
    folder: Option<RepoPath>,
    /// Whether it is being applied: then it may have values.
    is_applying: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while the lock is held")
}

impl SecretReferences {
    /// The stores of the configuration; nothing is asked yet. `files` are those of the revision whose Specs are
    /// planned. `cluster` gives the reader of a cluster's
    /// Secrets.
    pub fn new(
        run: &RunContext,
        config: &SecretsConfig,
        secrets: Secrets,
        files: Option<Arc<dyn Source>>,
        cluster: impl Fn(Option<&ClusterName>) -> Arc<dyn ClusterSecrets>,
    ) -> Self {
        Self {
            config: config.clone(),
            copies: SopsCopies::new(files.clone()),
            stores: secret_stores::open(run, config, &secrets, files, cluster),
            secrets,
            notes: Arc::clone(&run.notes),
            stacks: Mutex::default(),
            values: Mutex::default(),
            silent: Mutex::default(),
            versions: Mutex::default(),
        }
    }

    /// Checks the references of a target's Spec. In the result each one names its store.
    ///
    /// # Errors
    /// A reference that the stack may not use.
    pub fn admit(&self, target: &Target, spec: Spec) -> Result<Spec, UserError> {
        let reader = SecretReader {
            stack: &target.id,
            folder: &target.folder,
        };
        let admitted = policy::admit(&self.config, reader, spec)?;
        self.copies.check(&self.config, reader, &admitted.references)?;
        self.of_stack(&target.id, |stack| stack.admitted.extend(admitted.references));
        Ok(admitted.spec)
    }

    /// Reads or changes what belongs to a stack.
    fn of_stack<T>(&self, stack: &StackId, f: impl FnOnce(&mut StackReferences) -> T) -> T {
        f(lock(&self.stacks).entry(stack.clone()).or_default())
    }

    /// The same without a check, for a Spec that others are compared with.
    pub fn name_stores(&self, spec: Spec) -> Spec {
        policy::name_stores(&self.config, spec)
    }

    /// Reads every secret of a target's Spec that was not read before. The stack may have them until the result is
    /// dropped.
    ///
    /// # Errors
    /// A reference that the stack may not use, or the first secret that cannot be read.
    pub async fn hold(&self, target: &Target, spec: &Spec) -> Result<FetchedSecrets<'_>, UserError> {
        self.admit(target, spec.clone())?;
        let references = self.of_stack(&target.id, |stack| stack.admitted.clone());
        let values = references
            .iter()
            .filter(|reference| !reference.as_version && !reference.is_generated());
        let keys: BTreeSet<SecretKey> = values.clone().map(secret_key).collect();
        let mut reads = stream::iter(keys)
            .map(|key| async move {
                let found = self.read(&key).await?;
                Ok::<_, UserError>((key, found))
            })
            .buffer_unordered(AT_ONCE);
        let mut held = HashMap::new();
        while let Some(read) = reads.next().await {
            let (key, found) = read?;
            held.insert(key, found);
        }
        for reference in values {
            let key = secret_key(reference);
            if let Some(found) = held.get(&key) {
                self.learn(&select(&key, found, reference)?);
            }
        }
        self.of_stack(&target.id, |stack| {
            stack.folder = Some(target.folder.clone());
            stack.is_applying = true;
        });
        let fetched = FetchedSecrets {
            of: self,
            stack: target.id.clone(),
        };
        self.ask_versions(&target.id).await?;
        Ok(fetched)
    }

    /// Asks the versions of all references of a stack at once: a plan asks one after the other, and finds the answers.
    /// The first of each store is asked alone, so that a store without an answer is asked once.
    ///
    /// # Errors
    /// The first version that cannot be had; the others are asked all the same.
    pub async fn ask_versions(&self, stack: &StackId) -> Result<(), UserError> {
        let references = self.of_stack(stack, |stack| stack.admitted.clone());
        let mut of_store: BTreeMap<String, BTreeMap<SecretKey, SecretReference>> = BTreeMap::new();
        for reference in references
            .into_iter()
            .filter(|reference| !reference.is_generated())
        {
            let key = secret_key(&reference);
            of_store.entry(key.0.clone()).or_default().insert(key, reference);
        }
        let mut result = Ok(());
        let (mut first, mut others) = (Vec::new(), Vec::new());
        for references in of_store.into_values() {
            let mut references = references.into_values();
            first.extend(references.next());
            others.extend(references);
        }
        for references in [first, others] {
            let mut asked = stream::iter(references)
                .map(|reference| async move { self.version(stack, &reference).await })
                .buffer_unordered(AT_ONCE);
            while let Some(version) = asked.next().await {
                result = result.and(version.map(drop));
            }
        }
        result
    }

    /// The value of a secret: of this run's first request.
    async fn read(&self, key: &SecretKey) -> Result<Arc<FetchedSecret>, UserError> {
        let cell = Arc::clone(lock(&self.values).entry(key.clone()).or_default());
        let (store, query) = key;
        let found = cell.get_or_try_init(|| async {
            let read = self.store(store)?.read(query).await;
            let found = read.map_err(|problem| SecretStoreError::new(store, &query.path, problem))?;
            Ok::<_, UserError>(Arc::new(found))
        });
        found.await.cloned()
    }

    fn store(&self, name: &str) -> Result<&Arc<dyn SecretStore>, UserError> {
        self.stores.get(name).ok_or_else(|| {
            UserError::new(
                ErrorKind::Secret,
                format!("there is no secret store `{}`", name.escape_debug()),
            )
            .hint("define it under `secrets.stores` in the default branch's konverge.yaml")
        })
    }

    /// Whoever may write the secret chooses the value: it is masked in values and messages, not in finished
    /// texts, or it could hide an alert.
    fn learn(&self, value: &SecretValue) {
        if let Some(text) = value.expose_text() {
            self.secrets.learn_fetched(text);
        }
    }

    /// Says why a version is not shown: once for a store that has the problem with every secret.
    fn note_no_version(&self, store: &str, error: &SecretStoreError) {
        let what = match error.problem.is_of_store() {
            false => "the version is not shown",
            true if lock(&self.silent).insert(store.to_owned()) => "no version of this store is shown",
            true => return,
        };
        self.notes.note(&format!("note: {error}; {what}"));
    }

    fn check_admitted(&self, stack: &StackId, reference: &SecretReference) -> Result<(), UserError> {
        let written = reference.as_written();
        match self.of_stack(stack, |stack| stack.admitted.contains(&written)) {
            true => Ok(()),
            false => Err(UserError::new(
                ErrorKind::Secret,
                format!("`{written}`: this reference is not in the Spec of `{stack}`"),
            )
            .hint("a value that another object holds is never read as a reference: write the reference into the Spec")),
        }
    }

    fn held_secret(&self, stack: &StackId, key: &SecretKey) -> Option<Arc<FetchedSecret>> {
        let values = lock(&self.values);
        let cell = values.get(key).filter(|_| self.has_values(stack))?;
        cell.get().cloned()
    }
}

/// The right of a stack that is being applied to have its values.
pub struct FetchedSecrets<'a> {
    of: &'a SecretReferences,
    stack: StackId,
}

impl Drop for FetchedSecrets<'_> {
    fn drop(&mut self) {
        self.of.of_stack(&self.stack, |stack| stack.is_applying = false);
    }
}

fn secret_key(reference: &SecretReference) -> SecretKey {
    let store = match &reference.store {
        StoreName::Word(word) => word.clone(),
        StoreName::Default | StoreName::Generated => String::new(),
    };
    let query = SecretQuery {
        path: reference.path.clone(),
        version: reference.version.clone(),
    };
    (store, query)
}

fn not_applying(reference: &SecretReference) -> UserError {
    UserError::new(
        ErrorKind::Internal,
        format!(
            "the value of `{}` is not held: the stack is not being applied",
            reference.label()
        ),
    )
}

fn select(
    (store, query): &SecretKey,
    found: &FetchedSecret,
    reference: &SecretReference,
) -> Result<SecretValue, SecretStoreError> {
    let selected = found.document.select(&reference.keys);
    selected.map_err(|problem| SecretStoreError::new(store, &query.path, problem))
}

#[async_trait]
impl SecretResolver for SecretReferences {
    async fn version(
        &self,
        stack: &StackId,
        reference: &SecretReference,
    ) -> Result<Option<String>, UserError> {
        self.check_admitted(stack, reference)?;
        if reference.is_generated() {
            return Ok(None);
        }
        let key = secret_key(reference);
        if let Some(found) = self.held_secret(stack, &key) {
            // A store without versions: another content is another version.
            let hash = || format!("hash:{}", self.secrets.hash(&found.document.expose_all()));
            return Ok(Some(found.version.clone().unwrap_or_else(hash)));
        }
        let applying = self.has_values(stack);
        let cell = {
            let mut versions = lock(&self.versions);
            Arc::clone(versions.entry((key.clone(), applying)).or_default())
        };
        let (store, query) = &key;
        let rights = match applying {
            true => SecretRights::Values,
            false => SecretRights::Versions,
        };
        let opened = self.store(store)?;
        let found = cell
            .get_or_init(|| async {
                if !applying && lock(&self.silent).contains(store) {
                    return Ok(None);
                }
                let version = opened.version(query, rights).await;
                match version.map_err(|problem| SecretStoreError::new(store, &query.path, problem)) {
                    // A preview without the right to read versions still shows the reference.
                    Err(error) if !applying && !matches!(error.problem, SecretProblem::Missing(_)) => {
                        self.note_no_version(store, &error);
                        Ok(None)
                    }
                    answer => answer,
                }
            })
            .await;
        Ok(found.clone()?)
    }

    async fn value(
        &self,
        stack: &StackId,
        reference: &SecretReference,
    ) -> Result<(SecretValue, Option<String>), UserError> {
        self.check_admitted(stack, reference)?;
        if reference.is_generated() {
            let value = SecretValue::generate();
            self.learn(&value);
            return Ok((value, None));
        }
        let key = secret_key(reference);
        let found = self
            .held_secret(stack, &key)
            .ok_or_else(|| not_applying(reference))?;
        let value = select(&key, &found, reference)?;
        Ok((value, self.version(stack, reference).await?))
    }

    async fn recorded_value(
        &self,
        stack: &StackId,
        reference: &SecretReference,
    ) -> Result<SecretValue, UserError> {
        let folder = self.of_stack(stack, |stack| stack.folder.clone());
        let folder = folder.ok_or_else(|| not_applying(reference))?;
        let reader = SecretReader {
            stack,
            folder: &folder,
        };
        let admitted = policy::admit_recorded(&self.config, reader, &reference.as_written())?;
        self.copies.check(&self.config, reader, [&admitted])?;
        let key = secret_key(&admitted);
        let found = self.read(&key).await?;
        let value = select(&key, &found, &admitted)?;
        self.learn(&value);
        Ok(value)
    }

    fn goes_into_any(&self, reference: &SecretReference) -> bool {
        let StoreName::Word(word) = &reference.store else {
            return false;
        };
        let store = self.config.stores.get(word);
        store.is_some_and(|store| store.into == SecretTarget::Any)
    }

    fn has_values(&self, stack: &StackId) -> bool {
        self.of_stack(stack, |stack| stack.is_applying)
    }

    fn rotated(&self, stack: &StackId) -> RotatedVersion {
        // A preview and a drift report show it; only an apply leaves it.
        match self.config.rotation {
            Rotation::Leave if self.has_values(stack) => RotatedVersion::Keep,
            _ => RotatedVersion::Write,
        }
    }
}
