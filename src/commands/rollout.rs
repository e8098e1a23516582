//! The `rollout` use cases: show the progress of rollouts, and pause, resume or abort one. They write the record that
//! the next run of `konverge ci` reads, and apply nothing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        Digest,
        note::Note,
        rollout::{ClockReading, RolloutRecord},
    },
};
use konverge_config::Config;
use konverge_portal::RolloutView;
use konverge_portal_site::{read_rollouts, rollout_view, wave_standing};
use konverge_repo::git::Repository;
use konverge_report::{self as report, escape::log, plural};
use konverge_rollout::{
    NextPlans, RolloutCommand, RolloutCommandError, asking_gates, bake_end, command, overdue_warning,
};
use konverge_run::{KeyUse, Planner, RunContext, StateBackend, Target, state};
use konverge_state::StoredRollout;

/// The maximum number of attempts of a command, while runs change the rollout at the same time.
const TRIES: u32 = 5;

/// One rollout in the JSON output.
#[derive(Serialize)]
struct OneRollout {
    version: u32,
    #[serde(flatten)]
    rollout: RolloutView,
}

/// Returns one line for each rollout, or all as JSON.
///
/// # Errors
/// There is no store; errors of the store.
pub async fn list(run: &RunContext, json: bool) -> Result<String, UserError> {
    let (backend, config) = open(run).await?;
    if json {
        return Ok(report::json::document(&read_rollouts(&backend, &config).await?));
    }
    let stored = backend.states.rollouts().await?;
    if config.rollouts.is_empty() && stored.is_empty() {
        return Ok("konverge.yaml has no `rollouts`, and none was ever begun\n".to_owned());
    }
    let mut text = String::new();
    for rollout in &config.rollouts {
        let line = stored
            .get(&rollout.name)
            .map_or_else(|| "never begun".to_owned(), |stored| short(&config, stored));
        let warning = stored
            .get(&rollout.name)
            .and_then(|stored| overdue_warning(&config, &stored.record));
        text.push_str(&format!(
            "{}: {}, {line}\n",
            log(&rollout.name),
            plural(rollout.waves.len(), "wave")
        ));
        text.extend(warning.map(|warning| format!("warning: {warning}\n")));
    }
    let is_configured = |name: &String| config.rollouts.iter().any(|rollout| rollout.name == *name);
    for (name, stored) in stored.iter().filter(|(name, _)| !is_configured(name)) {
        text.push_str(&format!(
            "{}: not in konverge.yaml, {}\n",
            log(name),
            short(&config, stored)
        ));
    }
    Ok(text)
}

/// Returns a note for each rollout that has not ended. Sends no request if konverge.yaml has no `rollouts`.
///
/// # Errors
/// Errors of the store.
pub async fn under_way(planning: &Planner) -> Result<Vec<Note>, UserError> {
    let Some(backend) = planning
        .backend
        .as_ref()
        .filter(|_| !planning.config.rollouts.is_empty())
    else {
        return Ok(Vec::new());
    };
    let stored = backend.states.rollouts().await?;
    let runs = stored.iter().filter(|(_, stored)| !stored.record.phase.is_over());
    let lines = runs.flat_map(|(name, stored)| {
        let now = format!("rollout {}: {}", log(name), short(&planning.config, stored));
        let overdue = overdue_warning(&planning.config, &stored.record);
        [Some(Note::remark(now)), overdue.map(Note::warning)]
    });
    Ok(lines.flatten().collect())
}

/// Returns a warning for each rollout whose stacks are applied by hand, because such an apply bypasses the rollout.
///
/// # Errors
/// Errors of the store.
pub async fn passed_by(planning: &Planner, targets: &[Target]) -> Result<Vec<Note>, UserError> {
    let matcher = planning.config.rollout_matcher();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for target in targets {
        let names = match matcher.wave_of(target.folder()) {
            Ok(found) => found.map(|(name, _)| name).into_iter().collect(),
            Err(several) => planning
                .config
                .rollouts
                .iter()
                .map(|rollout| rollout.name.as_str())
                .filter(|name| several.0.iter().any(|other| other == name))
                .collect::<Vec<_>>(),
        };
        for name in names {
            *counts.entry(name).or_default() += 1;
        }
    }
    let stored = match (&planning.backend, counts.is_empty()) {
        (Some(backend), false) => backend.states.rollouts().await?,
        _ => BTreeMap::new(),
    };
    let warning = |(name, count): (&str, usize)| {
        let now = stored
            .get(name)
            .filter(|stored| !stored.record.phase.is_over())
            .map(|stored| format!("; it is in {}", short(&planning.config, stored)));
        Note::warning(format_args!(
            "this apply bypasses the rollout {}: it may change {} of its waves at once{}",
            log(name),
            plural(count, "stack"),
            now.unwrap_or_default()
        ))
    };
    Ok(counts.into_iter().map(warning).collect())
}

