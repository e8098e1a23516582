//! Describes in a preview in which waves of which rollouts a change would be applied.

use std::collections::BTreeMap;

use konverge_base::model::{RepoPath, StackId};
use konverge_config::{Config, RolloutConfig};
use konverge_report::plural;

/// Returns one sentence for each rollout that has a changed stack.
pub fn sentences<'a>(
    config: &Config,
    changed: impl IntoIterator<Item = (&'a StackId, &'a RepoPath)>,
) -> Vec<String> {
    let matcher = config.rollout_matcher();
    let mut counts: BTreeMap<(&str, usize), usize> = BTreeMap::new();
    let mut unclear = Vec::new();
    let changed: Vec<_> = changed.into_iter().collect();
    for (id, folder) in &changed {
        match matcher.wave_of(folder) {
            Ok(Some(wave)) => *counts.entry(wave).or_default() += 1,
            Ok(None) => {}
            Err(several) => unclear.push(format!(
                "{id} is in several rollouts ({}): it will not be applied",
                several.0.join(", ")
            )),
        }
    }
    let rollouts = config.rollouts.iter();
    let mut sentences: Vec<_> = rollouts
        .filter_map(|rollout| sentence(rollout, &counts))
        .collect();
    sentences.extend(unclear);
    sentences
}

fn sentence(rollout: &RolloutConfig, counts: &BTreeMap<(&str, usize), usize>) -> Option<String> {
    let of_wave = |wave: usize| counts.get(&(rollout.name.as_str(), wave)).copied().unwrap_or(0);
    let all = rollout.waves.len();
    if (0..all).all(|wave| of_wave(wave) == 0) {
        return None;
    }
    let waves = rollout.waves.iter().enumerate().map(|(number, wave)| {
        let at_once = wave.at_once.map(|at_once| format!(", {at_once} at once"));
        let bake = wave.bake.map(|bake| format!(", bakes {bake}"));
        let gates = match wave.gates.as_slice() {
            [] => None,
            gates => Some(format!(", then {}", gates.join(" and "))),
        };
        let more = [at_once, bake, gates].into_iter().flatten().collect::<String>();
        format!("{} of {}{more}", plural(of_wave(number), "stack"), wave.pattern)
    });
    let waves: Vec<_> = waves.collect();
    Some(format!(
        "The rollout {} goes in {}: {}",
        rollout.name,
        plural(all, "wave"),
        waves.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waves_are_told_with_their_stacks() {
        let config = Config::parse(
            "rollouts: [{name: web, waves: [{match: 'appops/*/canary', bake: 30m, gates: [go]}, {match: 'appops/*/eu', at_once: 25%}, {match: 'appops/*/*'}]}]\ngates: {go: {approve: {by: [ada]}}}\n",
        )
        .unwrap();
        let stacks: Vec<(StackId, RepoPath)> = ["a/canary", "a/eu", "b/eu", "a/us"]
            .map(|id| {
                (
                    id.parse().unwrap(),
                    RepoPath::normalize(&format!("appops/{id}")).unwrap(),
                )
            })
            .into();
        let said = |stacks: &[(StackId, RepoPath)]| {
            sentences(&config, stacks.iter().map(|(id, folder)| (id, folder)))
        };
        assert_eq!(
            said(&stacks),
            [
                "The rollout web goes in 3 waves: 1 stack of appops/*/canary, bakes 30m, then go; 2 stacks of appops/*/eu, 25 % at once; 1 stack of appops/*/*"
            ]
        );
        assert_eq!(said(&[]), Vec::<String>::new());
    }
}
