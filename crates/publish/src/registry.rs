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

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        io::{BufRead as _, BufReader, Read as _, Write as _},
        net::{TcpListener, TcpStream},
        sync::{Arc, Mutex},
        thread,
    };

    use super::*;

    /// A registry that takes everything, and says what it likes. Returns its address, and what it was asked.
    fn registry(manifest: fn(pushes: usize) -> (u16, &'static str)) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.unwrap(), manifest, &seen);
            }
        });
        (host, requests)
    }

    fn answer(mut stream: TcpStream, manifest: fn(usize) -> (u16, &'static str), seen: &Mutex<Vec<String>>) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let (mut header, mut length) = (String::new(), 0);
        while reader.read_line(&mut header).unwrap() > 2 {
            if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            header.clear();
        }
        reader.read_exact(&mut vec![0; length]).unwrap();
        let is_push = |line: &str| line.starts_with("PUT ") && line.contains("/manifests/");
        let pushes = {
            let mut seen = seen.lock().unwrap();
            seen.push(line.clone());
            seen.iter().filter(|line| is_push(line)).count()
        };
        let (status, body) = match line.split(' ').next().unwrap() {
            "GET" if line.contains("/manifests/") => manifest(pushes),
            "GET" => (200, "{}"),
            "HEAD" => (404, ""),
            "PUT" => (201, ""),
            _ => (202, ""),
        };
        let place = "Location: /v2/acme/a/blobs/uploads/1\r\nRange: 0-0\r\n";
        let text = format!(
            "HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n{place}\r\n{body}",
            body.len()
        );
        // A client that has gone needs no answer.
        let _ = stream.write_all(text.as_bytes());
    }

    async fn push_to(host: &str, ours: &[String]) -> Result<Published, PublishError> {
        let artifact = Artifact::new(
            &BTreeMap::from([("a".to_owned(), b"a".to_vec())]),
            &BTreeMap::new(),
        );
        let reference = format!("oci://{host}/acme/a:live").parse().unwrap();
        publish_in_place_of(&reference, &artifact, None, ours).await
    }

    const OTHER: &str = "{\"schemaVersion\":2}";

    #[tokio::test]
    async fn a_registry_that_gives_something_else_is_not_believed() {
        let missing_first = |pushes| match pushes {
            0 => (
                404,
                "{\"errors\":[{\"code\":\"MANIFEST_UNKNOWN\",\"message\":\"\"}]}",
            ),
            _ => (200, OTHER),
        };
        let (host, _) = registry(missing_first);
        let error = push_to(&host, &[]).await.unwrap_err();
        assert!(
            matches!(&error, PublishError::Lies { found, .. } if *found == digest(OTHER.as_bytes())),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_tag_moves_only_from_what_the_caller_pushed() {
        let (host, requests) = registry(|_| (200, OTHER));
        let error = push_to(&host, &[digest(b"another")]).await.unwrap_err();
        assert!(matches!(error, PublishError::OtherContent { .. }), "{error}");
        let is_read = |line: &String| line.starts_with("GET ");
        assert!(requests.lock().unwrap().iter().all(is_read));
        // It is moved, and the registry says that it was not.
        let error = push_to(&host, &[digest(OTHER.as_bytes())]).await.unwrap_err();
        assert!(matches!(error, PublishError::Lies { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_registry_that_refuses_gets_nothing() {
        let (host, requests) = registry(|_| (403, "{\"errors\":[{\"code\":\"DENIED\",\"message\":\"no\"}]}"));
        let error = push_to(&host, &[]).await.unwrap_err();
        assert!(matches!(error, PublishError::Registry { .. }), "{error}");
        assert!(
            !requests
                .lock()
                .unwrap()
                .iter()
                .any(|line| line.starts_with("PUT"))
        );
    }
}
