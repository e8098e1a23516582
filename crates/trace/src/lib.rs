//! Records a run: its spans become a [`Timeline`](konverge_base::model::timeline::Timeline), which can be sent to
//! an OpenTelemetry collector.

mod filter;
#[cfg(feature = "otlp")]
pub mod otlp;
mod recorder;

pub use filter::log_filter;
pub use recorder::Recorder;
