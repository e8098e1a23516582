//! Fetches packages from OCI registries, by the distribution protocol
//! (<https://github.com/opencontainers/distribution-spec/blob/main/spec.md>). Every response has a size limit.

use std::{collections::BTreeMap, path::Path};

use konverge_http::BodyError;
use reqwest::{Client, RequestBuilder, Response, StatusCode, header};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::{PackageTrust, bounds::Bounds, fetcher::PackageFetcher, unpack::unpack};
use konverge_base::error::SharedError;
use konverge_cloud::{RegistryLogin, is_local_registry};

/// The accepted media types of a manifest, and of an index of manifests by platform.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json";

/// The accepted media types of a package's layer.
const LAYERS: [&str; 5] = [
    // The media type of a Kusion module, which is a package with a binary.
    "application/vnd.io.kusion.content.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.diff.tar",
];

/// The maximum size of a manifest (as in registries) and of a response with a token, in bytes.
const DOCUMENT: u64 = 4 << 20;

/// The maximum number of layers. A package has one layer; an artifact with many layers is probably an image.
const MOST_LAYERS: usize = 16;

/// Pulls a package and unpacks it into `target`.
pub(super) async fn fetch(
    packages: &PackageFetcher,
    repository: &str,
    tag: &str,
    target: &Path,
) -> Result<(), SharedError> {
    let bounds = packages.bounds;
    let registry = Registry::new(packages, repository, tag)?;
    let host = registry.host.clone();
    let pulled = tokio::time::timeout(bounds.time, registry.pull(tag, &bounds)).await;
    let layers = pulled
        .map_err(|_| format!("{host} did not answer within {} s", bounds.time.as_secs()))?
        .map_err(|error| error.context(host))?;
    for layer in layers {
        unpack(packages, layer, target, &bounds).await?;
    }
    Ok(())
}

/// One repository of a registry.
struct Registry {
    http: Client,
    host: String,
    /// The base of the URLs of the repository: `https://HOST/v2/NAME`.
    base: String,
    login: Option<RegistryLogin>,
}

/// The authentication of a request to a registry.
enum Proof {
    None,
    Basic,
    Bearer(String),
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
    /// The manifests of an index, one for each platform; `None` for a single manifest.
    manifests: Option<Vec<IndexEntry>>,
}

