//! The official KCL core, installed from its pinned package.

use std::path::PathBuf;

/// Returns the Python interpreter whose environment has `kcl_lib`: that of `KONVERGE_KCL` if it is set, or else the one
/// that `scripts/parts install kcl` installed.
pub fn interpreter() -> PathBuf {
    match std::env::var_os("KONVERGE_KCL") {
        Some(interpreter) => interpreter.into(),
        None => super::installed("kcl", super::cache().join("kcl/bin/python3")),
    }
}

/// The version of the core of [`older_interpreter`].
pub const OLDER_VERSION: &str = "0.12.2";

/// Returns the Python interpreter whose environment has an earlier core.
pub fn older_interpreter() -> PathBuf {
    super::installed("kcl-older", super::cache().join("kcl-older/bin/python3"))
}
