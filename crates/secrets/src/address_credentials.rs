//! Finds credentials in an address. Addresses are committed, printed and logged, so every address that Konverge reads
//! is checked here: it may consist of a host, a port and a path; any other part may be a credential.
//!
//! Addresses from the environment that are secret as a whole are not checked: the receivers of
//! notifications, and variables of other tools that may contain credentials (`HTTPS_PROXY`, `PIP_INDEX_URL`).

use url::{Host, Url, form_urlencoded};

use super::{masked_text::MASK, secret_names::is_secret_name, token_patterns::secret_parts};

/// The parts that an address may have in addition to a host, a port and a path.
#[derive(Debug, Clone, Copy, Default)]
pub struct AddressParts<'a> {
    /// True if a user without a password is allowed, for a database or for git over SSH.
    pub user: bool,
    /// The allowed query, after `?`.
    pub query: AddressQuery<'a>,
}

/// The parameters that the query of an address may have.
#[derive(Debug, Clone, Copy, Default)]
pub enum AddressQuery<'a> {
    /// No query is allowed.
    #[default]
    Empty,
    /// Only these parameters are allowed.
    Settings(&'a [&'a str]),
    /// Any parameters of another program's server, except those whose names say that they are secret.
    OfServer,
}

/// The part of an address that is, or may be, a credential. As text it never contains the credential itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressCredential {
    /// The password before `@`.
    Password,
    /// The user before `@`.
    User,
    /// A parameter of the query, with its name if it has one.
    Parameter(Option<String>),
    /// The fragment, after `#`.
    Fragment,
    /// A token of a well-known issuer.
    Token,
}

impl std::fmt::Display for AddressCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Password => f.write_str("a password"),
            Self::User => f.write_str("a user"),
            Self::Parameter(Some(name)) => write!(f, "the parameter `{name}`, which is not a known setting"),
            Self::Parameter(None) => f.write_str("a parameter that is not a known setting"),
            Self::Fragment => f.write_str("a part after `#`"),
            Self::Token => f.write_str("a token"),
        }
    }
}

/// Returns the first credential in an address. In an absolute path only a token counts.
pub fn credential_in(address: &str, allowed: AddressParts<'_>) -> Option<AddressCredential> {
    let token = || {
        let is_end = |c: char| "/?&=#:@;,".contains(c);
        let mut words = address.split(is_end);
        words.any(is_token).then_some(AddressCredential::Token)
    };
    if address.starts_with('/') {
        return token();
    }
    let (place, query, fragment) = parts(address);
    let user = userinfo(place).map(|userinfo| {
        if userinfo.contains(':') {
            AddressCredential::Password
        } else {
            AddressCredential::User
        }
    });
    // Programs parse addresses differently, so a second parser looks for a user that the split above does not find.
    let parsed = Url::parse(address).ok().and_then(|url| match url.password() {
        Some(_) => Some(AddressCredential::Password),
        None => (!url.username().is_empty()).then_some(AddressCredential::User),
    });
    let user = user.or(parsed);
    user.filter(|found| !(allowed.user && *found == AddressCredential::User))
        .or_else(|| parameter(query, allowed.query))
        .or_else(|| (!fragment.is_empty()).then_some(AddressCredential::Fragment))
        .or_else(token)
}

/// Returns an address without its possible credentials, for messages.
pub fn without_credentials(address: &str) -> String {
    if address.starts_with('/') {
        return address.to_owned();
    }
    let (place, ..) = parts(address);
    let place = match userinfo(place) {
        Some(userinfo) => place.replacen(&format!("{userinfo}@"), "", 1),
        None => place.to_owned(),
    };
    let words = place.split('/').map(|word| match word.rsplit_once('@') {
        _ if is_token(word) => MASK,
        // Some programs accept such a text as a host as well, for example `https:/user:password@host`.
        Some((userinfo, host)) if userinfo.contains(':') => host,
        _ => word,
    });
    words.collect::<Vec<_>>().join("/")
}

/// Splits an address into scheme with host and path, query, and fragment.
fn parts(address: &str) -> (&str, &str, &str) {
    let (rest, fragment) = address.split_once('#').unwrap_or((address, ""));
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    (place, query, fragment)
}

