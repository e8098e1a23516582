//! Asks the person at the terminal. Every question of every command goes through here.

use std::io::IsTerminal as _;

use super::{CliContext, context::write_all};
use konverge_base::error::{ErrorKind, UserError};

impl CliContext {
    /// Returns true if a person can be asked: questions are read from stdin and shown on stderr.
    pub(super) fn can_ask(&self) -> bool {
        std::io::stdin().is_terminal() && self.interactive()
    }

    /// Asks, and returns the answer without the space around it; empty at the end of the input. No progress is drawn
    /// while the question is open.
    ///
    /// # Errors
    /// The run was interrupted while the question was open.
    pub(super) async fn ask(&self, question: &str) -> Result<String, UserError> {
        let _hidden = self.hide_progress();
        write_all(&mut std::io::stderr().lock(), &self.secrets.mask(question));
        // A thread that reads stdin cannot be stopped, so it is a thread of its own, and the end of the process does
        // not wait for it.
        let answer = tokio::task::spawn_blocking(|| {
            let mut answer = String::new();
            std::io::stdin().read_line(&mut answer).map(|_| answer)
        });
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => {
                // The cursor is still on the line of the question.
                write_all(&mut std::io::stderr().lock(), "\n");
                Err(UserError::new(ErrorKind::Interrupted, "interrupted at a question"))
            }
            answer = answer => {
                let answer = answer.ok().and_then(Result::ok).unwrap_or_default();
                if !answer.ends_with('\n') {
                    write_all(&mut std::io::stderr().lock(), "\n");
                }
                Ok(answer.trim().to_owned())
            }
        }
    }
}
