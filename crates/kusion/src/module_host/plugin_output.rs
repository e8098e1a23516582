//! The output of a module: bounded, and kept only for errors.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};

use super::ModuleError;
use konverge_secrets::without_secrets;

/// Bytes that are kept of the end of standard error. The line that names a defect stands before every stack of the
/// program.
const KEPT: usize = 1 << 20;

/// Number of lines of it that an error shows.
const SHOWN: usize = 5;

/// Starts of the line by which a Go program, or Python, explains why it ends.
const DEFECTS: [&str; 3] = ["panic: ", "fatal error: ", "runtime: out of memory"];

/// The end of what a module said on standard error.
#[derive(Debug, Clone, Default)]
pub(super) struct PluginOutput(Arc<Mutex<Vec<u8>>>);

impl PluginOutput {
    /// Reads a stream to its end, and keeps the last of it.
    pub(super) async fn keep(&self, stream: impl AsyncRead + Unpin, most: usize) -> Result<(), ModuleError> {
        let add = |part: &[u8]| {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(part);
            let excess = kept.len().saturating_sub(KEPT);
            kept.drain(..excess);
        };
        drain(stream, most, add).await
    }

    /// The last lines: before a module was asked, it can say nothing about the request.
    pub(super) fn last_lines(&self) -> String {
        let text = self.text();
        let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let first = lines.len().saturating_sub(SHOWN);
        shown(&lines[first..].join("\n"))
    }

    /// The line that names a defect. The others may repeat the request, which holds what is secret.
    pub(super) fn defect(&self) -> String {
        let text = self.text();
        let mut lines = text.lines();
        let line = lines.find(|line| DEFECTS.iter().any(|start| line.starts_with(start)));
        shown(line.unwrap_or_default())
    }

    /// The warning of the sandbox, or why it could not be put up.
    pub(super) fn sandbox_line(&self, start: &str) -> Option<String> {
        let text = self.text();
        text.lines()
            .find_map(|line| line.strip_prefix(start).map(str::to_owned))
    }

    fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).into_owned()
    }
}

fn shown(text: &str) -> String {
    let plain = without_secrets(text);
    let short: String = plain.chars().take(1000).collect();
    let lines = short.lines().map(|line| line.escape_debug().to_string());
    lines.collect::<Vec<_>>().join("\n")
}

/// Reads a stream to its end.
pub(super) async fn drain(
    mut stream: impl AsyncRead + Unpin,
    most: usize,
    mut each: impl FnMut(&[u8]),
) -> Result<(), ModuleError> {
    let mut part = vec![0; 8192];
    let mut read = 0;
    loop {
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(count) => {
                read += count;
                each(&part[..count]);
                if read > most {
                    return Err(ModuleError::TooMuchOutput(most));
                }
            }
        }
    }
}
