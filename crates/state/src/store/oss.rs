//! Alibaba Cloud OSS: `oss://BUCKET/PREFIX?region=cn-hangzhou`. The header `x-oss-forbid-overwrite` makes a
//! create fail if the key exists (<https://www.alibabacloud.com/help/en/oss/developer-reference/putobject>).
//! Requests are signed with signature version 4
//! (<https://www.alibabacloud.com/help/en/oss/developer-reference/recommend-to-use-signature-version-4>).

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, utf8_percent_encode};
use reqwest::{Client, Method, RequestBuilder, StatusCode};

use super::{
    Created, Key, Store, StoreError, decode_component,
    http_client::{HttpAnswer, HttpClient},
    location::StoreLocation,
    media_type,
};
use konverge_base::variables;
use konverge_cloud::{RESERVED, canonical_headers, hmac_sha256, percent_encode, sha256};

/// The media type of stored objects.
const TYPE_HEADER: (&str, &str) = ("content-type", "application/octet-stream");

struct OssStore {
    requests: HttpClient,
    endpoint: String,
    bucket: String,
    prefix: String,
    signer: Signer,
}

struct Signer {
    region: String,
    id: String,
    secret: String,
    token: Option<String>,
}

/// A request before it is signed. Query and headers are sorted by name.
struct Unsigned<'a> {
    method: Method,
    path: &'a str,
    query: &'a [(&'a str, String)],
    headers: &'a [(&'a str, &'a str)],
}

pub(super) fn oss(place: &StoreLocation) -> Result<Arc<dyn Store>, StoreError> {
    let variable = |names: [&str; 2]| {
        let mut set = names.iter().filter_map(|name| place.variable(name));
        set.next().map(str::to_owned)
    };
    let missing = |what: &str| place.error(format!("{what} is missing from the environment"));
    let region = place
        .options
        .region
        .clone()
        .or_else(|| variable([variables::OSS_REGION, variables::ALIBABA_CLOUD_REGION]));
    let region = region.ok_or_else(|| place.error("it names no region, as in `?region=cn-hangzhou`"))?;
    let signer = Signer {
        id: variable([
            variables::OSS_ACCESS_KEY_ID,
            variables::ALIBABA_CLOUD_ACCESS_KEY_ID,
        ])
        .ok_or_else(|| missing(variables::OSS_ACCESS_KEY_ID))?,
        secret: variable([
            variables::OSS_ACCESS_KEY_SECRET,
            variables::ALIBABA_CLOUD_ACCESS_KEY_SECRET,
        ])
        .ok_or_else(|| missing(variables::OSS_ACCESS_KEY_SECRET))?,
        token: variable([
            variables::OSS_SESSION_TOKEN,
            variables::ALIBABA_CLOUD_SECURITY_TOKEN,
        ]),
        region,
    };
    // With a custom endpoint, the bucket is part of the path.
    let endpoint = match &place.options.endpoint {
        Some(endpoint) => format!("{}/{}", endpoint.trim_end_matches('/'), place.host),
        None => format!("https://{}.oss-{}.aliyuncs.com", place.host, signer.region),
    };
    Ok(Arc::new(OssStore {
        requests: HttpClient::new(place)?,
        endpoint,
        bucket: place.host.clone(),
        prefix: place.prefix.clone(),
        signer,
    }))
}

