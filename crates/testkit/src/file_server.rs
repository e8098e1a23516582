//! Two small servers for tests: files over HTTP with preconditions, and OSS as far as it documents
//! `x-oss-forbid-overwrite`, ListObjectsV2 and signature version 4. Both keep everything in memory.

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// The files of a server, by name.
type Files = Arc<Mutex<BTreeMap<String, Bytes>>>;

/// The behaviour of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Manners {
    /// Honours `If-None-Match: *`.
    Careful,
    /// Ignores `If-None-Match`, as many simple servers do.
    Careless,
    /// Speaks OSS.
    Oss,
}

/// The running server. It ends with the runtime on which it was started.
pub struct FileServer {
    pub url: String,
    /// `METHOD /path?query` of every request, in order.
    asked: Arc<Mutex<Vec<String>>>,
}

impl FileServer {
    /// The token that the server requires.
    pub const TOKEN: &str = "file-server-token";
    /// OSS: the bucket, key id and secret.
    pub const BUCKET: &str = "bucket";
    pub const KEY_ID: &str = "LTAItest";
    pub const KEY_SECRET: &str = "oss-test-secret";

    /// Starts a server.
    pub async fn start(manners: Manners) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let files = Files::default();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&asked);
        let router = Router::new()
            .fallback(move |state, method: Method, uri: Uri, headers, body| async move {
                seen.lock()
                    .expect("no panic while the lock is held")
                    .push(format!("{method} {uri}"));
                match manners {
                    Manners::Oss => oss(state, method, uri, headers, body),
                    _ => files_over_http(manners, state, method, uri, headers, body),
                }
            })
            .with_state(files)
            .layer(axum::extract::DefaultBodyLimit::disable());
        tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { url, asked }
    }

    /// Returns the requests since the last call.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().expect("no panic while the lock is held"))
    }
}

fn decoded(path: &str) -> String {
    let form = format!("k={}", path.replace('+', "%2B"));
    url::form_urlencoded::parse(form.as_bytes())
        .next()
        .map(|(_, v)| v.into_owned())
        .unwrap_or_default()
}

fn put(files: &Files, name: String, body: Bytes, only_new: bool) -> bool {
    let mut files = files.lock().expect("no panic while the lock is held");
    if only_new && files.contains_key(&name) {
        return false;
    }
    files.insert(name, body);
    true
}

