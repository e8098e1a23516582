//! AWS Signature Version 4 in the query of a URL, as the published SDKs presign it.
//!
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>

use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::aws::AwsKeys;

/// A GET of `/` that is signed by its query. Values are not encoded yet; the names of headers are in lower
/// case.
pub(super) struct PresignedGet<'a> {
    pub service: &'a str,
    pub region: &'a str,
    pub host: &'a str,
    pub query: &'a [(&'a str, &'a str)],
    pub headers: &'a [(&'a str, &'a str)],
    /// How long the signature is valid, in seconds.
    pub expires: u32,
}

impl PresignedGet<'_> {
    /// The query with the signature.
    pub fn signed_query(&self, keys: &AwsKeys, now: Timestamp) -> String {
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let day = now.strftime("%Y%m%d").to_string();
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let mut headers = vec![("host", self.host)];
        headers.extend(self.headers);
        headers.sort_unstable();
        let names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let credential = format!("{}/{scope}", keys.access_key);
        let expires = self.expires.to_string();
        let mut parameters = self.query.to_vec();
        parameters.extend([
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
            ("X-Amz-Credential", credential.as_str()),
            ("X-Amz-Date", time.as_str()),
            ("X-Amz-Expires", expires.as_str()),
            ("X-Amz-SignedHeaders", names.as_str()),
        ]);
        if let Some(token) = &keys.session_token {
            parameters.push(("X-Amz-Security-Token", token));
        }
        let mut pairs: Vec<_> = parameters
            .iter()
            .map(|(name, value)| format!("{}={}", percent_encode(name), percent_encode(value)))
            .collect();
        pairs.sort_unstable();
        let query = pairs.join("&");
        let lines: String = headers
            .iter()
            .map(|(name, value)| format!("{name}:{}\n", value.trim()))
            .collect();
        let request = format!("GET\n/\n{query}\n{lines}\n{names}\n{}", sha256(b""));
        let text = format!(
            "AWS4-HMAC-SHA256\n{time}\n{scope}\n{}",
            sha256(request.as_bytes())
        );
        let first = format!("AWS4{}", keys.secret_key).into_bytes();
        let key = [day.as_str(), self.region, self.service, "aws4_request"]
            .iter()
            .fold(first, |key, part| mac(&key, part.as_bytes()));
        format!("{query}&X-Amz-Signature={}", hex(&mac(&key, text.as_bytes())))
    }
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

fn sha256(text: &[u8]) -> String {
    hex(&Sha256::digest(text))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Percent-encoding of RFC 3986: only unreserved characters stay.
fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}
