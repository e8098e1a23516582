//! The secret stores of a run, and the values that were read from them.
//!
//! A run asks for each secret at most twice: once for its version, and once for its value. The state of one stack is in
//! [`StackSecrets`](crate::stack_secrets::StackSecrets).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::OnceCell;

use crate::{RunContext, secret_stores, sops_copies::SopsCopies};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::{ClusterName, file_source::Source, spec::Spec},
};
use konverge_cloud::secret_stores::{
    ClusterSecrets, FetchedSecret, SecretProblem, SecretQuery, SecretRights, SecretStore, SecretStoreError,
};
use konverge_config::SecretsConfig;
use konverge_policy as policy;
use konverge_secrets::{SecretReference, SecretValue, Secrets, StoreName};

/// A secret: the store, and what to ask it for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SecretEntry {
    pub store: String,
    pub query: SecretQuery,
}

/// The version of a secret, or the reason why there is none. It is asked for once.
type VersionCell = Arc<OnceCell<Result<Option<String>, SecretStoreError>>>;

/// The value of a secret, read once.
type ValueCell = Arc<OnceCell<Arc<FetchedSecret>>>;

/// The secret stores of a run, and the answers that they gave.
pub struct SecretReferences {
    pub(crate) config: SecretsConfig,
    stores: BTreeMap<String, Arc<dyn SecretStore>>,
    pub(crate) copies: SopsCopies,
    pub(crate) secrets: Secrets,
    notes: Arc<dyn crate::Notes>,
    /// The values that were read.
    values: Mutex<HashMap<SecretEntry, ValueCell>>,
    /// The stores that gave no version to previews, because of a problem of the whole store.
    silent: Mutex<BTreeSet<String>>,
    /// The versions, by secret and by whether the run applies.
    versions: Mutex<HashMap<(SecretEntry, bool), VersionCell>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while the lock is held")
}

impl SecretReferences {
    /// Opens the stores of the configuration; no request is sent yet. `files` are those of the revision whose Specs are
    /// planned. `cluster` returns the reader of a cluster's Secrets.
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
            values: Mutex::default(),
            silent: Mutex::default(),
            versions: Mutex::default(),
        }
    }

    /// Adds the store to each reference of a Spec, without a check: for a Spec that another is compared with.
    pub fn name_stores(&self, spec: Spec) -> Spec {
        policy::name_stores(&self.config, spec)
    }

    /// The value of a secret: of this run's first request.
    pub(crate) async fn read(&self, key: &SecretEntry) -> Result<Arc<FetchedSecret>, UserError> {
        let cell = Arc::clone(lock(&self.values).entry(key.clone()).or_default());
        let SecretEntry { store, query } = key;
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

    /// Masks the value from now on, in values and messages but not in finished texts: anyone who may write the secret
    /// chooses the value, and could hide an alert otherwise.
    pub(crate) fn learn(&self, value: &SecretValue) {
        if let Some(text) = value.expose_text() {
            self.secrets.learn_fetched(text);
        }
    }

    /// Notes why a version is not shown; only once for a store that has the problem with every secret.
    fn note_no_version(&self, store: &str, error: &SecretStoreError) {
        let what = if error.problem.is_of_store() {
            if lock(&self.silent).insert(store.to_owned()) {
                "no version of this store is shown"
            } else {
                return;
            }
        } else {
            "the version is not shown"
        };
        self.notes.note(&format!("{}; {what}", chain(error)));
    }

    /// The value of a secret that was read in this run.
    pub(crate) fn known_value(&self, key: &SecretEntry) -> Option<Arc<FetchedSecret>> {
        lock(&self.values).get(key)?.get().cloned()
    }

    /// Asks for the version of a secret, once for each kind of rights.
    ///
    /// # Errors
    /// The store cannot be asked, or denies it to an apply.
    pub(crate) async fn ask_version(
        &self,
        key: &SecretEntry,
        rights: SecretRights,
    ) -> Result<Option<String>, UserError> {
        let applying = matches!(rights, SecretRights::Values);
        let cell = {
            let mut versions = lock(&self.versions);
            Arc::clone(versions.entry((key.clone(), applying)).or_default())
        };
        let SecretEntry { store, query } = key;
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
}

/// The secret of a reference.
pub(crate) fn secret_key(reference: &SecretReference) -> SecretEntry {
    let store = match &reference.store {
        StoreName::Word(word) => word.clone(),
        StoreName::Default | StoreName::Generated => String::new(),
    };
    let query = SecretQuery {
        path: reference.path.clone(),
        version: reference.version.clone(),
    };
    SecretEntry { store, query }
}
