//! Runs Argo CD's health scripts unchanged: the object is `obj`; the result is a table with `status` and
//! `message`. Argo CD's interpreter implements Lua 5.1 with `goto`. Lua 5.2 has `goto` and still uses doubles
//! for all numbers; functions that 5.2 removed from 5.1 are added again. `docs/design/001-lua.md` gives the reasons.
//!
//! A script has the base, `string`, `table` and `math` libraries and Argo CD's additions (`os.time`,
//! `os.date`, `json`). It has no files, no processes, no code loading, and only the clock it is given.
//! Memory, steps and time are limited, and a script that catches the error of a limit is stopped
//! nevertheless.

mod library;
mod pattern;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use jiff::Timestamp;
use mlua::{HookTriggers, Lua, LuaOptions, StdLib, Value as LuaValue, VmState, chunk::ChunkMode};
use serde_json::Value;

use super::{
    Health,
    verdict::{HealthVerdict, WaitPolicy},
};

/// The memory limit of a script with its object, in bytes.
const MEMORY: usize = 48 * 1024 * 1024;
/// The limit of instructions of Lua's virtual machine.
const STEPS: u64 = 5_000_000;
/// The instructions between two checks of the limits: few, because one instruction may be slow (a long
/// string).
const STRIDE: u32 = 200;
/// The time limit. Argo CD gives a script one second; a busy machine needs more.
const TIME: Duration = Duration::from_secs(3);

/// Runs a script on an object. Returns `None` if the script returns nothing. The error is one sentence.
pub(super) fn evaluate(
    script: &str,
    object: &Value,
    now: Timestamp,
) -> Result<Option<HealthVerdict>, String> {
    let bounds = Arc::new(Bounds::default());
    let answer = run_script(script, object, now, &bounds);
    // An exceeded limit counts even if the script caught the error.
    if bounds.reached() {
        return Err(format!(
            "stopped: more than {STEPS} steps or {} seconds",
            TIME.as_secs()
        ));
    }
    answer.map_err(|error| error_line(&error))
}

fn run_script(
    script: &str,
    object: &Value,
    now: Timestamp,
    bounds: &Arc<Bounds>,
) -> mlua::Result<Option<HealthVerdict>> {
    let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
    let lua = Lua::new_with(libraries, LuaOptions::new())?;
    lua.set_memory_limit(MEMORY)?;
    library::install(&lua, now)?;
    lua.globals().set("obj", health_object(&lua, object)?)?;
    watch(&lua, bounds)?;
    // Text only: byte code can break the machine.
    let chunk = lua.load(script).set_name("=health.lua").set_mode(ChunkMode::Text);
    let answer: LuaValue = chunk.eval()?;
    verdict(&answer)
}

/// The steps used so far, and whether a limit was exceeded.
#[derive(Default)]
struct Bounds {
    steps: AtomicU64,
    over: AtomicU64,
}

impl Bounds {
    fn reached(&self) -> bool {
        self.over.load(Ordering::Relaxed) > 0
    }
}

fn watch(lua: &Lua, bounds: &Arc<Bounds>) -> mlua::Result<()> {
    let (bounds, start) = (Arc::clone(bounds), Instant::now());
    let stop = || mlua::Error::runtime("a bound was reached");
    lua.set_hook(
        HookTriggers::new().every_nth_instruction(STRIDE),
        move |lua, _| {
            let steps = bounds.steps.fetch_add(u64::from(STRIDE), Ordering::Relaxed);
            if steps < STEPS && start.elapsed() < TIME {
                return Ok(VmState::Continue);
            }
            bounds.over.store(1, Ordering::Relaxed);
            // From here on every single instruction fails: no `pcall` can continue.
            lua.set_hook(HookTriggers::new().every_nth_instruction(1), move |_, _| {
                Err(stop())
            })?;
            Err(stop())
        },
    )
}

/// The object without the long parts that no rule reads, as Argo CD passes it.
fn health_object(lua: &Lua, object: &Value) -> mlua::Result<LuaValue> {
    const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let has_bulk = object.pointer("/metadata/managedFields").is_some()
        || object
            .pointer("/metadata/annotations")
            .is_some_and(|annotations| annotations.get(LAST_APPLIED).is_some());
    if !has_bulk {
        return library::to_lua(lua, object);
    }
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.remove(LAST_APPLIED);
        }
    }
    library::to_lua(lua, &object)
}

/// Parses `{status = …, message = …}`; keys are case-insensitive, as in Argo CD.
fn verdict(answer: &LuaValue) -> mlua::Result<Option<HealthVerdict>> {
    let table = match answer {
        LuaValue::Nil => return Ok(None),
        LuaValue::Table(table) => table,
        other => {
            let kind = other.type_name();
            return Err(mlua::Error::runtime(format!(
                "it should return a table, not a {kind}"
            )));
        }
    };
    let field = |name: &str| -> mlua::Result<Option<String>> {
        let mut found = None;
        for pair in table.pairs::<LuaValue, LuaValue>() {
            let (LuaValue::String(key), value) = pair? else {
                continue;
            };
            let key = key.to_string_lossy();
            if !key.eq_ignore_ascii_case(name) || (found.is_some() && key != name) {
                continue;
            }
            match value {
                LuaValue::String(text) => found = Some(text.to_string_lossy().to_string()),
                other => {
                    let kind = other.type_name();
                    return Err(mlua::Error::runtime(format!(
                        "`{name}` should be a string, not a {kind}"
                    )));
                }
            }
        }
        Ok(found)
    };
    let (status, message) = (field("status")?, field("message")?);
    if status.is_none() && message.is_none() {
        return Ok(None);
    }
    let message = message.unwrap_or_default();
    let status = status.unwrap_or_default();
    let Some(health) = Health::from_argo_cd(&status) else {
        let text = format!(
            "Lua returned an invalid health status `{}`",
            status.escape_debug()
        );
        return Ok(Some(HealthVerdict::unknown(text)));
    };
    // Scripts return Degraded even while a resource recovers, so the failure counts only after it has lasted.
    Ok(Some(
        HealthVerdict::new(health, message).with_wait_policy(WaitPolicy::Blocked),
    ))
}

/// A Lua error in one line, without the stack.
fn error_line(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } => error_line(cause),
        mlua::Error::MemoryError(_) => format!("stopped: more than {} MiB of memory", MEMORY / 1024 / 1024),
        mlua::Error::RuntimeError(text) | mlua::Error::SyntaxError { message: text, .. } => {
            text.lines().next().unwrap_or_default().to_owned()
        }
        other => other.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests;
