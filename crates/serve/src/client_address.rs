//! [`ClientAddress`]: whose a connection is. Behind a proxy every connection has the address of the proxy, so one person
//! would use up the sign-ins of all.

use std::net::{IpAddr, SocketAddr};

use axum::http::HeaderMap;
use konverge_config::ProxyRange;

/// The header to which each proxy appends the address of its client.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// The address of a client: of the connection, or what trusted proxies say. The guard adds it to every request.
#[derive(Debug, Clone)]
pub(super) struct ClientAddress(pub String);

impl ClientAddress {
    /// Finds the client from right to left, as long as the address before is that of a trusted proxy. Everything left
    /// of that may be forged.
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

/// An address, with a port or without.
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
            // Nobody's proxy: whatever it says.
            ("203.0.113.9:1", &["198.51.100.1"], "203.0.113.9"),
            ("10.0.0.1:1", &["198.51.100.1"], "198.51.100.1"),
            ("[::ffff:10.0.0.1]:1", &["198.51.100.1"], "198.51.100.1"),
            // The client itself sent the first.
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
