//! Files in the repository that SOPS encrypted, as a store. The version of a secret is the digest of its
//! file, so a preview needs no key.

use std::sync::Arc;

use async_trait::async_trait;
use zeroize::{Zeroize as _, Zeroizing};

use super::{
    AwsKmsKey, AzureKey, AzureKeyPlace, FetchedSecret, GoogleKmsKey, SecretProblem, SecretQuery,
    SecretRights, SecretStore, TransitKeyPlace, VaultTransitKey,
    json_cipher::JsonCipher,
    sops_file::{OWN_PATH, SopsDataKey, SopsFile, open_age},
};
use konverge_base::model::{Digest, masked_value::FILE_VERSION};

/// The files of the revision that is planned.
pub trait RevisionFiles: Send + Sync {
    /// Returns the content of a regular file; `None` if the path has none.
    ///
    /// # Errors
    /// The file cannot be read; the text says why.
    fn read(&self, path: &str) -> Result<Option<Arc<[u8]>>, String>;
}

/// A key that may unwrap data keys. The configuration lists these keys: other recipients in a file are not
/// used.
pub enum SopsKey {
    /// A key of AWS KMS.
    AwsKms(AwsKmsKey),
    /// A key of Google Cloud KMS.
    GoogleKms(GoogleKmsKey),
    /// A key of a Key Vault.
    AzureKeyVault(AzureKey),
    /// A key of a transit engine.
    VaultTransit(VaultTransitKey),
}

/// The files of SOPS as a store.
pub struct SopsStore {
    files: Arc<dyn RevisionFiles>,
    identities: Vec<age::x25519::Identity>,
    keys: Vec<SopsKey>,
}

impl SopsStore {
    /// Creates a store. `identities` is the text of `SOPS_AGE_KEY`: one age identity on each line; comments
    /// are allowed.
    pub fn new(files: Arc<dyn RevisionFiles>, identities: Option<&str>, keys: Vec<SopsKey>) -> Self {
        let lines = identities.unwrap_or_default().lines().map(str::trim);
        let identities = lines.filter_map(|line| line.parse().ok()).collect();
        Self {
            files,
            identities,
            keys,
        }
    }

    fn file(&self, query: &SecretQuery) -> Result<Arc<[u8]>, SecretProblem> {
        let unavailable = |why: String| SecretProblem::Unavailable {
            status: None,
            why: why.into(),
        };
        let found = self.files.read(&query.path).map_err(unavailable)?;
        found.ok_or(SecretProblem::Missing(None))
    }

    /// Returns the data key, unwrapped by the first recipient for which this job has the key.
    async fn data_key(&self, file: &SopsFile) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        // age identities are tried first, because key services need a request.
        let wrapped = file.wrapped_keys();
        for key in &wrapped {
            if let SopsDataKey::Age(armoured) = key
                && let Some(key) = open_age(armoured, &self.identities)
            {
                return Ok(key);
            }
        }
        let mut refused = None;
        // Only configured keys are used: a file could name a key of somebody else.
        for known in &self.keys {
            for key in &wrapped {
                let unwrapped = match (known, key) {
                    (
                        SopsKey::AwsKms(own),
                        SopsDataKey::AwsKms {
                            arn,
                            context,
                            wrapped,
                        },
                    ) if own.arn == *arn => own.unwrap_with(arn, wrapped, context).await,
                    (SopsKey::VaultTransit(own), SopsDataKey::VaultTransit { place, wrapped })
                        if own.place == *place =>
                    {
                        own.unwrap_without_context(wrapped).await
                    }
                    (SopsKey::GoogleKms(own), SopsDataKey::GoogleKms { name, wrapped })
                        if own.name == *name =>
                    {
                        own.unwrap_without_context(wrapped).await
                    }
                    (
                        SopsKey::AzureKeyVault(own),
                        SopsDataKey::AzureKeyVault {
                            place,
                            version,
                            wrapped,
                        },
                    ) if own.place == *place => own.unwrap_without_context(version, wrapped).await,
                    _ => continue,
                };
                match unwrapped {
                    Ok(key) => return Ok(key),
                    Err(problem) => refused = Some(problem),
                }
            }
        }
        Err(refused.unwrap_or_else(|| SecretProblem::NoKeyOfFile(recipients(&wrapped))))
    }
}

/// Describes the recipients of a file.
fn recipients(wrapped: &[SopsDataKey]) -> String {
    let mut names: Vec<_> = wrapped
        .iter()
        .map(|key| match key {
            SopsDataKey::Age(_) => "age".to_owned(),
            SopsDataKey::AwsKms { arn, .. } => format!("awskms:{}", arn.escape_debug()),
            SopsDataKey::VaultTransit { place, .. } => {
                let TransitKeyPlace { mount, key } = place;
                format!(
                    "vault-transit:STORE/{}/{}",
                    mount.escape_debug(),
                    key.escape_debug()
                )
            }
            SopsDataKey::GoogleKms { name, .. } => format!("gcpkms:{}", name.escape_debug()),
            SopsDataKey::AzureKeyVault { place, .. } => {
                let AzureKeyPlace { vault, name } = place;
                format!("azurekv:{}/keys/{}", vault.escape_debug(), name.escape_debug())
            }
            SopsDataKey::Unknown(kind) => kind.escape_debug().to_string(),
        })
        .collect();
    names.dedup();
    names.join(", ")
}

/// Returns the version of a file, which is its digest.
fn version_of(bytes: &[u8]) -> String {
    format!("{FILE_VERSION}{}", Digest::of_bytes(bytes).short())
}

#[async_trait]
impl SecretStore for SopsStore {
    async fn version(&self, query: &SecretQuery, _: SecretRights) -> Result<Option<String>, SecretProblem> {
        Ok(Some(version_of(&self.file(query)?)))
    }

    async fn read(&self, query: &SecretQuery) -> Result<FetchedSecret, SecretProblem> {
        let bytes = self.file(query)?;
        let file = SopsFile::parse(&query.path, &bytes).map_err(SecretProblem::File)?;
        let mut key = self.data_key(&file).await?;
        let values = file.decrypt(&key);
        key.zeroize();
        let values = values.map_err(SecretProblem::File)?;
        if values
            .get(OWN_PATH)
            .is_some_and(|own| own.as_str() != Some(&query.path))
        {
            return Err(SecretProblem::File(format!(
                "its `{OWN_PATH}` names another path, so the file is a copy"
            )));
        }
        Ok(FetchedSecret::fields(values, Some(version_of(&bytes))))
    }
}

#[cfg(test)]
#[path = "sops_tests.rs"]
mod tests;