/// The manifest for one platform.
#[derive(Deserialize)]
struct IndexEntry {
    digest: String,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    os: String,
    architecture: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    media_type: String,
    digest: String,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Registry {
    fn new(packages: &PackageFetcher, repository: &str, tag: &str) -> Result<Self, SharedError> {
        let wrong = || {
            format!(
                "`{}:{}` is not a reference to an OCI artifact",
                repository.escape_debug(),
                tag.escape_debug()
            )
        };
        let (host, name) = repository.split_once('/').ok_or_else(wrong)?;
        let is_host = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-/".contains(c);
        let is_tag = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let plain = !host.is_empty()
            && host.chars().all(is_host)
            && name.chars().all(is_name)
            && name
                .split('/')
                .all(|part| !part.is_empty() && !part.starts_with('.'))
            && !tag.is_empty()
            && !tag.starts_with('.')
            && tag.chars().all(is_tag);
        if !plain {
            return Err(wrong().into());
        }
        // As in Docker, a registry on this machine may use plain HTTP.
        let scheme = if is_local_registry(host) { "http" } else { "https" };
        let server = if host == "docker.io" {
            "registry-1.docker.io"
        } else {
            host
        };
        // Redirects to other hosts are allowed: registries keep their blobs there, and a digest identifies each blob.
        let http = konverge_http::client()
            .redirect(reqwest::redirect::Policy::default())
            .https_only(scheme == "https")
            .build()
            .map_err(said)?;
        let login = match packages.asker {
            PackageTrust::Own => RegistryLogin::find(&packages.environment, host),
            // Credentials would let code from outside read packages that only this repository may read.
            PackageTrust::Outside(_) => None,
        };
        Ok(Self {
            http,
            host: host.to_owned(),
            base: format!("{scheme}://{server}/v2/{name}"),
            login,
        })
    }

    /// Pulls the layers of a tag.
    async fn pull(&self, tag: &str, bounds: &Bounds) -> Result<Vec<Vec<u8>>, SharedError> {
        let address = format!("{}/manifests/{tag}", self.base);
        let manifest = || self.http.get(&address).header(header::ACCEPT, MANIFESTS);
        let (answer, proof) = self.proven(manifest).await?;
        let manifest = bounded(answer, DOCUMENT).await?;
        let mut manifest = read_manifest(&manifest)?;
        if let Some(entries) = &manifest.manifests {
            let (os, architecture) = platform();
            let digest = for_platform(entries, os, architecture)?;
            let content = self.addressed("manifests", digest, &proof, DOCUMENT).await?;
            manifest = read_manifest(&content)?;
            // A chain of indexes could be endless, so only one level is followed.
            if manifest.manifests.is_some() {
                return Err("its index names another index".into());
            }
        }
        if manifest.layers.len() > MOST_LAYERS {
            return Err(format!("it has more than {MOST_LAYERS} layers").into());
        }
        let mut left = bounds.transferred;
        let mut layers = Vec::new();
        for layer in manifest.layers {
            if !LAYERS.contains(&layer.media_type.as_str()) {
                let kind = layer.media_type.escape_debug();
                return Err(
                    format!("it has a layer of type `{kind}`, which is not a package archive").into(),
                );
            }
            let content = self.addressed("blobs", &layer.digest, &proof, left).await?;
            // The limit is for all layers together.
            left -= content.len() as u64;
            layers.push(content);
        }
        Ok(layers)
    }

    /// Fetches a blob or a manifest by its digest, and verifies it.
    async fn addressed(
        &self,
        kind: &str,
        digest: &str,
        proof: &Proof,
        most: u64,
    ) -> Result<Vec<u8>, SharedError> {
        let wanted = digest
            .strip_prefix("sha256:")
            .filter(|hash| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(wanted) = wanted else {
            return Err("a part of it has no SHA-256 digest".into());
        };
        let request = self
            .http
            .get(format!("{}/{kind}/{digest}", self.base))
            .header(header::ACCEPT, MANIFESTS);
        let answer = konverge_http::send(self.proving(request, proof))
            .await
            .map_err(said)?;
        let content = bounded(answer, most).await?;
        let found = hex::encode(Sha256::digest(&content));
        if found.eq_ignore_ascii_case(wanted) {
            Ok(content)
        } else {
            Err("a part of it does not have the digest that names it".into())
        }
    }

    /// Sends a request, and repeats it with authentication if the registry requires it.
    async fn proven(&self, request: impl Fn() -> RequestBuilder) -> Result<(Response, Proof), SharedError> {
        let answer = konverge_http::send(request()).await.map_err(said)?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok((answer, Proof::None));
        }
        let challenge = answer.headers().get(header::WWW_AUTHENTICATE);
        let challenge = challenge
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let proof = match challenge.split_once(' ') {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer") => {
                Proof::Bearer(self.token(&parameters(rest)).await?)
            }
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("basic") => Proof::Basic,
            _ => return Err("it requires an unknown authentication scheme".into()),
        };
        let answer = konverge_http::send(self.proving(request(), &proof))
            .await
            .map_err(said)?;
        Ok((answer, proof))
    }

    fn proving(&self, request: RequestBuilder, proof: &Proof) -> RequestBuilder {
        match (proof, &self.login) {
            (Proof::Bearer(token), _) => request.bearer_auth(token),
            (Proof::Basic, Some(login)) => request.basic_auth(&login.user, Some(&login.password)),
            _ => request,
        }
    }

    /// Requests a token from the service that the registry names in its challenge.
    async fn token(&self, challenge: &BTreeMap<String, String>) -> Result<String, SharedError> {
        let named = |name: &str| challenge.get(name).map(String::as_str);
        let realm = named("realm").ok_or("it names no token service")?;
        let mut realm: url::Url = realm.parse().map_err(|_| "its token service has no address")?;
        if realm.scheme() != "https" && !is_local_registry(&self.host) {
            return Err("its token service does not speak TLS".into());
        }
        for name in ["service", "scope"] {
            if let Some(value) = named(name) {
                realm.query_pairs_mut().append_pair(name, value);
            }
        }
        let request = self.http.get(realm);
        let request = match &self.login {
            Some(login) => request.basic_auth(&login.user, Some(&login.password)),
            None => request,
        };
        let answer = bounded(konverge_http::send(request).await.map_err(said)?, DOCUMENT).await?;
        let token: Token = serde_json::from_slice(&answer).map_err(|_| "its token service gave no token")?;
        let token = token.token.or(token.access_token);
        token.ok_or_else(|| "its token service gave no token".into())
    }
}

