//! Other programs: started without a shell, with an environment of our choosing, a deadline, and an end that is ours:
//! a child never outlives this process.
//!
//! This is the one file where `unsafe` is allowed: `pre_exec` is the only door to the process options below.

use std::{ffi::OsString, path::PathBuf, process::Stdio, time::Duration};

use tokio::{io::AsyncWriteExt, process::Command};

use crate::checkout::Executable;

/// A program to run to its end.
#[derive(Debug, Clone)]
pub struct Program {
    /// The executable.
    executable: Executable,
    /// Its arguments; never passed through a shell.
    pub args: Vec<OsString>,
    /// The whole environment, or `None` to inherit ours.
    pub env: Option<Vec<(OsString, OsString)>>,
    /// Set on top of the environment.
    pub extra_env: Vec<(OsString, OsString)>,
    /// The working directory.
    pub dir: Option<PathBuf>,
    /// What it is fed.
    pub stdin: Vec<u8>,
    /// Killed after this.
    pub deadline: Duration,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// All of its standard output.
    pub stdout: Vec<u8>,
    /// All of its standard error.
    pub stderr: Vec<u8>,
}

/// A program could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// There is no such program.
    #[error("`{0}` was not found")]
    NotFound(PathBuf),
    /// It could not be started or spoken to.
    #[error("`{path}` could not be run: {source}")]
    Io {
        /// The program.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// It did not end in time and was killed.
    #[error("`{path}` did not end within {} s and was stopped", deadline.as_secs())]
    Deadline {
        /// The program.
        path: PathBuf,
        /// The limit.
        deadline: Duration,
    },
}

impl Program {
    /// A program with our environment, no input and ten minutes.
    pub fn new(executable: Executable) -> Self {
        Self {
            executable,
            args: Vec::new(),
            env: None,
            extra_env: Vec::new(),
            dir: None,
            stdin: Vec::new(),
            deadline: Duration::from_secs(600),
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Runs it to its end, whatever its exit code.
    ///
    /// # Errors
    /// It can not be started, or does not end in time (then it is killed).
    pub async fn run(&self) -> Result<Ended, ProcessError> {
        let path = self.executable.path();
        let io = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::NotFound => ProcessError::NotFound(path.to_owned()),
            _ => ProcessError::Io {
                path: path.to_owned(),
                source,
            },
        };
        let mut command = Command::new(path);
        command
            .args(&self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(env) = &self.env {
            command.env_clear().envs(env.iter().map(|(k, v)| (k, v)));
        }
        command.envs(self.extra_env.iter().map(|(k, v)| (k, v)));
        if self
            .env
            .as_ref()
            .is_none_or(|env| env.iter().any(|(name, _)| name == "PATH"))
        {
            command.env("PATH", self.executable.search_path());
        }
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        die_with_parent(&mut command);
        let mut child = command.kill_on_drop(true).spawn().map_err(io)?;
        let mut stdin = child.stdin.take().expect("stdin was asked for");
        let feed = async {
            // A program that does not read its input closes the pipe: that is its right.
            let _ = stdin.write_all(&self.stdin).await;
            drop(stdin);
        };
        let both = async { tokio::join!(feed, child.wait_with_output()).1 };
        match tokio::time::timeout(self.deadline, both).await {
            Ok(output) => {
                let output = output.map_err(io)?;
                Ok(Ended {
                    code: output.status.code(),
                    stdout: output.stdout,
                    stderr: output.stderr,
                })
            }
            Err(_) => Err(ProcessError::Deadline {
                path: path.to_owned(),
                deadline: self.deadline,
            }),
        }
    }
}

/// Has the kernel kill the child when this process dies, however it dies.
#[allow(unsafe_code)]
pub fn die_with_parent(command: &mut Command) {
    let parent = nix::unistd::getpid();
    // SAFETY: between fork and exec only async-signal-safe calls are made: prctl and getppid.
    unsafe {
        command.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
            if nix::unistd::getppid() != parent {
                return Err(std::io::Error::other("the parent is gone"));
            }
            Ok(())
        });
    }
}

/// Has libgit2 open repositories whose config says `extensions.partialClone` (`git clone --filter`): their trees can be
/// read like any other's. Without this it refuses them as unknown.
#[allow(unsafe_code)]
pub fn accept_partial_clones() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the option is process-wide and unguarded in libgit2; `Once` makes this the only writer, before the
        // first repository is opened.
        // A refusal leaves the default: such a repository is then refused by name when it is opened.
        let _ = unsafe { git2::opts::set_extensions(&["partialclone"]) };
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use super::*;
    use crate::checkout::Checkout;

    fn program(path: &str) -> Program {
        Program::new(Checkout::default().executable("a test", Path::new(path)).unwrap())
    }

    #[tokio::test]
    async fn feeds_input_and_captures_output() {
        let mut program = program("cat");
        program.stdin = b"hello".to_vec();
        let ended = program.run().await.unwrap();
        assert_eq!(
            (ended.code, ended.stdout.as_slice()),
            (Some(0), b"hello".as_slice())
        );
    }

    #[tokio::test]
    async fn says_what_is_missing_and_what_hangs() {
        let missing = program("/nonexistent/tool").run().await.unwrap_err();
        assert!(matches!(missing, ProcessError::NotFound(_)), "{missing}");
        let mut slow = program("sleep").args(["60"]);
        slow.deadline = Duration::from_millis(50);
        assert!(matches!(
            slow.run().await.unwrap_err(),
            ProcessError::Deadline { .. }
        ));
    }

    #[tokio::test]
    async fn an_empty_environment_is_empty() {
        let mut program = program("/usr/bin/env");
        program.env = Some(Vec::new());
        assert_eq!(program.run().await.unwrap().stdout, b"");
    }
}