/// Describes a rollout with its waves, as text or as JSON.
///
/// # Errors
/// The same as for [`list`]; there is no such rollout.
pub async fn status(run: &RunContext, name: &str, json: bool) -> Result<String, UserError> {
    let (backend, config) = open(run).await?;
    let stored = find(&backend, &config, name).await?;
    if json {
        let shown = OneRollout {
            version: 1,
            rollout: rollout_view(&backend, &config, name, Some(&stored)),
        };
        return Ok(report::json::document(&shown));
    }
    let record = &stored.record;
    let mut text = format!(
        "{}: {}\nsince {:.0}, number {} by {}\n",
        log(name),
        short(&config, &stored),
        record.since.local,
        stored.number,
        log(&stored.writer.to_string())
    );
    text.extend(overdue_warning(&config, record).map(|warning| format!("{warning}\n")));
    for (number, wave) in record.waves.iter().enumerate() {
        let sign = wave_standing(record, number).word();
        let names: Vec<_> = wave.keys().map(|id| log(id.as_str())).collect();
        let names = if names.is_empty() {
            "no changed stack".to_owned()
        } else {
            names.join(", ")
        };
        text.push_str(&format!("  wave {} ({sign}): {names}\n", number + 1));
    }
    for (gate, said) in &record.measured {
        text.push_str(&format!("  gate {}: {}\n", log(gate), log(said)));
    }
    text.push_str(&approvals(record, &config));
    if !record.held.is_empty() {
        let contents = record.held.iter().map(|held| (&held.stack, held.input));
        let contents: BTreeSet<_> = contents.collect();
        text.push_str(&format!(
            "held: {} that failed or was aborted; `konverge rollout resume {} --reason TEXT` lets it be applied\n",
            plural(contents.len(), "change"),
            log(name)
        ));
    }
    Ok(text)
}

/// Lists the approvals that the gates of a wave ask for, as the jobs of all environments planned the next wave.
fn approvals(record: &RolloutRecord, config: &Config) -> String {
    let line = |(gate, asked): (&String, &Option<Digest>)| match asked {
        Some(digest) => format!("  gate {}: approve: {digest}\n", log(gate)),
        None => {
            let missing = NextPlans::new(record, None).missing;
            let missing: Vec<_> = missing.iter().map(|id| log(id.as_str())).collect();
            format!("  gate {}: not planned yet: {}\n", log(gate), missing.join(", "))
        }
    };
    asking_gates(config, record).iter().map(line).collect()
}

/// Pauses, resumes or aborts a rollout, and describes the result.
///
/// # Errors
/// The same as for [`status`]; the reason is empty; the rollout's phase does not allow the change.
pub async fn change(
    run: &RunContext,
    name: &str,
    wanted: RolloutCommand,
    reason: &str,
) -> Result<String, UserError> {
    if reason.trim().is_empty() {
        return Err(UserError::new(ErrorKind::Usage, "the reason is empty")
            .hint("give a reason with `--reason TEXT`; `konverge rollout status` shows it"));
    }
    let (backend, config) = open(run).await?;
    run.begin_writes()?;
    for _ in 0..TRIES {
        let stored = find(&backend, &config, name).await?;
        // There is no server's time here, so the next run of a job starts to measure the time again.
        let now = ClockReading {
            local: Timestamp::now(),
            server: None,
        };
        let next = command(&stored.record, wanted, reason.trim(), now);
        let next = next.map_err(|error| refused(error, name, &stored.record))?;
        if backend.states.write_rollout(stored.number + 1, &next).await? {
            let what = match wanted {
                RolloutCommand::Pause => {
                    "is paused: no further stack is applied until `konverge rollout resume`"
                }
                RolloutCommand::Resume => "continues with the next run of `konverge ci`",
                RolloutCommand::Abort => {
                    "has ended, and its commit is held: a newer change of one of its stacks starts a new rollout, and so does \
                     `konverge rollout resume`"
                }
            };
            return Ok(format!("the rollout {} {what}", log(name)));
        }
    }
    Err(UserError::new(
        ErrorKind::Store,
        format!(
            "the rollout {} changed during each of {TRIES} attempts",
            log(name)
        ),
    )
    .hint("try again: a run of `konverge ci` changes the rollout at the same time"))
}

/// Opens the states, and konverge.yaml of the working tree.
async fn open(run: &RunContext) -> Result<(StateBackend, Config), UserError> {
    let (backend, _) = state::open(run, KeyUse::Look).await?;
    let config = match Repository::discover(&run.dir) {
        Ok(repository) => Config::load(repository.worktree()?.as_ref())?,
        Err(_) => Config::default(),
    };
    Ok((backend, config))
}

async fn find(backend: &StateBackend, config: &Config, name: &str) -> Result<StoredRollout, UserError> {
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let stored = if is_name {
        backend.states.rollout(name).await?
    } else {
        None
    };
    stored.ok_or_else(|| {
        let known: Vec<_> = config
            .rollouts
            .iter()
            .map(|rollout| rollout.name.as_str())
            .collect();
        let what = if known.contains(&name) {
            format!("the rollout {} was never begun", log(name))
        } else {
            format!("there is no rollout {}", log(name))
        };
        UserError::new(ErrorKind::Usage, what).hint(if known.is_empty() {
            "konverge.yaml has no `rollouts`".to_owned()
        } else {
            format!("konverge.yaml has {}", known.join(", "))
        })
    })
}

fn refused(error: RolloutCommandError, name: &str, record: &RolloutRecord) -> UserError {
    let what = format!("the rollout {}: {error}", log(name));
    UserError::new(ErrorKind::Usage, what).hint(format!("it is in {}, {}", record.wave_title(), record.phase))
}

fn short(config: &Config, stored: &StoredRollout) -> String {
    let record = &stored.record;
    let until = bake_end(config, record);
    let until = until.map_or_else(String::new, |until| format!(" until {until:.0}"));
    let paused = if record.paused { ", paused" } else { "" };
    let why = match record.why.as_str() {
        "" => String::new(),
        why => format!(": {}", log(why)),
    };
    format!(
        "{} of {}, {}{until}{paused}{why}",
        record.wave_title(),
        record.commit.short(),
        record.phase
    )
}