impl OssStore {
    async fn ask(
        &self,
        key: &Key,
        method: Method,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<HttpAnswer, StoreError> {
        let unsigned = Unsigned {
            method,
            path,
            query,
            headers: &[],
        };
        self.requests
            .send(key, |client| self.request(client, &unsigned))
            .await
    }

    async fn put(
        &self,
        key: &Key,
        headers: &[(&str, &str)],
        content: Bytes,
    ) -> Result<HttpAnswer, StoreError> {
        let path = key.below(&self.prefix);
        let unsigned = Unsigned {
            method: Method::PUT,
            path: &path,
            query: &[],
            headers,
        };
        let make = |client: &Client| self.request(client, &unsigned).body(content.clone());
        self.requests.send(key, make).await
    }

    fn unreadable(&self, prefix: &Key, error: &quick_xml::DeError) -> StoreError {
        StoreError::Unavailable {
            url: self.requests.url.clone(),
            key: prefix.to_string(),
            why: format!("the listing cannot be read: {}", error.to_string().escape_debug()).into(),
        }
    }

    fn request(&self, client: &Client, unsigned: &Unsigned<'_>) -> RequestBuilder {
        let now = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let path = utf8_percent_encode(unsigned.path, IN_PATH);
        let query = canonical_query(unsigned.query);
        let separator = if query.is_empty() { "" } else { "?" };
        let url = format!("{}/{path}{separator}{query}", self.endpoint);
        let mut headers: Vec<(&str, &str)> = unsigned.headers.to_vec();
        headers.extend([
            ("x-oss-content-sha256", "UNSIGNED-PAYLOAD"),
            ("x-oss-date", now.as_str()),
        ]);
        if let Some(token) = &self.signer.token {
            headers.push(("x-oss-security-token", token));
        }
        headers.sort_unstable();
        let uri = format!("/{}/{path}", self.bucket);
        let authorization = self
            .signer
            .authorization(unsigned.method.as_str(), &uri, &query, &headers, &now);
        let mut request = client
            .request(unsigned.method.clone(), url)
            .header("authorization", authorization);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request
    }
}

impl Signer {
    fn authorization(
        &self,
        method: &str,
        uri: &str,
        query: &str,
        headers: &[(&str, &str)],
        now: &str,
    ) -> String {
        let (_, canonical) = canonical_headers(headers);
        let request = format!("{method}\n{uri}\n{query}\n{canonical}\n\nUNSIGNED-PAYLOAD");
        let day = &now[..8];
        let scope = format!("{day}/{}/oss/aliyun_v4_request", self.region);
        let digest = sha256(request.as_bytes());
        let to_sign = format!("OSS4-HMAC-SHA256\n{now}\n{scope}\n{digest}");
        let mut key = hmac_sha256(format!("aliyun_v4{}", self.secret).as_bytes(), day.as_bytes());
        for part in [self.region.as_str(), "oss", "aliyun_v4_request"] {
            key = hmac_sha256(&key, part.as_bytes());
        }
        let signature = hex::encode(hmac_sha256(&key, to_sign.as_bytes()));
        format!(
            "OSS4-HMAC-SHA256 Credential={}/{scope},Signature={signature}",
            self.id
        )
    }
}

fn canonical_query(query: &[(&str, String)]) -> String {
    let pairs: Vec<_> = query
        .iter()
        .map(|(name, value)| format!("{}={}", percent_encode(name), percent_encode(value)))
        .collect();
    pairs.join("&")
}

/// The characters that are percent-encoded in a path.
const IN_PATH: &AsciiSet = &RESERVED.remove(b'/');

/// The response to a listing. Names are requested percent-encoded.
#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ObjectListing {
    #[serde(default)]
    contents: Vec<ListedObject>,
    #[serde(default)]
    is_truncated: bool,
    next_continuation_token: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedObject {
    key: String,
}

#[async_trait]
impl Store for OssStore {
    fn url(&self) -> &str {
        &self.requests.url
    }

    async fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError> {
        let answer = self.ask(key, Method::GET, &key.below(&self.prefix), &[]).await?;
        match answer.status {
            StatusCode::OK => Ok(Some(answer.body)),
            StatusCode::NOT_FOUND if !String::from_utf8_lossy(&answer.body).contains("NoSuchBucket") => {
                Ok(None)
            }
            _ => Err(self.requests.status_error(key, &answer)),
        }
    }

    async fn list(&self, prefix: &Key) -> Result<Vec<Key>, StoreError> {
        let folder = match prefix.below(&self.prefix) {
            folder if folder.is_empty() => folder,
            folder => format!("{folder}/"),
        };
        let (mut names, mut next) = (Vec::new(), None::<String>);
        loop {
            let mut query: Vec<(&str, String)> = Vec::new();
            query.extend(next.take().map(|token| ("continuation-token", token)));
            query.extend([
                ("encoding-type", "url".to_owned()),
                ("list-type", "2".to_owned()),
                ("max-keys", "1000".to_owned()),
                ("prefix", folder.clone()),
            ]);
            let answer = self.ask(prefix, Method::GET, "", &query).await?;
            if answer.status != StatusCode::OK {
                return Err(self.requests.status_error(prefix, &answer));
            }
            let listing: ObjectListing = quick_xml::de::from_reader(answer.body.as_ref())
                .map_err(|error| self.unreadable(prefix, &error))?;
            names.extend(
                listing
                    .contents
                    .iter()
                    .map(|object| decode_component(&object.key)),
            );
            let token = listing.next_continuation_token.filter(|_| listing.is_truncated);
            next = token.map(|token| decode_component(&token));
            if next.is_none() {
                break;
            }
        }
        Ok(Key::listed_below(&self.prefix, names))
    }

    async fn create(&self, key: &Key, content: Bytes) -> Result<Created, StoreError> {
        let headers = [TYPE_HEADER, ("x-oss-forbid-overwrite", "true")];
        let answer = self.put(key, &headers, content).await?;
        match answer.status {
            StatusCode::OK => Ok(Created::Created),
            StatusCode::CONFLICT => Ok(Created::Exists),
            _ => Err(self.requests.status_error(key, &answer)),
        }
    }

    async fn replace(&self, key: &Key, content: Bytes) -> Result<(), StoreError> {
        let kind = media_type(key).unwrap_or(TYPE_HEADER.1);
        let answer = self.put(key, &[(TYPE_HEADER.0, kind)], content).await?;
        match answer.status {
            StatusCode::OK => Ok(()),
            _ => Err(self.requests.status_error(key, &answer)),
        }
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        let answer = self
            .ask(key, Method::DELETE, &key.below(&self.prefix), &[])
            .await?;
        match answer.status {
            status if status.is_success() || status == StatusCode::NOT_FOUND => Ok(()),
            _ => Err(self.requests.status_error(key, &answer)),
        }
    }
}
