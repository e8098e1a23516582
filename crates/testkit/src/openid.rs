//! An OpenID provider of another make: `oidc-provider` (npm), with people, groups and the tokens of scripts
//! (`openid_provider.mjs`).

use std::{process::Command, time::Duration};

use super::service::{Ports, Service, folder};

/// A running provider, and the ports of the portals that log in there.
pub struct OpenIdProvider {
    service: Option<Service>,
    ports: Ports,
}

impl OpenIdProvider {
    /// One that returns to a portal at [`OpenIdProvider::portal`].
    pub fn start() -> Self {
        let folder = folder("openid");
        let ports = Ports::claim();
        let library = super::cache().join("oidc-provider/node_modules/oidc-provider/lib/index.js");
        let mut command = Command::new("node");
        command
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/openid_provider.mjs"))
            .arg(super::installed("oidc-provider", library))
            .arg(ports.nth(1).to_string())
            .arg(format!("http://127.0.0.1:{}/login/callback", ports.nth(2)));
        let mut service = Service::start("openid", &command, &folder);
        service.wait_for_port(ports.nth(1), Duration::from_secs(60));
        Self {
            service: Some(service),
            ports,
        }
    }

    /// Its issuer.
    pub fn issuer(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.nth(1))
    }

    /// The address of the portal, which listens there.
    pub fn portal(&self) -> String {
        format!("127.0.0.1:{}", self.ports.nth(2))
    }

    /// The address of another replica of it.
    pub fn replica(&self) -> String {
        format!("127.0.0.1:{}", self.ports.nth(3))
    }

    /// Ends it.
    pub fn stop(&mut self) {
        self.service = None;
    }
}
