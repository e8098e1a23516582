//! Sends requests to an API: with the shared HTTP client (proxy, certificates, no redirects), and a limit for
//! responses.

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use konverge_forge::{ForgeError, ForgeKind, Result};

use crate::{Answer, ApiAddress, Exchange, MOST_BYTES, RestApi, TokenPermission};

/// The user agent, which identifies Konverge in the logs of a server. GitHub rejects requests without one.
const USER_AGENT: &str = concat!("konverge/", env!("CARGO_PKG_VERSION"));

/// Creates an HTTP client that sends these headers with every request.
///
/// # Errors
/// The system has no certificates, or the proxy in the environment is invalid.
pub fn http_client(headers: HeaderMap) -> Result<reqwest::Client> {
    konverge_http::client()
        .user_agent(USER_AGENT)
        .default_headers(headers)
        .build()
        .map_err(|error| ForgeError::Unusable {
            message: "cannot set up the HTTP client".to_owned(),
            hint: "run `konverge doctor` in the same environment: it checks everything that a job needs"
                .to_owned(),
            cause: error.into(),
        })
}

/// Returns the error of a response whose status is no success, as [`RestApi::error_of`].
pub type ErrorOf = fn(&str, &Answer, TokenPermission) -> ForgeError;

/// An API whose requests have a token in a header.
pub struct HttpApi {
    kind: ForgeKind,
    http: reqwest::Client,
    address: ApiAddress,
    error_of: ErrorOf,
}

impl HttpApi {
    /// Creates the API of a forge. The value of the `login` header contains a token that is already validated.
    ///
    /// # Errors
    /// The system has no certificates, or the proxy in the environment is invalid.
    pub fn new(
        kind: ForgeKind,
        address: ApiAddress,
        (name, login): (HeaderName, &str),
        error_of: ErrorOf,
    ) -> Result<Self> {
        let mut login = HeaderValue::from_str(login).expect("a checked token");
        login.set_sensitive(true);
        let headers = [
            (header::ACCEPT, HeaderValue::from_static("application/json")),
            (name, login),
        ];
        let http = http_client(HeaderMap::from_iter(headers))?;
        Ok(Self {
            kind,
            http,
            address,
            error_of,
        })
    }

    /// Returns the web address of the server, if its API is at the path `api` below it.
    pub fn server_url(&self, api: &str) -> String {
        let ApiAddress { origin, base_path } = &self.address;
        format!("{origin}{}", base_path.trim_end_matches(api))
    }
}

#[async_trait]
impl RestApi for HttpApi {
    fn kind(&self) -> ForgeKind {
        self.kind
    }

    fn base_path(&self) -> &str {
        &self.address.base_path
    }

    fn error_of(&self, operation: &str, answer: &Answer, need: TokenPermission) -> ForgeError {
        (self.error_of)(operation, answer, need)
    }

    async fn send(&self, exchange: Exchange<'_>) -> Result<Answer> {
        let ApiAddress { origin, base_path } = &self.address;
        let request = exchange.request(&format!("{origin}{base_path}{}", exchange.path));
        let request =
            request.map_err(|error| ForgeError::malformed(self.kind, exchange.operation(), error))?;
        let answer = konverge_http::exchange(&self.http, request, MOST_BYTES).await;
        // The URL may contain a secret, so it is removed from the error.
        let answer = answer.map_err(|error| ForgeError::Unreachable {
            forge: self.kind,
            operation: exchange.operation(),
            cause: error.without_url().into(),
        })?;
        let (parts, body) = answer.into_parts();
        Ok(Answer {
            status: parts.status,
            headers: parts.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use http::Method;
    use konverge_base::error::chain;

    use super::*;

    #[tokio::test]
    async fn an_address_is_in_no_cause_of_an_error() {
        let address = ApiAddress {
            // Nothing listens there.
            origin: "http://127.0.0.1:9".to_owned(),
            base_path: String::new(),
        };
        let error_of: ErrorOf = |operation, answer, _| answer.error(ForgeKind::Gitea, operation, "", "");
        let login = (header::AUTHORIZATION, "token x");
        let api = HttpApi::new(ForgeKind::Gitea, address, login, error_of).unwrap();
        let asked = api.send(Exchange {
            method: &Method::GET,
            path: "/user?access_token=hunter2",
            etag: None,
            body: None,
        });
        let error = asked.await.unwrap_err();
        let said = chain(&error);
        assert!(said.starts_with("no answer from Gitea to GET /user: "), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
        let mut cause = error.source();
        while let Some(error) = cause {
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
            cause = error.source();
        }
    }
}
