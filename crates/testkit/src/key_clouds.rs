//! Fakes of the key services of Google, Azure and Alibaba, and of Alibaba's secrets, on one port of this machine. They
//! refuse requests that differ from the documentation: <https://cloud.google.com/kms/docs/reference/rest>,
//! <https://learn.microsoft.com/rest/api/keyvault/keys>, <https://www.alibabacloud.com/help/en/kms>.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::json_answer::Json;

pub const TOKEN: &str = "ya29.the-token-of-the-key-job";
pub const ALIBABA: (&str, &str) = ("LTAIkeyclouds", "the-secret-of-the-alibaba-key");
/// The names of the keys in the services.
pub const GOOGLE_KEY: &str = "projects/acme/locations/global/keyRings/ci/cryptoKeys/state";
pub const AZURE_KEY: &str = "state";
pub const ALIBABA_KEY: &str = "acs:kms:cn-hangzhou:1234567890:key/key-hzz0123";

#[derive(Default)]
pub struct World {
    address: String,
    /// The wrapped secrets: ciphertext to key, plaintext and context.
    wrapped: BTreeMap<String, (String, String, String)>,
    /// The versions of the secrets of Alibaba, the oldest first.
    secrets: BTreeMap<String, Vec<Value>>,
    /// True if secrets cannot be requested by version, as for some kinds.
    pub ignores_versions: bool,
    /// True if the values of secrets are refused.
    pub denies_values: bool,
    /// The number of next requests that are answered as busy.
    pub is_busy: usize,
    pub is_away: bool,
    /// The newest version of Azure's key.
    pub rotations: usize,
    nonces: BTreeSet<String>,
    requests: Vec<String>,
}

/// The running server. It ends with the runtime on which it was started.
#[derive(Clone)]
pub struct KeyClouds(Arc<Mutex<World>>);

