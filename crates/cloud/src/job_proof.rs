//! Verifies the OIDC token of a job. The forge signs in it which repository the job runs in, and the audience
//! that the token is meant for.

use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header, jwk::JwkSet};
use konverge_base::{error::SharedError, variables};
use serde::Deserialize;

use super::{
    CloudError, addresses,
    http_client::{self, LoginClient},
    sigv4::sha256,
};

const WHAT: &str = "a valid OIDC token of the calling job";

/// Allowed clock difference between two machines in seconds.
const LEEWAY: u64 = 30;

/// The claims of a job's OIDC token that Konverge uses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct JobProof {
    /// The repository of the job, as `owner/name`.
    pub repository: String,
    /// The unique id of the token.
    #[serde(rename = "jti")]
    pub id: String,
    /// The time when the token expires, in seconds since 1970.
    #[serde(rename = "exp")]
    pub expires: u64,
}

/// Returns an audience that binds a token to a purpose and to these words in this order, by their hash.
pub fn bound_audience(purpose: &str, words: &[&str]) -> String {
    format!("{purpose}:{}", sha256(words.join("\n").as_bytes()))
}

/// Verifies that a token was signed by the issuer, is for this audience, and has not expired.
///
/// # Errors
/// The token is invalid, or the keys of the issuer cannot be read.
pub async fn verify_job(token: &str, issuer: &str, audience: &str) -> Result<JobProof, CloudError> {
    let refused = |why: SharedError| CloudError::refused(WHAT, why);
    let header = decode_header(token).map_err(|error| refused(error.into()))?;
    if header.alg != Algorithm::RS256 {
        return Err(refused("it is not signed with RS256".into()));
    }
    let key = header.kid.ok_or_else(|| refused("it names no key".into()))?;
    let place = format!("{issuer}/.well-known/jwks");
    let place = addresses::encrypted(variables::GITHUB_SERVER_URL, &place)?;
    let client = LoginClient::new()?;
    let keys = http_client::json(client.get(place), "the keys of the issuer").await?;
    let keys: JwkSet = serde_json::from_value(keys).map_err(|error| refused(error.into()))?;
    let key = keys
        .find(&key)
        .ok_or_else(|| refused("its key is not one of the issuer's".into()))?;
    let key = DecodingKey::from_jwk(key).map_err(|error| refused(error.into()))?;
    let mut validation = Validation::new(Algorithm::RS256);
    validation.set_audience(&[audience]);
    validation.set_issuer(&[issuer]);
    validation.set_required_spec_claims(&["exp", "aud", "iss"]);
    validation.validate_nbf = true;
    validation.leeway = LEEWAY;
    let proof = decode::<JobProof>(token, &key, &validation);
    proof
        .map(|proof| proof.claims)
        .map_err(|error| refused(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audience_stands_for_its_words_alone() {
        let audience = |words: &[&str]| bound_audience("konverge-set", words);
        let all = audience(&["acme/konfig", "storefront/dev", "nginx", "sha256:00"]);
        assert!(all.starts_with("konverge-set:") && all.len() == "konverge-set:".len() + 64);
        assert_ne!(
            all,
            audience(&["acme/konfig", "storefront/prod", "nginx", "sha256:00"])
        );
        // As the workflow computes it: printf '%s\n%s' a b | sha256sum
        assert_eq!(
            audience(&["a", "b"]),
            "konverge-set:7e18f737311b2dc3b2f269dd78396b0351f14fb66efa879f768cb23181883c78"
        );
    }

    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

    /// The head alone decides that a token proves nothing, so that no key is asked for.
    #[tokio::test]
    async fn only_a_signature_of_a_named_key_of_the_issuer_proves_a_job() {
        let token = |head: &str| {
            let claims = r#"{"repository": "acme/konfig", "jti": "1", "exp": 9999999999}"#;
            format!(
                "{}.{}.AAAA",
                URL_SAFE_NO_PAD.encode(head),
                URL_SAFE_NO_PAD.encode(claims)
            )
        };
        let proof = async |token: &str, issuer: &str| {
            let error = verify_job(token, issuer, "audience").await.unwrap_err();
            konverge_base::error::chain(&error)
        };
        let issuer = "https://issuer.invalid";
        for (head, why) in [
            (
                r#"{"alg": "HS256", "kid": "key-1"}"#,
                "it is not signed with RS256",
            ),
            (
                r#"{"alg": "RS384", "kid": "key-1"}"#,
                "it is not signed with RS256",
            ),
            (r#"{"alg": "RS256"}"#, "it names no key"),
        ] {
            let said = proof(&token(head), issuer).await;
            assert!(said.ends_with(why), "{head}: {said}");
        }
        for malformed in ["", "a.b.c", &token(r#"{"alg": "none", "kid": "key-1"}"#)] {
            let said = proof(malformed, issuer).await;
            assert!(said.starts_with(WHAT), "{malformed}: {said}");
        }
        let signed = token(r#"{"alg": "RS256", "kid": "key-1"}"#);
        for issuer in ["http://issuer.example", "", "ftp://issuer.example"] {
            let said = proof(&signed, issuer).await;
            assert!(said.ends_with("it is not an HTTPS address"), "{issuer}: {said}");
        }
    }
}
