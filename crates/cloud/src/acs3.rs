//! Alibaba Cloud's signature version 3 (`ACS3-HMAC-SHA256`) of a call by query parameters.
//!
//! <https://www.alibabacloud.com/help/en/sdk/product-overview/v3-request-structure-and-signature>

use jiff::Timestamp;
use zeroize::Zeroizing;

use super::{
    AccessKeys,
    sigv4::{canonical_headers, hmac_sha256, percent_encode, sha256},
};

const ALGORITHM: &str = "ACS3-HMAC-SHA256";

/// A POST of `/` without a body that is signed by its headers.
pub struct SignedAlibabaCall<'a> {
    /// Host of the service.
    pub host: &'a str,
    /// The operation of the API.
    pub action: &'a str,
    /// The version of the service's API.
    pub version: &'a str,
    /// The query parameters, not yet percent-encoded.
    pub parameters: &'a [(&'a str, &'a str)],
}

impl SignedAlibabaCall<'_> {
    /// Returns the query of the URL, sorted and percent-encoded.
    pub fn query(&self) -> Zeroizing<String> {
        let mut pairs: Vec<_> = self.parameters.to_vec();
        pairs.sort_unstable();
        let mut query = Zeroizing::new(String::new());
        for (name, value) in pairs {
            if !query.is_empty() {
                query.push('&');
            }
            query.push_str(&percent_encode(name));
            query.push('=');
            query.push_str(&Zeroizing::new(percent_encode(value)));
        }
        query
    }

    /// Returns the headers to send besides `host`. Each call needs a new nonce.
    pub fn headers(&self, keys: &AccessKeys, now: Timestamp, nonce: &str) -> Vec<(&'static str, String)> {
        let nothing = sha256(b"");
        let mut headers = vec![
            ("host", self.host.to_owned()),
            ("x-acs-action", self.action.to_owned()),
            ("x-acs-content-sha256", nothing.clone()),
            ("x-acs-date", now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
            ("x-acs-signature-nonce", nonce.to_owned()),
            ("x-acs-version", self.version.to_owned()),
        ];
        if let Some(token) = &keys.session_token {
            headers.push(("x-acs-security-token", token.as_str().to_owned()));
        }
        headers.sort_unstable();
        let (names, lines) = canonical_headers(&headers);
        let query = self.query();
        let request = Zeroizing::new(format!(
            "POST\n/\n{}\n{lines}\n{names}\n{nothing}",
            query.as_str()
        ));
        let text = format!("{ALGORITHM}\n{}", sha256(request.as_bytes()));
        let signature = hex::encode(hmac_sha256(keys.secret_key.as_bytes(), text.as_bytes()));
        let credential = &keys.access_key;
        headers.retain(|(name, _)| *name != "host");
        headers.push((
            "authorization",
            format!("{ALGORITHM} Credential={credential},SignedHeaders={names},Signature={signature}"),
        ));
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys, the request and the signature are those of Alibaba's documentation.
    #[test]
    fn a_call_is_signed_as_the_documentation_signs_it() {
        let keys = AccessKeys {
            access_key: "YourAccessKeyId".to_owned(),
            secret_key: Zeroizing::new("YourAccessKeySecret".to_owned()),
            session_token: None,
        };
        let call = SignedAlibabaCall {
            host: "ecs.cn-shanghai.aliyuncs.com",
            action: "RunInstances",
            version: "2014-05-26",
            parameters: &[
                ("RegionId", "cn-shanghai"),
                ("ImageId", "win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd"),
            ],
        };
        let now = "2023-10-26T10:22:32Z".parse().unwrap();
        let headers = call.headers(&keys, now, "3156853299f313e23d1673dc12e1703d");
        let (_, authorization) = headers.last().unwrap();
        assert_eq!(
            authorization,
            "ACS3-HMAC-SHA256 Credential=YourAccessKeyId,SignedHeaders=host;x-acs-action;x-acs-content-sha256;\
             x-acs-date;x-acs-signature-nonce;x-acs-version,\
             Signature=06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0"
        );
    }

    #[test]
    fn a_session_token_is_signed_and_what_parameters_hold_is_encoded() {
        let mut keys = AccessKeys {
            access_key: "id".to_owned(),
            secret_key: Zeroizing::new("secret".to_owned()),
            session_token: None,
        };
        let call = SignedAlibabaCall {
            host: "kms.aliyuncs.com",
            action: "Encrypt",
            version: "2016-01-20",
            parameters: &[("Plaintext", "a+/=&b *~"), ("KeyId", "ä")],
        };
        assert_eq!(
            call.query().as_str(),
            "KeyId=%C3%A4&Plaintext=a%2B%2F%3D%26b%20%2A~"
        );
        let now = "2026-11-22T12:00:00Z".parse().unwrap();
        let signature = |keys: &AccessKeys| {
            let headers = call.headers(keys, now, "nonce");
            assert!(
                headers.iter().all(|(name, _)| *name != "host"),
                "the client adds it"
            );
            headers.last().unwrap().1.clone()
        };
        let without = signature(&keys);
        keys.session_token = Some(Zeroizing::new("session".to_owned()));
        let with = signature(&keys);
        assert!(!without.contains("x-acs-security-token"));
        assert!(
            with.contains(";x-acs-security-token;x-acs-signature-nonce;"),
            "{with}"
        );
        assert_ne!(without.rsplit('=').next(), with.rsplit('=').next());
    }
}
