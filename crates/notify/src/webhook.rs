//! A signed webhook: a JSON document with an HMAC signature in the headers.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Returns `sha256=` and the HMAC-SHA-256 of `timestamp.body` in hexadecimal. A receiver verifies the signature and
/// rejects old timestamps.
pub fn signature(key: &str, timestamp: &str, body: &str) -> String {
    let signed = hmac_sha256(key, &format!("{timestamp}.{body}"));
    format!("sha256={}", hex::encode(signed))
}

/// Returns the HMAC-SHA-256 of a text.
pub(crate) fn hmac_sha256(key: &str, text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}
