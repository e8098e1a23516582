//! Opens the state store: the one in `konverge.yaml`, or else a folder on this machine.

use std::sync::Arc;

use crate::{RevisionSpec, RunContext, checkout_addresses, key_services};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    variables,
};
use konverge_config::Config;
use konverge_repo::git::Repository;
use konverge_secrets::{HashKey, Secrets};
use konverge_state::{
    DocumentWriter, IDENTITY_VARIABLE, RepositoryId, SealScope, Sealer, StateError, StateStore,
    store::{self, Key, StoreOptions, StorePart},
};

/// The opened states of a repository, with a registry of secrets that uses the hash key of the store.
#[derive(Clone)]
pub struct StateBackend {
    /// The store with the states.
    pub states: StateStore,
    /// The registry of secrets. It hashes with the key of the store.
    pub secrets: Secrets,
    /// True if `konverge.yaml` names the store, false for a folder on this machine.
    pub is_shared: bool,
    /// True if whole states are encrypted.
    pub is_encrypted: bool,
    /// The age recipients of `state.encrypt_to`.
    pub age_recipients: Vec<String>,
}

/// The permitted use of the hash key of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyUse {
    /// Read the key. Without one, hashes are valid only within this run.
    Look,
    /// Read the key, or create it on first use.
    Make,
    /// Read the key as [`KeyUse::Look`] does, but go on if no key service responds: documents that need no key can
    /// still be read.
    Diagnose,
}

impl StateBackend {
    /// Writes the changed entries of the index. An error is only a warning, because the states are written already.
    pub async fn save_index(&self, run: &RunContext) {
        if let Err(error) = self.states.save_index().await {
            run.notes
                .warning(&format!("could not update the state index: {}", chain(&error)));
        }
    }
}

/// Returns the id of a repository in the store: `state.id`, or else the normalized URL of `origin`.
///
/// # Errors
/// The repository has neither, and the store is shared.
pub fn repository_id(config: &Config, repository: Option<&Repository>) -> Result<RepositoryId, UserError> {
    let origin = || repository.and_then(Repository::origin_url);
    if let Some(id) = config.state.id.clone().or_else(origin) {
        return Ok(RepositoryId::new(id));
    }
    match (&config.state.url, repository) {
        (None, Some(repository)) => Ok(RepositoryId::new(format!("folder:{}", repository.root().display()))),
        (None, None) => Ok(RepositoryId::new("no-repository")),
        (Some(_), _) => Err(UserError::new(ErrorKind::Config, "the repository has no id in the store")
            .hint("`konverge init` writes an id as `state.id` into konverge.yaml; a git remote `origin` serves as well")),
    }
}

/// Opens the states. Nothing is written, except the hash key with [`KeyUse::Make`].
///
/// # Errors
/// The store is misconfigured, cannot be reached, or cannot hold a lease.
pub async fn open(
    run: &RunContext,
    config: &Config,
    repository: Option<&Repository>,
    key: KeyUse,
) -> Result<StateBackend, UserError> {
    open_part(run, config, repository, key, None).await
}

/// Opens the states; with `folder`, only those in a part of the store, which is independent of the rest.
///
/// # Errors
/// See [`open`].
pub async fn open_part(
    run: &RunContext,
    config: &Config,
    repository: Option<&Repository>,
    key: KeyUse,
    folder: Option<Key>,
) -> Result<StateBackend, UserError> {
    let id = repository_id(config, repository)?;
    let url = match &config.state.url {
        Some(url) => url.clone(),
        None => default_folder(run, &id)?,
    };
    let mut store = store::open(&url, &options(run, config)?).await?;
    if let Some(folder) = folder {
        store = Arc::new(StorePart::new(store, folder));
    }
    // If two writers can create the same document, a lease protects nothing, so such a store is refused.
    if key == KeyUse::Make && !config.state.unsafe_no_lock {
        store::probe(store.as_ref()).await?;
    }
    let writer = DocumentWriter {
        run: run.url(),
        actor: run.actor(),
    };
    let mut states = StateStore::open(store, id, writer);
    let (services, age) = key_services::open(run, config);
    states = states.with_key_services(services);
    let notes = Arc::clone(&run.notes);
    states = states.telling_skipped(Arc::new(move |what: &str| notes.warning(what)));
    let scope = if config.state.encrypt_to.is_empty() {
        SealScope::Values
    } else {
        SealScope::Documents
    };
    // This sealer reads the data keys below. Then a sealer with the data keys replaces it.
    states = states.with_sealer(Sealer::new(&age, run.var(IDENTITY_VARIABLE))?, scope);
    let accepts = config.state.accepts_unmarked(jiff::Timestamp::now());
    let accepts = accepts.map_err(|(why, hint)| UserError::new(ErrorKind::Config, why).hint(hint))?;
    if accepts && scope == SealScope::Documents {
        run.notes.note(
            "`state.accept_unmarked_until` is set: documents without a mark are accepted, whoever wrote them",
        );
    }
    if accepts {
        states = states.accepting_unmarked();
    }
    let sealer = open_sealer(run, &states, &age, key).await?;
    states = states.with_sealer(sealer, scope);
    if let Some(history) = config.state.history {
        states = states.with_retention(u64::from(history));
    }
    let secrets = match (run.var(variables::KONVERGE_REVIEW_KEY), key) {
        (Some(text), _) => run.secrets.with_key(HashKey::derive(text)),
        (None, KeyUse::Make) => run.secrets.with_key(states.hash_key().await?),
        (None, KeyUse::Look) => match states.existing_hash_key().await? {
            Some(key) => run.secrets.with_key(key),
            None => run.secrets.clone(),
        },
        // A diagnosis compares no hashes, so it needs no key.
        (None, KeyUse::Diagnose) => run.secrets.clone(),
    };
    Ok(StateBackend {
        states,
        secrets,
        is_shared: config.state.url.is_some(),
        is_encrypted: !config.state.encrypt_to.is_empty(),
        age_recipients: age,
    })
}

