//! An App of GitHub: its key, and the tokens that its installation gets.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Validation, jwk::Jwk};
use serde_json::{Value, json};

use super::{answers::Answer, world::World};
use crate::octokit;

/// An App that is installed on the repository. Its installation gets the token `ghs_app`.
#[derive(Debug, Clone)]
pub struct InstalledApp {
    /// The number of the App.
    pub id: u64,
    /// The private key of the App in PEM, as GitHub gives it.
    pub key: String,
    /// The validity of a token in seconds. A real one is valid for an hour.
    pub token_seconds: i64,
    /// The number of tokens that were issued.
    pub tokens: usize,
}

const INSTALLATION: &str = "77";

impl World {
    /// Installs an App that writes under its own name, with the permissions of `ghs_token`.
    pub fn with_installed_app(self, login: &'static str, id: u64) -> Self {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
        let app = InstalledApp {
            id,
            key: key.serialize_pem(),
            token_seconds: 3600,
            tokens: 0,
        };
        let mut world = self.with_app(login);
        world.app = Some(app);
        world
    }

    /// Answers the requests of an App for itself; `None` for other routes.
    pub(super) fn of_app(
        &mut self,
        proof: &str,
        method: &str,
        parts: &[&str],
        body: &Value,
    ) -> Option<Answer> {
        let wants_token = match (method, parts) {
            ("GET", ["repos", _, _, "installation"]) => false,
            ("POST", ["app", "installations", _, "access_tokens"]) => true,
            _ => return None,
        };
        let not_found = Some((404, json!({"message": "Not Found"})));
        let Some(app) = &mut self.app else {
            return Some((401, json!({"message": "A JSON web token could not be decoded"})));
        };
        if let Err(message) = app.check(proof) {
            return Some((401, json!({"message": message})));
        }
        match parts {
            ["repos", "acme", "konfig", _] => Some((200, json!({"id": 77, "app_id": app.id}))),
            ["app", _, INSTALLATION, _] if wants_token => {
                if body["repositories"] != json!(["konfig"]) {
                    return Some((
                        422,
                        json!({"message": "the token is for more than the repository"}),
                    ));
                }
                app.tokens += 1;
                let expires = Timestamp::now() + SignedDuration::from_secs(app.token_seconds);
                let token = json!({
                    "token": "ghs_app", "expires_at": expires.to_string(),
                    "permissions": {"issues": "write"}, "repository_selection": "selected",
                    "repositories": [octokit::webhooks("issues")[0]["repository"]],
                });
                Some((201, token))
            }
            _ => not_found,
        }
    }
}

impl InstalledApp {
    /// Checks a JWT: signed by the App, and valid for at most ten minutes, as GitHub documents.
    fn check(&self, proof: &str) -> Result<(), &'static str> {
        let key = EncodingKey::from_rsa_pem(self.key.as_bytes()).unwrap();
        let published = Jwk::from_encoding_key(&key, Algorithm::RS256).unwrap();
        let mut rules = Validation::new(Algorithm::RS256);
        rules.required_spec_claims = HashSet::from(["exp".to_owned()]);
        let claims =
            jsonwebtoken::decode::<Value>(proof, &DecodingKey::from_jwk(&published).unwrap(), &rules)
                .map_err(|_| "A JSON web token could not be decoded")?
                .claims;
        if claims["iss"] != json!(self.id) && claims["iss"] != json!(self.id.to_string()) {
            return Err("Integration must be specified by ID or client ID");
        }
        let latest = Timestamp::now().as_second() + 600;
        if claims["exp"].as_i64().is_none_or(|until| until > latest) {
            return Err("'Expiration time' claim ('exp') is too far in the future");
        }
        Ok(())
    }
}
