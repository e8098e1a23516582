//! An independent mail server, aiosmtpd, which reads mails with Python's own parser (`mails.py`).

use std::{path::PathBuf, process::Command, time::Duration};

use serde_json::Value;

use super::{
    identities::write_identities,
    service::{Ports, Service, folder},
};

/// The user that may send mails.
pub const USER: &str = "ci@acme.example";
/// The password of the user.
pub const PASSWORD: &str = "mail-password-83c2";

/// A running mail server.
pub struct MailServer {
    service: Service,
    ports: Ports,
    folder: PathBuf,
}

impl MailServer {
    /// Starts a server that speaks `plain`, `smtps` or `starttls`, and gives these responses to the first mails.
    pub fn start(mode: &str, answers: &[&str]) -> Self {
        let folder = folder("mails");
        write_identities(&folder);
        let ports = Ports::claim();
        let python = super::cache().join("aiosmtpd/bin/python3");
        let mut command = Command::new(super::installed("aiosmtpd", python));
        command
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/mails.py"))
            .args([ports.nth(1).to_string().as_str(), mode])
            .args([folder.join("mails"), folder.clone()])
            .args([USER, PASSWORD])
            .args(answers);
        let mut service = Service::start("mails", &command, &folder);
        service.wait_for_port(ports.nth(1), Duration::from_secs(60));
        Self {
            service,
            ports,
            folder,
        }
    }

    /// Returns the address for a scheme and a host, with the user.
    pub fn url(&self, scheme: &str, host: &str) -> String {
        let user = USER.replace('@', "%40");
        format!("{scheme}://{user}@{host}:{}", self.ports.nth(1))
    }

    /// Returns the file with the certificate authority of the server.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// Returns the received mails, with the response to each.
    pub fn seen(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.join("mails")).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}
