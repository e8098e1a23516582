//! The `rollout` use cases: how far rollouts are, and what a person does to one. They write the record that the next run of
//! `konverge ci` finds, and apply nothing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        Digest,
        rollout::{ClockReading, RolloutPhase, RolloutRecord},
    },
};
use konverge_config::Config;
use konverge_policy::rollout::{
    NextPlans, RolloutCommand, RolloutCommandError, RolloutRules, bakes_until, command,
};
use konverge_repo::git::Repository;
use konverge_report::{self as report, escape::log, plural};
use konverge_run::{KeyUse, Planner, RunContext, StateBackend, Target, overdue_rollouts::overdue, state};
use konverge_state::StoredRollout;

/// How many times a command is tried while runs move the rollout on.
const TRIES: u32 = 5;

/// The form of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloutForm {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// One line for each rollout.
///
/// # Errors
/// There is no store; errors of the store.
pub async fn list(run: &RunContext, form: RolloutForm) -> Result<String, UserError> {
    let (backend, config) = open(run).await?;
    let stored = backend.states.rollouts().await?;
    if form == RolloutForm::Json {
        let configured = config.rollouts.iter().map(|rollout| &rollout.name);
        let names: BTreeSet<_> = configured.chain(stored.keys()).collect();
        let rollouts = names
            .into_iter()
            .map(|name| document(&config, name, stored.get(name)));
        let rollouts: Vec<_> = rollouts.collect();
        return Ok(report::json::document(
            &json!({"version": 1, "rollouts": rollouts}),
        ));
    }
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
            .and_then(|stored| overdue(&config, stored));
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

/// One line for each rollout that has not ended. No request without `rollouts` in konverge.yaml.
///
/// # Errors
/// Errors of the store.
pub async fn under_way(planning: &Planner) -> Result<Vec<String>, UserError> {
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
        let line = format!("note: rollout {}: {}", log(name), short(&planning.config, stored));
        let overdue = overdue(&planning.config, stored);
        [Some(line), overdue.map(|why| format!("warning: {why}"))]
    });
    Ok(lines.flatten().collect())
}

/// One warning for each rollout whose stacks are applied by hand: a person's apply asks no rollout.
///
/// # Errors
/// Errors of the store.
pub async fn passed_by(planning: &Planner, targets: &[Target]) -> Result<Vec<String>, UserError> {
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
        format!(
            "warning: this apply does not ask the rollout {}: {} of its waves can be changed at once{}",
            log(name),
            plural(count, "stack"),
            now.unwrap_or_default()
        )
    };
    Ok(counts.into_iter().map(warning).collect())
}

/// A rollout with its waves.
///
/// # Errors
/// As [`list`]; there is no such rollout.
pub async fn status(run: &RunContext, name: &str, form: RolloutForm) -> Result<String, UserError> {
    let (backend, config) = open(run).await?;
    let stored = find(&backend, &config, name).await?;
    if form == RolloutForm::Json {
        let mut whole = json!({"version": 1});
        if let (Some(whole), Value::Object(shown)) =
            (whole.as_object_mut(), document(&config, name, Some(&stored)))
        {
            whole.extend(shown);
        }
        return Ok(report::json::document(&whole));
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
    text.extend(overdue(&config, &stored).map(|warning| format!("{warning}\n")));
    for (number, wave) in record.waves.iter().enumerate() {
        let sign = wave_sign(record, number);
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
            "held: {} of what failed or was aborted; `konverge rollout resume {} --reason TEXT` lets it be applied\n",
            plural(contents.len(), "change"),
            log(name)
        ));
    }
    Ok(text)
}

/// How far the wave with this number, from 0, is.
fn wave_sign(record: &RolloutRecord, number: usize) -> &'static str {
    match number.cmp(&record.wave) {
        std::cmp::Ordering::Less => "done",
        std::cmp::Ordering::Equal if record.phase.is_over() => "last",
        std::cmp::Ordering::Equal => "now",
        std::cmp::Ordering::Greater => "later",
    }
}

