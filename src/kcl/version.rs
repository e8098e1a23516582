//! The versions of the KCL core that Konverge works with.

/// The default version of the core; a repository may pin another in `konverge.yaml`.
pub const DEFAULT_VERSION: &str = "0.13.2";

/// The oldest supported core.
pub const OLDEST_VERSION: &str = "0.9.0";
