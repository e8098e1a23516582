//! A world of stacks, commits, a store and two runs at a time, which are killed at any write, start twice, late or
//! never, and read clocks that jump. Every seed is another history; `KONVERGE_TEST_SEEDS` sets their number.

use konverge_base::model::rollout::RolloutPhase;

use super::simulation_world_tests::{SimulatedWorld, WAVES};

/// What is counted of a history.
const FACTS: usize = 5;

/// The history of a seed. Returns whether a rollout ended, failed, and came to its last wave, whether approved plans
/// were applied, and whether an approval was asked again.
fn live(seed: u64) -> [u64; FACTS] {
    let mut world = SimulatedWorld::new(seed);
    world.push();
    world.storm();
    let has_failed = !world.undone.is_empty();
    let is_late = world.records.iter().any(|record| record.wave == WAVES - 1);
    world.calm_down();
    let has_ended = world
        .records
        .iter()
        .any(|record| record.phase == RolloutPhase::Done);
    let [has_approved, was_asked_again] = world.approvals();
    [has_ended, has_failed, is_late, has_approved, was_asked_again].map(u64::from)
}

#[test]
fn whatever_happens_waves_come_in_order_after_their_bake_and_a_rollout_ends() {
    let seeds = std::env::var("KONVERGE_TEST_SEEDS").ok();
    let seeds: u64 = seeds.and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let counts: Vec<[u64; FACTS]> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|first| {
                let own = (0..seeds).filter(move |seed| seed % threads == first);
                scope.spawn(move || {
                    own.map(live)
                        .fold([0; FACTS], |sum, one| std::array::from_fn(|at| sum[at] + one[at]))
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("the seed is in the panic"))
            .collect()
    });
    // The histories are not empty ones: rollouts ended, failed, and came to their last wave.
    for at in 0..FACTS {
        let count: u64 = counts.iter().map(|one| one[at]).sum();
        assert!(count * 20 > seeds, "{counts:?}");
    }
}
