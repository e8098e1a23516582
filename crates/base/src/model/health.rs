//! The health of an object: whether its live state matches its manifest.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The health of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// The object matches its manifest (Argo CD: Healthy).
    Ready,
    /// The object is changing (Argo CD: Progressing).
    Progressing,
    /// The object will not become ready without a change (Argo CD: Degraded).
    Failed,
    /// The object is paused on purpose (Argo CD: Suspended).
    Suspended,
    /// The health is unknown.
    Unknown,
}

impl Health {
    /// Parses Argo CD's word for a health; `None` for any other word.
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

/// The health that a health script reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    /// The health of the object.
    pub health: Health,
    /// The reason for the health, as a text for people; may be empty. Contains text from the cluster: escape it before
    /// printing.
    pub message: String,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
