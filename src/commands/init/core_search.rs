//! Chooses the next core to try, and the one that fits best. Versions are compared by their position in the list of
//! usable versions, newest first.

use std::collections::BTreeSet;

use konverge_kcl::{CoreRange, CoreReach};

/// The maximum number of cores that are tried: the first, those that errors point to, one of each minor version, and a
/// bisection.
const MOST_TRIALS: usize = 10;

/// The result of one core for the stacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CoreTrial {
    pub version: String,
    /// The number of stacks that compile.
    pub compiled: usize,
    /// For each stack that does not compile: which cores report each of its errors.
    pub reaches: Vec<Vec<CoreReach>>,
    /// The number of different errors.
    pub errors: usize,
}

impl CoreTrial {
    /// Returns true if some stack has only errors for which the reporting cores are unknown.
    fn has_unknown_stack(&self) -> bool {
        let is_unknown = |reach: &Vec<CoreReach>| reach.iter().all(|part| *part == CoreReach::Unknown);
        self.reaches.iter().any(is_unknown)
    }

    fn ranges(&self) -> impl Iterator<Item = &CoreRange> {
        self.reaches.iter().flatten().filter_map(|reach| match reach {
            CoreReach::Range(range) => Some(range),
            CoreReach::Every | CoreReach::Unknown => None,
        })
    }
}

/// The search for the core that compiles the most stacks.
#[derive(Debug)]
pub(super) struct CoreSearch {
    /// The versions that can be used, newest first.
    versions: Vec<String>,
    pub trials: Vec<CoreTrial>,
    first: String,
}

impl CoreSearch {
    /// Starts the search with one of the versions.
    pub(super) fn new(versions: Vec<String>, first: &str) -> Self {
        let known = versions.iter().any(|version| version == first);
        let first = if known {
            first.to_owned()
        } else {
            versions.first().cloned().unwrap_or_default()
        };
        Self {
            versions,
            trials: Vec::new(),
            first,
        }
    }

    /// Removes a version that turned out to be unusable.
    pub(super) fn remove(&mut self, version: &str) {
        self.versions.retain(|known| known != version);
        if self.first == version {
            self.first = self.versions.first().cloned().unwrap_or_default();
        }
    }

    /// Returns the version to try next; `None` if the best one is found.
    pub(super) fn next(&self) -> Option<String> {
        if self.trials.is_empty() {
            return Some(self.first.clone()).filter(|first| !first.is_empty());
        }
        let best = self.best()?;
        if self.trials.len() >= MOST_TRIALS {
            return None;
        }
        if best.reaches.is_empty() {
            return self.bisected(best).cloned();
        }
        let untried = |version: &&String| !self.was_tried(version);
        let together = self.trials.iter().rev().filter_map(|trial| self.named_by(trial));
        let ranges = best.ranges().map(std::slice::from_ref);
        let alone = ranges.filter_map(|range| self.newest_in(range));
        let named = together.chain(alone).find(untried);
        let probed = || {
            let mut minors = self.newest_of_each_minor().into_iter();
            minors.find(untried).filter(|_| best.has_unknown_stack())
        };
        named.or_else(probed).or_else(|| self.bisected(best)).cloned()
    }

    /// Returns the trial with the most compiled stacks; of equal trials the one with the fewest errors, then the
    /// newest.
    pub(super) fn best(&self) -> Option<&CoreTrial> {
        let rank = |trial: &&CoreTrial| {
            let age = self.place(&trial.version).unwrap_or(usize::MAX);
            (
                trial.compiled,
                std::cmp::Reverse(trial.errors),
                std::cmp::Reverse(age),
            )
        };
        self.trials.iter().max_by_key(rank)
    }

    fn place(&self, version: &str) -> Option<usize> {
        self.versions.iter().position(|known| known == version)
    }

    fn was_tried(&self, version: &str) -> bool {
        self.trials.iter().any(|trial| trial.version == version)
    }

    /// Returns the newest version that reports none of the errors whose range of cores is known.
    fn named_by(&self, trial: &CoreTrial) -> Option<&String> {
        let ranges: Vec<CoreRange> = trial.ranges().copied().collect();
        self.newest_in(&ranges).filter(|_| !ranges.is_empty())
    }

    fn newest_in(&self, ranges: &[CoreRange]) -> Option<&String> {
        let all = konverge_kcl::versions();
        let age = |version: &str| all.iter().position(|known| *known == version);
        let is_inside = |version: &&String| {
            let at = age(version);
            ranges.iter().all(|range| {
                let not_newer = range.until.is_none_or(|until| at >= age(until));
                let not_older = range.since.is_none_or(|since| at <= age(since));
                not_newer && not_older
            })
        };
        self.versions.iter().find(is_inside)
    }

    fn newest_of_each_minor(&self) -> Vec<&String> {
        let mut met = BTreeSet::new();
        let minor = |version: &str| version.rsplit_once('.').map(|(minor, _)| minor.to_owned());
        let first = |version: &&String| met.insert(minor(version));
        self.versions.iter().filter(first).collect()
    }

