//! Asking the person at the terminal.

use std::io::{IsTerminal, Write};

use super::Context;
use crate::{
    error::{ErrorKind, Failure},
    ops::{self, Planning, Target},
    report::{self, terminal::Style},
};

/// Shows what would happen and asks. Where nothing would change nobody is asked.
///
/// # Errors
/// Nobody is there to answer, or the run was interrupted.
pub async fn agreed(planning: &Planning, targets: &[Target], context: &Context) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(
            Failure::new(ErrorKind::Usage, "nobody is there to agree to the plan")
                .hint("look at it with `konverge preview`, then add `--yes`"),
        );
    }
    let preview = ops::preview::run(planning, targets).await?;
    context.complain(&report::terminal::plan(
        &preview.plan,
        Style {
            color: context.colour_stderr(),
        },
    ));
    if preview
        .plan
        .stacks
        .iter()
        .all(|stack| stack.summary.changed() == 0 && stack.error.is_none())
    {
        // Nothing would change outside; what was looked at is still recorded.
        return Ok(true);
    }
    let answer = tokio::task::spawn_blocking(|| {
        let mut out = std::io::stderr().lock();
        let _ = out
            .write_all(b"Go on? Only `yes` is accepted: ")
            .and_then(|()| out.flush());
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).map(|_| answer)
    });
    tokio::select! {
        answer = answer => Ok(matches!(answer, Ok(Ok(text)) if text.trim() == "yes")),
        () = planning.run.cancel.cancelled() => planning.run.check_interrupted().map(|()| false),
    }
}
