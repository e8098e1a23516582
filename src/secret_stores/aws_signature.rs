//! AWS Signature Version 4 of a POST of JSON.
//!
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>

use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::aws_login::AwsCredentials;

/// A POST of `/` whose operation is named in a header, as the JSON services of AWS want it.
pub(super) struct JsonPost<'a> {
    pub service: &'a str,
    pub region: &'a str,
    pub host: &'a str,
    /// `SERVICE.OPERATION`.
    pub target: &'a str,
    pub body: &'a [u8],
}

impl JsonPost<'_> {
    /// The headers of the signed request, without `host`.
    pub fn signed_headers(&self, keys: &AwsCredentials, now: Timestamp) -> Vec<(&'static str, String)> {
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let day = now.strftime("%Y%m%d").to_string();
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let mut headers = vec![
            ("content-type", "application/x-amz-json-1.1".to_owned()),
            ("host", self.host.to_owned()),
            ("x-amz-date", time.clone()),
        ];
        let token = keys.session_token.as_ref();
        headers.extend(token.map(|token| ("x-amz-security-token", token.to_string())));
        headers.push(("x-amz-target", self.target.to_owned()));
        let names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let lines: String = headers
            .iter()
            .map(|(name, value)| format!("{name}:{}\n", value.trim()))
            .collect();
        let request = format!("POST\n/\n\n{lines}\n{names}\n{}", sha256(self.body));
        let text = format!(
            "AWS4-HMAC-SHA256\n{time}\n{scope}\n{}",
            sha256(request.as_bytes())
        );
        let first = Zeroizing::new(format!("AWS4{}", *keys.secret_key).into_bytes());
        let key = [day.as_str(), self.region, self.service, "aws4_request"]
            .iter()
            .fold(first, |key, part| mac(&key, part.as_bytes()));
        let signature = hex(&mac(&key, text.as_bytes()));
        let credential = format!("{}/{scope}", keys.access_key);
        headers.push((
            "authorization",
            format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"),
        ));
        headers.retain(|(name, _)| *name != "host");
        headers
    }
}

fn mac(key: &[u8], text: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(text);
    Zeroizing::new(mac.finalize().into_bytes().to_vec())
}

fn sha256(text: &[u8]) -> String {
    hex(&Sha256::digest(text))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The expected signature is botocore's.
    #[test]
    fn a_request_is_signed_as_the_published_sdk_signs_it() {
        let keys = AwsCredentials {
            access_key: "AKIDEXAMPLE".to_owned(),
            secret_key: Zeroizing::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned()),
            session_token: Some(Zeroizing::new("the-session-token".to_owned())),
        };
        let post = JsonPost {
            service: "secretsmanager",
            region: "eu-central-1",
            host: "secretsmanager.eu-central-1.amazonaws.com",
            target: "secretsmanager.DescribeSecret",
            body: br#"{"SecretId":"pay/db"}"#,
        };
        let headers = post.signed_headers(&keys, "2026-11-22T12:00:00Z".parse().unwrap());
        let (_, authorization) = headers.last().unwrap();
        assert_eq!(
            authorization,
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261122/eu-central-1/secretsmanager/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date;x-amz-security-token;x-amz-target, \
             Signature=7f199f31b09539ff1fb10a9ad4398e67d6305a8c1f7165ca6e30942e66403da5"
        );
    }
}