/// A rollout for programs.
fn document(config: &Config, name: &str, stored: Option<&StoredRollout>) -> Value {
    let mut rollouts = config.rollouts.iter();
    let is_configured = rollouts.any(|rollout| rollout.name == name);
    let Some(stored) = stored else {
        return json!({"rollout": name, "configured": is_configured, "phase": "never-begun"});
    };
    let record = &stored.record;
    let waves = record.waves.iter().enumerate();
    let waves = waves.map(|(number, wave)| {
        let stacks: Vec<_> = wave.keys().collect();
        json!({"wave": number + 1, "is": wave_sign(record, number), "stacks": stacks})
    });
    let held: BTreeSet<_> = record.held.iter().map(|held| &held.stack).collect();
    let asked = asking_gates(record, config).into_iter();
    let asked: BTreeMap<_, _> = asked.collect();
    let mut shown = json!({
        "rollout": name,
        "configured": is_configured,
        "phase": record.phase,
        "paused": record.paused,
        "commit": record.commit,
        "wave": record.wave + 1,
        "waves": waves.collect::<Vec<_>>(),
        "since": record.since.local,
        "until": bake_end(config, record),
        "why": record.why,
        "overdue": overdue(config, stored).is_some(),
        "gates": record.measured,
        "approve": asked,
        "held": held,
        "number": stored.number,
        "writer": stored.writer,
    });
    if let Some(shown) = shown.as_object_mut() {
        shown.retain(|_, value| !value.is_null());
    }
    shown
}

/// The gates that ask people now, with the digest that they ask for; `None`: a plan is missing.
fn asking_gates<'a>(record: &'a RolloutRecord, config: &'a Config) -> Vec<(&'a String, Option<Digest>)> {
    let rollout = config
        .rollouts
        .iter()
        .find(|rollout| rollout.name == record.rollout);
    let wave = rollout.and_then(|rollout| rollout.waves.get(record.wave));
    let gates = wave
        .filter(|_| record.phase == RolloutPhase::Gate)
        .map(|wave| &wave.gates);
    let is_approval = |gate: &&String| config.gates.get(*gate).is_some_and(|gate| gate.approve.is_some());
    let plans = NextPlans::new(record, None);
    let gates = gates.into_iter().flatten().filter(is_approval);
    gates.map(|gate| (gate, plans.approval(record, gate))).collect()
}

/// What the gates of a wave ask people for, as the jobs of all environments planned the next wave.
fn approvals(record: &RolloutRecord, config: &Config) -> String {
    let line = |(gate, asked): (&String, Option<Digest>)| match asked {
        Some(digest) => format!("  gate {}: approve: {digest}\n", log(gate)),
        None => {
            let missing = NextPlans::new(record, None).missing;
            let missing: Vec<_> = missing.iter().map(|id| log(id.as_str())).collect();
            format!("  gate {}: not planned yet: {}\n", log(gate), missing.join(", "))
        }
    };
    asking_gates(record, config).into_iter().map(line).collect()
}

/// Pauses, resumes or aborts a rollout. Returns what it is now.
///
/// # Errors
/// As [`status`]; there is no reason; the rollout cannot be changed so.
pub async fn change(
    run: &RunContext,
    name: &str,
    wanted: RolloutCommand,
    reason: &str,
) -> Result<String, UserError> {
    if reason.trim().is_empty() {
        return Err(UserError::new(ErrorKind::Usage, "the reason is empty")
            .hint("give one with `--reason TEXT`; `konverge rollout status` shows it"));
    }
    let (backend, config) = open(run).await?;
    run.begin_writes()?;
    for _ in 0..TRIES {
        let stored = find(&backend, &config, name).await?;
        // Only one clock is at hand: the next run of a job starts to measure the time again.
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
    .hint("a run moves it on; try again"))
}

/// The states, and konverge.yaml of the working tree.
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

/// When the bake of the current wave ends.
fn bake_end(config: &Config, record: &RolloutRecord) -> Option<Timestamp> {
    let mut rollouts = config.rollouts.iter();
    let rollout = rollouts.find(|rollout| rollout.name == record.rollout)?;
    bakes_until(record, &RolloutRules::from_config(rollout, &config.gates))
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
