//! The push: nothing if the tag has the same content, an error if it has another.

use std::{future::Future, time::Duration};

use http::HeaderValue;
use oci_client::{
    Client, Reference, RegistryOperation,
    client::{ClientConfig, ClientProtocol},
    errors::{OciDistributionError, OciErrorCode},
    secrets::RegistryAuth,
};

use konverge_cloud::{RegistryLogin, is_local_registry};

use crate::{
    Artifact, ArtifactReference, PublishError,
    artifact::{MANIFEST_TYPE, digest},
};

/// How long the whole push may take.
const MOST_TIME: Duration = Duration::from_secs(300);

/// What a push did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// The registry has the artifact now.
    Pushed,
    /// It had it already.
    Unchanged,
}

/// Pushes an artifact. A run that was interrupted is continued by the next one.
///
/// # Errors
/// The tag has other content, or the registry refuses, is slow, or gives something else than it took.
pub async fn publish(
    reference: &ArtifactReference,
    artifact: &Artifact,
    login: Option<&RegistryLogin>,
) -> Result<Published, PublishError> {
    publish_in_place_of(reference, artifact, login, &[]).await
}

/// As [`publish`], and the tag may move from one of these digests: those that the caller has pushed itself.
///
/// # Errors
/// As [`publish`].
pub async fn publish_in_place_of(
    reference: &ArtifactReference,
    artifact: &Artifact,
    login: Option<&RegistryLogin>,
    ours: &[String],
) -> Result<Published, PublishError> {
    let limited = tokio::time::timeout(MOST_TIME, push(reference, artifact, login, ours)).await;
    limited.unwrap_or_else(|_| {
        Err(PublishError::Slow {
            host: reference.host.clone(),
            seconds: MOST_TIME.as_secs(),
        })
    })
}

async fn push(
    reference: &ArtifactReference,
    artifact: &Artifact,
    login: Option<&RegistryLogin>,
    replaceable: &[String],
) -> Result<Published, PublishError> {
    let host = &reference.host;
    let client = Client::new(ClientConfig {
        protocol: match is_local_registry(host) {
            true => ClientProtocol::Http,
            false => ClientProtocol::Https,
        },
        connect_timeout: Some(Duration::from_secs(10)),
        read_timeout: Some(Duration::from_secs(60)),
        ..ClientConfig::default()
    });
    let auth = login.map_or(RegistryAuth::Anonymous, |login| {
        RegistryAuth::Basic(login.user.clone(), login.password.clone())
    });
    let image = Reference::with_tag(host.clone(), reference.name.clone(), reference.tag.clone());
    asked(host, client.auth(&image, &auth, RegistryOperation::Push)).await?;
    let there = async || match client.pull_manifest_raw(&image, &auth, &[MANIFEST_TYPE]).await {
        Ok((manifest, _)) => Ok(Some(manifest)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(refused(host, error)),
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
        asked(host, client.push_blob(&image, part.clone(), &digest(part))).await?;
    }
    let kind = HeaderValue::from_static(MANIFEST_TYPE);
    asked(
        host,
        client.push_manifest_raw(&image, artifact.manifest.clone(), kind),
    )
    .await?;
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

async fn asked<T>(
    host: &str,
    answer: impl Future<Output = Result<T, OciDistributionError>>,
) -> Result<T, PublishError> {
    answer.await.map_err(|error| refused(host, error))
}

fn refused(host: &str, source: OciDistributionError) -> PublishError {
    PublishError::Registry {
        host: host.to_owned(),
        source: Box::new(source),
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
