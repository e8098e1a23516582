//! Runs other programs: without a shell, with a chosen environment and a deadline. A child process never outlives
//! this process.
//!
//! This is the only file where `unsafe` is allowed: the process options below need `pre_exec`.

use std::{ffi::OsString, os::unix::process::ExitStatusExt, path::PathBuf, process::Stdio, time::Duration};

use nix::sys::resource::{Resource, setrlimit};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::Command,
};

use crate::{checkout::Executable, kernel, variables};

/// A program to run.
#[derive(Debug, Clone)]
pub struct Program {
    executable: Executable,
    /// The arguments; never passed through a shell.
    pub args: Vec<OsString>,
    /// The whole environment; `None` to inherit that of this process.
    pub env: Option<Vec<(OsString, OsString)>>,
    /// Variables that are added to the environment.
    pub extra_env: Vec<(OsString, OsString)>,
    /// The working directory; `None` for the current one.
    pub dir: Option<PathBuf>,
    /// The standard input.
    pub stdin: Vec<u8>,
    /// The program is killed after this time.
    pub deadline: Duration,
    /// The maximum number of bytes on standard output, and on standard error; the program is killed if it
    /// writes more.
    pub most_output: usize,
    /// The maximum size of a file that the program or its children write, in bytes.
    pub most_file_bytes: Option<u64>,
    /// The maximum address space of the program and of each of its children, in bytes.
    pub most_memory: Option<u64>,
}

/// The exit and the output of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessResult {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended the program, if any.
    pub signal: Option<i32>,
    /// The standard output.
    pub stdout: Vec<u8>,
    /// The standard error.
    pub stderr: Vec<u8>,
}

/// The error for a program that could not be run to its end.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum ProcessError {
    /// The program does not exist.
    #[error("`{0}` was not found")]
    NotFound(PathBuf),
    /// The program could not be started, or communication with it failed.
    #[error("`{path}` could not be run")]
    Io { path: PathBuf, source: std::io::Error },
    /// The program wrote too much output and was killed.
    #[error("`{path}` wrote more than {limit} bytes and was stopped")]
    TooMuch { path: PathBuf, limit: usize },
    /// The program exceeded its deadline and was killed.
    #[error("`{path}` did not end within {} s and was stopped", deadline.as_secs())]
    Deadline { path: PathBuf, deadline: Duration },
}

