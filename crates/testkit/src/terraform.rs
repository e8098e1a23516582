//! Terraform (or OpenTofu in its place) with a real provider and no network.

use std::path::{Path, PathBuf};

/// The version of `hashicorp/local` in the mirror.
pub const LOCAL_PROVIDER: &str = "2.9.0";

/// The executable.
pub fn binary() -> PathBuf {
    super::executable("terraform", "terraform")
}

/// OpenTofu; installed by `make test-all` alone.
pub fn tofu() -> PathBuf {
    super::executable("opentofu", "tofu")
}

/// The filesystem mirror that holds `hashicorp/local`.
pub fn mirror() -> PathBuf {
    super::installed("provider-local", super::cache().join("terraform-mirror"))
}

/// The version of `konverge/trace` in the mirror: a provider of our own whose calls leave a trace.
pub const TRACE_PROVIDER: &str = "1.0.0";

/// The provider whose calls leave a trace, as a Spec names it.
pub fn trace() -> String {
    let source = "registry.terraform.io/konverge/trace";
    super::installed("provider-trace", mirror().join(source));
    format!("{source}/{TRACE_PROVIDER}")
}

/// Writes a CLI configuration into `folder` that takes providers from the mirror alone; its path goes into
/// `TF_CLI_CONFIG_FILE`.
pub fn cli_config(folder: &Path) -> PathBuf {
    let path = folder.join("terraform.rc");
    let mirror = mirror();
    let text = format!(
        "disable_checkpoint = true\nprovider_installation {{\n  filesystem_mirror {{\n    path = {mirror:?}\n  }}\n}}\n"
    );
    std::fs::write(&path, text).expect("the configuration can be written");
    path
}
