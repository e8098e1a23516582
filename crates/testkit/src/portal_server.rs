//! Runs of `konverge serve`. The process ends with its handle, or with the thread that started it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};

use super::service::bound_to_parent;

/// A started portal.
pub struct PortalServer {
    child: Child,
    /// The address, without a slash at the end.
    pub root: String,
}

impl PortalServer {
    /// Starts `executable` in a checkout, with a home and only these variables. Returns when the server answers.
    ///
    /// # Panics
    /// The process ends before it prints its address.
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

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of the process.
    pub fn wait(mut self) -> ExitStatus {
        self.child.wait().expect("the state of a child can be asked")
    }
}

impl Drop for PortalServer {
    fn drop(&mut self) {
        // Ignore an error: the process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
