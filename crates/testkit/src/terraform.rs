//! Terraform, or OpenTofu in its place, with a real provider and without a network.

use std::path::{Path, PathBuf};

/// The version of `hashicorp/local` in the mirror.
pub const LOCAL_PROVIDER: &str = "2.9.0";

/// Returns the path of Terraform.
pub fn binary() -> PathBuf {
    super::executable("terraform", "terraform")
}

/// Returns the path of OpenTofu, which only `make test-all` installs.
pub fn tofu() -> PathBuf {
    super::executable("opentofu", "tofu")
}

/// Returns the filesystem mirror with `hashicorp/local`.
pub fn mirror() -> PathBuf {
    super::installed("provider-local", super::cache().join("terraform-mirror"))
}

/// The version of `konverge/trace` in the mirror: a provider for tests that records its calls.
pub const TRACE_PROVIDER: &str = "1.0.0";

/// Returns the provider that records its calls, as a Spec names it.
pub fn trace() -> String {
    let source = "registry.terraform.io/konverge/trace";
    super::installed("provider-trace", mirror().join(source));
    format!("{source}/{TRACE_PROVIDER}")
}

/// Writes a CLI configuration into `folder` that takes providers only from the mirror, and returns its path for
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

/// Creates a filesystem mirror in `folder` with the providers whose schemas are recorded in `konfig-example/schemas`. A
/// provider for tests serves each record. Returns the source and the version of each.
pub fn recorded_mirror(folder: &Path) -> Vec<(String, String)> {
    let executable = super::executable("provider-record", "terraform-provider-record");
    let platform = format!("{}_amd64", std::env::consts::OS);
    let platform = match std::env::consts::ARCH {
        "aarch64" => platform.replace("amd64", "arm64"),
        _ => platform,
    };
    let schemas = super::root().join("konfig-example/schemas");
    let mut providers = Vec::new();
    for file in std::fs::read_dir(schemas).expect("the example has recorded schemas") {
        let file = file.expect("a file").path();
        let text = std::fs::read_to_string(&file).expect("a record can be read");
        let record: serde_json::Value = serde_json::from_str(&text).expect("a record is JSON");
        let field = |name: &str| record["recorded"][name].as_str().expect("a text").to_owned();
        let (source, version) = (field("address"), field("version"));
        let package = folder.join(&source).join(&version).join(&platform);
        std::fs::create_dir_all(&package).expect("a folder");
        let name = source.rsplit('/').next().expect("a name");
        let program = package.join(format!("terraform-provider-{name}_v{version}"));
        std::fs::copy(&executable, program).expect("the provider can be copied");
        std::fs::copy(&file, package.join("schema.json")).expect("the record can be copied");
        providers.push((source, version));
    }
    providers
}

/// Returns the folder of the packages that were generated from the schemas of providers.
pub fn provider_schemas() -> PathBuf {
    super::installed("provider-schemas", super::cache().join("provider-schemas"))
}
