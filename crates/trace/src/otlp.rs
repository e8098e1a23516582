//! Sends a timeline to an OpenTelemetry collector, configured by the standard `OTEL_…` variables.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use konverge_base::{
    error::{SharedError, chain},
    model::timeline::{PartKind, Timeline, TimelinePart},
    variables,
};
use konverge_secrets::Secrets;
use opentelemetry::{
    InstrumentationScope, KeyValue,
    trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState},
};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks},
};

/// The variables with the address of the collector.
const ADDRESSES: [&str; 2] = [
    variables::OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    variables::OTEL_EXPORTER_OTLP_ENDPOINT,
];

/// The variable with the parent span of the run, in W3C form: `00-TRACE-SPAN-FLAGS`.
const PARENT: &str = variables::TRACEPARENT;

/// The maximum total time for sending, so that a collector that is down delays no job for long.
const DEADLINE: Duration = Duration::from_secs(5);

/// The maximum number of spans in one request.
const BATCH: usize = 512;

/// The reason why a timeline was not sent.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The configuration is invalid, or the client cannot be created.
    #[error("the exporter cannot be set up")]
    SetUp(#[source] SharedError),
    /// The collector rejected the timeline.
    #[error("the collector did not accept the timeline")]
    Refused(#[source] SharedError),
    /// The collector did not respond in time.
    #[error("the collector did not answer within {} s", DEADLINE.as_secs())]
    Late,
}

/// Returns true if the environment names a collector.
pub fn is_wanted(environment: &BTreeMap<String, String>) -> bool {
    let is_set = |name: &str| environment.get(name).is_some_and(|address| !address.is_empty());
    let is_off = environment.get(variables::OTEL_SDK_DISABLED).map(String::as_str) == Some("true");
    ADDRESSES.iter().any(|name| is_set(name)) && !is_off
}

/// Sends a timeline that began at `begin`. All its texts are masked first.
///
/// # Errors
/// See [`OtlpError`].
pub async fn export(
    timeline: &Timeline,
    begin: SystemTime,
    environment: &BTreeMap<String, String>,
    secrets: &Secrets,
) -> Result<(), OtlpError> {
    let client = konverge_http::client().timeout(DEADLINE).build();
    let client = client.map_err(|error| OtlpError::SetUp(error.into()))?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .build();
    let mut exporter = exporter.map_err(|error| OtlpError::SetUp(secrets.mask(&chain(&error)).into()))?;
    let service = Resource::builder()
        .with_service_name("konverge")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    exporter.set_resource(&service.build());
    let parent = environment.get(PARENT).and_then(|parent| parse_parent(parent));
    let spans = spans(timeline, begin, parent, secrets);
    let sent = async {
        for batch in spans.chunks(BATCH) {
            let taken = exporter.export(batch.to_vec()).await;
            taken.map_err(|error| OtlpError::Refused(secrets.mask(&error.to_string()).into()))?;
        }
        Ok(())
    };
    tokio::time::timeout(DEADLINE, sent)
        .await
        .unwrap_or(Err(OtlpError::Late))
}

/// Parses a `traceparent`; `None` if the text has another form.
fn parse_parent(parent: &str) -> Option<(TraceId, SpanId)> {
    let mut fields = parent.trim().split('-').skip(1);
    let trace = TraceId::from_hex(fields.next().filter(|id| id.len() == 32)?).ok()?;
    let span = SpanId::from_hex(fields.next().filter(|id| id.len() == 16)?).ok()?;
    (trace != TraceId::INVALID && span != SpanId::INVALID).then_some((trace, span))
}

fn spans(
    timeline: &Timeline,
    begin: SystemTime,
    parent: Option<(TraceId, SpanId)>,
    secrets: &Secrets,
) -> Vec<SpanData> {
    let random = uuid::Uuid::new_v4().into_bytes();
    let trace = parent.map_or_else(|| TraceId::from_bytes(random), |(trace, _)| trace);
    let first = u64::from_be_bytes(random[8..].try_into().expect("eight bytes"));
    // The ids of a trace must be unique, and may not be zero.
    let id = |place: usize| SpanId::from_bytes((first.wrapping_add(place as u64) | 1 << 63).to_be_bytes());
    let scope = InstrumentationScope::builder("konverge").build();
    let span = |(place, part): (usize, &TimelinePart)| {
        let start = begin + part.begin;
        let above = parent.map_or(SpanId::INVALID, |(_, span)| span);
        SpanData {
            span_context: SpanContext::new(trace, id(place), TraceFlags::SAMPLED, false, TraceState::NONE),
            parent_span_id: part.within.map_or(above, id),
            parent_span_is_remote: part.within.is_none() && parent.is_some(),
            span_kind: match part.kind {
                PartKind::Request => SpanKind::Client,
                _ => SpanKind::Internal,
            },
            name: secrets.mask(&name(part)).into(),
            start_time: start,
            end_time: start + part.length,
            attributes: attributes(part, secrets),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: match part.status {
                Some(400..) => Status::error(""),
                _ => Status::Unset,
            },
            instrumentation_scope: scope.clone(),
        }
    };
    timeline.parts.iter().enumerate().map(span).collect()
}

/// Returns the name of a span. Collectors group spans by name, so there are only few different names.
fn name(part: &TimelinePart) -> String {
    match (part.kind, &part.work) {
        (PartKind::Run, _) => format!("konverge {}", part.name),
        (PartKind::Stage, _) => part.name.clone(),
        (PartKind::Stack, Some(work)) => format!("{work} stack"),
        (PartKind::Stack, None) => "stack".to_owned(),
        (PartKind::Request, method) => method.clone().unwrap_or_default(),
        (PartKind::Wait, _) => format!("wait for {}", part.name),
    }
}

fn attributes(part: &TimelinePart, secrets: &Secrets) -> Vec<KeyValue> {
    let text = |key: &'static str, text: &str| KeyValue::new(key, secrets.mask(text));
    match part.kind {
        PartKind::Run | PartKind::Stage | PartKind::Wait => Vec::new(),
        PartKind::Stack => vec![text("konverge.stack", &part.name)],
        PartKind::Request => {
            let mut attributes = vec![text("server.address", &part.name)];
            if let Some(method) = &part.work {
                attributes.push(text("http.request.method", method));
            }
            if let Some(status) = part.status {
                attributes.push(KeyValue::new("http.response.status_code", i64::from(status)));
            }
            if let Some(bytes) = part.bytes.and_then(|bytes| i64::try_from(bytes).ok()) {
                attributes.push(KeyValue::new("http.response.body.size", bytes));
            }
            attributes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_secrets::HashKey;

    fn part(kind: PartKind, name: &str, within: Option<usize>) -> TimelinePart {
        TimelinePart {
            kind,
            name: name.to_owned(),
            within,
            begin: Duration::from_secs(1),
            length: Duration::from_secs(2),
            work: None,
            status: None,
            bytes: None,
        }
    }

    #[test]
    fn a_trace_of_the_job_is_continued() {
        let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let (trace, span) = parse_parent(given).unwrap();
        assert_eq!(trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(span.to_string(), "00f067aa0ba902b7");
        let zero = given.replace("00f067aa0ba902b7", "0000000000000000");
        for wrong in ["", "00", "00-x-y-01", "00-4bf9-00f067aa0ba902b7-01", &zero] {
            assert_eq!(parse_parent(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn spans_have_their_parents_and_no_secret() {
        let secrets = Secrets::new(HashKey::random());
        secrets.learn("hunter2-hunter2");
        let timeline = Timeline {
            parts: vec![
                part(PartKind::Run, "ci", None),
                part(PartKind::Stack, "shop/hunter2-hunter2", Some(0)),
                TimelinePart {
                    work: Some("GET".to_owned()),
                    status: Some(503),
                    ..part(PartKind::Request, "api.example", Some(1))
                },
            ],
            left_out: 0,
        };
        let parent = (TraceId::from(7), SpanId::from(9));
        let spans = spans(&timeline, SystemTime::UNIX_EPOCH, Some(parent), &secrets);
        let ids: Vec<_> = spans.iter().map(|span| span.span_context.span_id()).collect();
        let parents: Vec<_> = spans.iter().map(|span| span.parent_span_id).collect();
        assert_eq!(parents, [parent.1, ids[0], ids[1]]);
        assert!(spans.iter().all(|span| span.span_context.trace_id() == parent.0));
        assert!(!format!("{spans:?}").contains("hunter2"));
        assert_eq!(
            (spans[2].name.as_ref(), &spans[2].status),
            ("GET", &Status::error(""))
        );
        assert_eq!(spans[2].end_time, SystemTime::UNIX_EPOCH + Duration::from_secs(3));
    }
}
