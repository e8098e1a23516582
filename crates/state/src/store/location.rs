//! [`StoreLocation`]: the parsed URL of a store, with the options in its query.

use std::net::IpAddr;

use url::Url;

use super::{StoreError, options::StoreOptions};
use konverge_base::{error::SharedError, model::store_setting::STORE_SETTINGS};
use konverge_secrets::{
    AddressCredential, AddressParts, AddressQuery, credential_in, is_this_machine, without_credentials,
};

/// A parsed URL, with the options in its query.
pub(super) struct StoreLocation {
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

impl StoreLocation {
    /// Parses a URL.
    pub(super) fn parse(text: &str, options: &StoreOptions) -> Result<Self, StoreError> {
        let shown = without_credentials(text);
        let shown = shown.escape_debug().to_string();
        let allowed = AddressParts {
            // A database URL may name a user, whose password comes from the environment.
            user: text.starts_with("postgres://") || text.starts_with("mysql://"),
            query: AddressQuery::Settings(&STORE_SETTINGS),
        };
        if let Some(credential) = credential_in(text, allowed) {
            let known = match credential {
                AddressCredential::Parameter(_) => format!("; known are {}", STORE_SETTINGS.join(", ")),
                _ => String::new(),
            };
            let why = format!(
                "it holds {credential}; credentials come from the environment, never from an address{known}"
            );
            return Err(StoreError::config(shown, why));
        }
        let mut url = Url::parse(text).map_err(|error| StoreError::config(&shown, not_a_url(error)))?;
        let mut options = options.clone();
        for (key, value) in url.query_pairs() {
            let set = options.set(&key, &value);
            set.map_err(|error| StoreError::config(&shown, error))?;
        }
        url.set_query(None);
        let place = Self {
            host: url.host_str().unwrap_or_default().to_owned(),
            prefix: url.path().trim_matches('/').to_owned(),
            shown,
            url,
            options,
        };
        if place.host.is_empty() {
            return Err(place.error("it names no bucket or host"));
        }
        if let Some(endpoint) = &place.options.endpoint {
            place.check_transport(endpoint)?;
        }
        Ok(place)
    }

    /// Returns an error for clear-text HTTP, unless an option allows it and the endpoint is on this machine.
    pub(super) fn check_transport(&self, endpoint: &str) -> Result<(), StoreError> {
        let url = Url::parse(endpoint)
            .map_err(|error| self.error(SharedError::from(error).context("`endpoint` is not a URL")))?;
        if let Some(credential) = credential_in(endpoint, AddressParts::default()) {
            return Err(self.error(format!(
                "`endpoint` holds {credential}; credentials come from the environment"
            )));
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

    /// Returns the value of an environment variable that is set and not empty.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        let value = self.options.environment.get(name)?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns the user in the URL.
    #[cfg(feature = "sql")]
    pub(super) fn user(&self) -> Option<&str> {
        Some(self.url.username()).filter(|user| !user.is_empty())
    }

    /// Returns true if the host of the URL is this machine.
    pub(super) fn is_loopback(&self) -> bool {
        is_loopback(&self.url)
    }

    /// Returns a configuration error for this location.
    pub(super) fn error(&self, why: impl Into<SharedError>) -> StoreError {
        StoreError::config(&self.shown, why)
    }
}

/// Returns the error for a text that is not a URL.
pub(super) fn not_a_url(error: url::ParseError) -> SharedError {
    SharedError::from(error).context("not a URL")
}

pub(super) fn is_loopback(url: &Url) -> bool {
    // For schemes other than HTTP, `url` parses an IP address as a domain.
    let address = url.host_str().and_then(|host| host.parse::<IpAddr>().ok());
    is_this_machine(url) || address.is_some_and(|address| address.is_loopback())
}
