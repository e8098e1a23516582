//! [`DoctorFinding`]: one thing that was checked, and how to fix it.

use serde::Serialize;

use konverge_base::error::UserError;

/// The result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DoctorVerdict {
    /// The part exists and works.
    Ok,
    /// The part is needed, but is missing or does not work.
    Missing,
    /// The part is missing, but not needed here.
    Unused,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorFinding {
    /// Name of the checked part.
    pub what: String,
    /// Result of the check.
    pub verdict: DoctorVerdict,
    /// Description of the result.
    pub says: String,
    /// Steps that fix it; commands are in backticks.
    pub fix: Vec<String>,
}

impl DoctorFinding {
    pub(super) fn from_result(what: impl Into<String>, seen: Result<String, UserError>) -> Self {
        let (verdict, says, fix) = match seen {
            Ok(says) => (DoctorVerdict::Ok, says, Vec::new()),
            Err(failure) => (DoctorVerdict::Missing, failure.to_string(), failure.hints),
        };
        Self {
            what: what.into(),
            verdict,
            says,
            fix,
        }
    }

    pub(super) fn unused(what: impl Into<String>, says: impl Into<String>, fix: &str) -> Self {
        Self {
            what: what.into(),
            verdict: DoctorVerdict::Unused,
            says: says.into(),
            fix: vec![fix.to_owned()],
        }
    }
}