/// Returns the part of a host before `@`.
fn userinfo(place: &str) -> Option<&str> {
    let rest = place.split_once("://").map_or(place, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    authority.rsplit_once('@').map(|(userinfo, _)| userinfo)
}

/// Returns the first parameter that is not allowed, or whose value is an address with a credential.
fn parameter(query: &str, allowed: AddressQuery<'_>) -> Option<AddressCredential> {
    let mut pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.find_map(|pair| {
        let (name, value) = form_urlencoded::parse(pair.as_bytes()).next()?;
        let is_allowed = match allowed {
            AddressQuery::Empty => false,
            AddressQuery::Settings(names) => names.contains(&name.as_ref()),
            AddressQuery::OfServer => !is_secret_name(&name),
        };
        if is_allowed {
            return credential_in(&value, AddressParts::default());
        }
        // A parameter without a value may be the credential itself, so its name is not shown.
        let is_name = pair.contains('=') && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        Some(AddressCredential::Parameter(is_name.then(|| name.into_owned())))
    })
}

/// Returns true if the address is on this machine, so that a credential may be sent to it without TLS.
pub fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

fn is_token(word: &str) -> bool {
    !secret_parts(word).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: AddressQuery<'static> = AddressQuery::Settings(&["endpoint", "region"]);

    #[test]
    fn credentials_stand_in_no_part() {
        use AddressCredential::{Fragment, Parameter, Password, Token, User};
        let named = |name: &str| Parameter(Some(name.to_owned()));
        let long = format!("ghp_{}", "s3cret7Pass".repeat(3));
        let with_token = format!("https://h/x/{long}/y");
        for (address, found) in [
            ("https://me:s3cret-pass@h/x", Password),
            ("me:s3cret-pass@h/x", Password),
            ("https:me:s3cret-pass@h/x", Password),
            ("https:/me:s3cret-pass@h/x", Password),
            ("https:\\\\me:s3cret-pass@h/x", Password),
            ("https://s3cret-pass@h/x", User),
            ("https://h/x?token=s3cret-pass", named("token")),
            ("https://h/x?s3cret-pass", Parameter(None)),
            ("https://h/x?s3cret-pass=", Parameter(None)),
            ("https://h/x?region=eu&&sig=s3cret-pass", named("sig")),
            ("https://h/x?endpoint=http://me:s3cret-pass@h", Password),
            ("https://h/x?endpoint=http%3A%2F%2Fme%3As3cret-pass%40h", Password),
            (
                "https://h/x?endpoint=https%3A%2F%2Fh%2F%3Fsig%3Ds3cret-pass",
                named("sig"),
            ),
            ("https://h/x?endpoint=https%3A%2F%2Fh%2F%23s3cret-pass", Fragment),
            ("https://h/x#s3cret-pass", Fragment),
            ("https://h?#s3cret-pass", Fragment),
            (with_token.as_str(), Token),
            ("AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQ", Token),
        ] {
            let allowed = AddressParts {
                user: false,
                query: SETTINGS,
            };
            assert_eq!(
                credential_in(address, allowed).as_ref(),
                Some(&found),
                "{address}"
            );
            let shown = format!("{} {found}", without_credentials(address));
            assert!(!shown.contains("s3cret"), "{shown}");
        }
    }

    #[test]
    fn an_address_keeps_its_settings_its_host_and_its_path() {
        for address in [
            "https://h:8443/x/y@z:1",
            "s3://bucket/prefix?region=eu&endpoint=https://h:9000",
            "/srv/me:x@y?z#1",
            "oci://ghcr.io/x/y@sha256:0123",
            "insecure=true",
            "host:5432",
            "awskms:arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab",
        ] {
            let allowed = AddressParts {
                user: false,
                query: SETTINGS,
            };
            assert_eq!(credential_in(address, allowed), None, "{address}");
        }
        let user = AddressParts {
            user: true,
            ..AddressParts::default()
        };
        for (address, shown) in [
            ("postgres://me@db/x", "postgres://db/x"),
            ("ssh://git@h/x", "ssh://h/x"),
            ("git@h:x", "h:x"),
        ] {
            assert_eq!(credential_in(address, user), None, "{address}");
            assert_eq!(without_credentials(address), shown);
        }
        let server = AddressParts {
            query: AddressQuery::OfServer,
            ..AddressParts::default()
        };
        assert_eq!(credential_in("https://h/x?stack=%s&latest=1", server), None);
        assert!(credential_in("https://h/x?access_token=s3cret-pass", server).is_some());
    }
}
