//! [`SandboxProfile`]: the sandbox rules for a KCL worker and for a module.

use serde::{Deserialize, Serialize};

/// The purpose of a sandboxed program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxProfile {
    /// It computes: the KCL core, and the unpacker of packages.
    #[default]
    Interpreter,
    /// It serves a socket in its writable folder.
    Module {
        /// It may use the network.
        network: bool,
    },
}

/// The stack size for deep but finite recursion: more than the usual 8 MiB, so that everything compiles that
/// the core compiles elsewhere.
const STACK: u64 = 64 << 20;

/// The stack size of a module: each of its threads takes as much address space.
const MODULE_STACK: u64 = 8 << 20;

impl SandboxProfile {
    pub(super) fn stack(self) -> u64 {
        match self {
            Self::Interpreter => STACK,
            Self::Module { .. } => MODULE_STACK,
        }
    }

    pub(super) fn what_runs(self) -> &'static str {
        match self {
            Self::Interpreter => "KCL is compiled",
            Self::Module { .. } => "a module runs",
        }
    }
}
