//! The addresses of proxies, as people write them: `10.0.0.0/8`, `fd00::/8`, `192.0.2.7`.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A range of addresses, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct ProxyRange(IpNet);

/// The error for a text that is not a range of addresses.
#[derive(Debug, thiserror::Error)]
#[error("`{}` is neither an address nor a range of addresses: write `10.0.0.0/8` or `192.0.2.7`", .0.escape_debug())]
pub struct InvalidRange(String);

impl ProxyRange {
    /// Returns true if an address is in the range. An IPv4-mapped IPv6 address counts as the IPv4 address.
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl TryFrom<String> for ProxyRange {
    type Error = InvalidRange;

    fn try_from(text: String) -> Result<Self, InvalidRange> {
        let one = || {
            text.parse::<IpAddr>()
                .map(|address| IpNet::from(address.to_canonical()))
        };
        let range = text.parse::<IpNet>().or_else(|_| one());
        range.map(Self).map_err(|_| InvalidRange(text))
    }
}

impl From<ProxyRange> for String {
    fn from(range: ProxyRange) -> Self {
        range.to_string()
    }
}

impl fmt::Display for ProxyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_its_addresses_and_no_others() {
        let range = |text: &str| ProxyRange::try_from(text.to_owned());
        let has = |text: &str, address: &str| range(text).unwrap().contains(address.parse().unwrap());
        assert!(has("10.0.0.0/8", "10.9.8.7") && !has("10.0.0.0/8", "11.0.0.1"));
        assert!(has("192.0.2.7", "::ffff:192.0.2.7") && !has("192.0.2.7", "192.0.2.8"));
        assert!(has("fd00::/8", "fd12::1") && !has("fd00::/8", "10.0.0.1"));
        for wrong in ["", "proxy.example", "10.0.0.0/33", "10.0.0.1:80"] {
            assert!(
                range(wrong).unwrap_err().to_string().contains("10.0.0.0/8"),
                "{wrong}"
            );
        }
    }
}
