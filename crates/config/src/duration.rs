//! Durations as people write them: `90s`, `15m`, `6h`, `30d`.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

/// A duration: a whole number and a unit (`s`, `m`, `h`, `d`).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, schemars::JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = "^[0-9]+[smhd]$"))]
pub struct Span(Duration);

impl Span {
    /// Creates a span of whole seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Returns the span as a duration of the standard library.
    pub const fn duration(self) -> Duration {
        self.0
    }
}

/// The error for a text that is not a duration.
#[derive(Debug, thiserror::Error)]
#[error("invalid duration `{0}`: write a whole number and a unit, such as `90s`, `15m`, `6h` or `30d`")]
pub struct InvalidSpan(String);

impl FromStr for Span {
    type Err = InvalidSpan;

    fn from_str(text: &str) -> Result<Self, InvalidSpan> {
        let invalid = || InvalidSpan(text.escape_debug().to_string());
        let unit = text.chars().next_back().ok_or_else(invalid)?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86400,
            _ => return Err(invalid()),
        };
        let number: u64 = text[..text.len() - 1].parse().map_err(|_| invalid())?;
        number.checked_mul(seconds).map(Self::seconds).ok_or_else(invalid)
    }
}

impl TryFrom<String> for Span {
    type Error = InvalidSpan;

    fn try_from(text: String) -> Result<Self, InvalidSpan> {
        text.parse()
    }
}

impl From<Span> for String {
    fn from(span: Span) -> String {
        span.to_string()
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            0 => f.write_str("0s"),
            s if s % 86400 == 0 => write!(f, "{}d", s / 86400),
            s if s % 3600 == 0 => write!(f, "{}h", s / 3600),
            s if s % 60 == 0 => write!(f, "{}m", s / 60),
            s => write!(f, "{s}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes() {
        for text in ["0s", "90s", "15m", "6h", "30d"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for bad in ["", "5", "m", "1.5h", "-1s", "1w", "99999999999999999999d", "5é"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }
}
