//! `konverge serve`: a process that ends with its handle, or with the thread that started it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};

use super::service::bound_to_parent;

/// A started portal.
pub struct PortalServer {
    child: Child,
    /// Its address, without a slash at the end.
    pub root: String,
}

impl PortalServer {
    /// Starts `executable` in a checkout, with a home and no other variable than these. It answers when this returns.
    ///
    /// # Panics
    /// If it ends before it says its address.
    pub fn start(
        executable: &Path,
        checkout: &Path,
        home: &Path,
        address: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut command = std::process::Command::new(executable);
        command.args(["serve", "--listen", address]).current_dir(checkout);
        let mut child = bound_to_parent(&command)
            .env_clear()
            .env("HOME", home)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`setpriv` is installed");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped"))
            .read_line(&mut line)
            .expect("a pipe can be read");
        let root = line.trim().to_owned();
        assert!(root.starts_with("http://"), "{root}");
        Self { child, root }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    pub fn wait(mut self) -> ExitStatus {
        self.child.wait().expect("the state of a child can be asked")
    }
}

impl Drop for PortalServer {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
