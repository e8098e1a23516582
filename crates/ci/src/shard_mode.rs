//! Shards: the parts of a preview whose many stacks are split over the jobs of a matrix.
//!
//! Every job computes the affected stacks itself from the same two commits and selects its own ones, so that jobs
//! exchange no data. Each job has its own comment, status and review record. Only one status is required: the combined
//! status, which a job after all shards sets.

use std::{num::NonZeroU32, str::FromStr};

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{InvalidId, Shard},
};
use konverge_forge::{JobEvent, preview_of};

/// The part of a preview that a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShardMode {
    /// All stacks.
    #[default]
    Whole,
    /// One shard of the stacks.
    Share(Shard),
    /// No stack. The job sets the combined status of this many shards.
    Verdict(NonZeroU32),
}

impl ShardMode {
    /// Returns the shard; `None` if the job is not for one shard.
    pub(super) fn share(self) -> Option<Shard> {
        match self {
            Self::Share(share) => Some(share),
            Self::Whole | Self::Verdict(_) => None,
        }
    }

    /// Returns the name of the status of this part. `into` is the target branch, if it is not the default branch.
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
        // The number must be a valid shard number, so the last shard is parsed to check it.
        let last: Shard = format!("{of}/{of}").parse()?;
        Ok(Self::Verdict(last.count()))
    }
}

/// Returns an error for an event whose jobs may not all see the same commits.
///
/// # Errors
/// The event is neither a pull request nor a merge group.
pub(super) fn refuse_for(event: &JobEvent) -> Result<(), UserError> {
    if matches!(event, JobEvent::PullRequest(_) | JobEvent::MergeGroup { .. }) {
        return Ok(());
    }
    Err(UserError::new(
        ErrorKind::Usage,
        "only previews of pull requests and merge queues can be split into shards",
    )
    .hint(
        "remove `shard` from jobs for other events; the apply after the merge uses the records of all shards",
    ))
}

#[cfg(test)]
mod tests {
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
