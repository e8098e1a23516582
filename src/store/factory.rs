//! Opens a store from its URL.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use tokio_util::sync::CancellationToken;
use url::Url;

use super::{Store, StoreError, cloud, filesystem, http, interruptible::Interruptible, oss, sql};
use crate::{checkout::Checkout, interrupt::Interrupt, retry::RetryPolicy};

/// The options that a URL does not contain. `Default` uses the environment of the process.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Another endpoint than the provider's own, such as `http://127.0.0.1:9000`.
    pub endpoint: Option<String>,
    /// The region, if the provider has regions.
    pub region: Option<String>,
    /// S3: whether the bucket is part of the path instead of the host name. Default: true with an endpoint,
    /// false without.
    pub path_style: Option<bool>,
    /// Allows clear-text HTTP, which is accepted only for endpoints on this machine.
    pub allow_http: bool,
    /// A file of PEM certificates to trust in addition to the system's.
    pub ca_file: Option<String>,
    /// The checkout. Neither states nor certificates are read from it, because a branch could bring its own.
    pub checkout: Checkout,
    /// The environment with the credentials.
    pub environment: BTreeMap<String, String>,
    /// The retry policy of requests.
    pub retry: RetryPolicy,
    /// Cancelled when the run is asked to stop: the run then no longer waits for a store that does not
    /// answer.
    pub cancel: CancellationToken,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            path_style: None,
            allow_http: false,
            ca_file: None,
            checkout: Checkout::default(),
            environment: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            retry: RetryPolicy::default(),
            cancel: CancellationToken::new(),
        }
    }
}

impl StoreOptions {
    /// Sets an option by its name in `state.options` and in the query of a URL.
    ///
    /// # Errors
    /// An unknown name, with the list of known names; a boolean that is neither `true` nor `false`.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let yes_or_no = || {
            value
                .parse::<bool>()
                .map_err(|_| format!("`{name}` is `true` or `false`, not `{}`", value.escape_debug()))
        };
        match name {
            "endpoint" => self.endpoint = Some(value.to_owned()),
            "region" => self.region = Some(value.to_owned()),
            "path_style" => self.path_style = Some(yes_or_no()?),
            "allow_http" => self.allow_http = yes_or_no()?,
            "ca_file" => self.ca_file = Some(value.to_owned()),
            other => {
                return Err(format!(
                    "unknown option `{}`; known are endpoint, region, path_style, allow_http, ca_file",
                    other.escape_debug()
                ));
            }
        }
        Ok(())
    }
}

/// Opens the store of a URL: a plain path or `file://`, `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`,
/// `az://CONTAINER/PREFIX`, `oss://BUCKET/PREFIX`, `postgres://USER@HOST/DATABASE/PREFIX`, `mysql://…`,
/// `https://HOST/PREFIX`. The query may set `endpoint`, `region`, `path_style`, `allow_http` and `ca_file`.
///
/// Sends no request to the store; [`super::probe`] does.
///
/// # Errors
/// [`StoreError::Config`]: an unknown scheme or query key, a password in the URL, a folder that cannot be
/// created.
pub async fn open(url: &str, options: &StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    let store = open_scheme(url, options).await?;
    let interrupt = Interrupt::new(options.cancel.clone());
    Ok(Arc::new(Interruptible { store, interrupt }))
}

async fn open_scheme(url: &str, options: &StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return trusted_folder(url.into(), options);
    };
    if scheme == "file" {
        return trusted_folder(file_path(url, rest)?, options);
    }
    let place = Location::parse(url, options)?;
    if let Some(file) = &place.options.ca_file {
        let trusted = options.checkout.trust("state.options.ca_file", file.as_ref());
        trusted.map_err(|error| place.error(error.to_string()))?;
    }
    match scheme {
        "s3" => cloud::s3(&place),
        "gs" => cloud::gs(&place),
        "az" => cloud::az(&place),
        "oss" => oss::oss(&place),
        "postgres" | "mysql" => sql::sql(&place, scheme),
        "http" | "https" => http::http(&place),
        _ => Err(place.error(format!(
            "unknown scheme `{scheme}`; known are file, s3, gs, az, oss, postgres, mysql, https"
        ))),
    }
}

/// A store in a folder outside the checkout.
fn trusted_folder(path: PathBuf, options: &StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    let config = |why: String| StoreError::Config {
        url: format!("file://{}", path.display().to_string().escape_debug()),
        why,
    };
    let absolute = std::path::absolute(&path).map_err(|error| config(error.to_string()))?;
    let trusted = options.checkout.trust("the folder of the states", &absolute);
    trusted.map_err(|error| config(error.to_string()))?;
    filesystem::folder(path, options)
}

fn file_path(url: &str, rest: &str) -> Result<PathBuf, StoreError> {
    let config = |why: &str| StoreError::Config {
        url: url.to_owned(),
        why: why.to_owned(),
    };
    if !rest.starts_with('/') {
        return Err(config(
            "a file URL has three slashes, as in file:///var/lib/konverge; or give a plain path",
        ));
    }
    Url::parse(url)
        .ok()
        .and_then(|parsed| parsed.to_file_path().ok())
        .ok_or_else(|| config("it is not a path of this machine"))
}

