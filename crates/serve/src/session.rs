//! The cookies of a person: the sign-in in progress, and the session. Both are encrypted and authenticated, and
//! contain the whole data, so any number of replicas with the same key can read them.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use cookie::{Cookie, CookieJar, Key, SameSite};
use jiff::Timestamp;
use konverge_base::variables;
use konverge_portal::PortalPerson;
use openidconnect::CsrfToken;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The lifetime of a session.
const SESSION: Duration = Duration::from_secs(8 * 3600);
/// The maximum time for a sign-in.
const SIGN_IN: Duration = Duration::from_secs(600);
/// The minimum length of a configured key, in characters.
const SHORTEST_KEY: usize = 32;

/// The environment variable with the key that encrypts cookies.
pub const PORTAL_KEY_VARIABLE: &str = variables::KONVERGE_PORTAL_KEY;

/// The key in [`PORTAL_KEY_VARIABLE`] is too short.
#[derive(Debug, thiserror::Error)]
#[error("{PORTAL_KEY_VARIABLE} has fewer than {SHORTEST_KEY} characters")]
pub struct ShortKey;

/// A signed-in person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PersonSession {
    pub person: PortalPerson,
    /// The groups of the person that roles mentioned at the sign-in.
    pub groups: Vec<String>,
    pub csrf: String,
    until: Timestamp,
}

impl PersonSession {
    pub(super) fn begin(person: PortalPerson, groups: Vec<String>, now: Timestamp) -> Self {
        Self {
            person,
            groups,
            csrf: CsrfToken::new_random().secret().clone(),
            until: now.saturating_add(SESSION).unwrap_or(now),
        }
    }
}

/// A sign-in in progress, while the person is at the provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PendingSignIn {
    pub state: String,
    pub nonce: String,
    pub verifier: String,
    /// The page to show after the sign-in.
    pub to: String,
    until: Timestamp,
}

impl PendingSignIn {
    pub(super) fn begin(state: String, nonce: String, verifier: String, to: String, now: Timestamp) -> Self {
        let until = now.saturating_add(SIGN_IN).unwrap_or(now);
        Self {
            state,
            nonce,
            verifier,
            to,
            until,
        }
    }
}

/// Encrypts and decrypts cookies.
pub(super) struct CookieSealer {
    key: Key,
    /// True if browsers may send the cookies only over HTTPS.
    is_secure: bool,
}

impl CookieSealer {
    /// Creates a sealer with this key, or with a new random key.
    pub(super) fn new(key: Option<&str>, is_secure: bool) -> Result<Self, ShortKey> {
        let key = match key {
            Some(text) if text.chars().count() < SHORTEST_KEY => return Err(ShortKey),
            Some(text) => Key::derive_from(
                // The key of the cookie library has a fixed length, so it is derived from the configured text.
                blake3::Hasher::new_derive_key("konverge portal cookies 1")
                    .update(text.as_bytes())
                    .finalize()
                    .as_bytes(),
            ),
            None => Key::generate(),
        };
        Ok(Self { key, is_secure })
    }

    /// Returns the full name of a cookie. With the prefix `__Host-` no other host of the domain can set it.
    fn name(&self, name: &str) -> String {
        if self.is_secure {
            format!("__Host-{name}")
        } else {
            name.to_owned()
        }
    }

    fn seal<T: Serialize>(&self, name: &str, value: &T, age: Duration) -> Option<HeaderValue> {
        let text = serde_json::to_vec(value).ok()?;
        let text = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
        let mut jar = CookieJar::new();
        let age = cookie::time::Duration::seconds(i64::try_from(age.as_secs()).ok()?);
        let cookie = Cookie::build((self.name(name), text)).max_age(age);
        jar.private_mut(&self.key)
            .add(self.with_attributes(cookie.build()));
        let sealed = jar.delta().next()?.to_string();
        HeaderValue::from_str(&sealed).ok()
    }

