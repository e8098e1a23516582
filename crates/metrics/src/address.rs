//! Checks the address of a Prometheus server: when a query may be sent there, with a token or without.

use url::Url;

use crate::MetricsError;
use konverge_secrets::{AddressParts, credential_in, is_this_machine};

/// The path segments of instant queries below the address.
const QUERY: [&str; 3] = ["api", "v1", "query"];

/// Returns the URL for instant queries at an address such as `https://prometheus.example.com/prefix`.
pub(crate) fn query_url(address: &str) -> Result<Url, MetricsError> {
    let refused = |why: String| MetricsError::Address { why };
    if let Some(credential) = credential_in(address, AddressParts::default()) {
        return Err(refused(format!("it holds {credential}")));
    }
    let mut url = Url::parse(address).map_err(|_| refused("it is not a URL".to_owned()))?;
    let is_allowed = match url.scheme() {
        "https" => url.has_host(),
        "http" => is_this_machine(&url),
        _ => false,
    };
    if !is_allowed {
        return Err(refused("it does not start with https://".to_owned()));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(refused("it holds a part after `?` or `#`".to_owned()));
    }
    url.path_segments_mut()
        .map_err(|()| refused("it is not a URL".to_owned()))?
        .pop_if_empty()
        .extend(QUERY);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_encrypted_or_of_this_machine_and_holds_no_credential() {
        for (address, url) in [
            (
                "https://prom.example.com",
                "https://prom.example.com/api/v1/query",
            ),
            (
                "https://prom.example.com/",
                "https://prom.example.com/api/v1/query",
            ),
            (
                "https://prom.example.com:9443/a/b/",
                "https://prom.example.com:9443/a/b/api/v1/query",
            ),
            ("http://127.0.0.1:9090", "http://127.0.0.1:9090/api/v1/query"),
            ("http://[::1]:9090/x", "http://[::1]:9090/x/api/v1/query"),
            ("http://localhost:9090", "http://localhost:9090/api/v1/query"),
        ] {
            assert_eq!(
                query_url(address).map(String::from),
                Ok(url.to_owned()),
                "{address}"
            );
        }
        for address in [
            "",
            "prom.example.com",
            "http://prom.example.com",
            "http://127.0.0.1.example.com",
            "http://10.0.0.1:9090",
            "https://hunter2@prom.example.com",
            "https://me:hunter2@prom.example.com",
            "https://prom.example.com/?token=hunter2",
            "https://prom.example.com/#hunter2",
            "https://prom.example.com/?",
            "file:///etc/hunter2",
            "ftp://prom.example.com",
            "unix:/hunter2",
        ] {
            let error = query_url(address).expect_err(address);
            assert!(!error.to_string().contains("hunter2"), "{address}: {error}");
        }
    }
}
