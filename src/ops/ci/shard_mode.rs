//! Which part of a preview a job is, where a change of very many stacks is dealt out over the jobs of a matrix.
//!
//! Every job finds the affected stacks by itself from the same two commits and takes those that are its own, so that
//! nothing has to be handed from job to job. Each has a comment, a status and a review record of its own. The status
//! that is required is one, whatever the matrix: the verdict of a job after them.

use std::{num::NonZeroU32, str::FromStr};

use super::open::OpenedChange;
use crate::{
    error::{ErrorKind, UserError},
    github::{GithubEvent, preview_of},
    model::{InvalidId, Shard},
};

/// What a job does of a preview.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShardMode {
    /// All of it.
    #[default]
    Whole,
    /// One share of the stacks.
    Share(Shard),
    /// No stack, but the verdict on so many shares.
    Verdict(NonZeroU32),
}

impl ShardMode {
    /// The share, if it is one.
    pub(super) fn share(self) -> Option<Shard> {
        match self {
            Self::Share(share) => Some(share),
            Self::Whole | Self::Verdict(_) => None,
        }
    }

    /// The status under which the job says how its part went; `into` as in [`preview_of`].
    pub(super) fn context(self, into: Option<&str>) -> String {
        preview_of(self.share(), into)
    }
}

impl FromStr for ShardMode {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let Some(of) = text.strip_prefix("all/") else {
            return text.parse().map(Self::Share);
        };
        // The last share of so many is one of them: then there may be as many.
        let last: Shard = format!("{of}/{of}").parse()?;
        Ok(Self::Verdict(last.count()))
    }
}

impl OpenedChange {
    /// Leaves the stacks of a share, as they are listed.
    pub(super) fn select_shard(&mut self, share: Shard) {
        share.keep(&mut self.affected.stacks);
        let own = &self.affected.stacks;
        self.targets
            .retain(|target| own.iter().any(|stack| stack.id == target.id));
    }
}

/// Only what every job sees alike is dealt out.
///
/// # Errors
/// Another event than a pull request's or a merge queue's.
pub(super) fn refuse_for(event: &GithubEvent) -> Result<(), UserError> {
    if matches!(
        event,
        GithubEvent::PullRequest(_) | GithubEvent::MergeGroup { .. }
    ) {
        return Ok(());
    }
    Err(UserError::new(
        ErrorKind::Usage,
        "only the preview of a pull request or of a merge queue is dealt out in shares",
    )
    .hint("leave `shard` out of the jobs for other events; what is applied after the merge is what all shares recorded"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parts_are_read() {
        let share = "2/8".parse::<Shard>().unwrap();
        assert_eq!("2/8".parse(), Ok(ShardMode::Share(share)));
        assert_eq!("all/8".parse(), Ok(ShardMode::Verdict(share.count())));
        for wrong in ["", "all", "all/0", "all/257", "all/1/8", "9/8"] {
            assert!(wrong.parse::<ShardMode>().is_err(), "{wrong}");
        }
        assert_eq!(ShardMode::Share(share).context(None), "konverge/preview 2/8");
        assert_eq!(ShardMode::Whole.context(None), "konverge/preview");
        assert_eq!(
            ShardMode::Share(share).context(Some("release")),
            "konverge/preview 2/8 into release"
        );
    }
}
