//! The functions that a script can call besides Lua's own harmless ones, and those that are removed.

use jiff::{Timestamp, tz::TimeZone};
use mlua::{Function, Lua, MultiValue, Table, Value as LuaValue, Variadic};
use serde_json::Value;

use super::pattern::{Capture, Found, Pattern};

/// Removed: they load code, escape the sandbox or its limits, or keep other threads.
const REMOVED: [&str; 13] = [
    "collectgarbage",
    "coroutine",
    "dofile",
    "gcinfo",
    "getfenv",
    "load",
    "loadfile",
    "loadstring",
    "module",
    "newproxy",
    "package",
    "require",
    "setfenv",
];
/// Lua runs an error handler where the error was raised, where no limit applies: this version runs it
/// afterwards.
const XPCALL: &str = "local pcall, unpack = pcall, table.unpack
return function(f, handler)
    local results = {pcall(f)}
    if results[1] then return unpack(results) end
    return false, handler(results[2])
end";
/// Restores what Lua 5.2 removed from 5.1, and removes what it added without a limit: a finalizer (`__gc`) of
/// a table runs without hooks, even when the machine ends.
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
math.mod, math.pow = math.fmod, function(x, y) return x ^ y end
local set, get, kind, fail = setmetatable, rawget, type, error
setmetatable = function(value, meta)
    if kind(meta) == 'table' and get(meta, '__gc') ~= nil then fail('a finalizer (__gc) is not allowed', 2) end
    return set(value, meta)
end";
/// The maximum length of a string that our functions create, in bytes.
const LONGEST: usize = 8 * 1024 * 1024;
/// The maximum nesting of a value that is passed.
const DEEPEST: usize = 200;

/// Installs the functions for scripts in a new machine.
pub(super) fn install(lua: &Lua, now: Timestamp) -> mlua::Result<()> {
    let globals = lua.globals();
    lua.load(AS_IN_5_1).exec()?;
    for name in REMOVED {
        globals.raw_remove(name)?;
    }
    globals.set("xpcall", lua.load(XPCALL).eval::<Function>()?)?;
    // The output belongs to the command, not to a rule.
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
    strings(lua, &globals.get("string")?)
}

/// The functions of `string` whose time or memory Lua itself does not limit.
fn strings(lua: &Lua, string: &Table) -> mlua::Result<()> {
    for name in ["dump", "gfind"] {
        string.raw_remove(name)?;
    }
    let repeat = lua.create_function(|lua, (text, times): (mlua::LuaString, f64)| {
        let times = times.max(0.0) as usize;
        let length = text.as_bytes().len().saturating_mul(times);
        if length > LONGEST {
            return Err(too_long());
        }
        let times = if length == 0 { 0 } else { times };
        lua.create_string(text.as_bytes().repeat(times))
    })?;
    string.set("rep", repeat)?;
    string.set(
        "find",
        lua.create_function(|lua, arguments| find(lua, arguments, true))?,
    )?;
    string.set(
        "match",
        lua.create_function(|lua, arguments| find(lua, arguments, false))?,
    )?;
    string.set("gmatch", lua.create_function(each_match)?)?;
    string.set("gsub", lua.create_function(substitute)?)
}

fn too_long() -> mlua::Error {
    mlua::Error::runtime("resulting string too large")
}

type MatchArguments = (mlua::LuaString, mlua::LuaString);
type FindArguments = (mlua::LuaString, mlua::LuaString, Option<f64>, LuaValue);

/// `string.find` and `string.match`.
fn find(
    lua: &Lua,
    (text, pattern, start, plain): FindArguments,
    positions: bool,
) -> mlua::Result<MultiValue> {
    let (bytes, needle) = (text.as_bytes(), pattern.as_bytes());
    let start = match start.unwrap_or(1.0) as i64 {
        n if n > 0 => (n - 1) as usize,
        0 => 0,
        n => bytes.len().saturating_sub(n.unsigned_abs() as usize),
    };
    let start = start.min(bytes.len());
    let number = |n: usize| LuaValue::Number(n as f64);
    if positions && plain.as_boolean() != Some(false) && !plain.is_nil() {
        let found = if needle.is_empty() {
            Some(0)
        } else {
            bytes[start..]
                .windows(needle.len())
                .position(|part| part == &needle[..])
        };
        return Ok(match found {
            Some(at) => MultiValue::from_vec(vec![number(start + at + 1), number(start + at + needle.len())]),
            None => MultiValue::from_vec(vec![LuaValue::Nil]),
        });
    }
    let Some(found) = Pattern::new(&needle)
        .find(&bytes, start)
        .map_err(mlua::Error::runtime)?
    else {
        return Ok(MultiValue::from_vec(vec![LuaValue::Nil]));
    };
    let mut answer = Vec::new();
    if positions {
        answer.extend([number(found.start + 1), number(found.end)]);
    }
    if !positions || !found.captures.is_empty() {
        answer.extend(captures(lua, &bytes, &found)?);
    }
    Ok(MultiValue::from_vec(answer))
}

