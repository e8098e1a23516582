//! An independent OpenID provider, `oidc-provider` (npm), with people, groups and tokens for scripts
//! (`openid_provider.mjs`).

use std::{process::Command, time::Duration};

use super::service::{Ports, Service, folder};

/// A running provider, and the ports of the portals that log in at it.
pub struct OpenIdProvider {
    service: Option<Service>,
    ports: Ports,
}

impl OpenIdProvider {
    /// Starts a provider that redirects to a portal at [`OpenIdProvider::portal`].
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

    /// Returns the issuer's address.
    pub fn issuer(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.nth(1))
    }

    /// Returns the address at which the portal must listen.
    pub fn portal(&self) -> String {
        format!("127.0.0.1:{}", self.ports.nth(2))
    }

    /// Returns the address of a second replica of the portal.
    pub fn replica(&self) -> String {
        format!("127.0.0.1:{}", self.ports.nth(3))
    }

    /// Stops the provider.
    pub fn stop(&mut self) {
        self.service = None;
    }
}
