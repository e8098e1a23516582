//! The filter of the log.

use tracing_subscriber::EnvFilter;

/// Returns the filter of the log, by the number of `-v`, or by the directives in `given`, such as `konverge=debug`.
///
/// Foreign crates are logged from `warn` on, however often `-v` is given: some print headers below it. Directives may
/// say otherwise.
pub fn log_filter(verbose: u8, given: Option<&str>) -> EnvFilter {
    EnvFilter::new(given.unwrap_or(match verbose {
        0 => "konverge=error",
        1 => "konverge=info",
        2 => "warn,konverge=debug",
        _ => "warn,konverge=trace",
    }))
}
