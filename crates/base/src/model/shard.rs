//! Shards: each job processes a part of the stacks. Used by `--shard 2/8` on the command line, and by the preview
//! jobs of a matrix in CI.

use std::{num::NonZeroU32, str::FromStr};

use serde::{Serialize, Serializer};

use super::{Digest, InvalidId, StackId};

/// The maximum number of jobs that GitHub runs for one matrix.
const MOST: u32 = 256;

/// One shard: `2/8` is the second of eight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, derive_more::Display)]
#[display("{number}/{of}")]
pub struct Shard {
    of: NonZeroU32,
    number: NonZeroU32,
}

impl Shard {
    /// Returns the number of shards.
    pub fn count(self) -> NonZeroU32 {
        self.of
    }

    /// Returns all shards of a given number.
    ///
    /// # Errors
    /// The number exceeds GitHub's maximum for one matrix.
    pub fn all(of: NonZeroU32) -> Result<impl Iterator<Item = Self>, InvalidId> {
        if of.get() > MOST {
            return Err(invalid(&of.to_string()));
        }
        Ok((1..=of.get())
            .filter_map(NonZeroU32::new)
            .map(move |number| Self { of, number }))
    }

    /// Returns true for the first shard, which also reports when there are no stacks to distribute.
    pub fn is_first(self) -> bool {
        self.number.get() == 1
    }

    /// Returns true if the shard contains the list item at this index. Neighbours go to different shards,
    /// because the stacks of one project take about the same time.
    pub fn has(self, place: usize) -> bool {
        place % self.of.get() as usize == self.index()
    }

    /// Keeps only the items of this shard, by their index in the list.
    pub fn keep<T>(self, items: &mut Vec<T>) {
        let mut place = 0..;
        items.retain(|_| place.next().is_some_and(|place| self.has(place)));
    }

    /// Returns true if the shard contains a stack, by a hash of its identity. Unlike an index, the hash does not change
    /// when another shard removes items from the list at the same time.
    pub fn has_stack(self, stack: &StackId) -> bool {
        let hash = Digest::of_bytes(stack.as_str().as_bytes());
        let [a, b, c, d, ..] = *hash.as_bytes();
        u32::from_le_bytes([a, b, c, d]) % self.of.get() == self.number.get() - 1
    }

    /// Returns the part of a total limit that this shard may use.
    pub fn part_of(self, many: usize) -> usize {
        let of = self.of.get() as usize;
        many / of + usize::from(self.index() < many % of)
    }

    fn index(self) -> usize {
        self.number.get() as usize - 1
    }
}

fn invalid(text: &str) -> InvalidId {
    InvalidId {
        what: "share",
        text: text.escape_debug().to_string(),
        why: "it must be `<number>/<count>`, such as `2/8`, with at most 256",
    }
}

impl FromStr for Shard {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let number = |text: &str| text.parse::<NonZeroU32>().ok();
        let parts = text.split_once('/');
        match parts.and_then(|(own, of)| Some((number(own)?, number(of)?))) {
            Some((number, of)) if number <= of && of.get() <= MOST => Ok(Self { of, number }),
            _ => Err(invalid(text)),
        }
    }
}

impl Serialize for Shard {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(of: u32) -> Vec<Shard> {
        Shard::all(NonZeroU32::new(of).unwrap()).unwrap().collect()
    }

    #[test]
    fn every_place_is_in_exactly_one_share() {
        for of in [1, 2, 3, 7, 256] {
            for place in 0..600 {
                assert_eq!(all(of).iter().filter(|share| share.has(place)).count(), 1);
            }
            let parts: usize = all(of).iter().map(|share| share.part_of(50)).sum();
            assert_eq!(parts, 50, "{of}");
        }
    }

    #[test]
    fn every_stack_is_in_exactly_one_shard() {
        for of in [1, 3, 256] {
            let mut most = 0;
            for stack in (0..600).map(|n| format!("app-{n}/dev").parse().unwrap()) {
                let shards = all(of);
                let has: Vec<_> = (0..shards.len())
                    .filter(|n| shards[*n].has_stack(&stack))
                    .collect();
                assert_eq!(has.len(), 1, "{stack}");
                most = most.max(has[0]);
            }
            assert!(most + 1 >= of as usize * 9 / 10, "{of}: {most}");
        }
    }

    #[test]
    fn what_is_written_is_what_was_read() {
        for text in ["1/1", "2/8", "256/256"] {
            assert_eq!(text.parse::<Shard>().unwrap().to_string(), text);
        }
        for text in [
            "", "0/2", "3/2", "1/0", "1/257", "2", "a/b", "-1/2", "1/2/3", " 1/2",
        ] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
        assert_eq!(all(8).len(), 8);
    }
}
