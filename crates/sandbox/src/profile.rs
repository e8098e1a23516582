//! [`SandboxProfile`]: the different rules for a KCL worker and for a module.

use serde::{Deserialize, Serialize};

/// The purpose of a sandboxed program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxProfile {
    /// A program that only computes: KCL, or the unpacker of packages.
    #[default]
    Interpreter,
    /// A module, which serves a socket in its writable folder.
    Module {
        /// True if the module may use the network.
        network: bool,
    },
}

/// The stack size of the interpreter in bytes. It is larger than the usual 8 MiB, so that every program that KCL
/// compiles elsewhere also compiles here.
const STACK: u64 = 64 << 20;

/// The stack size of a module in bytes. It is smaller, because each thread of a module reserves this much address
/// space.
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
