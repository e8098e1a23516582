//! [`StackSecrets`]: the secret references of one stack. The plan and the apply of the stack use it to know which
//! references the stack may use, and whether their values may be read.
//!
//! All values are read before the lease of the stack is acquired, so that a missing one stops the stack untouched.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::{
    SecretReferences, Target,
    secret_fetch::{SecretEntry, secret_key},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{RepoPath, StackId, masked_value::VALUE_VERSION, spec::Spec},
};
use konverge_cloud::secret_stores::{FetchedSecret, SecretRights, SecretStoreError};
use konverge_config::{Rotation, SecretTarget};
use konverge_policy::{self as policy, SecretReader};
use konverge_secrets::{RotatedVersion, SecretReference, SecretResolver, SecretValue, StoreName};

/// The number of secrets that are read at the same time.
const AT_ONCE: usize = 16;

/// The secret references of one stack.
#[derive(Clone)]
pub struct StackSecrets {
    run: Arc<SecretReferences>,
    stack: StackId,
    /// The folder of the stack, which the rules of the stores match.
    folder: RepoPath,
    /// The references that were checked and that the stack may use.
    admitted: BTreeSet<SecretReference>,
    /// True during an apply, which may read values.
    is_applied: bool,
}

impl StackSecrets {
    /// Creates the references of a target. None is admitted yet.
    pub fn new(run: Arc<SecretReferences>, target: &Target) -> Self {
        Self {
            run,
            stack: target.id.clone(),
            folder: target.folder().clone(),
            admitted: BTreeSet::new(),
            is_applied: false,
        }
    }

