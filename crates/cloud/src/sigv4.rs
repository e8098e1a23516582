//! AWS Signature Version 4: in the query of a URL, as the published SDKs presign it, and in the headers of a POST
//! of JSON.
//!
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>

use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::AccessKeys;

/// A GET of `/` that is signed in its query. Values are not yet percent-encoded; header names are in lower
/// case.
pub(super) struct PresignedGet<'a> {
    pub service: &'a str,
    pub region: &'a str,
    pub host: &'a str,
    pub query: &'a [(&'a str, &'a str)],
    pub headers: &'a [(&'a str, &'a str)],
    /// Time for which the signature is valid, in seconds.
    pub expires: u32,
}

impl PresignedGet<'_> {
    /// Returns the query with the signature.
    pub(crate) fn signed_query(&self, keys: &AccessKeys, now: Timestamp) -> String {
        let scope = Scope::new(self.service, self.region, now);
        let mut headers = vec![("host", self.host)];
        headers.extend(self.headers);
        headers.sort_unstable();
        let (names, lines) = canonical_headers(&headers);
        let credential = scope.credential(keys);
        let expires = self.expires.to_string();
        let mut parameters = self.query.to_vec();
        parameters.extend([
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
            ("X-Amz-Credential", credential.as_str()),
            ("X-Amz-Date", scope.time.as_str()),
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
        let request = format!("GET\n/\n{query}\n{lines}\n{names}\n{}", sha256(b""));
        let signature = scope.signature(keys, &request);
        format!("{query}&X-Amz-Signature={signature}")
    }
}

/// A POST of `/` that is signed in its headers. The header `X-Amz-Target` names the operation, as the JSON
/// services of AWS require.
pub struct SignedJsonPost<'a> {
    /// The service's name in signatures.
    pub service: &'a str,
    /// The service's region.
    pub region: &'a str,
    /// The host of the service.
    pub host: &'a str,
    /// The operation, as `SERVICE.OPERATION`.
    pub target: &'a str,
    /// The JSON body.
    pub body: &'a [u8],
}

impl SignedJsonPost<'_> {
    /// Returns the headers of the signed request, without `host`.
    pub fn headers(&self, keys: &AccessKeys, now: Timestamp) -> Vec<(&'static str, String)> {
        let scope = Scope::new(self.service, self.region, now);
        let mut headers = vec![
            ("content-type", "application/x-amz-json-1.1".to_owned()),
            ("host", self.host.to_owned()),
            ("x-amz-date", scope.time.clone()),
        ];
        let token = keys.session_token.as_ref();
        headers.extend(token.map(|token| ("x-amz-security-token", token.to_string())));
        headers.push(("x-amz-target", self.target.to_owned()));
        let (names, lines) = canonical_headers(&headers);
        let request = format!("POST\n/\n\n{lines}\n{names}\n{}", sha256(self.body));
        let (credential, signature) = (scope.credential(keys), scope.signature(keys, &request));
        headers.push((
            "authorization",
            format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"),
        ));
        headers.retain(|(name, _)| *name != "host");
        headers
    }
}

/// The scope of a signature: a service in a region on a day.
struct Scope<'a> {
    service: &'a str,
    region: &'a str,
    day: String,
    time: String,
}

impl<'a> Scope<'a> {
    fn new(service: &'a str, region: &'a str, now: Timestamp) -> Self {
        Self {
            service,
            region,
            day: now.strftime("%Y%m%d").to_string(),
            time: now.strftime("%Y%m%dT%H%M%SZ").to_string(),
        }
    }

    fn text(&self) -> String {
        format!("{}/{}/{}/aws4_request", self.day, self.region, self.service)
    }

    fn credential(&self, keys: &AccessKeys) -> String {
        format!("{}/{}", keys.access_key, self.text())
    }

    /// Returns the signature of a canonical request.
    fn signature(&self, keys: &AccessKeys, request: &str) -> String {
        let text = format!(
            "AWS4-HMAC-SHA256\n{}\n{}\n{}",
            self.time,
            self.text(),
            sha256(request.as_bytes())
        );
        let first = Zeroizing::new(format!("AWS4{}", *keys.secret_key).into_bytes());
        let key = [self.day.as_str(), self.region, self.service, "aws4_request"]
            .iter()
            .fold(first, |key, part| hmac_sha256(&key, part.as_bytes()));
        hex::encode(hmac_sha256(&key, text.as_bytes()))
    }
}

