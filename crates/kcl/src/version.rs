//! The versions of the KCL core that Konverge works with.

/// The default version of the core; a repository may pin another in `konverge.yaml`.
pub const DEFAULT_VERSION: &str = "0.13.2";

/// The oldest supported core.
pub const OLDEST_VERSION: &str = "0.9.0";

/// Returns true if a core of this version does not have the function that a worker calls.
pub(super) fn is_too_old(version: &str) -> bool {
    version.starts_with(|c: char| c.is_ascii_digit()) && numbers(version) < (0, 9)
}

/// Returns the major and the minor number.
pub(super) fn numbers(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}
