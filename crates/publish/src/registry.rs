//! The push: nothing if the tag has the same content, an error if it has another.

use std::time::Duration;

use http::HeaderValue;
use oci_client::{
    Client, Reference, RegistryOperation,
    client::{ClientConfig, ClientProtocol},
    errors::{OciDistributionError, OciErrorCode},
    secrets::RegistryAuth,
};

use konverge_base::interrupt::Interrupt;
use konverge_cloud::{RegistryLogin, is_local_registry};

use crate::{
    Artifact, ArtifactReference, PublishError,
    artifact::{MANIFEST_TYPE, digest},
};

/// How long a registry may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegistryLimits {
    /// For a connection.
    pub connect: Duration,
    /// For the next bytes of an answer. The answer to a part of an upload counts from its first byte.
    pub silence: Duration,
    /// For a whole push.
    pub push: Duration,
}

impl Default for RegistryLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(60),
            push: Duration::from_secs(300),
        }
    }
}

/// What a push did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// The registry has the artifact now.
    Pushed,
    /// It had it already.
    Unchanged,
}

/// Pushes artifacts to registries.
#[derive(Debug, Clone)]
pub struct RegistryClient {
    login: Option<RegistryLogin>,
    interrupt: Interrupt,
    limits: RegistryLimits,
}

impl RegistryClient {
    /// With the login of one registry. When the run is asked to stop, a push ends soon.
    pub fn new(login: Option<RegistryLogin>, interrupt: Interrupt) -> Self {
        Self {
            login,
            interrupt,
            limits: RegistryLimits::default(),
        }
    }

    /// With other limits.
    #[must_use]
    pub fn within(self, limits: RegistryLimits) -> Self {
        Self { limits, ..self }
    }

    /// Pushes an artifact. A run that was interrupted is continued by the next one.
    ///
    /// # Errors
    /// The tag has other content, the run was asked to stop, or the registry refuses, is slow, or gives something else
    /// than it took.
    pub async fn publish(
        &self,
        reference: &ArtifactReference,
        artifact: &Artifact,
    ) -> Result<Published, PublishError> {
        self.publish_in_place_of(reference, artifact, &[]).await
    }

    /// As [`RegistryClient::publish`], and the tag may move from one of these digests: those that the caller has pushed
    /// itself.
    ///
    /// # Errors
    /// As [`RegistryClient::publish`].
    pub async fn publish_in_place_of(
        &self,
        reference: &ArtifactReference,
        artifact: &Artifact,
        ours: &[String],
    ) -> Result<Published, PublishError> {
        let push = tokio::time::timeout(self.limits.push, self.push(reference, artifact, ours));
        match self.interrupt.unless_silent(push).await {
            Ok(Ok(pushed)) => pushed,
            Ok(Err(_)) => Err(PublishError::Slow {
                host: reference.host.clone(),
                limit: self.limits.push,
            }),
            Err(stopped) => Err(PublishError::Stopped {
                host: reference.host.clone(),
                stopped,
            }),
        }
    }

    async fn push(
        &self,
        reference: &ArtifactReference,
        artifact: &Artifact,
        replaceable: &[String],
    ) -> Result<Published, PublishError> {
        let host = &reference.host;
        let client = Client::new(ClientConfig {
            protocol: match is_local_registry(host) {
                true => ClientProtocol::Http,
                false => ClientProtocol::Https,
            },
            connect_timeout: Some(self.limits.connect),
            read_timeout: Some(self.limits.silence),
            ..ClientConfig::default()
        });
        let auth = self.login.as_ref().map_or(RegistryAuth::Anonymous, |login| {
            RegistryAuth::Basic(login.user.clone(), login.password.clone())
        });
        let refused = |error| self.refused(host, error);
        let image = Reference::with_tag(host.clone(), reference.name.clone(), reference.tag.clone());
        let login = client.auth(&image, &auth, RegistryOperation::Push).await;
        login.map_err(refused)?;
        let there = async || match client.pull_manifest_raw(&image, &auth, &[MANIFEST_TYPE]).await {
            Ok((manifest, _)) => Ok(Some(manifest)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(refused(error)),
        };
        let ours = artifact.digest();
        if let Some(found) = there().await? {
            if found == artifact.manifest {
                return Ok(Published::Unchanged);
            }
            let found = digest(&found);
            if !replaceable.contains(&found) {
                return Err(PublishError::OtherContent {
                    reference: reference.to_string(),
                    found,
                    ours,
                });
            }
        }
        for part in [&artifact.config, &artifact.layer] {
            let pushed = client.push_blob(&image, part.clone(), &digest(part)).await;
            pushed.map_err(refused)?;
        }
        let kind = HeaderValue::from_static(MANIFEST_TYPE);
        let pushed = client.push_manifest_raw(&image, artifact.manifest.clone(), kind);
        pushed.await.map_err(refused)?;
        // What a controller will pull is what counts.
        let found = there().await?.map(|found| digest(&found)).unwrap_or_default();
        match found == ours {
            true => Ok(Published::Pushed),
            false => Err(PublishError::Lies {
                host: host.clone(),
                found,
                ours,
            }),
        }
    }

    fn refused(&self, host: &str, source: OciDistributionError) -> PublishError {
        if let OciDistributionError::RequestError(error) = &source
            && error.is_timeout()
        {
            // The server of the tokens, or of the layers, may be another one.
            let asked = error.url().and_then(|url| {
                let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
                Some(format!("{}{port}", url.host_str()?))
            });
            return PublishError::Silent {
                host: host.to_owned(),
                asked: asked.unwrap_or_else(|| host.to_owned()),
                limit: match error.is_connect() {
                    true => self.limits.connect,
                    false => self.limits.silence,
                },
            };
        }
        PublishError::Registry {
            host: host.to_owned(),
            source: Box::new(source),
        }
    }
}

/// Returns true if the registry says that it does not have the tag. Any other answer is an error: a tag that might exist
/// is not written.
fn is_missing(error: &OciDistributionError) -> bool {
    match error {
        OciDistributionError::ImageManifestNotFoundError(_) => true,
        OciDistributionError::ServerError { code, .. } => *code == 404,
        OciDistributionError::RegistryError { envelope, .. } => {
            let missing = [
                OciErrorCode::ManifestUnknown,
                OciErrorCode::NameUnknown,
                OciErrorCode::NotFound,
            ];
            envelope.errors.iter().any(|error| missing.contains(&error.code))
        }
        _ => false,
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
