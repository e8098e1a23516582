//! [`SandboxLayers`]: the settings of a sandboxed process.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::profile::SandboxProfile;

/// The reaction if the kernel lacks a sandbox layer (`kcl.sandbox` of the default branch).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Refuse to compile. This is the default.
    #[default]
    Required,
    /// Compile in a partial sandbox, with a warning for each missing layer.
    BestEffort,
}

/// The settings of `konverge __worker`, passed as one JSON argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLayers {
    /// The program to execute.
    pub interpreter: PathBuf,
    /// The arguments of the program.
    pub arguments: Vec<String>,
    /// The complete environment of the program.
    pub environment: BTreeMap<String, String>,
    /// The working directory of the program.
    pub work_dir: PathBuf,
    /// Files, and folders with everything in them, that may be read.
    pub readable: Vec<PathBuf>,
    /// Folders that may be listed.
    pub folders: Vec<PathBuf>,
    /// The only folder, with everything in it, where files may be created and written.
    pub writable: Option<PathBuf>,
    /// The maximum size of a file in the writable folder in bytes.
    #[serde(default)]
    pub file_size: u64,
    /// The maximum size of the address space in bytes.
    pub memory: u64,
    /// The reaction if a layer is missing.
    pub mode: SandboxMode,
    /// The purpose of the program, which decides about further permissions.
    #[serde(default)]
    pub profile: SandboxProfile,
}
