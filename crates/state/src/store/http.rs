//! A generic file server as a store: `https://HOST/PREFIX`.
//!
//! - `GET` returns the content or 404;
//! - `PUT` with `If-None-Match: *` creates the file, or returns 412 if it exists;
//! - `GET <folder>/?list` returns a JSON list of all paths below the folder, relative to it, or 404;
//! - `DELETE` deletes the file.
//!
//! `KONVERGE_HTTP_TOKEN` is sent as a bearer token; otherwise `KONVERGE_HTTP_USER` and
//! `KONVERGE_HTTP_PASSWORD` are used.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::{
    Client, RequestBuilder, StatusCode,
    header::{CONTENT_TYPE, IF_NONE_MATCH},
};
use url::Url;

use super::{
    Created, Key, Store, StoreError,
    http_client::{HttpAnswer, HttpClient},
    location::StoreLocation,
};
use konverge_base::variables;

struct HttpStore {
    requests: HttpClient,
    base: Url,
    token: Option<String>,
    user: Option<(String, Option<String>)>,
}

pub(super) fn http(place: &StoreLocation) -> Result<Arc<dyn Store>, StoreError> {
    place.check_transport(place.url.as_str())?;
    let variable = |name: &str| place.variable(name).map(str::to_owned);
    Ok(Arc::new(HttpStore {
        requests: HttpClient::new(place)?,
        base: place.url.clone(),
        token: variable(variables::KONVERGE_HTTP_TOKEN),
        user: variable(variables::KONVERGE_HTTP_USER)
            .map(|user| (user, variable(variables::KONVERGE_HTTP_PASSWORD))),
    }))
}

impl HttpStore {
    fn place(&self, key: &Key) -> Url {
        let mut url = self.base.clone();
        // A key contains percent escapes. The server must see them as part of the name, so they are escaped
        // once more.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty();
            if !key.as_str().is_empty() {
                segments.extend(key.as_str().split('/'));
            }
        }
        url
    }

    async fn send(
        &self,
        key: &Key,
        url: Url,
        make: impl Fn(&Client, Url) -> RequestBuilder,
    ) -> Result<HttpAnswer, StoreError> {
        let authorized = |client: &Client| {
            let request = make(client, url.clone());
            match (&self.token, &self.user) {
                (Some(token), _) => request.bearer_auth(token),
                (None, Some((user, password))) => request.basic_auth(user, password.as_ref()),
                (None, None) => request,
            }
        };
        self.requests.send(key, authorized).await
    }
}

#[async_trait]
impl Store for HttpStore {
    fn url(&self) -> &str {
        &self.requests.url
    }

    async fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError> {
        let answer = self.send(key, self.place(key), Client::get).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(answer.body)),
            _ => Err(self.requests.status_error(key, &answer)),
        }
    }

    async fn list(&self, prefix: &Key) -> Result<Vec<Key>, StoreError> {
        let mut url = self.place(prefix);
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("");
        }
        url.set_query(Some("list"));
        let answer = self.send(prefix, url, Client::get).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(Vec::new());
        }
        let paths: Option<Vec<String>> = answer
            .status
            .is_success()
            .then(|| serde_json::from_slice(&answer.body).ok())
            .flatten();
        let Some(paths) = paths else {
            return Err(StoreError::Unsafe {
                url: self.requests.url.clone(),
                why: format!(
                    "`GET …/?list` answered {} and no JSON list of paths",
                    answer.status
                ),
            });
        };
        let full = |path: String| match prefix.as_str() {
            "" => Key::from_listing(path),
            folder => Key::from_listing(format!("{folder}/{path}")),
        };
        let mut keys: Vec<_> = paths.into_iter().map(full).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    async fn create(&self, key: &Key, content: Bytes) -> Result<Created, StoreError> {
        let make = |client: &Client, url: Url| {
            let request = client.put(url).header(IF_NONE_MATCH, "*");
            request
                .header(CONTENT_TYPE, "application/octet-stream")
                .body(content.clone())
        };
        let answer = self.send(key, self.place(key), make).await?;
        match answer.status {
            StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT => Ok(Created::Exists),
            status if status.is_success() => Ok(Created::Created),
            _ => Err(self.requests.status_error(key, &answer)),
        }
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        let answer = self.send(key, self.place(key), Client::delete).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(()),
            status if status.is_success() => Ok(()),
            _ => Err(self.requests.status_error(key, &answer)),
        }
    }
}
