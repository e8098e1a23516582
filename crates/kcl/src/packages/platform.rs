//! The platform of this machine, as registries and Go name it.

/// The operating system and the architecture, such as `linux` and `amd64`.
pub fn platform() -> (&'static str, &'static str) {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    (system, architecture)
}
