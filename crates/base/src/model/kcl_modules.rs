//! The modules of the KCL core.

/// The built-in modules of the core (`sema/src/builtin/system_module.rs`). They take precedence over a folder
/// of the same name.
pub const SYSTEM_MODULES: [&str; 15] = [
    "collection",
    "net",
    "manifests",
    "math",
    "datetime",
    "regex",
    "yaml",
    "json",
    "crypto",
    "base64",
    "units",
    "file",
    "template",
    "runtime",
    "base32",
];
