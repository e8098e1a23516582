//! GitHub's matrix for `--shard N/M`: each job finds the stacks itself and processes its shard.

use std::num::NonZeroU32;

use serde::Serialize;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::Shard,
};

/// The content of GitHub's `strategy.matrix`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Matrix {
    /// One entry per job; empty if nothing is affected.
    pub include: Vec<MatrixEntry>,
}

/// One job of a matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MatrixEntry {
    /// The value of `--shard`.
    pub shard: Shard,
}

impl Matrix {
    /// Creates a matrix of at most `most` jobs for this many stacks. No job is empty.
    ///
    /// # Errors
    /// `most` is more than GitHub runs in one matrix.
    pub fn of_shares(most: NonZeroU32, stacks: usize) -> Result<Self, UserError> {
        let shares = |of| {
            Shard::all(of).map_err(|_| {
                UserError::new(
                    ErrorKind::Usage,
                    format!("--shards {most}: GitHub runs 1 to 256 jobs of a matrix"),
                )
            })
        };
        drop(shares(most)?);
        let jobs = u32::try_from(stacks).unwrap_or(u32::MAX).min(most.get());
        let include = match NonZeroU32::new(jobs) {
            Some(jobs) => shares(jobs)?.map(|shard| MatrixEntry { shard }).collect(),
            None => Vec::new(),
        };
        Ok(Self { include })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(most: u32, stacks: usize) -> Vec<String> {
        let matrix = Matrix::of_shares(NonZeroU32::new(most).unwrap(), stacks).unwrap();
        matrix
            .include
            .iter()
            .map(|entry| entry.shard.to_string())
            .collect()
    }

    #[test]
    fn a_matrix_has_no_empty_job() {
        assert_eq!(shards(8, 2), ["1/2", "2/2"]);
        assert_eq!(shards(2, 100), ["1/2", "2/2"]);
        assert!(shards(8, 0).is_empty());
        assert_eq!(shards(256, 1000).len(), 256);
        assert!(Matrix::of_shares(NonZeroU32::new(257).unwrap(), 1).is_err());
    }
}
