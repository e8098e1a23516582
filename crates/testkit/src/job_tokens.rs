//! A fake of GitHub's issuer of OIDC tokens for jobs. It signs with its own key, and publishes that key.

use axum::{Router, routing::get};
use jsonwebtoken::{Algorithm, EncodingKey, Header, jwk::Jwk};
use serde_json::{Value, json};

use crate::json_answer::Json;

/// The running issuer. It ends with the runtime on which it was started.
pub struct JobTokens {
    /// The value for GITHUB_SERVER_URL.
    pub server_url: String,
    key: rcgen::KeyPair,
}

impl JobTokens {
    /// Starts an issuer with a new key.
    pub async fn start() -> Self {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
        let mut published = Jwk::from_encoding_key(&signing(&key), Algorithm::RS256).unwrap();
        published.common.key_id = Some("key-1".to_owned());
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let server_url = format!("http://{}", listener.local_addr().unwrap());
        let keys = json!({"keys": [published]});
        let answer = move || {
            let keys = keys.clone();
            async move { Json(keys) }
        };
        let router = Router::new().route("/_services/token/.well-known/jwks", get(answer));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { server_url, key }
    }

    /// Returns the claims of a token for a job of a repository, valid for five minutes.
    pub fn claims(&self, repository: &str, audience: &str, id: &str) -> Value {
        let now = seconds_now();
        json!({
            "iss": format!("{}/_services/token", self.server_url), "aud": audience, "jti": id,
            "repository": repository, "nbf": now - 60, "iat": now, "exp": now + 300,
        })
    }

    /// Returns a token with these claims.
    pub fn sign(&self, claims: &Value) -> String {
        sign(&self.key, claims)
    }

    /// Returns a token with these claims that another key signed.
    pub fn forge(&self, claims: &Value) -> String {
        sign(
            &rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap(),
            claims,
        )
    }
}

fn sign(key: &rcgen::KeyPair, claims: &Value) -> String {
    let mut header = Header::new(Algorithm::RS256);
    header.kid = Some("key-1".to_owned());
    jsonwebtoken::encode(&header, claims, &signing(key)).unwrap()
}

fn signing(key: &rcgen::KeyPair) -> EncodingKey {
    EncodingKey::from_rsa_pem(key.serialize_pem().as_bytes()).unwrap()
}

fn seconds_now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_secs()
}