/// Returns true if this run can authenticate the documents that it writes, and check the writer of those that it reads.
/// Whether a key service unwraps the data key is only known later.
///
/// # Errors
/// `state.encrypt_to` or the age identity of the run is invalid.
pub fn can_mark(run: &RunContext, config: &Config) -> Result<bool, UserError> {
    let (services, age) = key_services::open(run, config);
    if config.state.encrypt_to.is_empty() || !services.is_empty() {
        return Ok(true);
    }
    let sealer = Sealer::new(&age, run.var(IDENTITY_VARIABLE))?;
    Ok(sealer.is_some_and(|sealer| sealer.can_mark()))
}

/// Opens the states for a command whose `konverge.yaml` comes from a revision of the checkout.
///
/// # Errors
/// See [`open`]; also if only commits of the checkout name an address.
pub async fn open_of_checkout(
    run: &RunContext,
    config: &Config,
    repository: Option<&Repository>,
    at: &RevisionSpec,
    key: KeyUse,
) -> Result<StateBackend, UserError> {
    checkout_addresses::check(run, repository, at, config)?;
    open(run, config, repository, key).await
}

/// Returns the key that encrypts and decrypts documents. A data key is unwrapped here, before any lease is acquired.
async fn open_sealer(
    run: &RunContext,
    states: &StateStore,
    age: &[String],
    key: KeyUse,
) -> Result<Option<Sealer>, UserError> {
    let identity = run.var(IDENTITY_VARIABLE);
    if !states.has_key_services() {
        return Ok(Sealer::new(age, identity)?);
    }
    let keys = match (states.open_data_keys().await, key) {
        (Ok(None), KeyUse::Make) => Some(states.make_data_key(None).await?),
        (Ok(keys), _) => keys,
        // Every document is also encrypted to the age recipients. Without a data key, new documents are encrypted only
        // to them.
        (Err(error @ StateError::KeyService { .. }), _) if identity.is_some() && !age.is_empty() => {
            run.notes.note(&format!(
                "{}; the identity in {IDENTITY_VARIABLE} is used",
                chain(&error)
            ));
            None
        }
        (Err(StateError::KeyService { .. }), KeyUse::Diagnose) => None,
        (Err(error), _) => return Err(error.into()),
    };
    let former = keys
        .as_ref()
        .map(|keys| states.former_services(keys.wrapped_by()));
    if let Some(former) = former.filter(|former| !former.is_empty()) {
        run.notes.note(&former_services_text(&former));
    }
    Ok(match keys {
        Some(keys) => Some(Sealer::with_data_keys(age, identity, &keys)?),
        // Other runs may write documents with the data key in the meantime. They are accepted if a holder of the age
        // identity had this key before.
        None => Sealer::with_known_data_keys(age, identity, states.known_data_keys().await?)?,
    })
}

/// Returns a warning about keys that were removed from `state.encrypt_to` but can still unwrap the data key.
pub fn former_services_text(former: &[String]) -> String {
    format!(
        "`{}` can unwrap the data key and is not in `state.encrypt_to`; `konverge state rekey` creates a data key without it",
        former.join("`, `")
    )
}

/// Returns the folder `$XDG_STATE_HOME/konverge/<repository id>`, as a `file://` URL.
fn default_folder(run: &RunContext, id: &RepositoryId) -> Result<String, UserError> {
    let folder = run
        .xdg_folder(variables::XDG_STATE_HOME, ".local/state")?
        .join(Key::from_components(&[id.as_str()]).as_str());
    Ok(format!("file://{}", folder.display()))
}

