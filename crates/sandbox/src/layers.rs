//! [`SandboxLayers`]: the settings of a sandboxed process.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::profile::SandboxProfile;

/// The treatment of a kernel that lacks a sandbox layer (`kcl.sandbox` of the default branch).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Do not compile. The default.
    #[default]
    Required,
    /// Compile in a partial sandbox, and warn about each missing layer.
    BestEffort,
}

/// The settings of `konverge __worker`, passed as one JSON argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLayers {
    /// The program to execute.
    pub interpreter: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub environment: BTreeMap<String, String>,
    /// Its working directory.
    pub work_dir: PathBuf,
    /// Files, and whole folders, that may be read.
    pub readable: Vec<PathBuf>,
    /// Folders that may be listed.
    pub folders: Vec<PathBuf>,
    /// The one folder in which files may be created and written, with everything below.
    #[serde(default)]
    pub writable: Option<PathBuf>,
    /// The maximum size of a file there in bytes.
    #[serde(default)]
    pub file_size: u64,
    /// The address space in bytes.
    pub memory: u64,
    /// The treatment of a layer that is not available.
    pub mode: SandboxMode,
    /// The purpose of the program.
    #[serde(default)]
    pub profile: SandboxProfile,
}