    fn reader(&self) -> SecretReader<'_> {
        SecretReader {
            stack: &self.stack,
            folder: &self.folder,
        }
    }

    /// Checks the references of a Spec, and admits them. In the returned Spec, each reference names its store.
    ///
    /// # Errors
    /// The stack may not use a reference.
    pub fn admit(&mut self, spec: Spec) -> Result<Spec, UserError> {
        let admitted = policy::admit(&self.run.config, self.reader(), spec)?;
        self.run
            .copies
            .check(&self.run.config, self.reader(), &admitted.references)?;
        self.admitted.extend(admitted.references);
        Ok(admitted.spec)
    }

    /// Reads every secret of a Spec that was not read before. The returned value allows reading the secrets, so it is
    /// only for an apply.
    ///
    /// # Errors
    /// The stack may not use a reference, or a secret cannot be read.
    pub async fn with_values(mut self, spec: &Spec) -> Result<Self, UserError> {
        self.admit(spec.clone())?;
        let values = || {
            let admitted = self.admitted.iter();
            admitted.filter(|reference| !reference.as_version && !reference.is_generated())
        };
        let keys: BTreeSet<SecretEntry> = values().map(secret_key).collect();
        let run = &self.run;
        let held: HashMap<_, _> = stream::iter(keys)
            .map(|key| async move {
                let found = run.read(&key).await?;
                Ok::<_, UserError>((key, found))
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        for reference in values() {
            let key = secret_key(reference);
            if let Some(found) = held.get(&key) {
                self.run.learn(&select(&key, found, reference)?);
            }
        }
        self.is_applied = true;
        self.ask_versions().await?;
        Ok(self)
    }

    /// Requests the versions of all references concurrently, because a plan would request one after the other. The
    /// first request to each store is sent alone, so that an unreachable store gets only one.
    ///
    /// # Errors
    /// The first version that cannot be read. The others are requested nevertheless.
    pub async fn ask_versions(&self) -> Result<(), UserError> {
        let references = self.admitted.iter().cloned();
        let mut of_store: BTreeMap<String, BTreeMap<SecretEntry, SecretReference>> = BTreeMap::new();
        for reference in references.filter(|reference| !reference.is_generated()) {
            let key = secret_key(&reference);
            of_store
                .entry(key.store.clone())
                .or_default()
                .insert(key, reference);
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
                .map(|reference| async move { self.version(&reference).await })
                .buffer_unordered(AT_ONCE);
            while let Some(version) = asked.next().await {
                result = result.and(version.map(drop));
            }
        }
        result
    }

    fn check_admitted(&self, reference: &SecretReference) -> Result<(), UserError> {
        let written = reference.as_written();
        if self.admitted.contains(&written) {
            Ok(())
        } else {
            Err(UserError::new(
                ErrorKind::Secret,
                format!("`{written}`: this reference is not in the Spec of `{}`", self.stack),
            )
            .hint("write the reference into the Spec: a value that another object contains is never read as a reference"))
        }
    }

    fn held_secret(&self, key: &SecretEntry) -> Option<Arc<FetchedSecret>> {
        self.run.known_value(key).filter(|_| self.is_applied)
    }
}

fn not_applying(reference: &SecretReference) -> UserError {
    UserError::new(
        ErrorKind::Internal,
        format!(
            "the value of `{}` was not read, because the stack is not being applied",
            reference.label()
        ),
    )
}

fn select(
    entry: &SecretEntry,
    found: &FetchedSecret,
    reference: &SecretReference,
) -> Result<SecretValue, SecretStoreError> {
    let selected = found.document.select(&reference.keys);
    selected.map_err(|problem| SecretStoreError::new(&entry.store, &entry.query.path, problem))
}

#[async_trait]
impl SecretResolver for StackSecrets {
    async fn version(&self, reference: &SecretReference) -> Result<Option<String>, UserError> {
        self.check_admitted(reference)?;
        if reference.is_generated() {
            return Ok(None);
        }
        let key = secret_key(reference);
        if let Some(found) = self.held_secret(&key) {
            // For a store without versions, the hash of the content is the version.
            let hash = || {
                format!(
                    "{VALUE_VERSION}{}",
                    self.run.secrets.hash(&found.document.expose_all())
                )
            };
            return Ok(Some(found.version.clone().unwrap_or_else(hash)));
        }
        let rights = if self.is_applied {
            SecretRights::Values
        } else {
            SecretRights::Versions
        };
        self.run.ask_version(&key, rights).await
    }

    async fn value(&self, reference: &SecretReference) -> Result<(SecretValue, Option<String>), UserError> {
        self.check_admitted(reference)?;
        if reference.is_generated() {
            let value = SecretValue::generate();
            self.run.learn(&value);
            return Ok((value, None));
        }
        let key = secret_key(reference);
        let found = self.held_secret(&key).ok_or_else(|| not_applying(reference))?;
        let value = select(&key, &found, reference)?;
        Ok((value, self.version(reference).await?))
    }

    async fn recorded_value(&self, reference: &SecretReference) -> Result<SecretValue, UserError> {
        if !self.is_applied {
            return Err(not_applying(reference));
        }
        let config = &self.run.config;
        let admitted = policy::admit_recorded(config, self.reader(), &reference.as_written())?;
        self.run.copies.check(config, self.reader(), [&admitted])?;
        let key = secret_key(&admitted);
        let found = self.run.read(&key).await?;
        let value = select(&key, &found, &admitted)?;
        self.run.learn(&value);
        Ok(value)
    }

    fn goes_into_any(&self, reference: &SecretReference) -> bool {
        let StoreName::Word(word) = &reference.store else {
            return false;
        };
        let store = self.run.config.stores.get(word);
        store.is_some_and(|store| store.into == SecretTarget::Any)
    }

    fn has_values(&self) -> bool {
        self.is_applied
    }

    fn rotated(&self) -> RotatedVersion {
        // Only an apply keeps the old version. A preview and a drift report show the new one.
        match self.run.config.rotation {
            Rotation::Leave if self.is_applied => RotatedVersion::Keep,
            _ => RotatedVersion::Write,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{id, noted_run, stack};
    use konverge_config::Config;
    use serde_json::json;

    const STORES: &str = "version: 1\nsecrets:\n  stores:\n    \
        job: {kind: env, allow: [{stacks: 'appops/shop/*', paths: 'PAY_*'}]}\n    \
        other: {kind: env, allow: [{stacks: 'appops/pay/*', paths: '**'}]}\n";

    fn references(variables: &[(&str, &str)]) -> Arc<SecretReferences> {
        let (run, _) = noted_run(variables);
        let config = Config::parse(STORES).unwrap().secrets;
        let secrets = run.secrets.clone();
        Arc::new(SecretReferences::new(&run, &config, secrets, None, None))
    }

    fn secrets(variables: &[(&str, &str)]) -> StackSecrets {
        StackSecrets::new(references(variables), &Target::new(&stack("shop/prod"), None))
    }

    fn spec(reference: &str) -> Spec {
        let secret = json!({
            "id": "v1:Secret:shop:pay", "type": "Kubernetes",
            "attributes": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pay", "namespace": "shop"},
                           "stringData": {"token": reference}},
        });
        Spec {
            resources: vec![serde_json::from_value(secret).unwrap()],
            ..Spec::default()
        }
    }

    fn the_reference(secrets: &StackSecrets) -> SecretReference {
        secrets.admitted.first().unwrap().clone()
    }

    const PAY: [(&str, &str); 2] = [("PAY_TOKEN", "the-token-of-pay"), ("PAY_OTHER", "another-token")];

    #[test]
    fn a_stack_uses_what_a_rule_of_its_folder_allows() {
        for (reference, allowed) in [
            ("ref+job://PAY_TOKEN", true),
            ("ref+job://SHOP_TOKEN", false),
            ("ref+other://PAY_TOKEN", false),
            ("ref+gone://PAY_TOKEN", false),
        ] {
            let mut secrets = secrets(&PAY);
            let admitted = secrets.admit(spec(reference));
            assert_eq!(admitted.is_ok(), allowed, "{reference}: {admitted:?}");
            assert_eq!(secrets.admitted.len(), usize::from(allowed), "{reference}");
        }
    }

    /// A preview runs the code of a pull request.
    #[tokio::test]
    async fn a_value_is_read_in_an_apply_alone() {
        let mut preview = secrets(&PAY);
        preview.admit(spec("ref+job://PAY_TOKEN")).unwrap();
        let reference = the_reference(&preview);
        assert!(!preview.has_values());
        assert_eq!(
            preview.version(&reference).await.unwrap(),
            None,
            "this store has no versions"
        );
        for refused in [
            preview.value(&reference).await.err(),
            preview.recorded_value(&reference).await.err(),
        ] {
            let refused = refused.expect("a preview reads no value");
            assert!(
                refused.message.contains("the stack is not being applied"),
                "{refused}"
            );
        }
        let apply = secrets(&PAY)
            .with_values(&spec("ref+job://PAY_TOKEN"))
            .await
            .unwrap();
        let (value, version) = apply.value(&reference).await.unwrap();
        assert!(apply.has_values());
        assert_eq!(value.expose_text(), Some("the-token-of-pay"));
        let hash = apply.run.secrets.hash(b"the-token-of-pay");
        assert_eq!(
            version,
            Some(format!("{VALUE_VERSION}{hash}")),
            "its content is its version"
        );
    }

    #[tokio::test]
    async fn what_is_not_there_stops_an_apply_before_it_begins() {
        let missing = secrets(&[]).with_values(&spec("ref+job://PAY_TOKEN")).await;
        let refused = missing.err().expect("the variable is not set");
        assert_eq!(refused.kind, ErrorKind::Secret);
        assert!(
            refused.message.contains("`PAY_TOKEN` is not set in this job"),
            "{refused}"
        );
        let empty = secrets(&[("PAY_TOKEN", "{}")])
            .with_values(&spec("ref+job://PAY_TOKEN#/key"))
            .await;
        assert!(
            empty
                .err()
                .expect("there is no such key")
                .message
                .contains("has no key `key`")
        );
    }

    /// What another object holds, or a secret itself, may look like a reference.
    #[tokio::test]
    async fn a_reference_that_is_not_in_the_spec_is_not_resolved() {
        let apply = secrets(&PAY)
            .with_values(&spec("ref+job://PAY_TOKEN"))
            .await
            .unwrap();
        let mut other = secrets(&PAY);
        other.admit(spec("ref+job://PAY_OTHER")).unwrap();
        let reference = the_reference(&other);
        for refused in [
            apply.version(&reference).await.err(),
            apply.value(&reference).await.err(),
        ] {
            let refused = refused.expect("it is not in the Spec");
            assert!(
                refused.message.contains("is not in the Spec of `shop/prod`"),
                "{refused}"
            );
        }
        assert_eq!(apply.stack, id("shop/prod"));
    }
}
