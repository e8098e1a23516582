//! Packages from OCI registries.

use std::{collections::BTreeMap, path::Path};

use base64::Engine;
use oci_client::{
    Client, Reference,
    client::{ClientConfig, ClientProtocol},
    secrets::RegistryAuth,
};
use serde_json::Value;

use super::{Asker, Packages};
use crate::process::Program;

const UNPACK: &str = include_str!("unpack.py");

/// What the layer of a package may be.
const LAYERS: [&str; 4] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.diff.tar",
];

/// How long a registry may take.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(300);

/// Pulls a package and unpacks it into `target`.
pub(super) async fn fetch(
    packages: &Packages,
    repository: &str,
    tag: &str,
    target: &Path,
) -> Result<(), String> {
    let reference: Reference = format!("{repository}:{tag}")
        .parse()
        .map_err(|error| format!("`{repository}:{tag}` is no reference to an OCI artifact: {error}"))?;
    let registry = reference.resolve_registry();
    // As Docker does: a registry on this machine may speak plain HTTP.
    let protocol = if is_local(registry) {
        ClientProtocol::Http
    } else {
        ClientProtocol::Https
    };
    let client = Client::new(ClientConfig {
        protocol,
        ..ClientConfig::default()
    });
    let auth = match packages.asker {
        Asker::Own => credentials(&packages.environment, reference.registry()),
        Asker::Outside(_) => RegistryAuth::Anonymous,
    };
    let pull = client.pull(&reference, &auth, LAYERS.to_vec());
    let image = tokio::time::timeout(DEADLINE, pull)
        .await
        .map_err(|_| format!("{registry} did not answer within {} s", DEADLINE.as_secs()))?
        .map_err(|error| format!("{registry}: {error}"))?;
    let interpreter = packages
        .checkout
        .executable("the interpreter of the KCL core", &packages.interpreter)
        .map_err(|error| error.to_string())?;
    for layer in image.layers {
        let mut program = Program::new(interpreter.clone()).args(["-I", "-c", UNPACK]);
        program.args.push(target.into());
        program.env = Some(Vec::new());
        program.stdin = layer.data.to_vec();
        let ended = program.run().await.map_err(|error| error.to_string())?;
        if ended.code != Some(0) {
            let stderr = String::from_utf8_lossy(&ended.stderr);
            return Err(stderr
                .lines()
                .last()
                .unwrap_or("the archive can not be read")
                .to_owned());
        }
    }
    Ok(())
}

/// Whether it is one on this machine.
pub(super) fn is_local(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

/// Who asks: `KONVERGE_OCI_USERNAME` and `KONVERGE_OCI_PASSWORD` for the one registry that `KONVERGE_OCI_REGISTRY`
/// names (a `kcl.mod` must not be able to send them elsewhere), else Docker's config.
fn credentials(environment: &BTreeMap<String, String>, registry: &str) -> RegistryAuth {
    let var = |name: &str| environment.get(name).filter(|value| !value.is_empty());
    if var("KONVERGE_OCI_REGISTRY").map(String::as_str) == Some(registry)
        && let (Some(user), Some(password)) = (var("KONVERGE_OCI_USERNAME"), var("KONVERGE_OCI_PASSWORD"))
    {
        return RegistryAuth::Basic(user.clone(), password.clone());
    }
    let folder = var("DOCKER_CONFIG").cloned();
    let file = folder
        .or_else(|| var("HOME").map(|home| format!("{home}/.docker")))
        .map(|folder| Path::new(&folder).join("config.json"));
    file.and_then(|file| std::fs::read_to_string(file).ok())
        .and_then(|text| of_docker(&text, registry))
        .unwrap_or(RegistryAuth::Anonymous)
}

/// `auths.<registry>.auth` of Docker's config: `user:password` in base64.
fn of_docker(text: &str, registry: &str) -> Option<RegistryAuth> {
    let config: Value = serde_json::from_str(text).ok()?;
    let auths = config.get("auths")?.as_object()?;
    let host = |key: &str| {
        let key = key.trim_start_matches("https://").trim_start_matches("http://");
        key.split('/').next().unwrap_or_default().to_owned()
    };
    let (_, entry) = auths.iter().find(|(key, _)| host(key) == registry)?;
    let text = |key: &str| Some(entry.get(key)?.as_str()?.to_owned());
    if let (Some(user), Some(password)) = (text("username"), text("password")) {
        return Some(RegistryAuth::Basic(user, password));
    }
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text("auth")?)
        .ok()?;
    let decoded = String::from_utf8(bytes).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some(RegistryAuth::Basic(user.to_owned(), password.to_owned()))
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
        let basic =
            |auth| matches!(auth, RegistryAuth::Basic(user, password) if user == "u" && password == "p");
        assert!(basic(credentials(&environment, "ghcr.io")));
        assert!(!basic(credentials(&environment, "evil.example")));
    }

    #[test]
    fn dockers_config_is_read() {
        let text = r#"{"auths": {"https://ghcr.io/v2/": {"auth": "dTpwOnE="}, "other:5000": {"username": "a", "password": "b"}}}"#;
        let found = |registry| match of_docker(text, registry) {
            Some(RegistryAuth::Basic(user, password)) => format!("{user} {password}"),
            _ => "none".to_owned(),
        };
        assert_eq!(found("ghcr.io"), "u p:q");
        assert_eq!(found("other:5000"), "a b");
        assert_eq!(found("docker.io"), "none");
    }
}