impl KeyClouds {
    pub async fn start() -> Self {
        let clouds = Self(Arc::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        clouds.world().address = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(clouds.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        clouds
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    pub fn address(&self) -> String {
        self.world().address.clone()
    }

    /// Writes the next version of a secret of Alibaba.
    pub fn put(&self, name: &str, data: &str, kind: &str) {
        let secret = json!({"SecretData": data, "SecretDataType": kind});
        self.world()
            .secrets
            .entry(name.to_owned())
            .or_default()
            .push(secret);
    }

    /// Returns the requests since the last call.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.world().requests)
    }

    /// Returns the variables of a job with all rights.
    pub fn job(&self) -> Vec<(&'static str, String)> {
        let address = self.address();
        vec![
            ("ALIBABA_CLOUD_ACCESS_KEY_ID", ALIBABA.0.to_owned()),
            ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", ALIBABA.1.to_owned()),
            ("ALIBABA_CLOUD_KMS_ENDPOINT", address.clone()),
            ("AZURE_CLIENT_ID", "app".to_owned()),
            ("AZURE_TENANT_ID", "tenant".to_owned()),
            ("AZURE_CLIENT_SECRET", "the-secret-of-the-app".to_owned()),
            ("AZURE_AUTHORITY_HOST", address.clone()),
            ("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS", address.clone()),
            (
                "GCE_METADATA_HOST",
                address.trim_start_matches("http://").to_owned(),
            ),
        ]
    }
}

impl World {
    fn wrap(&mut self, key: &str, plain: &str, bound: &str) -> String {
        let id = URL_SAFE_NO_PAD.encode(format!("wrapped-{key}-{}", self.wrapped.len()));
        let of = (key.to_owned(), plain.to_owned(), bound.to_owned());
        self.wrapped.insert(id.clone(), of);
        id
    }

    fn unwrap(&self, key: &str, wrapped: &str, bound: &str) -> Option<String> {
        let (of, plain, with) = self.wrapped.get(wrapped)?;
        (of == key && with == bound).then(|| plain.clone())
    }
}

fn refused(status: StatusCode, why: &str) -> Response {
    (
        status,
        Json(json!({"error": {"code": "Refused", "message": why}})),
    )
        .into_response()
}

async fn answer(
    State(clouds): State<KeyClouds>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut world = clouds.world();
    let path = uri.path().to_owned();
    if path.ends_with("/oauth2/v2.0/token") || path.ends_with("/service-accounts/default/token") {
        return Json(json!({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}))
            .into_response();
    }
    if world.is_away {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "away");
    }
    if let Some(action) = headers
        .get("x-acs-action")
        .and_then(|action| action.to_str().ok())
    {
        world.requests.push(action.to_owned());
        return alibaba(&mut world, &method, &uri, &headers, &body);
    }
    world.requests.push(path.clone());
    let bearer = headers.get("authorization").and_then(|value| value.to_str().ok());
    if bearer != Some(format!("Bearer {TOKEN}").as_str()) {
        // Azure's official client first sends a request without a token, and reads from this header where to get one.
        let challenge = r#"Bearer authorization="https://login.microsoftonline.com/acme", resource="https://vault.azure.net""#;
        let answer = refused(StatusCode::UNAUTHORIZED, "no token");
        return ([("www-authenticate", challenge)], answer).into_response();
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
    match (method.as_str(), parts.as_slice()) {
        ("POST", ["v1", name @ ..]) => {
            let name = name.join("/");
            let (key, operation) = name.rsplit_once(':').unwrap_or_default();
            let bound = text("additionalAuthenticatedData");
            if key != GOOGLE_KEY {
                return refused(StatusCode::NOT_FOUND, "no such key");
            }
            match operation {
                "encrypt" if STANDARD.decode(text("plaintext")).is_ok() => {
                    let wrapped = world.wrap(key, &text("plaintext"), &bound);
                    Json(json!({"name": format!("{key}/cryptoKeyVersions/1"), "ciphertext": wrapped}))
                        .into_response()
                }
                "decrypt" => match world.unwrap(key, &text("ciphertext"), &bound) {
                    Some(plain) => Json(json!({"plaintext": plain, "usedPrimary": true})).into_response(),
                    None => refused(
                        StatusCode::BAD_REQUEST,
                        "Decryption failed: the ciphertext is invalid.",
                    ),
                },
                _ => refused(StatusCode::NOT_FOUND, "no such method"),
            }
        }
        (_, ["keys", ..]) if !uri.query().unwrap_or_default().contains("api-version=7.4") => {
            refused(StatusCode::BAD_REQUEST, "api-version")
        }
        // Without a version the newest key is used. Azure's official client then ends the path with a `/`.
        ("GET", ["keys", name] | ["keys", name, ""]) if *name == AZURE_KEY => {
            let id = format!("{}/keys/{name}/{:032x}", world.address, world.rotations + 1);
            Json(json!({"key": {"kid": id, "kty": "RSA", "key_ops": ["wrapKey", "unwrapKey"]}}))
                .into_response()
        }
        ("POST", ["keys", name, version, operation])
            if *name == AZURE_KEY && text("alg") == "RSA-OAEP-256" =>
        {
            let value = text("value");
            // An RSA key of 2,048 bits can encrypt at most 190 bytes.
            let length = URL_SAFE_NO_PAD
                .decode(&value)
                .map_or(usize::MAX, |bytes| bytes.len());
            let result = match *operation {
                "wrapkey" if length <= 190 => Some(world.wrap(version, &value, "")),
                "unwrapkey" => world.unwrap(version, &value, ""),
                _ => None,
            };
            let id = format!("{}/keys/{name}/{version}", world.address);
            match result {
                Some(value) => Json(json!({"kid": id, "value": value})).into_response(),
                None => refused(StatusCode::BAD_REQUEST, "BadParameter"),
            }
        }
        _ => refused(StatusCode::NOT_FOUND, "no such path"),
    }
}

/// Encodes a text by percent-encoding of RFC 3986.
fn percent_encode(text: &str) -> String {
    const KEPT: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    percent_encoding::utf8_percent_encode(text, KEPT).to_string()
}

fn alibaba(world: &mut World, method: &Method, uri: &Uri, headers: &HeaderMap, body: &Bytes) -> Response {
    let failed = |status: StatusCode, code: &str, why: &str| {
        (
            status,
            Json(json!({"Code": code, "Message": why, "RequestId": "1"})),
        )
            .into_response()
    };
    if world.is_busy > 0 {
        world.is_busy -= 1;
        return failed(
            StatusCode::BAD_REQUEST,
            "Throttling.User",
            "Request was denied due to user flow control.",
        );
    }
    let header = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap());
    let query = uri.query().unwrap_or_default();
    let said = header("authorization");
    let signed: Vec<_> = said
        .split("SignedHeaders=")
        .nth(1)
        .and_then(|rest| rest.split(',').next())
        .unwrap_or_default()
        .split(';')
        .collect();
    let lines: String = signed
        .iter()
        .map(|name| format!("{name}:{}\n", header(name).trim()))
        .collect();
    let hash = hex::encode(Sha256::digest(body));
    // The signature covers the parameters sorted and encoded, in whatever form they were sent.
    let mut given: Vec<_> = url::form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    given.sort_unstable();
    let pairs = given
        .iter()
        .map(|(name, value)| format!("{}={}", percent_encode(name), percent_encode(value)));
    let query = pairs.collect::<Vec<_>>().join("&");
    let request = format!("{method}\n/\n{query}\n{lines}\n{}\n{hash}", signed.join(";"));
    let mut mac = Hmac::<Sha256>::new_from_slice(ALIBABA.1.as_bytes()).unwrap();
    mac.update(format!("ACS3-HMAC-SHA256\n{}", hex::encode(Sha256::digest(&request))).as_bytes());
    let signature = hex::encode(mac.finalize().into_bytes());
    let needed = [
        "host",
        "x-acs-action",
        "x-acs-content-sha256",
        "x-acs-date",
        "x-acs-signature-nonce",
        "x-acs-version",
    ];
    let is_signed = needed.iter().all(|name| signed.contains(name))
        && header("x-acs-content-sha256") == hash
        && said.contains(&format!("Credential={},", ALIBABA.0))
        && said.ends_with(&format!("Signature={signature}"));
    if !is_signed {
        return failed(
            StatusCode::BAD_REQUEST,
            "SignatureDoesNotMatch",
            &format!(
                "Specified signature is not matched with our calculation. server CanonicalRequest is: {request}"
            ),
        );
    }
    if !world.nonces.insert(header("x-acs-signature-nonce").to_owned()) {
        return failed(
            StatusCode::BAD_REQUEST,
            "SignatureNonceUsed",
            "The nonce was used already.",
        );
    }
    if header("x-acs-version") != "2016-01-20" {
        return failed(
            StatusCode::BAD_REQUEST,
            "InvalidVersion",
            "Specified version is not valid.",
        );
    }
    let given: BTreeMap<String, String> = given.into_iter().collect();
    let of = |name: &str| given.get(name).cloned().unwrap_or_default();
    let missing = || {
        failed(
            StatusCode::NOT_FOUND,
            "Forbidden.ResourceNotFound",
            "Resource not found.",
        )
    };
    let id = |number: usize| format!("v{number}");
    match header("x-acs-action") {
        "Encrypt" if of("KeyId") == ALIBABA_KEY => {
            let wrapped = world.wrap(ALIBABA_KEY, &of("Plaintext"), &of("EncryptionContext"));
            Json(json!({"KeyId": "key-hzz0123", "CiphertextBlob": wrapped, "RequestId": "1"})).into_response()
        }
        "Encrypt" => missing(),
        "Decrypt" => match world.unwrap(ALIBABA_KEY, &of("CiphertextBlob"), &of("EncryptionContext")) {
            Some(plain) => {
                Json(json!({"KeyId": "key-hzz0123", "Plaintext": plain, "RequestId": "1"})).into_response()
            }
            None => failed(
                StatusCode::BAD_REQUEST,
                "InvalidParameter",
                "The specified parameter is not valid.",
            ),
        },
        "ListSecretVersionIds" => {
            let Some(versions) = world.secrets.get(&of("SecretName")) else {
                return missing();
            };
            let newest = versions.len();
            let stage = |number: usize| match newest - number {
                0 => vec!["ACSCurrent"],
                1 => vec!["ACSPrevious"],
                _ => Vec::new(),
            };
            let is_listed = |number: &usize| of("IncludeDeprecated") == "true" || !stage(*number).is_empty();
            let about = (1..=newest).filter(is_listed).map(|number| {
                json!({"VersionId": id(number), "VersionStages": {"VersionStage": stage(number)}, "CreateTime": "2026-01-01T00:00:00Z"})
            });
            let (page, size) = (
                of("PageNumber").parse().unwrap_or(1),
                of("PageSize").parse().unwrap_or(20),
            );
            let about: Vec<_> = about.skip((page - 1) * size).take(size).collect();
            Json(json!({"SecretName": of("SecretName"), "VersionIds": {"VersionId": about}, "TotalCount": newest})).into_response()
        }
        "GetSecretValue" if world.denies_values => failed(
            StatusCode::FORBIDDEN,
            "Forbidden.NoPermission",
            "This operation is forbidden by permission system.",
        ),
        "GetSecretValue" => {
            let versions = world.secrets.get(&of("SecretName")).cloned().unwrap_or_default();
            let asked = of("VersionId").trim_start_matches('v').parse().unwrap_or(0);
            let number = if asked == 0 || world.ignores_versions {
                versions.len()
            } else {
                asked
            };
            let Some(mut answer) = number.checked_sub(1).and_then(|at| versions.get(at)).cloned() else {
                return missing();
            };
            answer["SecretName"] = json!(of("SecretName"));
            answer["VersionId"] = json!(id(number));
            answer["VersionStages"] = json!({"VersionStage": ["ACSCurrent"]});
            Json(answer).into_response()
        }
        _ => failed(
            StatusCode::NOT_FOUND,
            "InvalidAction.NotFound",
            "Specified api is not found.",
        ),
    }
}
