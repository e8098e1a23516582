//! The ready queue of batches. Linear in the number of batches and edges.

use std::collections::VecDeque;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnitState {
    Waiting,
    Ready,
    Done,
    /// The unit failed, or was skipped because this unit failed.
    Failed(usize),
}

/// The progress of units that wait for each other.
#[derive(Debug)]
pub struct Schedule {
    /// For each unit the number of units that it still waits for.
    waiting: Vec<usize>,
    dependents: Vec<Vec<usize>>,
    standing: Vec<UnitState>,
    ready: VecDeque<usize>,
}

impl Schedule {
    /// Creates a schedule. `waits` has, for each unit, the indices of the units that it waits for; duplicates are
    /// allowed. Units in a cycle never start.
    pub fn new(waits: &[Vec<usize>]) -> Self {
        let mut dependents = vec![Vec::new(); waits.len()];
        for (unit, on) in waits.iter().enumerate() {
            for &other in on {
                dependents[other].push(unit);
            }
        }
        let waiting: Vec<_> = waits.iter().map(Vec::len).collect();
        let mut standing = vec![UnitState::Waiting; waits.len()];
        let mut ready = VecDeque::new();
        for (unit, _) in waiting.iter().enumerate().filter(|(_, count)| **count == 0) {
            standing[unit] = UnitState::Ready;
            ready.push_back(unit);
        }
        Self {
            waiting,
            dependents,
            standing,
            ready,
        }
    }

    /// Returns the next unit to start, in the order in which units became ready.
    pub fn start(&mut self) -> Option<usize> {
        loop {
            let unit = self.ready.pop_front()?;
            // A ready unit may have been marked as failed before its turn.
            if self.standing[unit] == UnitState::Ready {
                return Some(unit);
            }
        }
    }

    /// Marks a unit as succeeded.
    pub fn done(&mut self, unit: usize) {
        self.standing[unit] = UnitState::Done;
        for at in 0..self.dependents[unit].len() {
            let dependent = self.dependents[unit][at];
            self.waiting[dependent] -= 1;
            if self.waiting[dependent] == 0 && self.standing[dependent] == UnitState::Waiting {
                self.standing[dependent] = UnitState::Ready;
                self.ready.push_back(dependent);
            }
        }
    }

    /// Marks a unit as failed and skips every unit that waits for it, directly or indirectly. Returns the skipped
    /// units.
    pub fn mark_failed(&mut self, unit: usize) -> Vec<usize> {
        self.standing[unit] = UnitState::Failed(unit);
        let mut skipped = Vec::new();
        let mut reached = vec![unit];
        while let Some(next) = reached.pop() {
            for at in 0..self.dependents[next].len() {
                let dependent = self.dependents[next][at];
                if self.standing[dependent] == UnitState::Waiting {
                    self.standing[dependent] = UnitState::Failed(unit);
                    skipped.push(dependent);
                    reached.push(dependent);
                }
            }
        }
        skipped.sort_unstable();
        skipped
    }

    /// Returns the units that neither succeeded nor failed: a cancelled run does not start them.
    pub fn remaining(&self) -> Vec<usize> {
        let open = |s: &UnitState| matches!(s, UnitState::Waiting | UnitState::Ready);
        (0..self.standing.len())
            .filter(|&unit| open(&self.standing[unit]))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn independent_branches_go_on_after_a_failure() {
        let mut schedule = Schedule::new(&[vec![], vec![0], vec![1], vec![], vec![3, 1]]);
        assert_eq!(
            (schedule.start(), schedule.start(), schedule.start()),
            (Some(0), Some(3), None)
        );
        assert_eq!(schedule.mark_failed(0), [1, 2, 4]);
        schedule.done(3);
        assert_eq!(schedule.start(), None);
        assert!(schedule.remaining().is_empty());
    }

    #[test]
    fn what_fails_before_its_turn_is_not_started() {
        let mut schedule = Schedule::new(&[vec![], vec![0], vec![]]);
        assert_eq!(schedule.mark_failed(0), [1]);
        assert_eq!((schedule.start(), schedule.start()), (Some(2), None));
    }

    #[test]
    fn everything_runs_once_and_after_what_it_waits_for() {
        let waits: Vec<Vec<usize>> = (0..2000).map(|n| (0..n).rev().take(5).collect()).collect();
        let mut schedule = Schedule::new(&waits);
        let mut order = Vec::new();
        while let Some(unit) = schedule.start() {
            order.push(unit);
            schedule.done(unit);
        }
        assert_eq!(order, (0..2000).collect::<Vec<_>>());
    }
}
