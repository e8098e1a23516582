//! The keys in the store of one stack's documents. Numbers have ten digits, so that a listing is in order.

use std::collections::BTreeMap;

use crate::store::Key;
use konverge_base::model::StackId;

pub(super) fn stacks() -> Key {
    Key::from_components(&["stacks"])
}

pub(super) fn stack(id: &StackId) -> Key {
    Key::from_components(&["stacks", id.as_str()])
}

/// Returns the key of the document with the key of the short hashes.
pub(super) fn hash_key() -> Key {
    Key::from_components(&["keys", "review"])
}

/// Returns the key of a state document.
pub(super) fn state(id: &StackId, serial: u64) -> Key {
    stack(id).child("state").child(&number(serial))
}

/// Returns the key of a renewal of a lease epoch.
pub(super) fn lease(id: &StackId, epoch: u64, renewal: u64) -> Key {
    stack(id)
        .child("lease")
        .child(&number(epoch))
        .child(&number(renewal))
}

/// Returns the key of an entry in an epoch's journal.
pub(super) fn journal(id: &StackId, epoch: u64, entry: u64) -> Key {
    stack(id)
        .child("journal")
        .child(&number(epoch))
        .child(&number(entry))
}

/// Returns a number as it is written in a key.
pub(super) fn number(number: u64) -> String {
    format!("{number:010}")
}

/// Parses a number in a key. `None` unless it is written as by [`number`] and has a successor.
pub(super) fn parse_number(text: &str) -> Option<u64> {
    let found: u64 = text.parse().ok()?;
    (found < u64::MAX / 2 && number(found) == text).then_some(found)
}

/// Returns the numbers of the documents in a listing, in ascending order.
pub(super) fn numbers(listed: &[Key]) -> Vec<u64> {
    let mut numbers: Vec<u64> = listed
        .iter()
        .filter_map(|key| parse_number(&key.last()))
        .collect();
    numbers.sort_unstable();
    numbers
}

/// The numbers in a stack's listing, in ascending order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RowKeys {
    pub states: Vec<u64>,
    pub leases: BTreeMap<u64, Vec<u64>>,
    pub journals: BTreeMap<u64, Vec<u64>>,
}

impl RowKeys {
    /// Parses the keys below a stack's folder; unknown keys are skipped.
    pub(crate) fn parse<'a>(keys: impl IntoIterator<Item = &'a Key>) -> Self {
        let mut rows = Self::default();
        for key in keys {
            let parts: Vec<_> = key.as_str().split('/').skip(2).collect();
            let numbers: Option<Vec<u64>> = parts.iter().skip(1).map(|part| parse_number(part)).collect();
            match (parts.first(), numbers.as_deref()) {
                (Some(&"state"), Some(&[serial])) => rows.states.push(serial),
                (Some(&"lease"), Some(&[epoch, renewal])) => {
                    rows.leases.entry(epoch).or_default().push(renewal)
                }
                (Some(&"journal"), Some(&[epoch, entry])) => {
                    rows.journals.entry(epoch).or_default().push(entry)
                }
                _ => {}
            }
        }
        rows.states.sort_unstable();
        let sub_rows = rows.leases.values_mut().chain(rows.journals.values_mut());
        sub_rows.for_each(|row| row.sort_unstable());
        rows
    }

    /// Returns true if entries of a journal are missing from this number on. They are deleted only after the
    /// state of their epoch was written, so that state existed and is gone.
    pub(crate) fn is_cut_since(&self, epoch: u64, entry: u64) -> bool {
        self.journals.range(epoch..).any(|(there, row)| {
            let first = if *there == epoch { entry } else { 0 };
            let next = row.iter().find(|place| **place >= first);
            next.is_some_and(|next| *next != first)
        })
    }

    pub(crate) fn serial(&self) -> Option<u64> {
        self.states.last().copied()
    }

    /// Returns the newest lease: its epoch and its last renewal.
    pub(crate) fn lease(&self) -> Option<(u64, u64)> {
        let (epoch, renewals) = self.leases.last_key_value()?;
        Some((*epoch, renewals.last().copied()?))
    }
}

/// Returns the stack of a key below `stacks`.
pub(super) fn stack_of(key: &Key) -> Option<StackId> {
    let component = key.as_str().strip_prefix("stacks/")?.split('/').next()?;
    Key::from_listing(component).last().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_becomes_rows() {
        let id: StackId = "shop/prod".parse().unwrap();
        let keys = [
            lease(&id, 2, 11),
            lease(&id, 2, 3),
            state(&id, 1),
            state(&id, 10),
            journal(&id, 2, 0),
            stack(&id).child("stray"),
        ];
        let rows = RowKeys::parse(&keys);
        assert_eq!(rows.serial(), Some(10));
        assert_eq!(rows.lease(), Some((2, 11)));
        assert_eq!(rows.journals[&2], [0]);
        assert_eq!(stack_of(&keys[0]), Some(id));
    }
}
