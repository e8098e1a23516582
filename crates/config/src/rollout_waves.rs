//! Which rollout and which wave a stack belongs to, by its folder.

use std::collections::BTreeSet;

use super::{Config, RolloutConfig, stack_glob::StackGlob};
use konverge_base::model::RepoPath;

/// Which rollout and which wave a folder belongs to. The globs are compiled once.
pub struct RolloutMatcher<'a> {
    rollouts: Vec<(&'a RolloutConfig, Vec<Option<StackGlob>>)>,
}

/// A stack is in several rollouts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InSeveralRollouts(pub Vec<String>);

impl RolloutMatcher<'_> {
    /// The rollout of a folder and its first matching wave, from 0; `None`: the folder is in no rollout.
    ///
    /// # Errors
    /// The folder is in several rollouts.
    pub fn wave_of(&self, folder: &RepoPath) -> Result<Option<(&str, usize)>, InSeveralRollouts> {
        let found = self.rollouts.iter().filter_map(|(rollout, globs)| {
            let is_it =
                |glob: &Option<StackGlob>| glob.as_ref().is_some_and(|glob| glob.is_match(folder.as_str()));
            Some((rollout.name.as_str(), globs.iter().position(is_it)?))
        });
        let found: Vec<_> = found.collect();
        match found.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(*one)),
            several => Err(InSeveralRollouts(
                several.iter().map(|(name, _)| (*name).to_owned()).collect(),
            )),
        }
    }
}

impl Config {
    /// Which rollout and which wave a folder belongs to.
    pub fn rollout_matcher(&self) -> RolloutMatcher<'_> {
        let globs = |rollout: &RolloutConfig| {
            rollout
                .waves
                .iter()
                .map(|wave| StackGlob::compile(&wave.pattern))
                .collect()
        };
        RolloutMatcher {
            rollouts: self
                .rollouts
                .iter()
                .map(|rollout| (rollout, globs(rollout)))
                .collect(),
        }
    }

    /// What is wrong with `rollouts` or `gates`.
    pub(super) fn rollouts_problem(&self) -> Option<(String, String)> {
        let mut names = BTreeSet::new();
        let twice = self.rollouts.iter().find(|rollout| !names.insert(&rollout.name));
        if let Some(twice) = twice {
            let what = format!("rollouts: `{}` is there twice", twice.name.escape_debug());
            return Some((what, "give each rollout its own name".to_owned()));
        }
        let of_gates = self.gates.iter().find_map(|(name, gate)| gate.problem(name));
        of_gates.or_else(|| {
            self.rollouts
                .iter()
                .find_map(|rollout| rollout.problem(&self.gates))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &str = "rollouts:\n- name: web\n  waves:\n  - {match: 'appops/*/prod-canary'}\n  - {match: 'appops/*/prod-eu-*'}\n  - {match: 'appops/*/prod-*'}\n";

    #[test]
    fn a_folder_is_in_the_first_wave_that_matches() {
        let config = Config::parse(WEB).unwrap();
        let matcher = config.rollout_matcher();
        let wave = |folder: &str| matcher.wave_of(&RepoPath::normalize(folder).unwrap()).unwrap();
        assert_eq!(wave("appops/shop/prod-canary"), Some(("web", 0)));
        assert_eq!(wave("appops/shop/prod-eu-1"), Some(("web", 1)));
        assert_eq!(wave("appops/shop/prod-us"), Some(("web", 2)));
        assert_eq!(wave("appops/shop/dev"), None);
        assert_eq!(wave("shop/prod-us"), None, "an identity is not matched");
        let twice = Config::parse(&WEB.replace(
            "rollouts:\n",
            "rollouts:\n- {name: all, waves: [{match: 'appops/**'}]}\n",
        ))
        .unwrap();
        let folder = RepoPath::normalize("appops/shop/prod-us").unwrap();
        let found = twice.rollout_matcher().wave_of(&folder).unwrap_err();
        assert_eq!(found.0, ["all", "web"]);
    }
}
