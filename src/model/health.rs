//! Whether an object is what its manifest asks for, in a word.

use std::fmt;

use serde::Serialize;

/// What an object is like, in the words of contracts, section Commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// It is what its manifest asks for (Argo CD: Healthy).
    Ready,
    /// It is on its way (Progressing).
    Progressing,
    /// It will not get there by itself (Degraded).
    Failed,
    /// Somebody stopped it on purpose (Suspended).
    Suspended,
    /// Nothing can be said.
    Unknown,
}

impl Health {
    /// Argo CD's word for it; `None` if it is none.
    pub fn from_argo_cd(word: &str) -> Option<Self> {
        Some(match word {
            "Healthy" => Self::Ready,
            "Progressing" => Self::Progressing,
            "Degraded" => Self::Failed,
            "Suspended" => Self::Suspended,
            "Unknown" | "Missing" => Self::Unknown,
            _ => return None,
        })
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ready => "ready",
            Self::Progressing => "progressing",
            Self::Failed => "failed",
            Self::Suspended => "suspended",
            Self::Unknown => "unknown",
        })
    }
}
