//! Interprets unquoted scalars as the tool that owns a format does: parsers differ on whether `no` or `0755` is text.

use serde_json::{Number, Value};

/// The tool whose parser decides what an unquoted, untagged scalar means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalarRules {
    /// The KCL core's parser of settings files. Everything that YAML 1.2 does not define as another type is text.
    KclSettings,
    /// The KCL core's parser of data files that it validates.
    KclData,
    /// Kusion's parser (`yaml.v3`): old booleans such as `yes` are text, old number formats are numbers.
    Kusion,
}

impl ScalarRules {
    /// Interprets a scalar that [`serde_saphyr`] does not read as text. `by_kubectl` is the value that it reads.
    pub(super) fn read(self, written: &str, by_kubectl: Value) -> Result<Value, String> {
        match self {
            Self::KclSettings => read_setting(written),
            Self::KclData => read_data(written),
            Self::Kusion => match by_kubectl {
                Value::Bool(_) if truth(written).is_none() => Ok(written.into()),
                Value::Null if is_not_finite(written) => Err(NOT_FINITE.to_owned()),
                Value::Null if !NULLS.contains(&written) => Ok(written.into()),
                other => Ok(other),
            },
        }
    }

    /// Returns the error of an unquoted key that is not allowed; `None` for an allowed key.
    pub(super) fn refuse_key(self, written: &str) -> Option<String> {
        let is_text = match self {
            Self::KclSettings | Self::Kusion => true,
            Self::KclData => matches!(read_data(written), Ok(Value::String(_))),
        };
        (!is_text).then(|| format!("a key must be a text for KCL; write \"{written}\" with its quotes"))
    }
}

/// The scalars that are null without quotes.
pub const NULLS: [&str; 5] = ["", "~", "null", "Null", "NULL"];

fn truth(written: &str) -> Option<bool> {
    match written {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// Interprets a scalar as `serde_yaml` does, with which the core reads its settings.
fn read_setting(written: &str) -> Result<Value, String> {
    if NULLS.contains(&written) {
        return Ok(Value::Null);
    }
    if let Some(truth) = truth(written) {
        return Ok(truth.into());
    }
    if let Some(number) = whole_number(written) {
        return whole(number);
    }
    if has_leading_zero(written) {
        return Ok(written.into());
    }
    // The core converts settings to JSON, which cannot contain such a number.
    if is_not_finite(written) {
        return Ok(Value::Null);
    }
    let unsigned = written.strip_prefix('+').unwrap_or(written);
    let has_two_signs = unsigned != written && unsigned.starts_with(['+', '-']);
    let number = unsigned.parse().ok().filter(|_| !has_two_signs);
    Ok(number
        .and_then(Number::from_f64)
        .map_or_else(|| written.into(), Value::Number))
}

const NOT_FINITE: &str = "must be a finite number";

/// Returns true for `.inf` and `.nan`, with or without a sign.
fn is_not_finite(written: &str) -> bool {
    let unsigned = written.strip_prefix(['+', '-']).unwrap_or(written);
    matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN")
}

/// Parses an integer in one of the notations of YAML 1.2, or in base 2.
fn whole_number(written: &str) -> Option<i128> {
    let (sign, digits) = match written.strip_prefix(['+', '-']) {
        Some(digits) => (if written.starts_with('-') { -1 } else { 1 }, digits),
        None => (1, written),
    };
    let radix = |prefix, radix| digits.strip_prefix(prefix).map(|digits| (digits, radix));
    let based = radix("0x", 16)
        .or_else(|| radix("0o", 8))
        .or_else(|| radix("0b", 2));
    let (digits, radix) = based.unwrap_or((digits, 10));
    if digits.starts_with(['+', '-']) || has_leading_zero(written) {
        return None;
    }
    Some(sign * i128::from_str_radix(digits, radix).ok()?)
}

/// Returns true for digits with a leading zero, which are text in YAML 1.2.
fn has_leading_zero(written: &str) -> bool {
    let digits = written.strip_prefix(['+', '-']).unwrap_or(written);
    digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|digit| digit.is_ascii_digit())
}

fn whole(number: i128) -> Result<Value, String> {
    let number = i64::try_from(number)
        .map(Number::from)
        .or_else(|_| u64::try_from(number).map(Number::from));
    number
        .map(Value::Number)
        .map_err(|_| "is a whole number beyond 64 bits".to_owned())
}

/// Interprets a scalar as the core's parser of data files does, which reads any digits as a decimal number. A number
/// that this parser rejects (`1.10`) is read as that number.
fn read_data(written: &str) -> Result<Value, String> {
    match written {
        "" | "~" | "null" => return Ok(Value::Null),
        "true" => return Ok(true.into()),
        "false" => return Ok(false.into()),
        _ => {}
    }
    let based = |prefix, radix| {
        written
            .strip_prefix(prefix)
            .map(|digits| i64::from_str_radix(digits, radix))
    };
    if let Some(Ok(number)) = based("0x", 16).or_else(|| based("0o", 8)) {
        return Ok(number.into());
    }
    if let Ok(number) = written.parse::<i64>() {
        return Ok(number.into());
    }
    if let Ok(number) = written.parse::<u64>() {
        return Ok(number.into());
    }
    // This parser reads `inf` as a number, but not `.NaN`.
    let number = match written {
        ".NaN" => None,
        _ if is_not_finite(written) => Some(f64::INFINITY),
        _ => written.parse().ok(),
    };
    match number {
        Some(number) => Number::from_f64(number)
            .map(Value::Number)
            .ok_or_else(|| NOT_FINITE.to_owned()),
        None => Ok(written.into()),
    }
}
