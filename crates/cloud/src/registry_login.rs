//! The credentials for an OCI registry, from the environment or from Docker's configuration.

use std::{collections::BTreeMap, path::Path};

use base64::Engine as _;
use serde_json::Value;

use konverge_base::variables;

/// A user and a password for one registry.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryLogin {
    /// The user name for the registry.
    pub user: String,
    /// The password or token.
    pub password: String,
}

impl std::fmt::Debug for RegistryLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RegistryLogin(..)")
    }
}

impl RegistryLogin {
    /// Returns the credentials from Konverge's own variables, or else from Docker's configuration.
    /// `KONVERGE_OCI_USERNAME` and `KONVERGE_OCI_PASSWORD` are used only for the registry in
    /// `KONVERGE_OCI_REGISTRY`, so that a `kcl.mod` cannot send them elsewhere.
    pub fn find(environment: &BTreeMap<String, String>, registry: &str) -> Option<Self> {
        let var = |name: &str| environment.get(name).filter(|value| !value.is_empty());
        if var(variables::KONVERGE_OCI_REGISTRY).map(String::as_str) == Some(registry)
            && let (Some(user), Some(password)) = (
                var(variables::KONVERGE_OCI_USERNAME),
                var(variables::KONVERGE_OCI_PASSWORD),
            )
        {
            return Some(RegistryLogin {
                user: user.clone(),
                password: password.clone(),
            });
        }
        let folder = var(variables::DOCKER_CONFIG).cloned();
        let file = folder
            .or_else(|| var(variables::HOME).map(|home| format!("{home}/.docker")))
            .map(|folder| Path::new(&folder).join("config.json"));
        file.and_then(|file| std::fs::read_to_string(file).ok())
            .and_then(|text| docker_auth(&text, registry))
    }
}

/// Returns true for a registry on this machine, for which plain HTTP is allowed, as in Docker.
pub fn is_local_registry(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

/// Reads `auths.<registry>.auth` of Docker's configuration: `user:password` in base64.
fn docker_auth(text: &str, registry: &str) -> Option<RegistryLogin> {
    let config: Value = serde_json::from_str(text).ok()?;
    let auths = config.get("auths")?.as_object()?;
    let host = |key: &str| {
        let key = key.trim_start_matches("https://").trim_start_matches("http://");
        key.split('/').next().unwrap_or_default().to_owned()
    };
    let (_, entry) = auths.iter().find(|(key, _)| host(key) == registry)?;
    let text = |key: &str| Some(entry.get(key)?.as_str()?.to_owned());
    if let (Some(user), Some(password)) = (text("username"), text("password")) {
        return Some(RegistryLogin { user, password });
    }
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text("auth")?)
        .ok()?;
    let decoded = String::from_utf8(bytes).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some(RegistryLogin {
        user: user.to_owned(),
        password: password.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_go_to_their_registry_alone() {
        let environment: BTreeMap<String, String> = [
            ("KONVERGE_OCI_REGISTRY", "ghcr.io"),
            ("KONVERGE_OCI_USERNAME", "u"),
            ("KONVERGE_OCI_PASSWORD", "p"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        let login = RegistryLogin {
            user: "u".to_owned(),
            password: "p".to_owned(),
        };
        assert_eq!(RegistryLogin::find(&environment, "ghcr.io"), Some(login));
        assert_eq!(RegistryLogin::find(&environment, "evil.example"), None);
    }

    #[test]
    fn dockers_config_is_read() {
        let text = r#"{"auths": {"https://ghcr.io/v2/": {"auth": "dTpwOnE="}, "other:5000": {"username": "a", "password": "b"}}}"#;
        let found = |registry| match docker_auth(text, registry) {
            Some(RegistryLogin { user, password }) => format!("{user} {password}"),
            None => "none".to_owned(),
        };
        assert_eq!(found("ghcr.io"), "u p:q");
        assert_eq!(found("other:5000"), "a b");
        assert_eq!(found("docker.io"), "none");
    }
}
