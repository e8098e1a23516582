//! The filter of the log.

use tracing_subscriber::EnvFilter;

/// Returns the log filter for the number of `-v`, or for directives such as `konverge=debug`.
///
/// Other crates are logged only from level `warn`, whatever the number of `-v`, because some print HTTP headers
/// at lower levels. Directives can override this.
pub fn log_filter(verbose: u8, given: Option<&str>) -> EnvFilter {
    EnvFilter::new(given.unwrap_or(match verbose {
        0 => "konverge=error",
        1 => "konverge=info",
        2 => "warn,konverge=debug",
        _ => "warn,konverge=trace",
    }))
}