    fn with_attributes<'a>(&self, cookie: Cookie<'a>) -> Cookie<'a> {
        Cookie::build(cookie)
            .path("/")
            .http_only(true)
            .secure(self.is_secure)
            // Not `Strict`: the browser comes back from the provider's site, and must then send the cookie of the
            // sign-in.
            .same_site(SameSite::Lax)
            .build()
    }

    fn open<T: DeserializeOwned>(&self, name: &str, headers: &HeaderMap) -> Option<T> {
        let name = self.name(name);
        let sent = headers.get_all(header::COOKIE).iter();
        let sent = sent.filter_map(|header| header.to_str().ok());
        let mut found = sent.flat_map(|header| Cookie::split_parse(header.to_owned()));
        let cookie = found.find_map(|cookie| cookie.ok().filter(|cookie| cookie.name() == name))?;
        let mut jar = CookieJar::new();
        jar.add_original(cookie);
        let opened = jar.private(&self.key).get(&name)?;
        let text = base64::engine::general_purpose::URL_SAFE_NO_PAD
            .decode(opened.value())
            .ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Returns the header that sets the session cookie.
    pub(super) fn session(&self, session: &PersonSession) -> Option<HeaderValue> {
        self.seal("konverge-session", session, SESSION)
    }

    /// Returns the header that sets the sign-in cookie.
    pub(super) fn sign_in(&self, sign_in: &PendingSignIn) -> Option<HeaderValue> {
        self.seal("konverge-sign-in", sign_in, SIGN_IN)
    }

    /// Reads the session cookie of a request. `None` if it was altered, has expired, or has another key.
    pub(super) fn read_session(&self, headers: &HeaderMap, now: Timestamp) -> Option<PersonSession> {
        let session: PersonSession = self.open("konverge-session", headers)?;
        (session.until > now).then_some(session)
    }

    /// Reads the sign-in cookie of a request.
    pub(super) fn read_sign_in(&self, headers: &HeaderMap, now: Timestamp) -> Option<PendingSignIn> {
        let sign_in: PendingSignIn = self.open("konverge-sign-in", headers)?;
        (sign_in.until > now).then_some(sign_in)
    }

    /// Returns the header that deletes the session cookie.
    pub(super) fn without_session(&self) -> Option<HeaderValue> {
        self.removed("konverge-session")
    }

    /// Returns the header that deletes the sign-in cookie, which may be used only once.
    pub(super) fn without_sign_in(&self) -> Option<HeaderValue> {
        self.removed("konverge-sign-in")
    }

    fn removed(&self, name: &str) -> Option<HeaderValue> {
        let cookie = Cookie::build((self.name(name), "")).max_age(cookie::time::Duration::ZERO);
        HeaderValue::from_str(&self.with_attributes(cookie.build()).to_string()).ok()
    }
}

/// Compares two secrets in constant time.
pub(super) fn is_same_secret(one: &str, other: &str) -> bool {
    blake3::hash(one.as_bytes()) == blake3::hash(other.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    fn person() -> PortalPerson {
        PortalPerson {
            issuer: "https://id.example".to_owned(),
            subject: "1".to_owned(),
            name: "Ada".to_owned(),
        }
    }

    fn sent(header: &HeaderValue) -> HeaderMap {
        let cookie = header.to_str().unwrap().split(';').next().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(
            header::COOKIE,
            HeaderValue::from_str(&format!("other=1; {cookie}")).unwrap(),
        );
        headers
    }

    #[test]
    fn a_session_is_known_to_every_replica_and_to_no_other_key() {
        let now: Timestamp = "2026-11-26T10:00:00Z".parse().unwrap();
        let sealer = CookieSealer::new(Some(KEY), true).unwrap();
        let session = PersonSession::begin(person(), vec!["sre".to_owned()], now);
        let header = sealer.session(&session).unwrap();
        let text = header.to_str().unwrap();
        for part in [
            "__Host-konverge-session=",
            "HttpOnly",
            "Secure",
            "SameSite=Lax",
            "Path=/",
            "Max-Age=28800",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("Domain") && !text.contains("sre") && !text.contains("Ada"));
        let replica = CookieSealer::new(Some(KEY), true).unwrap();
        assert_eq!(replica.read_session(&sent(&header), now), Some(session.clone()));
        for other in [
            CookieSealer::new(Some(&format!("{KEY}x")), true).unwrap(),
            CookieSealer::new(None, true).unwrap(),
            CookieSealer::new(Some(KEY), false).unwrap(),
        ] {
            assert_eq!(other.read_session(&sent(&header), now), None);
        }
        let later = |hours: i64| now + jiff::SignedDuration::from_hours(hours);
        assert!(sealer.read_session(&sent(&header), later(7)).is_some());
        assert_eq!(sealer.read_session(&sent(&header), later(8)), None, "expired");
        assert!(CookieSealer::new(Some("short"), true).is_err());
    }

    #[test]
    fn an_altered_cookie_or_one_of_another_use_is_none() {
        let now = Timestamp::now();
        let sealer = CookieSealer::new(Some(KEY), true).unwrap();
        let header = sealer
            .session(&PersonSession::begin(person(), Vec::new(), now))
            .unwrap();
        let text = header.to_str().unwrap().split(';').next().unwrap().to_owned();
        let (name, value) = text.split_once('=').unwrap();
        for at in [0, value.len() / 2, value.len() - 3] {
            let mut bytes = value.as_bytes().to_vec();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let altered = format!("{name}={}", String::from_utf8(bytes).unwrap());
            let headers = sent(&HeaderValue::from_str(&altered).unwrap());
            assert_eq!(sealer.read_session(&headers, now), None, "{at}");
        }
        // A sign-in cookie is not accepted as a session, even under the session's name.
        let begun = PendingSignIn::begin("s".into(), "n".into(), "v".into(), "/".into(), now);
        let sign_in = sealer.sign_in(&begun).unwrap();
        assert_eq!(sealer.read_sign_in(&sent(&sign_in), now), Some(begun));
        let renamed = sign_in
            .to_str()
            .unwrap()
            .replace("konverge-sign-in", "konverge-session");
        assert_eq!(
            sealer.read_session(&sent(&HeaderValue::from_str(&renamed).unwrap()), now),
            None
        );
        let late = now + jiff::SignedDuration::from_mins(10);
        assert_eq!(sealer.read_sign_in(&sent(&sign_in), late), None);
        assert_eq!(sealer.read_session(&HeaderMap::new(), now), None);
        assert!(is_same_secret("a", "a") && !is_same_secret("a", "b"));
    }
}