    /// Returns the version half-way between the best one and the next newer one that was tried; `None` if the errors of
    /// the newer one show that no version between them is better.
    fn bisected(&self, best: &CoreTrial) -> Option<&String> {
        let at = self.place(&best.version)?;
        let newer = self.trials.iter().filter_map(|trial| {
            let newer = self.place(&trial.version).filter(|newer| *newer < at)?;
            Some((newer, trial))
        });
        let (newer, trial) = newer.max_by_key(|(newer, _)| *newer)?;
        if trial.compiled >= best.compiled || self.named_by(trial) == Some(&best.version) {
            return None;
        }
        (at - newer > 1).then(|| &self.versions[newer + (at - newer) / 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a search over all versions, with the trial that each version gives. Returns what was tried, and the best.
    fn searched(first: &str, trial: impl Fn((u32, u32, u32)) -> CoreTrial) -> (Vec<String>, String) {
        let versions = konverge_kcl::versions().into_iter().map(str::to_owned).collect();
        let mut search = CoreSearch::new(versions, first);
        while let Some(version) = search.next() {
            let mut numbers = version.split('.').map(|part| part.parse().unwrap());
            let mut number = || numbers.next().unwrap();
            let tried = trial((number(), number(), number()));
            search.trials.push(CoreTrial { version, ..tried });
        }
        let tried = search.trials.iter().map(|trial| trial.version.clone()).collect();
        (tried, search.best().unwrap().version.clone())
    }

    fn trial(compiled: usize, reaches: Vec<Vec<CoreReach>>) -> CoreTrial {
        CoreTrial {
            version: String::new(),
            compiled,
            errors: reaches.iter().map(Vec::len).sum(),
            reaches,
        }
    }

    fn until(version: &'static str) -> CoreReach {
        CoreReach::Range(CoreRange {
            since: None,
            until: Some(version),
            what: "x",
        })
    }

    #[test]
    fn a_core_that_compiles_everything_is_the_only_one_that_is_tried() {
        let found = searched("0.11.2", |_| trial(9, Vec::new()));
        assert_eq!(found, (vec!["0.11.2".to_owned()], "0.11.2".to_owned()));
    }

    #[test]
    fn known_errors_lead_to_the_core_at_once() {
        let (tried, best) = searched("0.13.2", |version| match version {
            (0, 0..=9, _) | (0, 10, 0) => trial(9, Vec::new()),
            (0, 13, 1..) => trial(0, vec![vec![until("0.13.0"), CoreReach::Unknown]; 9]),
            _ => trial(0, vec![vec![until("0.10.0"), CoreReach::Unknown]; 9]),
        });
        assert_eq!(tried, ["0.13.2", "0.13.0", "0.10.0"]);
        assert_eq!(best, "0.10.0");
    }

    #[test]
    fn unknown_errors_are_bisected() {
        // Only 0.10.3 and older compile, and no error says so.
        let (tried, best) = searched("0.13.2", |version| {
            if version <= (0, 10, 3) {
                trial(9, Vec::new())
            } else {
                trial(2, vec![vec![CoreReach::Unknown]; 7])
            }
        });
        assert_eq!(best, "0.10.3", "{tried:?}");
        assert!(tried.len() <= MOST_TRIALS, "{tried:?}");
        // A single core that fails is stepped over.
        let (_, best) = searched("0.12.4", |version| {
            if version == (0, 12, 4) {
                trial(0, vec![vec![CoreReach::Unknown]; 9])
            } else {
                trial(9, Vec::new())
            }
        });
        assert_eq!(best, "0.13.2");
    }

    #[test]
    fn code_that_no_core_takes_is_not_tried_with_others() {
        let (tried, best) = searched("0.13.2", |_| {
            trial(2, vec![vec![CoreReach::Every, CoreReach::Unknown]; 26])
        });
        assert_eq!((tried.len(), best.as_str()), (1, "0.13.2"));
        // Among cores that compile as many stacks, the one that leaves less to change is the best.
        let (tried, best) = searched("0.13.2", |version| {
            if version >= (0, 13, 1) {
                trial(2, vec![vec![CoreReach::Every, until("0.13.0")]; 26])
            } else {
                trial(2, vec![vec![CoreReach::Every]; 26])
            }
        });
        assert_eq!(tried, ["0.13.2", "0.13.0"]);
        assert_eq!(best, "0.13.0");
    }

    #[test]
    fn a_core_that_cannot_be_used_is_not_asked_for() {
        let mut search = CoreSearch::new(vec!["0.13.2".to_owned()], "0.11.2");
        assert_eq!(search.next().as_deref(), Some("0.13.2"));
        search.remove("0.13.2");
        assert_eq!(search.next(), None);
        assert_eq!(search.best(), None);
    }
}
