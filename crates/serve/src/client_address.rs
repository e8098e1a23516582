//! [`ClientAddress`]: the client of a connection. Behind a proxy all connections come from the proxy's address, and
//! one person could use up the sign-in attempts of everybody.

use std::net::{IpAddr, SocketAddr};

use axum::http::HeaderMap;
use konverge_config::ProxyRange;

/// The header to which each proxy appends the address of its client.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// The address of a client: of the connection, or as trusted proxies report it. The middleware adds it to every
/// request.
#[derive(Debug, Clone)]
pub(super) struct ClientAddress(pub String);

impl ClientAddress {
    /// Finds the client: reads the header from right to left as long as each address belongs to a trusted proxy.
    /// Addresses left of that may be forged.
    pub(super) fn find(connection: Option<SocketAddr>, headers: &HeaderMap, trusted: &[ProxyRange]) -> Self {
        let Some(connection) = connection else {
            return Self("unknown".to_owned());
        };
        let is_trusted = |address: IpAddr| trusted.iter().any(|range| range.contains(address));
        let values = headers.get_all(FORWARDED_FOR).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        let hops: Vec<&str> = values.flat_map(|value| value.split(',')).collect();
        let mut client = connection.ip().to_canonical();
        for hop in hops.into_iter().rev() {
            let Some(before) = address_of(hop.trim()).filter(|_| is_trusted(client)) else {
                break;
            };
            client = before;
        }
        Self(client.to_string())
    }
}

/// Parses an address, with or without a port.
fn address_of(text: &str) -> Option<IpAddr> {
    let with_port = || text.parse::<SocketAddr>().map(|address| address.ip());
    let address = text.parse::<IpAddr>().or_else(|_| with_port());
    address.ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_trusted_proxy_says_whose_a_connection_is() {
        let trusted =
            ["10.0.0.0/8", "192.0.2.7"].map(|range| ProxyRange::try_from(range.to_owned()).unwrap());
        for (connection, sent, expected) in [
            ("203.0.113.9:1", &[][..], "203.0.113.9"),
            // The connection does not come from a trusted proxy, so the header is ignored.
            ("203.0.113.9:1", &["198.51.100.1"], "203.0.113.9"),
            ("10.0.0.1:1", &["198.51.100.1"], "198.51.100.1"),
            ("[::ffff:10.0.0.1]:1", &["198.51.100.1"], "198.51.100.1"),
            // The first address was sent by the client itself, and is not trusted.
            (
                "10.0.0.1:1",
                &["1.1.1.1, 198.51.100.1, 192.0.2.7"],
                "198.51.100.1",
            ),
            ("10.0.0.1:1", &["1.1.1.1", "198.51.100.1:4711"], "198.51.100.1"),
            ("10.0.0.1:1", &["[2001:db8::7]:80"], "2001:db8::7"),
            ("10.0.0.1:1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            ("10.0.0.1:1", &["198.51.100.1, unknown"], "10.0.0.1"),
        ] {
            let mut headers = HeaderMap::new();
            for value in sent {
                headers.append(FORWARDED_FOR, value.parse().unwrap());
            }
            let connection = connection.parse().unwrap();
            let found = ClientAddress::find(Some(connection), &headers, &trusted);
            assert_eq!(found.0, expected, "{connection} {sent:?}");
            let alone = ClientAddress::find(Some(connection), &headers, &[]);
            assert_eq!(alone.0, connection.ip().to_canonical().to_string());
        }
    }
}
