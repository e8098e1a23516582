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
