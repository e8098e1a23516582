//! Pushes artifacts. A push does nothing if the tag has the same content, and is an error if the tag has other content.

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

/// The time limits for requests to a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RegistryLimits {
    /// The time limit for a connection.
    connect: Duration,
    /// The time limit for the next bytes of a response. For an uploaded part it counts from the first byte of the
    /// upload.
    silence: Duration,
    /// The time limit for a whole push.
    push: Duration,
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

/// Tells whether a push added the artifact to the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// The registry has the artifact now.
    Pushed,
    /// The registry had the artifact already.
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
    /// Creates a client with the login for one registry. An interrupted run ends a push soon.
    pub fn new(login: Option<RegistryLogin>, interrupt: Interrupt) -> Self {
        Self {
            login,
            interrupt,
            limits: RegistryLimits::default(),
        }
    }

    /// Pushes an artifact, and may move the tag if it points to one of the digests in `ours`, which the caller has
    /// pushed. If a run is interrupted, the next run continues the push.
    ///
    /// # Errors
    /// The tag has other content, the run was interrupted, or the registry refuses, is slow, or returns another
    /// manifest than the pushed one.
    pub async fn publish(
        &self,
        reference: &ArtifactReference,
        artifact: &Artifact,
        ours: &[String],
    ) -> Result<Published, PublishError> {
        let push = async {
            let tag = self.tag(reference).await?;
            if tag.has(artifact, ours).await? {
                Ok(Published::Unchanged)
            } else {
                tag.push(artifact).await.map(|()| Published::Pushed)
            }
        };
        self.within_limit(reference, push).await
    }

    /// Checks that [`RegistryClient::publish`] may move the tag. Nothing is pushed.
    ///
    /// # Errors
    /// See [`RegistryClient::publish`].
    pub async fn check_tag(
        &self,
        reference: &ArtifactReference,
        artifact: &Artifact,
        ours: &[String],
    ) -> Result<(), PublishError> {
        let check = async {
            let tag = self.tag(reference).await?;
            tag.has(artifact, ours).await.map(|_| ())
        };
        self.within_limit(reference, check).await
    }

    async fn within_limit<T>(
        &self,
        reference: &ArtifactReference,
        work: impl Future<Output = Result<T, PublishError>>,
    ) -> Result<T, PublishError> {
        let work = tokio::time::timeout(self.limits.push, work);
        match self.interrupt.unless_silent(work).await {
            Ok(Ok(done)) => done,
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

    /// Logs in to the registry of a tag.
    async fn tag<'a>(&'a self, reference: &'a ArtifactReference) -> Result<Tag<'a>, PublishError> {
        let host = &reference.host;
        let client = Client::new(ClientConfig {
            protocol: if is_local_registry(host) {
                ClientProtocol::Http
            } else {
                ClientProtocol::Https
            },
            connect_timeout: Some(self.limits.connect),
            read_timeout: Some(self.limits.silence),
            ..ClientConfig::default()
        });
        let auth = self.login.as_ref().map_or(RegistryAuth::Anonymous, |login| {
            RegistryAuth::Basic(login.user.clone(), login.password.clone())
        });
        let image = Reference::with_tag(host.clone(), reference.name.clone(), reference.tag.clone());
        // One login serves all requests of the push. If it is refused, the push ends before any content is sent.
        let login = client.auth(&image, &auth, RegistryOperation::Push).await;
        login.map_err(|error| self.refused(host, error))?;
        Ok(Tag {
            registry: self,
            reference,
            client,
            auth,
            image,
        })
    }

    fn refused(&self, host: &str, source: OciDistributionError) -> PublishError {
        if let OciDistributionError::RequestError(error) = &source
            && error.is_timeout()
        {
            // A registry may redirect to other servers for tokens and layers. The error names the server that did not
            // respond.
            let asked = error.url().and_then(|url| {
                let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
                Some(format!("{}{port}", url.host_str()?))
            });
            return PublishError::Silent {
                host: host.to_owned(),
                asked: asked.unwrap_or_else(|| host.to_owned()),
                limit: if error.is_connect() {
                    self.limits.connect
                } else {
                    self.limits.silence
                },
            };
        }
        PublishError::Registry {
            host: host.to_owned(),
            source: Box::new(source),
        }
    }
}

/// A tag in a registry, after the login.
struct Tag<'a> {
    registry: &'a RegistryClient,
    reference: &'a ArtifactReference,
    client: Client,
    auth: RegistryAuth,
    image: Reference,
}

impl Tag<'_> {
    fn refused(&self, error: OciDistributionError) -> PublishError {
        self.registry.refused(&self.reference.host, error)
    }

    /// Reads the manifest of the tag; `None` if the tag does not exist.
    async fn manifest(&self) -> Result<Option<Vec<u8>>, PublishError> {
        let pulled = self
            .client
            .pull_manifest_raw(&self.image, &self.auth, &[MANIFEST_TYPE])
            .await;
        match pulled {
            Ok((manifest, _)) => Ok(Some(manifest.to_vec())),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(self.refused(error)),
        }
    }

    /// Returns true if the tag already points to the artifact. Other content that must not be replaced is an error.
    async fn has(&self, artifact: &Artifact, replaceable: &[String]) -> Result<bool, PublishError> {
        let Some(found) = self.manifest().await? else {
            return Ok(false);
        };
        if found == artifact.manifest {
            return Ok(true);
        }
        let found = digest(&found);
        if replaceable.contains(&found) {
            Ok(false)
        } else {
            Err(PublishError::OtherContent {
                reference: self.reference.to_string(),
                found,
                ours: artifact.digest(),
            })
        }
    }

    async fn push(&self, artifact: &Artifact) -> Result<(), PublishError> {
        let ours = artifact.digest();
        // The manifest is pushed last, because a registry rejects a manifest whose parts it does not have.
        for part in [&artifact.config, &artifact.layer] {
            let pushed = self
                .client
                .push_blob(&self.image, part.clone(), &digest(part))
                .await;
            pushed.map_err(|error| self.refused(error))?;
        }
        let kind = HeaderValue::from_static(MANIFEST_TYPE);
        let pushed = self
            .client
            .push_manifest_raw(&self.image, artifact.manifest.clone(), kind);
        pushed.await.map_err(|error| self.refused(error))?;
        // The tag is read back as a controller will read it: if a registry changed the manifest, it would deliver
        // unreviewed content.
        let found = self
            .manifest()
            .await?
            .map(|found| digest(&found))
            .unwrap_or_default();
        if found == ours {
            Ok(())
        } else {
            Err(PublishError::Lies {
                host: self.reference.host.clone(),
                found,
                ours,
            })
        }
    }
}

/// Returns true if the registry reports that the tag does not exist. Any other response is an error, because a tag that
/// may exist must not be written.
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
