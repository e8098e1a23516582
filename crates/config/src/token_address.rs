//! Decides to which addresses a token may be sent.

use konverge_base::secrets::{AddressParts, credential_in};

/// Returns true if a token may be sent to an address: it contains no credentials, and the traffic is encrypted or stays
/// on this machine.
pub(super) fn is_safe(address: &str) -> bool {
    url::Url::parse(address).is_ok_and(|url| {
        let is_loopback = match url.host() {
            Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
            Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
            _ => false,
        };
        let is_bare = credential_in(address, AddressParts::default()).is_none();
        is_bare && (url.scheme() == "https" || (url.scheme() == "http" && is_loopback))
    })
}
