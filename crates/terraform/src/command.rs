//! One run of the executable in its own process group. Its output is read line by line; the run can be
//! interrupted or killed.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    process::Stdio,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    task::JoinHandle,
};

use super::{
    binary::NOT_RUN,
    error::{TerraformError, caused_by},
};
use konverge_base::{
    error::{ErrorKind, SharedError, UserError},
    process::die_with_parent,
};

/// Maximum number of bytes of standard error that are kept.
const STDERR_LIMIT: u64 = 64 * 1024;

/// A running process.
pub(super) struct TerraformCommand {
    step: &'static str,
    child: Child,
    group: Option<Pid>,
    lines: Lines<BufReader<ChildStdout>>,
    stderr: JoinHandle<String>,
}

/// The exit and the output of a Terraform process.
#[derive(Debug)]
pub(super) struct CommandOutput {
    /// The exit code; `None` if a signal ended it.
    pub(super) code: Option<i32>,
    /// The standard output, line by line.
    pub(super) lines: Vec<String>,
    /// The first bytes of standard error, up to [`STDERR_LIMIT`].
    pub(super) stderr: String,
}

impl TerraformCommand {
    /// Starts `binary step args…` in the folder `dir`.
    pub(super) fn start(
        binary: &Path,
        step: &'static str,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        dir: &Path,
        env: &[(OsString, OsString)],
    ) -> Result<Self, TerraformError> {
        let mut command = Command::new(binary);
        command
            .arg(step)
            .args(args)
            .current_dir(dir)
            .env_clear()
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C at the terminal must reach only Konverge, which then stops Terraform in order; and the
            // providers must be killed together with Terraform. Hence its own process group.
            .process_group(0)
            .kill_on_drop(true);
        die_with_parent(&mut command);
        let mut child = command.spawn().map_err(|error| {
            let error = SharedError::from(error).context(format!("`{}`", binary.display()));
            caused_by(error, NOT_RUN)
        })?;
        let group = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .map(Pid::from_raw);
        let stdout = child.stdout.take().expect("stdout was asked for");
        let stderr = child.stderr.take().expect("stderr was asked for");
        let stderr = tokio::spawn(async move {
            let mut kept = Vec::new();
            let mut stderr = stderr;
            let _ = (&mut stderr).take(STDERR_LIMIT).read_to_end(&mut kept).await;
            let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
            String::from_utf8_lossy(&kept).into_owned()
        });
        Ok(Self {
            step,
            child,
            group,
            lines: BufReader::new(stdout).lines(),
            stderr,
        })
    }

    /// Returns the next line of standard output; `None` at the end. Cancel-safe.
    pub(super) async fn line(&mut self) -> Option<String> {
        self.lines.next_line().await.ok().flatten()
    }

    /// Asks Terraform to stop: it finishes operations in flight, starts no new ones, writes its state and
    /// exits.
    pub(super) fn interrupt(&self) {
        self.signal(Signal::SIGINT);
    }

    /// Kills Terraform and its providers immediately.
    pub(super) fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        let Some(group) = self.group else { return };
        let sent = match signal {
            // An interrupt goes only to Terraform: it stops its providers by their protocol.
            Signal::SIGINT => nix::sys::signal::kill(group, signal),
            other => killpg(group, other),
        };
        if let Err(error) = sent {
            tracing::debug!(%error, step = self.step, "the signal was not delivered");
        }
    }

    /// Waits for the process to exit, after all output was read.
    pub(super) async fn end(mut self) -> Result<CommandOutput, TerraformError> {
        let status = self
            .child
            .wait()
            .await
            .map_err(|error| caused_by(error, NOT_RUN))?;
        let stderr = (&mut self.stderr).await.unwrap_or_default();
        self.group = None;
        Ok(CommandOutput {
            code: status.code(),
            lines: Vec::new(),
            stderr,
        })
    }

    /// Reads all output and waits for the process to exit; kills it at the deadline.
    pub(super) async fn finish(mut self, deadline: Duration) -> Result<CommandOutput, TerraformError> {
        let step = self.step;
        let all = async {
            let mut lines = Vec::new();
            while let Some(line) = self.line().await {
                lines.push(line);
            }
            let mut output = self.end().await?;
            output.lines = lines;
            Ok(output)
        };
        match tokio::time::timeout(deadline, all).await {
            Ok(output) => output,
            Err(_) => {
                let seconds = deadline.as_secs();
                let what = format!("`terraform {step}` did not end within {seconds} s and was stopped");
                let hint = "check that the provider's service answers, then run the same command again";
                Err(UserError::new(ErrorKind::Terraform, what).hint(hint).into())
            }
        }
    }
}

impl Drop for TerraformCommand {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str) -> TerraformCommand {
        TerraformCommand::start(
            Path::new("/bin/sh"),
            "-c",
            [script],
            Path::new("/"),
            &[("A".into(), "b".into())],
        )
        .unwrap()
    }

    #[tokio::test]
    async fn lines_stderr_and_code_are_kept() {
        let output = start("echo one; echo $A; echo bad >&2; exit 3")
            .finish(Duration::from_secs(20))
            .await
            .unwrap();
        assert_eq!(output.lines, ["one", "b"]);
        assert_eq!((output.code, output.stderr.as_str()), (Some(3), "bad\n"));
    }

    #[tokio::test]
    async fn a_hanging_one_is_ended_with_its_children() {
        let mut hanging = start("sleep 600 & echo $!; wait");
        let child: i32 = hanging.line().await.unwrap().parse().unwrap();
        let ended = hanging.finish(Duration::from_millis(100)).await;
        let message = ended.unwrap_err().to_string();
        assert!(message.contains("did not end within 0 s"), "{message}");
        let gone = async {
            // Init reaps a killed child of a killed shell; without init it stays a zombie.
            while std::fs::read_to_string(format!("/proc/{child}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z "))
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
    }
}
