//! Recognizes network addresses without a scheme: a host name or an IP address, perhaps with a port or a
//! path.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The kind of network address that a text looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressShape {
    /// Not an address to any program.
    None,
    /// Only a host name or an IP address. A name with dots that is no host looks the same.
    Host,
    /// A host with a port, a path, a query or a fragment. Such a text cuts off the rest if a provider builds
    /// a host name that begins with it.
    Whole,
}

/// File name extensions that are not top-level domains.
const FILE_ENDS: [&str; 26] = [
    "cer", "cert", "cfg", "conf", "crt", "csv", "env", "gz", "hcl", "ini", "jks", "json", "key", "log",
    "pem", "pfx", "pkcs", "sock", "tar", "tf", "tfstate", "tfvars", "toml", "txt", "xml", "yaml",
];

/// Returns the kind of network address that a text looks like.
pub(super) fn address_shape(text: &str) -> AddressShape {
    // Host names are normalized before they are looked up, which turns these characters into dots.
    let text = text.trim().replace(['\u{3002}', '\u{ff0e}', '\u{ff61}'], ".");
    if text.parse::<Ipv6Addr>().is_ok() {
        return AddressShape::Host;
    }
    let end = text.find(['/', '?', '#', '\\']).unwrap_or(text.len());
    let (authority, rest) = text.split_at(end);
    let (user, place) = match authority.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, authority),
    };
    if let Some((inside, after)) = place.strip_prefix('[').and_then(|place| place.split_once(']'))
        && inside.parse::<Ipv6Addr>().is_ok()
    {
        return if after.is_empty() && rest.is_empty() {
            AddressShape::Host
        } else {
            AddressShape::Whole
        };
    }
    let is_port =
        |port: &str| (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
    let (host, has_port) = match place.rsplit_once(':') {
        Some((host, port)) if is_port(port) => (host, true),
        _ => (place, false),
    };
    let is_ip = host.parse::<Ipv4Addr>().is_ok();
    if !is_ip && !is_host_name(host) {
        return AddressShape::None;
    }
    // `10.0.0.0/8` is a range of addresses and `ada@acme.example` an email address: requests go to neither.
    let is_range = is_ip
        && !has_port
        && rest
            .strip_prefix('/')
            .is_some_and(|bits| bits.parse::<u8>().is_ok());
    match (has_port || !rest.is_empty(), user) {
        _ if is_range => AddressShape::None,
        (true, _) => AddressShape::Whole,
        (false, None) => AddressShape::Host,
        (false, Some(_)) => AddressShape::None,
    }
}

/// Returns true for `localhost` and for a name of two or more labels whose last one can be a top-level domain.
fn is_host_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_lowercase();
    let is_label =
        |label: &str| !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_');
    let Some((before, last)) = host.rsplit_once('.') else {
        return host == "localhost";
    };
    let is_top =
        last.starts_with("xn--") || (last.chars().count() > 1 && last.chars().all(char::is_alphabetic));
    is_top && is_label(last) && before.split('.').all(is_label) && !FILE_ENDS.contains(&last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_their_form() {
        for host in [
            "evil.example",
            "EVIL.Example",
            "evil.example.",
            "a.b-c.evil.zip",
            "evil\u{3002}example",
            "b\u{fc}cher.example",
            "evil.xn--p1ai",
            "localhost",
            "203.0.113.9",
            "2001:db8::1",
            "[2001:db8::1]",
        ] {
            assert_eq!(address_shape(host), AddressShape::Host, "{host}");
        }
        for whole in [
            "evil.example:8200",
            "evil.example/v1",
            "evil.example#",
            "evil.example?",
            "evil.example\\x",
            "x@evil.example#",
            "x:y@evil.example/",
            "203.0.113.9:443",
            "203.0.113.9/v1",
            "[2001:db8::1]:443",
            "localhost:8200",
        ] {
            assert_eq!(address_shape(whole), AddressShape::Whole, "{whole}");
        }
    }

    #[test]
    fn other_texts_are_no_addresses() {
        for text in [
            "",
            "eu-west-1",
            "1.2.3",
            "v1.2",
            "2024.1",
            "10.0.0.0/8",
            "credentials.json",
            "./modules/x",
            "/var/run/x.sock",
            "a..b",
            "ada@acme.example",
            "x@shop.iam.gserviceaccount.com",
            "arn:aws:iam::1:role/x",
            "acme.com:shop",
            "1000:1000",
            "group:1",
            "two words.",
            "a sentence. another one",
            "{\"json\": \"evil.example\"}",
        ] {
            assert_eq!(address_shape(text), AddressShape::None, "{text}");
        }
    }
}