fn read_manifest(content: &[u8]) -> Result<Manifest, SharedError> {
    serde_json::from_slice(content).map_err(|_| "its manifest is not an OCI artifact manifest".into())
}

/// The platform whose package is used if there is none for this machine. The KCL files are the same for every
/// platform; the binary of a module is not, so `run::module_runner` does not run one of another platform.
const STAND_IN: (&str, &str) = ("linux", "amd64");

/// Returns the digest of the manifest for a platform, or else for [`STAND_IN`].
fn for_platform<'a>(entries: &'a [IndexEntry], os: &str, architecture: &str) -> Result<&'a str, String> {
    let platforms = entries
        .iter()
        .filter_map(|entry| Some((entry, entry.platform.as_ref()?)));
    for (os, architecture) in [(os, architecture), STAND_IN] {
        let mut own = platforms
            .clone()
            .filter(|(_, platform)| platform.os == os && platform.architecture == architecture);
        if let Some((entry, _)) = own.next() {
            return Ok(&entry.digest);
        }
    }
    let names = platforms.map(|(_, platform)| format!("{}/{}", platform.os, platform.architecture));
    let names = names.take(10).collect::<Vec<_>>().join(", ");
    Err(format!(
        "it has nothing for {os}/{architecture}: only {}",
        names.escape_debug()
    ))
}

/// Parses the parameters `realm="https://…",service="…"` of a challenge.
fn parameters(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([',', ' ']).to_lowercase();
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        found.insert(name, value.to_owned());
        rest = after;
    }
    found
}

/// Returns the body of a successful response, up to a size limit.
async fn bounded(answer: Response, most: u64) -> Result<Vec<u8>, SharedError> {
    let status = answer.status();
    if !status.is_success() {
        return Err(match status {
            StatusCode::NOT_FOUND => "there is no such package, or no such version of it".into(),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                format!("it refuses ({status}): credentials are needed").into()
            }
            other => format!("it answers {other}").into(),
        });
    }
    let too_much = || format!("it sends more than {most} bytes").into();
    if answer.content_length().is_some_and(|length| length > most) {
        return Err(too_much());
    }
    let body = konverge_http::read_body(answer, usize::try_from(most).unwrap_or(usize::MAX)).await;
    body.map_err(|error| match error {
        BodyError::Transport(error) => said(error),
        BodyError::TooLong { .. } => too_much(),
    })
}

/// Returns the error without the URL, whose query may contain a token.
fn said(error: reqwest::Error) -> SharedError {
    error.without_url().into()
}

/// Returns the operating system and the architecture, such as `linux` and `amd64`.
pub fn platform() -> (&'static str, &'static str) {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    (system, architecture)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_without_this_platform_is_that_of_linux_amd64() {
        let of = |platforms: &[(&str, &str)]| {
            let entries: Vec<IndexEntry> = platforms
                .iter()
                .map(|(os, architecture)| IndexEntry {
                    digest: format!("{os}-{architecture}"),
                    platform: Some(Platform {
                        os: (*os).to_owned(),
                        architecture: (*architecture).to_owned(),
                    }),
                })
                .collect();
            for_platform(&entries, "linux", "arm64").map(str::to_owned)
        };
        let published = [("darwin", "arm64"), ("linux", "amd64"), ("windows", "amd64")];
        assert_eq!(of(&published).unwrap(), "linux-amd64");
        assert_eq!(
            of(&[("linux", "amd64"), ("linux", "arm64")]).unwrap(),
            "linux-arm64"
        );
        let none = of(&[("darwin", "arm64")]).unwrap_err();
        assert!(
            none.contains("nothing for linux/arm64: only darwin/arm64"),
            "{none}"
        );
    }

    #[test]
    fn a_challenge_is_read() {
        let found = parameters(
            r#"realm="https://ghcr.io/token",service="ghcr.io",scope="repository:a/b:pull,push",x=1"#,
        );
        assert_eq!(found["realm"], "https://ghcr.io/token");
        assert_eq!(found["scope"], "repository:a/b:pull,push");
        assert_eq!(found["x"], "1");
    }
}