/// Returns the names of sorted headers for `SignedHeaders`, and their canonical lines.
pub fn canonical_headers<V: AsRef<str>>(headers: &[(&str, V)]) -> (String, String) {
    let names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
    let lines = headers
        .iter()
        .map(|(name, value)| format!("{name}:{}\n", value.as_ref().trim()));
    (names.join(";"), lines.collect())
}

/// Returns the HMAC of a text with SHA-256.
pub fn hmac_sha256(key: &[u8], text: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(text);
    Zeroizing::new(mac.finalize().into_bytes().to_vec())
}

/// Returns the SHA-256 digest of a text in hexadecimal.
pub fn sha256(text: &[u8]) -> String {
    hex::encode(Sha256::digest(text))
}

/// The characters that are percent-encoded: all but the unreserved characters of RFC 3986.
pub const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Encodes all reserved characters of a text.
pub fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected signature is botocore's.
    #[test]
    fn a_request_is_signed_as_the_published_sdk_signs_it() {
        let keys = AccessKeys {
            access_key: "AKIDEXAMPLE".to_owned(),
            secret_key: Zeroizing::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned()),
            session_token: Some(Zeroizing::new("the-session-token".to_owned())),
        };
        let post = SignedJsonPost {
            service: "secretsmanager",
            region: "eu-central-1",
            host: "secretsmanager.eu-central-1.amazonaws.com",
            target: "secretsmanager.DescribeSecret",
            body: br#"{"SecretId":"pay/db"}"#,
        };
        let headers = post.headers(&keys, "2026-11-22T12:00:00Z".parse().unwrap());
        let (_, authorization) = headers.last().unwrap();
        assert_eq!(
            authorization,
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261122/eu-central-1/secretsmanager/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date;x-amz-security-token;x-amz-target, \
             Signature=7f199f31b09539ff1fb10a9ad4398e67d6305a8c1f7165ca6e30942e66403da5"
        );
    }

    /// The names of parameters and their order are a part of what is signed.
    #[test]
    fn a_presigned_query_is_sorted_and_ends_with_its_signature() {
        let keys = |session: Option<&str>| AccessKeys {
            access_key: "AKIDEXAMPLE".to_owned(),
            secret_key: Zeroizing::new("s3cret".to_owned()),
            session_token: session.map(|token| Zeroizing::new(token.to_owned())),
        };
        let get = PresignedGet {
            service: "sts",
            region: "eu-central-1",
            host: "sts.eu-central-1.amazonaws.com",
            query: &[("Version", "2011-06-15"), ("Action", "GetCallerIdentity")],
            headers: &[("x-k8s-aws-id", "prod")],
            expires: 60,
        };
        let now = "2026-11-22T12:00:00Z".parse().unwrap();
        let query = get.signed_query(&keys(Some("a/b+c==")), now);
        let (signed, signature) = query.rsplit_once("&X-Amz-Signature=").unwrap();
        let pairs: Vec<_> = signed.split('&').collect();
        assert!(pairs.is_sorted(), "{pairs:?}");
        assert!(
            pairs.contains(&"X-Amz-Security-Token=a%2Fb%2Bc%3D%3D"),
            "{pairs:?}"
        );
        assert!(
            pairs.contains(&"X-Amz-SignedHeaders=host%3Bx-k8s-aws-id"),
            "{pairs:?}"
        );
        assert!(pairs.contains(&"X-Amz-Date=20261122T120000Z"), "{pairs:?}");
        assert_eq!(signature.len(), 64);
        let other = |get: &PresignedGet<'_>| {
            let query = get.signed_query(&keys(None), now);
            query.rsplit_once('=').unwrap().1.to_owned()
        };
        let cluster = PresignedGet {
            headers: &[("x-k8s-aws-id", "dev")],
            ..get
        };
        assert_ne!(
            other(&get),
            other(&cluster),
            "the cluster is a part of what is signed"
        );
    }
}
