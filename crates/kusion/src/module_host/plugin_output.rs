//! The output of a module: bounded, and kept only for errors.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};

use super::ModuleError;
use konverge_base::secrets::without_secrets;

/// Number of bytes kept from the end of standard error. A crash of Go prints its cause before the stacks of
/// all goroutines, so the end must be long.
const KEPT: usize = 1 << 20;

/// Number of last lines that an error shows.
const SHOWN: usize = 5;

/// Prefixes of the line in which a Go or Python program reports why it crashed.
const DEFECTS: [&str; 3] = ["panic: ", "fatal error: ", "runtime: out of memory"];

/// The last bytes that a module wrote to standard error.
#[derive(Debug, Clone, Default)]
pub(super) struct PluginOutput(Arc<Mutex<Vec<u8>>>);

impl PluginOutput {
    /// Reads a stream to its end, and keeps its last bytes.
    pub(super) async fn keep(&self, stream: impl AsyncRead + Unpin, most: usize) -> Result<(), ModuleError> {
        let add = |part: &[u8]| {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(part);
            let excess = kept.len().saturating_sub(KEPT);
            kept.drain(..excess);
        };
        drain(stream, most, add).await
    }

    /// Returns the last lines. Safe to show only before the request was sent, because later lines may repeat
    /// it.
    pub(super) fn last_lines(&self) -> String {
        let text = self.text();
        let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let first = lines.len().saturating_sub(SHOWN);
        shown(&lines[first..].join("\n"))
    }

    /// Returns the line that names the cause of a crash. Other lines are not shown: they may repeat the
    /// request, which contains secrets.
    pub(super) fn defect(&self) -> String {
        let text = self.text();
        let mut lines = text.lines();
        let line = lines.find(|line| DEFECTS.iter().any(|start| line.starts_with(start)));
        shown(line.unwrap_or_default())
    }

    /// Returns the first line that begins with `start`, without that prefix: a warning or an error of the
    /// sandbox.
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

/// Reads a stream to its end, and fails above `most` bytes.
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