fn options(run: &RunContext, config: &Config) -> Result<StoreOptions, UserError> {
    let mut options = StoreOptions {
        environment: run.env.clone(),
        checkout: run.checkout(),
        cancel: run.cancel.clone(),
        ..StoreOptions::default()
    };
    for (name, value) in &config.state.options {
        options
            .set(name, value)
            .map_err(|why| UserError::new(ErrorKind::Config, format!("state.options: {why}")))?;
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::test_fixture::{noted_run, run};

    fn config(folder: &Path, more: &str) -> Config {
        let text = format!(
            "version: 1\nstate: {{id: shop, url: 'file://{}'{more}}}\n",
            folder.display()
        );
        Config::parse(&text).unwrap()
    }

    #[test]
    fn a_shared_store_needs_an_id_that_every_clone_has() {
        let named = Config::parse("version: 1\nstate: {id: shop, url: 's3://bucket'}\n").unwrap();
        assert_eq!(repository_id(&named, None).unwrap().as_str(), "shop");
        let unnamed = Config::parse("version: 1\nstate: {url: 's3://bucket'}\n").unwrap();
        let refused = repository_id(&unnamed, None).unwrap_err();
        assert!(refused.hints[0].contains("konverge init"), "{refused:?}");
        let local = repository_id(&Config::default(), None).unwrap();
        assert_eq!(local.as_str(), "no-repository");
    }

    #[test]
    fn the_folder_of_this_machine_is_in_the_state_home_of_the_user() {
        let id = RepositoryId::new("no-repository");
        let folder = |variables: &[(&str, &str)]| default_folder(&run(variables), &id).ok();
        let of_home = folder(&[("HOME", "/home/ada")]).unwrap();
        assert!(
            of_home.starts_with("file:///home/ada/.local/state/konverge/"),
            "{of_home}"
        );
        let own = folder(&[("HOME", "/home/ada"), ("XDG_STATE_HOME", "/var/ada")]).unwrap();
        assert!(own.starts_with("file:///var/ada/konverge/"), "{own}");
        let relative = folder(&[("HOME", "/home/ada"), ("XDG_STATE_HOME", "state")]);
        assert_eq!(
            relative,
            Some(of_home),
            "the folder of a relative path depends on where a command runs"
        );
        assert_eq!(folder(&[]), None);
    }

    /// A hash of one key is compared with one of another key as if the value had changed.
    #[tokio::test]
    async fn a_look_reads_the_key_of_hashes_and_only_a_write_makes_it() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), "");
        let hash = async |key| {
            let backend = open(&run(&[]), &config, None, key).await.unwrap();
            assert!(backend.is_shared && !backend.is_encrypted);
            backend.secrets.hash(b"value")
        };
        let of_run = run(&[]).secrets.hash(b"value");
        assert_eq!(hash(KeyUse::Look).await, of_run, "no key was made");
        let of_store = hash(KeyUse::Make).await;
        assert_ne!(of_store, of_run);
        assert_eq!(
            [hash(KeyUse::Look).await, hash(KeyUse::Make).await],
            [of_store.clone(), of_store]
        );
        let given = run(&[(variables::KONVERGE_REVIEW_KEY, "given")]);
        let backend = open(&given, &config, None, KeyUse::Look).await.unwrap();
        assert_eq!(
            backend.secrets.hash(b"value"),
            given.secrets.with_key(HashKey::derive("given")).hash(b"value")
        );
    }

    #[tokio::test]
    async fn parts_of_a_store_know_nothing_of_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), "");
        let part = async |name: &str| {
            let key = Key::from_components(&["tests", name]);
            open_part(&run(&[]), &config, None, KeyUse::Make, Some(key))
                .await
                .unwrap()
        };
        let (one, other) = (part("one").await, part("other").await);
        crate::test_fixture::record(&one, crate::test_fixture::state("shop/prod", &["web"])).await;
        assert_eq!(one.states.list().await.unwrap().len(), 1);
        assert!(other.states.list().await.unwrap().is_empty());
    }

    #[test]
    fn documents_can_be_marked_where_whole_states_are_not_encrypted_or_an_identity_is_there() {
        let recipient = "age1zl0cp7wtcxk93hkgclsdm35wkxskphhvyfg5y73v5cwu6fvlkppsfyzmd2";
        let identity = "AGE-SECRET-KEY-12J9EUZVD5S520V7ALKAX36ZNH49CEV566EGR48NJP2KHNNNXGZ3SNCHMQ7";
        let sealed = config(Path::new("/x"), &format!(", encrypt_to: ['{recipient}']"));
        let plain = config(Path::new("/x"), "");
        assert!(can_mark(&run(&[]), &plain).unwrap());
        assert!(!can_mark(&run(&[]), &sealed).unwrap());
        assert!(can_mark(&run(&[(IDENTITY_VARIABLE, identity)]), &sealed).unwrap());
        let (wrong, _) = noted_run(&[(IDENTITY_VARIABLE, "no identity")]);
        let refused = can_mark(&wrong, &sealed).unwrap_err();
        assert!(!chain(&refused).contains("no identity"), "{refused}");
    }
}
