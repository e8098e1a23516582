//! Runs Argo CD's health scripts unchanged: the object is `obj`; the result is a table with `status` and
//! `message`. Argo CD's interpreter implements Lua 5.1 with `goto`. Lua 5.2 has `goto` and still uses doubles
//! for all numbers; functions that 5.2 removed from 5.1 are added again. `docs/design/001-lua.md` gives the
//! reasons.
//!
//! A script has the base, `string`, `table` and `math` libraries and Argo CD's additions (`os.time`,
//! `os.date`, `json`). It cannot read files, start processes or load code, and it sees only the time that is
//! passed to it. Its memory is limited here. Its time is limited by the separate process in which
//! [`Evaluate`](super::Evaluate) runs it, because nothing but a kill ends a call of Lua's own library, such
//! as a pattern search.

mod library;

use jiff::Timestamp;
use mlua::{Lua, LuaOptions, StdLib, Value as LuaValue, chunk::ChunkMode};
use serde_json::Value;

use super::Health;
use konverge_base::model::health::HealthReport;

/// The memory limit of a script with its object, in bytes.
const MEMORY: usize = 48 * 1024 * 1024;

/// Runs a script on an object, without a time limit. Returns `None` if the script returns nothing.
///
/// # Errors
/// The script fails, needs too much memory or returns an invalid value; the error is one sentence.
pub fn run_lua(script: &str, object: &Value) -> Result<Option<HealthReport>, String> {
    run_at(script, object, Timestamp::now()).map_err(|error| error_line(&error))
}

fn run_at(script: &str, object: &Value, now: Timestamp) -> mlua::Result<Option<HealthReport>> {
    let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
    let lua = Lua::new_with(libraries, LuaOptions::new())?;
    lua.set_memory_limit(MEMORY)?;
    library::install(&lua, now)?;
    lua.globals().set("obj", health_object(&lua, object)?)?;
    // Only text is loaded, because byte code can crash the interpreter.
    let chunk = lua.load(script).set_name("=health.lua").set_mode(ChunkMode::Text);
    let answer: LuaValue = chunk.eval()?;
    report(&answer)
}

/// Converts the object without long parts that no rule reads, as Argo CD does.
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
fn report(answer: &LuaValue) -> mlua::Result<Option<HealthReport>> {
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
    Ok(Some(match Health::from_argo_cd(&status) {
        Some(health) => HealthReport { health, message },
        None => HealthReport {
            health: Health::Unknown,
            message: format!(
                "Lua returned an invalid health status `{}`",
                status.escape_debug()
            ),
        },
    }))
}

/// Returns a Lua error in one line, without the stack trace.
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
