//! Parses the response to an instant query. <https://prometheus.io/docs/prometheus/latest/querying/api/>

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::MetricsError;

/// The prefix of remarks, which older versions of Prometheus put among the warnings. They do not affect the result.
const REMARK: &str = "PromQL info:";

#[derive(Deserialize)]
struct Answer {
    status: String,
    data: Option<Data>,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default, rename = "errorType")]
    error_type: String,
    #[serde(default)]
    error: String,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "resultType")]
    result_type: String,
    result: Value,
}

/// A series of a vector. For a native histogram it has no `value`.
#[derive(Deserialize)]
struct Series {
    value: Option<Sample>,
}

/// A timestamp, and the value as text.
#[derive(Deserialize)]
struct Sample(#[expect(dead_code, reason = "the time of the query")] f64, String);

/// Parses a response. `redact` shortens texts of the server and removes secrets.
pub(crate) fn read(
    status: u16,
    body: &[u8],
    redact: impl Fn(&str) -> String,
) -> Result<Measurement, MetricsError> {
    let is_success = (200..300).contains(&status);
    let answer = match serde_json::from_slice::<Answer>(body) {
        Ok(answer) => answer,
        Err(_) if !is_success => return Err(MetricsError::Status { status }),
        Err(error) => return Err(invalid(redact(&error.to_string()))),
    };
    match answer.status.as_str() {
        "success" if is_success => {}
        "error" => {
            return Err(MetricsError::Refused {
                status,
                kind: redact(&answer.error_type),
                says: redact(&answer.error),
            });
        }
        _ if !is_success => return Err(MetricsError::Status { status }),
        other => return Err(invalid(format!("its status is `{}`", redact(other)))),
    }
    // A warning may mean that a part of the data is missing. Such a number must not open a gate.
    if let Some(warning) = answer.warnings.iter().find(|text| !text.starts_with(REMARK)) {
        return Err(MetricsError::Warned {
            says: redact(warning),
        });
    }
    let data = answer
        .data
        .ok_or_else(|| invalid("it has no `data`".to_owned()))?;
    match data.result_type.as_str() {
        "vector" => {
            let mut vector: Vec<Series> = parse(data.result, &redact)?;
            match (vector.pop(), vector.len()) {
                (None, _) => Ok(Measurement::NoSeries),
                (Some(_), others @ 1..) => Ok(Measurement::Several(others + 1)),
                (Some(series), 0) => match series.value {
                    Some(Sample(_, text)) => number(&text, &redact),
                    None => Err(MetricsError::NotANumber { kind: "histogram" }),
                },
            }
        }
        "scalar" => number(&parse::<Sample>(data.result, &redact)?.1, &redact),
        "matrix" => Err(MetricsError::NotANumber { kind: "matrix" }),
        "string" => Err(MetricsError::NotANumber { kind: "string" }),
        other => Err(invalid(format!("its result is a `{}`", redact(other)))),
    }
}

fn parse<T: DeserializeOwned>(result: Value, redact: &impl Fn(&str) -> String) -> Result<T, MetricsError> {
    serde_json::from_value(result).map_err(|error| invalid(redact(&error.to_string())))
}

fn number(text: &str, redact: &impl Fn(&str) -> String) -> Result<Measurement, MetricsError> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(Measurement::Number(number)),
        Ok(number) => Ok(Measurement::NotFinite(number)),
        Err(_) => Err(invalid(format!("`{}` is not a number", redact(text)))),
    }
}

fn invalid(why: String) -> MetricsError {
    MetricsError::Invalid { why }
}

/// The result of a query. Only [`Measurement::Number`] can be compared with a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measurement {
    /// One finite number.
    Number(f64),
    /// No series matches, or no series has a sample in the time range.
    NoSeries,
    /// A single value that is NaN or infinite, such as a ratio without any requests.
    NotFinite(f64),
    /// This number of series, each with its own value.
    Several(usize),
}
