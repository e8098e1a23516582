//! The secret stores of a run, and the secrets that were read from them.
//!
//! A run sends at most two requests for each secret: one for its version, and one for its value. The references of one
//! stack are in [`StackSecrets`](crate::stack_secrets::StackSecrets).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex},
};

use tokio::sync::OnceCell;

use crate::{RunContext, secret_stores, sops_copies::SopsCopies};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::{file_source::Source, spec::Spec},
    sync::lock,
};
use konverge_cloud::secret_stores::{
    FetchedSecret, SecretProblem, SecretQuery, SecretRights, SecretStore, SecretStoreError,
};
use konverge_config::SecretsConfig;
use konverge_kubernetes::Kubernetes;
use konverge_policy as policy;
use konverge_secrets::{SecretReference, SecretValue, Secrets, StoreName};

/// The key of a secret: the name of its store, and the query for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SecretEntry {
    pub store: String,
    pub query: SecretQuery,
}

/// The version of a secret, or the reason why there is none. Requested once.
type VersionCell = Arc<OnceCell<Result<Option<String>, SecretStoreError>>>;

/// The value of a secret. Requested once.
type ValueCell = Arc<OnceCell<Arc<FetchedSecret>>>;

/// The secret stores of a run, with everything that was read from them.
pub struct SecretReferences {
    pub(crate) config: SecretsConfig,
    stores: BTreeMap<String, Arc<dyn SecretStore>>,
    pub(crate) copies: SopsCopies,
    pub(crate) secrets: Secrets,
    notes: Arc<dyn crate::Notes>,
    /// The values that were read, by secret.
    values: Mutex<HashMap<SecretEntry, ValueCell>>,
    /// The stores that returned no version to a preview because of a problem of the whole store.
    silent: Mutex<BTreeSet<String>>,
    /// The versions, by secret and by true for an apply.
    versions: Mutex<HashMap<(SecretEntry, bool), VersionCell>>,
}

impl SecretReferences {
    /// Opens the stores of the configuration; no request is sent yet. `files` are the files of the planned revision.
    /// Without clusters, no Secret of a cluster is read.
    pub fn new(
        run: &RunContext,
        config: &SecretsConfig,
        secrets: Secrets,
        files: Option<Arc<dyn Source>>,
        clusters: Option<&Kubernetes>,
    ) -> Self {
        Self {
            config: config.clone(),
            copies: SopsCopies::new(files.clone()),
            stores: secret_stores::open(run, config, &secrets, files, clusters),
            secrets,
            notes: Arc::clone(&run.notes),
            values: Mutex::default(),
            silent: Mutex::default(),
            versions: Mutex::default(),
        }
    }

    /// Adds the store to each reference of a Spec without a check, for a Spec that is only compared with.
    pub fn name_stores(&self, spec: Spec) -> Spec {
        policy::name_stores(&self.config, spec)
    }

    /// Returns the value of a secret. Only the first call in a run sends a request.
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
            .hint("define the store under `secrets.stores` in the default branch's konverge.yaml")
        })
    }

    /// Masks the value from now on in values and messages, but not in finished texts: whoever may write the secret
    /// chooses its value, and could otherwise hide an alert.
    pub(crate) fn learn(&self, value: &SecretValue) {
        if let Some(text) = value.expose_text() {
            self.secrets.learn_fetched(text);
        }
    }

    /// Prints why a version is not shown. A problem of the whole store is printed only once.
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

    /// Returns the value of a secret if this run has read it.
    pub(crate) fn known_value(&self, key: &SecretEntry) -> Option<Arc<FetchedSecret>> {
        lock(&self.values).get(key)?.get().cloned()
    }

    /// Requests the version of a secret, once for each kind of rights.
    ///
    /// # Errors
    /// The store does not respond, or denies the version to an apply.
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
                    // A preview that may not read the version still shows the reference without it.
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

/// Returns the key of the secret that a reference names.
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
