//! The functions that a script can call besides Lua's own safe ones, and the removal of unsafe ones.

use jiff::{Timestamp, tz::TimeZone};
use mlua::{Lua, MultiValue, Table, Value as LuaValue};
use serde_json::Value;

/// Functions that are removed, because they read files, load byte code, or stop the garbage collector.
const REMOVED: [&str; 4] = ["collectgarbage", "dofile", "load", "loadfile"];
/// Restores the functions of Lua 5.1 that 5.2 removed.
const AS_IN_5_1: &str = "
unpack = table.unpack
table.getn = function(list) return #list end
table.maxn = function(list)
    local most = 0
    for key in pairs(list) do
        if type(key) == 'number' and key > most then most = key end
    end
    return most
end
math.mod, math.pow = math.fmod, function(x, y) return x ^ y end";
/// The maximum nesting of a value that is passed to or from a script.
const DEEPEST: usize = 200;

/// Installs the functions for scripts in a new Lua state.
pub(super) fn install(lua: &Lua, now: Timestamp) -> mlua::Result<()> {
    let globals = lua.globals();
    lua.load(AS_IN_5_1).exec()?;
    for name in REMOVED {
        globals.raw_remove(name)?;
    }
    // `print` does nothing, because standard output belongs to the command.
    globals.set("print", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    let (os, json) = (os(lua, now)?, json(lua)?);
    let modules = lua.create_table()?;
    for name in ["string", "table", "math"] {
        modules.set(name, globals.get::<Table>(name)?)?;
    }
    modules.set("os", os.clone())?;
    modules.set("json", json)?;
    globals.set("os", os)?;
    let require =
        lua.create_function(
            move |_, name: String| match modules.get::<LuaValue>(name.as_str())? {
                LuaValue::Nil => Err(mlua::Error::runtime(format!("module '{name}' is not there"))),
                module => Ok(module),
            },
        )?;
    globals.set("require", require)?;
    globals.get::<Table>("math")?.raw_remove("randomseed")?;
    globals.get::<Table>("string")?.raw_remove("dump")
}

/// Creates the table `os` with the functions that Argo CD allows: `os.time` and `os.date`. Local time is UTC.
fn os(lua: &Lua, now: Timestamp) -> mlua::Result<Table> {
    let os = lua.create_table()?;
    let time = move |_: &Lua, parts: Option<Table>| {
        let Some(parts) = parts else {
            return Ok(now.as_second() as f64);
        };
        let part = |name: &str, default: Option<f64>| {
            let given = parts.get::<Option<f64>>(name)?;
            let missing = || mlua::Error::runtime(format!("field '{name}' missing in date table"));
            given.or(default).ok_or_else(missing)
        };
        let (year, month, day) = (part("year", None)?, part("month", None)?, part("day", None)?);
        let (hour, minute, second) = (
            part("hour", Some(12.0))?,
            part("min", Some(0.0))?,
            part("sec", Some(0.0))?,
        );
        // As in C, fields may be out of range and then carry over.
        let months = year * 12.0 + month - 1.0;
        let (year, month) = ((months / 12.0).floor(), months.rem_euclid(12.0));
        let first = jiff::civil::Date::new(year as i16, month as i8 + 1, 1)
            .and_then(|date| date.to_zoned(TimeZone::UTC))
            .map_err(|error| mlua::Error::runtime(error.to_string()))?;
        let start = first.timestamp().as_second() as f64;
        Ok(start + (day - 1.0) * 86_400.0 + hour * 3_600.0 + minute * 60.0 + second)
    };
    os.set("time", lua.create_function(time)?)?;
    let date = move |lua: &Lua, (format, at): (Option<String>, Option<f64>)| {
        let at = match at {
            Some(seconds) => Timestamp::from_second(seconds as i64)
                .map_err(|error| mlua::Error::runtime(error.to_string()))?,
            None => now,
        };
        let at = at.to_zoned(TimeZone::UTC);
        let format = format.unwrap_or_else(|| "%c".to_owned());
        let format = format.trim_start_matches('!');
        if format.starts_with("*t") {
            let table = lua.create_table()?;
            let weekday = at.weekday().to_sunday_one_offset();
            for (name, value) in [
                ("year", f64::from(at.year())),
                ("month", f64::from(at.month())),
                ("day", f64::from(at.day())),
                ("hour", f64::from(at.hour())),
                ("min", f64::from(at.minute())),
                ("sec", f64::from(at.second())),
                ("wday", f64::from(weekday)),
                ("yday", f64::from(at.day_of_year())),
            ] {
                table.set(name, value)?;
            }
            table.set("isdst", false)?;
            return Ok(LuaValue::Table(table));
        }
        Ok(LuaValue::String(lua.create_string(formatted(&at, format))?))
    };
    os.set("date", lua.create_function(date)?)?;
    Ok(os)
}

/// Formats a date with the flags that Argo CD supports; others stay unchanged.
fn formatted(at: &jiff::Zoned, format: &str) -> String {
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('c') => text.push_str(&at.strftime("%d %b %y %H:%M %Z").to_string()),
            Some('x') => text.push_str(&at.strftime("%y/%m/%d").to_string()),
            Some('X') => text.push_str(&at.strftime("%H:%M:%S").to_string()),
            Some('%') => text.push('%'),
            Some(flag) if "aAbBdFHIjmMpPSwyYzZ".contains(flag) => {
                text.push_str(&at.strftime(&format!("%{flag}")).to_string());
            }
            Some(flag) => text.extend(['%', flag]),
            None => text.push('%'),
        }
    }
    text
}

/// Creates the module that `require("json")` returns.
fn json(lua: &Lua) -> mlua::Result<Table> {
    let module = lua.create_table()?;
    let decode = lua.create_function(|lua, text: String| {
        let value: Value =
            serde_json::from_str(&text).map_err(|error| mlua::Error::runtime(error.to_string()))?;
        to_lua(lua, &value)
    })?;
    module.set("decode", decode)?;
    let encode = lua.create_function(|_, value: LuaValue| {
        serde_json::to_string(&value).map_err(|error| mlua::Error::runtime(error.to_string()))
    })?;
    module.set("encode", encode)?;
    Ok(module)
}

/// Converts a JSON value to Lua as Argo CD does: numbers are doubles, and nulls are absent, even in lists,
/// which become shorter.
pub(super) fn to_lua(lua: &Lua, value: &Value) -> mlua::Result<LuaValue> {
    nested(lua, value, 0)
}

fn nested(lua: &Lua, value: &Value, depth: usize) -> mlua::Result<LuaValue> {
    if depth > DEEPEST {
        return Err(mlua::Error::runtime(format!(
            "nested more than {DEEPEST} levels deep"
        )));
    }
    Ok(match value {
        Value::Null => LuaValue::Nil,
        Value::Bool(flag) => LuaValue::Boolean(*flag),
        Value::Number(number) => LuaValue::Number(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => LuaValue::String(lua.create_string(text)?),
        Value::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for item in items.iter().filter(|item| !item.is_null()) {
                table.raw_push(nested(lua, item, depth + 1)?)?;
            }
            LuaValue::Table(table)
        }
        Value::Object(fields) => {
            let table = lua.create_table_with_capacity(0, fields.len())?;
            for (key, item) in fields {
                table.raw_set(key.as_str(), nested(lua, item, depth + 1)?)?;
            }
            LuaValue::Table(table)
        }
    })
}
