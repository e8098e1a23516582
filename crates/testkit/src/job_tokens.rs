//! GitHub's issuer of OIDC tokens for jobs: signs with a key of its own, and publishes it.

use axum::{Router, routing::get};
use jsonwebtoken::{Algorithm, EncodingKey, Header, jwk::Jwk};
use serde_json::{Value, json};

use crate::json_answer::Json;

/// A running issuer; ends with the runtime it was started on.
pub struct JobTokens {
    /// What GITHUB_SERVER_URL would be.
    pub server_url: String,
    key: rcgen::KeyPair,
}

impl JobTokens {
    /// Starts it with a new key.
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

    /// The claims of a token for a job of a repository, valid for five minutes.
    pub fn claims(&self, repository: &str, audience: &str, id: &str) -> Value {
        let now = seconds_now();
        json!({
            "iss": format!("{}/_services/token", self.server_url), "aud": audience, "jti": id,
            "repository": repository, "nbf": now - 60, "iat": now, "exp": now + 300,
        })
    }

    /// A token with these claims.
    pub fn sign(&self, claims: &Value) -> String {
        sign(&self.key, claims)
    }

    /// The same by somebody else.
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
