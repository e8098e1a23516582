//! [`StoreOptions`]: the options of a store besides its URL.

use std::collections::BTreeMap;

use tokio_util::sync::CancellationToken;

use konverge_base::{checkout::Checkout, model::store_setting::STORE_SETTINGS, retry::RetryPolicy};

/// The options that a URL does not contain. `Default` uses the environment of the process.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// An endpoint instead of the provider's own, such as `http://127.0.0.1:9000`.
    pub endpoint: Option<String>,
    /// The region, for providers with regions.
    pub region: Option<String>,
    /// For S3: true if the bucket is part of the path, false if it is part of the host name. `None`: true
    /// with an endpoint, false without.
    pub path_style: Option<bool>,
    /// Allows clear-text HTTP, which is accepted only for endpoints on this machine.
    pub allow_http: bool,
    /// A file of PEM certificates to trust in addition to the system's.
    pub ca_file: Option<String>,
    /// The checkout. States and certificates are never read from it, because a branch could bring its own.
    pub checkout: Checkout,
    /// The environment with the credentials.
    pub environment: BTreeMap<String, String>,
    /// The retry policy of requests.
    pub retry: RetryPolicy,
    /// Cancelled when the run is asked to stop, so that the run no longer waits for a store that does not
    /// respond.
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

/// Errors of setting an option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreOptionError {
    /// There is no option of this name.
    #[error("unknown option `{name}`; known are {known}", name = .0.escape_debug(), known = STORE_SETTINGS.join(", "))]
    Unknown(String),
    /// The value is neither `true` nor `false`; with option and value.
    #[error("`{0}` must be `true` or `false`, not `{value}`", value = .1.escape_debug())]
    NotBoolean(String, String),
}

impl StoreOptions {
    /// Sets an option by its name in `state.options` and in the query of a URL.
    ///
    /// # Errors
    /// An unknown name, with the list of known names; a boolean that is neither `true` nor `false`.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), StoreOptionError> {
        let yes_or_no = || {
            let not_boolean = |_| StoreOptionError::NotBoolean(name.to_owned(), value.to_owned());
            value.parse::<bool>().map_err(not_boolean)
        };
        match name {
            "endpoint" => self.endpoint = Some(value.to_owned()),
            "region" => self.region = Some(value.to_owned()),
            "path_style" => self.path_style = Some(yes_or_no()?),
            "allow_http" => self.allow_http = yes_or_no()?,
            "ca_file" => self.ca_file = Some(value.to_owned()),
            other => {
                return Err(StoreOptionError::Unknown(other.to_owned()));
            }
        }
        Ok(())
    }
}
