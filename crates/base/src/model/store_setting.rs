//! The settings of a store besides its address.

/// The names of the settings, as in `state.options` and in the query of a store's URL.
pub const STORE_SETTINGS: [&str; 5] = ["endpoint", "region", "path_style", "allow_http", "ca_file"];
