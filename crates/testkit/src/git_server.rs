//! A server of git repositories over HTTPS, both public and private (`private_git.py`).

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{
    cluster::Cluster,
    git::Repository,
    service::{Ports, Service, folder},
};

/// A running server. It ends on drop.
pub struct GitServer {
    folder: PathBuf,
    ports: Ports,
    authority: PathBuf,
    _service: Service,
}

impl GitServer {
    /// Starts an empty server, with the certificate of a cluster.
    pub fn start(cluster: &Cluster) -> Self {
        let (folder, ports) = (folder("git"), Ports::claim());
        let mut command = Command::new(super::kcl::interpreter());
        command
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/private_git.py"))
            .arg(ports.nth(1).to_string())
            .args([cluster.path("server.crt"), cluster.path("server.key")])
            .arg(&folder);
        let mut service = Service::start("git", &command, &folder);
        service.wait_for_port(ports.nth(1), Duration::from_secs(60));
        Self {
            folder,
            ports,
            authority: cluster.path("ca.crt"),
            _service: service,
        }
    }

    /// Returns the file with the certificate authority of the server.
    pub fn authority(&self) -> &Path {
        &self.authority
    }

    /// Serves the present content of a repository as `public/NAME` or `private/NAME`, and returns its address.
    pub fn serve(&self, repository: &Repository, name: &str) -> String {
        let target = self.folder.join(name);
        repository.git(["clone", "--quiet", "--bare", ".", &target.to_string_lossy()]);
        repository.git(["-C", &target.to_string_lossy(), "update-server-info"]);
        format!("https://127.0.0.1:{}/{name}", self.ports.nth(1))
    }

    /// Returns for each request so far below a name if it came with a credential.
    pub fn asked(&self, name: &str) -> Vec<bool> {
        let log = std::fs::read_to_string(self.folder.join("git.log")).expect("the log can be read");
        log.lines()
            .filter(|line| line.starts_with(&format!("/{name}/")))
            .map(|line| line.ends_with(" known"))
            .collect()
    }
}