/// A parsed URL, with the options changed by its query.
pub(super) struct Location {
    /// The URL without query and credentials, for messages.
    pub shown: String,
    /// The URL without query.
    pub url: Url,
    /// The bucket, container or host.
    pub host: String,
    /// The path without leading and trailing slashes.
    pub prefix: String,
    /// The options, with the query applied.
    pub options: StoreOptions,
}

impl Location {
    /// Parses a URL.
    pub fn parse(text: &str, options: &StoreOptions) -> Result<Self, StoreError> {
        let bare = text.split(['?', '#']).next().unwrap_or_default();
        let shown = match bare.split_once("://") {
            Some((scheme, rest)) => match rest.split_once('/') {
                Some((host, path)) => format!(
                    "{scheme}://{}/{path}",
                    host.rsplit('@').next().unwrap_or_default()
                ),
                None => format!("{scheme}://{}", rest.rsplit('@').next().unwrap_or_default()),
            },
            None => bare.to_owned(),
        };
        let config = |why: String| StoreError::Config {
            url: shown.escape_debug().to_string(),
            why,
        };
        let mut url = Url::parse(text).map_err(|error| config(format!("not a URL: {error}")))?;
        if url.password().is_some() {
            return Err(config(
                "it holds a password; credentials come from the environment, never from a file of the repository".into(),
            ));
        }
        let mut options = options.clone();
        for (key, value) in url.query_pairs() {
            options.set(&key, &value).map_err(&config)?;
        }
        url.set_query(None);
        url.set_fragment(None);
        let place = Self {
            host: url.host_str().unwrap_or_default().to_owned(),
            prefix: url.path().trim_matches('/').to_owned(),
            shown: shown.escape_debug().to_string(),
            url,
            options,
        };
        if place.host.is_empty() {
            return Err(place.error("it names no bucket or host".to_owned()));
        }
        if let Some(endpoint) = &place.options.endpoint {
            place.check_transport(endpoint)?;
        }
        Ok(place)
    }

    /// Returns an error for clear-text HTTP, unless it was requested and the endpoint is on this machine.
    pub fn check_transport(&self, endpoint: &str) -> Result<(), StoreError> {
        let url =
            Url::parse(endpoint).map_err(|error| self.error(format!("`endpoint` is not a URL: {error}")))?;
        if url.password().is_some() || !url.username().is_empty() {
            return Err(self.error("`endpoint` holds credentials; they come from the environment".to_owned()));
        }
        if url.scheme() == "https" {
            return Ok(());
        }
        if is_loopback(&url) && self.options.allow_http {
            return Ok(());
        }
        Err(self.error(format!(
            "endpoint `{endpoint}` is not https; `allow_http=true` permits http for an endpoint on this machine alone"
        )))
    }

    /// An environment variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let value = self.options.environment.get(name)?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    /// The user in the URL.
    pub fn user(&self) -> Option<&str> {
        Some(self.url.username()).filter(|user| !user.is_empty())
    }

    /// Returns true if the host of the URL is this machine.
    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.url)
    }

    /// A configuration error for this location.
    pub fn error(&self, why: String) -> StoreError {
        StoreError::Config {
            url: self.shown.clone(),
            why,
        }
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        // For schemes other than HTTP, `url` parses an IP address as a domain.
        Some(url::Host::Domain(name)) => {
            name == "localhost"
                || name
                    .parse()
                    .is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        }
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn options() -> StoreOptions {
        StoreOptions {
            environment: BTreeMap::new(),
            ..StoreOptions::default()
        }
    }

    async fn refusal(url: &str) -> String {
        match open(url, &options()).await {
            Ok(_) => panic!("{url} was accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn wrong_urls_are_refused_without_showing_a_password() {
        let with_password = refusal("s3://me:hunter222@bucket/x").await;
        assert!(
            with_password.contains("s3://bucket/x") && !with_password.contains("hunter222"),
            "{with_password}"
        );
        assert!(refusal("ftp://x/y").await.contains("unknown scheme"));
        assert!(
            refusal("s3://bucket?regoin=x")
                .await
                .contains("known are endpoint")
        );
        for value in ["yes", "1", "True", ""] {
            let slip = refusal(&format!("s3://bucket?allow_http={value}")).await;
            assert!(slip.contains("`allow_http` is `true` or `false`"), "{slip}");
        }
        assert!(refusal("s3:///x").await.contains("no bucket"));
        assert!(refusal("file://relative/x").await.contains("three slashes"));
    }

    #[tokio::test]
    async fn clear_text_is_for_this_machine_alone() {
        assert!(
            refusal("s3://b?endpoint=http://10.0.0.1:9000&allow_http=true")
                .await
                .contains("not https")
        );
        assert!(
            refusal("s3://b?endpoint=http://127.0.0.1:9000")
                .await
                .contains("allow_http")
        );
        assert!(
            open(
                "s3://b?endpoint=http://127.0.0.1:9000&allow_http=true",
                &options()
            )
            .await
            .is_ok()
        );
    }
}
