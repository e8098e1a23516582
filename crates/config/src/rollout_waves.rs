//! Finds the rollout and the wave of a stack, by its folder.

use std::collections::BTreeSet;

use globset::{GlobSet, GlobSetBuilder};

use super::{
    Config, RolloutConfig,
    config_problem::{Problem, problem},
    stack_glob,
};
use konverge_base::model::RepoPath;

/// Finds the rollout and the wave of a folder. The globs of all waves are compiled into one set.
pub struct RolloutMatcher<'a> {
    rollouts: &'a [RolloutConfig],
    /// `None` if the globs cannot be compiled together; then every folder is refused.
    globs: Option<GlobSet>,
    /// The indices of the rollout and of the wave, for each glob.
    places: Vec<(usize, usize)>,
}

/// The error for a folder in several rollouts, with their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InSeveralRollouts(pub Vec<String>);

impl RolloutMatcher<'_> {
    /// Returns the rollout of a folder and its first matching wave, from 0; `None` if the folder is in no rollout.
    ///
    /// # Errors
    /// The folder is in several rollouts.
    pub fn wave_of(&self, folder: &RepoPath) -> Result<Option<(&str, usize)>, InSeveralRollouts> {
        let name = |rollout: usize| self.rollouts[rollout].name.as_str();
        let Some(globs) = &self.globs else {
            let all = self.rollouts.iter().map(|rollout| rollout.name.clone());
            return Err(InSeveralRollouts(all.collect()));
        };
        let mut found: Vec<(usize, usize)> = Vec::new();
        // Matches come in the order of the globs, so the first match of each rollout is its first wave.
        for glob in globs.matches(folder.as_str()) {
            let (rollout, wave) = self.places[glob];
            if found.last().is_none_or(|(last, _)| *last != rollout) {
                found.push((rollout, wave));
            }
        }
        match found.as_slice() {
            [] => Ok(None),
            [(rollout, wave)] => Ok(Some((name(*rollout), *wave))),
            several => Err(InSeveralRollouts(
                several
                    .iter()
                    .map(|(rollout, _)| name(*rollout).to_owned())
                    .collect(),
            )),
        }
    }
}

impl Config {
    /// Creates a matcher for the configured rollouts.
    pub fn rollout_matcher(&self) -> RolloutMatcher<'_> {
        let rollouts = self.rollouts.iter().enumerate();
        let places = rollouts.flat_map(|(at, rollout)| (0..rollout.waves.len()).map(move |wave| (at, wave)));
        RolloutMatcher {
            rollouts: &self.rollouts,
            globs: self.rollout_globs().ok(),
            places: places.collect(),
        }
    }

    /// Returns the globs of all waves, in the order of the rollouts and waves.
    fn rollout_globs(&self) -> Result<GlobSet, globset::Error> {
        let mut globs = GlobSetBuilder::new();
        for wave in self.rollouts.iter().flat_map(|rollout| &rollout.waves) {
            globs.add(stack_glob::glob(&wave.pattern)?);
        }
        globs.build()
    }

    /// Returns the first problem of `rollouts` or `gates`, with a hint.
    pub(super) fn rollouts_problem(&self) -> Option<Problem> {
        let mut names = BTreeSet::new();
        let twice = self.rollouts.iter().find(|rollout| !names.insert(&rollout.name));
        if let Some(twice) = twice {
            let what = format!("rollouts: `{}` is there twice", twice.name.escape_debug());
            return problem(what).hint("give each rollout its own name");
        }
        let of_gates = self.gates.iter().find_map(|(name, gate)| gate.problem(name));
        let of_one = || {
            let mut rollouts = self.rollouts.iter();
            rollouts.find_map(|rollout| rollout.problem(&self.gates))
        };
        let of_all = || {
            let error = self.rollout_globs().err()?;
            let what = format!("rollouts: their globs cannot be compiled together: {error}");
            problem(what).hint("write fewer or shorter globs")
        };
        of_gates.or_else(of_one).or_else(of_all)
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
