//! The official KCL core, as installed from its pinned package.

use std::path::PathBuf;

/// The Python interpreter whose environment holds `kcl_lib`: `KONVERGE_KCL` if it is set, else what
/// `scripts/parts install kcl` made.
pub fn interpreter() -> PathBuf {
    match std::env::var_os("KONVERGE_KCL") {
        Some(interpreter) => interpreter.into(),
        None => super::installed("kcl", super::cache().join("kcl/bin/python3")),
    }
}

/// The version of the core of [`older_interpreter`].
pub const OLDER_VERSION: &str = "0.12.2";

/// The Python interpreter whose environment holds an earlier core.
pub fn older_interpreter() -> PathBuf {
    super::installed("kcl-older", super::cache().join("kcl-older/bin/python3"))
}