fn files_over_http(
    manners: Manners,
    State(files): State<Files>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let bearer = format!("Bearer {}", FileServer::TOKEN);
    if headers
        .get("authorization")
        .is_none_or(|value| value != bearer.as_str())
    {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let name = decoded(uri.path());
    match method {
        Method::GET if uri.query() == Some("list") => {
            let files = files.lock().expect("no panic while the lock is held");
            let below: Vec<_> = files.keys().filter_map(|file| file.strip_prefix(&name)).collect();
            crate::json_answer::Json(below).into_response()
        }
        Method::GET => match files.lock().expect("no panic while the lock is held").get(&name) {
            Some(body) => body.clone().into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        },
        Method::PUT => {
            let only_new =
                manners == Manners::Careful && headers.get("if-none-match").is_some_and(|value| value == "*");
            if put(&files, name, body, only_new) {
                StatusCode::CREATED.into_response()
            } else {
                StatusCode::PRECONDITION_FAILED.into_response()
            }
        }
        Method::DELETE => {
            files
                .lock()
                .expect("no panic while the lock is held")
                .remove(&name);
            StatusCode::NO_CONTENT.into_response()
        }
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

fn oss(State(files): State<Files>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    if !is_signed(&method, &uri, &headers) {
        return (
            StatusCode::FORBIDDEN,
            "<Error><Code>SignatureDoesNotMatch</Code></Error>",
        )
            .into_response();
    }
    let path = uri.path().trim_start_matches('/');
    let Some(name) = path.strip_prefix(&format!("{}/", FileServer::BUCKET)) else {
        return (StatusCode::NOT_FOUND, "<Error><Code>NoSuchBucket</Code></Error>").into_response();
    };
    let name = decoded(name);
    match method {
        Method::GET if name.is_empty() => {
            list_objects(&files, uri.query().unwrap_or_default()).into_response()
        }
        Method::GET => match files.lock().expect("no panic while the lock is held").get(&name) {
            Some(body) => body.clone().into_response(),
            None => (StatusCode::NOT_FOUND, "<Error><Code>NoSuchKey</Code></Error>").into_response(),
        },
        Method::PUT => {
            let only_new = headers
                .get("x-oss-forbid-overwrite")
                .is_some_and(|value| value == "true");
            if put(&files, name, body, only_new) {
                StatusCode::OK.into_response()
            } else {
                (
                    StatusCode::CONFLICT,
                    "<Error><Code>FileAlreadyExists</Code></Error>",
                )
                    .into_response()
            }
        }
        _ => {
            files
                .lock()
                .expect("no panic while the lock is held")
                .remove(&name);
            StatusCode::NO_CONTENT.into_response()
        }
    }
}

/// Lists objects in pages of three, so that clients must request a second page.
fn list_objects(files: &Files, query: &str) -> String {
    let query: BTreeMap<_, _> = url::form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    assert_eq!(query["list-type"], "2");
    let after = query.get("continuation-token").cloned().unwrap_or_default();
    let files = files.lock().expect("no panic while the lock is held");
    let mut names: Vec<_> = files
        .keys()
        .filter(|name| name.starts_with(&query["prefix"]) && **name > after)
        .collect();
    let truncated = names.len() > 3;
    names.truncate(3);
    let escape = |name: &str| {
        url::form_urlencoded::byte_serialize(name.as_bytes())
            .collect::<String>()
            .replace('+', "%20")
    };
    let contents: String = names
        .iter()
        .map(|name| format!("<Contents><Key>{}</Key></Contents>", escape(name)))
        .collect();
    let next = if truncated {
        format!(
            "<NextContinuationToken>{}</NextContinuationToken>",
            escape(names[2])
        )
    } else {
        String::new()
    };
    format!("<ListBucketResult>{contents}<IsTruncated>{truncated}</IsTruncated>{next}</ListBucketResult>")
}

/// Checks signature version 4, step by step as documented.
fn is_signed(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    let text = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let Some((credential, signature)) = text("authorization")
        .strip_prefix("OSS4-HMAC-SHA256 Credential=")
        .and_then(|rest| rest.split_once(",Signature="))
    else {
        return false;
    };
    let Some((id, scope)) = credential.split_once('/') else {
        return false;
    };
    let mut signed: Vec<_> = headers
        .iter()
        .filter(|(name, _)| {
            name.as_str().starts_with("x-oss-") || ["content-type", "content-md5"].contains(&name.as_str())
        })
        .map(|(name, value)| {
            format!(
                "{}:{}\n",
                name.as_str(),
                value.to_str().unwrap_or_default().trim()
            )
        })
        .collect();
    signed.sort();
    let mut query: Vec<_> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
        .collect();
    query.sort_unstable();
    let canonical = [
        method.as_str(),
        uri.path(),
        &query.join("&"),
        &signed.concat(),
        "",
        text("x-oss-content-sha256"),
    ]
    .join("\n");
    let date = text("x-oss-date");
    let parts: Vec<_> = scope.split('/').collect();
    let to_sign = ["OSS4-HMAC-SHA256", date, scope, &hex(&Sha256::digest(canonical))].join("\n");
    let first = format!("aliyun_v4{}", FileServer::KEY_SECRET).into_bytes();
    let key = parts.iter().fold(first, |key, part| hmac(&key, part.as_bytes()));
    id == FileServer::KEY_ID
        && parts.len() == 4
        && date.starts_with(parts[0])
        && hex(&hmac(&key, to_sign.as_bytes())) == signature
}

fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    assert!(key.len() <= 64);
    let pad = |with: u8| -> Vec<u8> {
        let padded = key.iter().copied().chain(std::iter::repeat(0)).take(64);
        padded.map(|byte| byte ^ with).collect()
    };
    let inner = Sha256::digest([pad(0x36), message.to_vec()].concat());
    Sha256::digest([pad(0x5c), inner.to_vec()].concat()).to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