/// The captures of a match; the whole match if there are none.
fn captures(lua: &Lua, text: &[u8], found: &Found) -> mlua::Result<Vec<LuaValue>> {
    if found.captures.is_empty() {
        return Ok(vec![LuaValue::String(
            lua.create_string(&text[found.start..found.end])?,
        )]);
    }
    let value = |capture: &Capture| {
        Ok(match *capture {
            Capture::Position(at) => LuaValue::Number((at + 1) as f64),
            Capture::Text(start, end) => LuaValue::String(lua.create_string(&text[start..end])?),
        })
    };
    found.captures.iter().map(value).collect()
}

/// `string.gmatch`.
fn each_match(lua: &Lua, (text, pattern): MatchArguments) -> mlua::Result<Function> {
    let (text, pattern) = (text.as_bytes().to_vec(), pattern.as_bytes().to_vec());
    let mut next = 0;
    lua.create_function_mut(move |lua, _: MultiValue| {
        if next > text.len() {
            return Ok(Variadic::from(vec![LuaValue::Nil]));
        }
        // Here `^` is not an anchor, because it would stop the iteration.
        let found = Pattern::unanchored(&pattern)
            .find(&text, next)
            .map_err(mlua::Error::runtime)?;
        let Some(found) = found else {
            next = text.len() + 1;
            return Ok(Variadic::from(vec![LuaValue::Nil]));
        };
        next = if found.end == found.start {
            found.end + 1
        } else {
            found.end
        };
        captures(lua, &text, &found).map(Variadic::from)
    })
}

type SubstituteArguments = (mlua::LuaString, mlua::LuaString, LuaValue, Option<f64>);

/// `string.gsub`.
fn substitute(
    lua: &Lua,
    (text, pattern, with, limit): SubstituteArguments,
) -> mlua::Result<(mlua::LuaString, f64)> {
    let (text, pattern) = (text.as_bytes().to_vec(), pattern.as_bytes().to_vec());
    let pattern = Pattern::new(&pattern);
    let limit = limit.map_or(usize::MAX, |limit| limit.max(0.0) as usize);
    let (mut made, mut at, mut count) = (Vec::new(), 0, 0);
    while count < limit {
        let Some(found) = pattern.find_at(&text, at).map_err(mlua::Error::runtime)? else {
            if pattern.is_anchored() || at >= text.len() {
                break;
            }
            made.push(text[at]);
            at += 1;
            continue;
        };
        count += 1;
        let values = captures(lua, &text, &found)?;
        match replacement(&with, &text[found.start..found.end], values)? {
            Some(new) => made.extend(new),
            None => made.extend(&text[found.start..found.end]),
        }
        if made.len() > LONGEST {
            return Err(too_long());
        }
        if found.end > at {
            at = found.end;
        } else if at < text.len() {
            made.push(text[at]);
            at += 1;
        } else {
            at += 1;
            break;
        }
        if pattern.is_anchored() {
            break;
        }
    }
    made.extend(text.get(at..).unwrap_or_default());
    Ok((lua.create_string(made)?, count as f64))
}

/// The replacement of a match; `None` keeps it.
fn replacement(with: &LuaValue, whole: &[u8], values: Vec<LuaValue>) -> mlua::Result<Option<Vec<u8>>> {
    let answer = match with {
        LuaValue::String(template) => return expand(&template.as_bytes(), whole, &values).map(Some),
        LuaValue::Number(_) | LuaValue::Integer(_) => return Ok(Some(with.to_string()?.into_bytes())),
        LuaValue::Table(table) => {
            table.get::<LuaValue>(values.into_iter().next().unwrap_or(LuaValue::Nil))?
        }
        LuaValue::Function(function) => function.call(MultiValue::from_vec(values))?,
        _ => {
            return Err(mlua::Error::runtime(
                "bad argument #3 to 'gsub' (string/function/table expected)",
            ));
        }
    };
    match answer {
        LuaValue::Nil | LuaValue::Boolean(false) => Ok(None),
        LuaValue::String(text) => Ok(Some(text.as_bytes().to_vec())),
        LuaValue::Number(_) | LuaValue::Integer(_) => Ok(Some(answer.to_string()?.into_bytes())),
        other => {
            let kind = other.type_name();
            Err(mlua::Error::runtime(format!(
                "invalid replacement value (a {kind})"
            )))
        }
    }
}

/// `%1` and the like in a replacement.
fn expand(template: &[u8], whole: &[u8], values: &[LuaValue]) -> mlua::Result<Vec<u8>> {
    let mut made = Vec::new();
    let mut bytes = template.iter();
    while let Some(&byte) = bytes.next() {
        match (byte, if byte == b'%' { bytes.next() } else { None }) {
            (b'%', Some(b'0')) => made.extend(whole),
            (b'%', Some(digit @ b'1'..=b'9')) => match values.get(usize::from(digit - b'1')) {
                Some(value) => made.extend(value.to_string()?.into_bytes()),
                None => return Err(mlua::Error::runtime("invalid capture index")),
            },
            (b'%', Some(&other)) => made.push(other),
            (other, _) => made.push(other),
        }
        if made.len() > LONGEST {
            return Err(too_long());
        }
    }
    Ok(made)
}

/// `os.time` and `os.date`, the functions of `os` that Argo CD allows. Local time is UTC.
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
        // Fields may be out of range and then carry over, as in C.
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

/// `require("json")`.
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

/// A JSON value in Lua: numbers are doubles, null is absent (also in lists, which become shorter), as in Argo
/// CD.
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