impl Program {
    /// Creates a program with the environment of this process, no input and a deadline of ten minutes.
    pub fn new(executable: Executable) -> Self {
        Self {
            executable,
            args: Vec::new(),
            env: None,
            extra_env: Vec::new(),
            dir: None,
            stdin: Vec::new(),
            deadline: Duration::from_secs(600),
            most_output: usize::MAX,
            most_file_bytes: None,
            most_memory: None,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Runs the program to its end. A nonzero exit code is not an error.
    ///
    /// # Errors
    /// The program cannot be started, exceeds its deadline or writes too much output (then it is killed).
    pub async fn run(&self) -> Result<ProcessResult, ProcessError> {
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
        // Programs that this one starts must not come from the checkout either, so the `PATH` is filtered. A chosen
        // environment without a `PATH` stays without one.
        if self
            .env
            .as_ref()
            .is_none_or(|env| env.iter().any(|(name, _)| name == variables::PATH))
        {
            command.env(variables::PATH, self.executable.search_path());
        }
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        die_with_parent(&mut command);
        limit(&mut command, Resource::RLIMIT_FSIZE, self.most_file_bytes);
        limit(&mut command, Resource::RLIMIT_AS, self.most_memory);
        let mut child = command.kill_on_drop(true).spawn().map_err(io)?;
        let mut stdin = child.stdin.take().expect("stdin was asked for");
        let stdout = child.stdout.take().expect("stdout was asked for");
        let stderr = child.stderr.take().expect("stderr was asked for");
        let feed = async {
            // The error is ignored: a program that does not read its input may close the pipe.
            let _ = stdin.write_all(&self.stdin).await;
            drop(stdin);
            Ok(())
        };
        let all = async {
            // All three run at once: if nobody read one of the pipes, the program would block when it is full.
            let (stdout, stderr, ()) = tokio::try_join!(self.read(stdout), self.read(stderr), feed)?;
            let status = child.wait().await.map_err(io)?;
            Ok(ProcessResult {
                code: status.code(),
                signal: status.signal(),
                stdout,
                stderr,
            })
        };
        // Dropping the future kills the child: after the deadline, and after too much output.
        match tokio::time::timeout(self.deadline, all).await {
            Ok(ended) => ended,
            Err(_) => Err(ProcessError::Deadline {
                path: path.to_owned(),
                deadline: self.deadline,
            }),
        }
    }
}

impl Program {
    /// Reads all output. Returns an error as soon as there is too much, so that the program is killed.
    async fn read(&self, from: impl AsyncRead + Unpin) -> Result<Vec<u8>, ProcessError> {
        let mut all = Vec::new();
        let mut bounded = from.take((self.most_output as u64).saturating_add(1));
        let read = bounded.read_to_end(&mut all).await;
        read.map_err(|source| ProcessError::Io {
            path: self.executable.path().to_owned(),
            source,
        })?;
        if all.len() > self.most_output {
            Err(ProcessError::TooMuch {
                path: self.executable.path().to_owned(),
                limit: self.most_output,
            })
        } else {
            Ok(all)
        }
    }
}

/// Sets a resource limit of the child.
#[allow(unsafe_code)]
fn limit(command: &mut Command, resource: Resource, most: Option<u64>) {
    let Some(most) = most else { return };
    // SAFETY: between fork and exec only an async-signal-safe call is made: setrlimit.
    unsafe {
        command.pre_exec(move || Ok(setrlimit(resource, most, most)?));
    }
}

/// Forbids core dumps of this process, because they would contain the secrets in its memory.
///
/// The limit is one byte, not zero: if the kernel pipes dumps to a program, it ignores every other limit (core(5)). The
/// process stays dumpable, because otherwise Terraform could not open its in-memory files through `/proc`.
pub fn forbid_core_dumps() {
    if let Err(error) = setrlimit(Resource::RLIMIT_CORE, 1, 1) {
        tracing::debug!(%error, "core dumps could not be forbidden");
    }
}

/// Makes the kernel kill the child when this process dies for any reason. Only Linux can do this: elsewhere a child of
/// a killed process lives until its pipes are closed.
#[allow(unsafe_code)]
pub fn die_with_parent(command: &mut Command) {
    let parent = nix::unistd::getpid();
    // SAFETY: between fork and exec only async-signal-safe calls are made: prctl and getppid.
    unsafe {
        command.pre_exec(move || {
            kernel::die_with_parent()?;
            // If the parent died before the call above, no signal will come.
            if nix::unistd::getppid() != parent {
                return Err(std::io::Error::other("the parent is gone"));
            }
            Ok(())
        });
    }
}

/// Makes libgit2 open repositories with `extensions.partialClone` in their config (`git clone --filter`).
/// Their trees can be read normally, but libgit2 refuses the unknown extension by default.
#[allow(unsafe_code)]
pub fn accept_partial_clones() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the option is process-wide, and libgit2 does not guard it by a lock; `Once` makes this the only
        // writer, before the first repository is opened. If the call fails, the default stays, and a repository with
        // the extension `partialclone` gives an error when it is opened.
        let _ = unsafe { git2::opts::set_extensions(&["partialclone"]) };
    });
}

#[cfg(test)]
mod tests {
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
    async fn who_says_or_writes_too_much_is_stopped() {
        let mut endless = program("yes");
        endless.most_output = 1000;
        let error = endless.run().await.unwrap_err();
        assert!(
            matches!(error, ProcessError::TooMuch { limit: 1000, .. }),
            "{error}"
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("large");
        let mut large = program("dd").args(["if=/dev/zero", "bs=4096", "count=100"]);
        large.args.push(format!("of={}", file.display()).into());
        large.most_file_bytes = Some(8192);
        let ended = large.run().await.unwrap();
        assert_ne!(ended.code, Some(0));
        assert!(file.metadata().unwrap().len() <= 8192);
    }

    #[tokio::test]
    async fn an_empty_environment_is_empty() {
        let mut program = program("/usr/bin/env");
        program.env = Some(Vec::new());
        assert_eq!(program.run().await.unwrap().stdout, b"");
    }
}
