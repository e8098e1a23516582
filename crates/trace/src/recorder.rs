//! [`Recorder`]: a tracing layer that records the spans of a run.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use konverge_base::{
    model::timeline::{PartKind, Timeline, TimelinePart},
    spans,
};
use tracing::{
    Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{Layer, filter::filter_fn, layer::Context, registry::LookupSpan};

/// The maximum number of recorded requests and waits.
const MOST: usize = 20_000;
/// The maximum number of all recorded spans, because a command such as `watch` never ends.
const MOST_PARTS: usize = 100_000;

/// Records the spans of a run, in the order in which they began. Cheap to clone. Records nothing until its layer is
/// installed.
#[derive(Clone)]
pub struct Recorder(Arc<Recording>);

struct Recording {
    begin: Instant,
    /// The time at which the recording began, by the system clock.
    time: SystemTime,
    parts: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    /// The spans, each with true if it has ended.
    parts: Vec<(TimelinePart, bool)>,
    /// The number of requests and waits among the spans.
    details: usize,
    left_out: usize,
}

/// The index of a span in the recording.
struct Place(usize);

impl Default for Recorder {
    fn default() -> Self {
        Self(Arc::new(Recording {
            begin: Instant::now(),
            time: SystemTime::now(),
            parts: Mutex::default(),
        }))
    }
}

impl Recorder {
    /// Returns the layer to install in a subscriber.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let is_ours = |metadata: &Metadata<'_>| metadata.is_span() && metadata.target() == spans::TARGET;
        self.clone().with_filter(filter_fn(is_ours))
    }

    /// Returns the timeline of all spans recorded so far.
    pub fn timeline(&self) -> Timeline {
        let now = self.0.begin.elapsed();
        let recorded = self.lock();
        let parts = recorded.parts.iter().map(|(part, ended)| TimelinePart {
            length: if *ended {
                part.length
            } else {
                now.saturating_sub(part.begin)
            },
            ..part.clone()
        });
        Timeline {
            parts: parts.collect(),
            left_out: recorded.left_out,
        }
    }

    /// Returns the time at which the recording began.
    pub fn begin(&self) -> SystemTime {
        self.0.time
    }

    fn lock(&self) -> MutexGuard<'_, Parts> {
        self.0.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Layer<S> for Recorder
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some((kind, span)) = kind_of(attributes.metadata().name()).zip(context.span(id)) else {
            return;
        };
        let within = span
            .parent()
            .and_then(|parent| parent.extensions().get::<Place>().map(|place| place.0));
        let mut part = TimelinePart {
            kind,
            name: String::new(),
            within,
            begin: self.0.begin.elapsed(),
            length: Duration::ZERO,
            work: None,
            status: None,
            bytes: None,
        };
        attributes.record(&mut PartFields(&mut part));
        let mut recorded = self.lock();
        if recorded.parts.len() == MOST_PARTS {
            recorded.left_out += 1;
            return;
        }
        // Requests and waits have a lower limit of their own, so that they never displace stages and stacks.
        if matches!(kind, PartKind::Request | PartKind::Wait) {
            if recorded.details == MOST {
                recorded.left_out += 1;
                return;
            }
            recorded.details += 1;
        }
        span.extensions_mut().insert(Place(recorded.parts.len()));
        recorded.parts.push((part, false));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id);
        let place = span.and_then(|span| span.extensions().get::<Place>().map(|place| place.0));
        if let Some(place) = place {
            values.record(&mut PartFields(&mut self.lock().parts[place].0));
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id);
        let place = span.and_then(|span| span.extensions().get::<Place>().map(|place| place.0));
        if let Some(place) = place {
            let now = self.0.begin.elapsed();
            let (part, ended) = &mut self.lock().parts[place];
            part.length = now.saturating_sub(part.begin);
            *ended = true;
        }
    }
}

fn kind_of(name: &str) -> Option<PartKind> {
    Some(match name {
        "run" => PartKind::Run,
        "stage" => PartKind::Stage,
        "stack" => PartKind::Stack,
        "request" => PartKind::Request,
        "wait" => PartKind::Wait,
        _ => return None,
    })
}

struct PartFields<'a>(&'a mut TimelinePart);

impl PartFields<'_> {
    fn text(&mut self, field: &Field, text: String) {
        match field.name() {
            "of" => self.0.name = text,
            "work" | "method" => self.0.work = Some(text),
            _ => {}
        }
    }
}

impl Visit for PartFields<'_> {
    fn record_str(&mut self, field: &Field, text: &str) {
        self.text(field, text.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text(field, format!("{value:?}"));
    }

    fn record_u64(&mut self, field: &Field, number: u64) {
        match field.name() {
            "status" => self.0.status = u16::try_from(number).ok(),
            "bytes" => self.0.bytes = Some(number),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Instrument as _;
    use tracing_subscriber::layer::SubscriberExt as _;

    #[tokio::test]
    async fn the_parts_of_a_run_are_kept_with_what_they_belong_to() {
        let recorder = Recorder::default();
        let subscriber = tracing_subscriber::registry().with(recorder.layer());
        let _subscribed = tracing::subscriber::set_default(subscriber);
        let run = spans::run("ci");
        async {
            async {
                let request = spans::request("GET", "api.example");
                spans::answered(&request, 304, Some(12));
                drop(request);
                drop(spans::request("PUT", "api.example"));
                drop(tracing::info_span!("foreign"));
            }
            .instrument(spans::stack(&"shop/prod", "plan"))
            .await;
            let open = spans::wait("a lease");
            let parts = recorder.timeline().parts;
            let shown: Vec<_> = parts
                .iter()
                .map(|part| (part.kind, part.name.as_str(), part.work.as_deref(), part.within))
                .collect();
            assert_eq!(
                shown,
                [
                    (PartKind::Run, "ci", None, None),
                    (PartKind::Stack, "shop/prod", Some("plan"), Some(0)),
                    (PartKind::Request, "api.example", Some("GET"), Some(1)),
                    (PartKind::Request, "api.example", Some("PUT"), Some(1)),
                    (PartKind::Wait, "a lease", None, Some(0)),
                ]
            );
            assert_eq!((parts[2].status, parts[2].bytes), (Some(304), Some(12)));
            assert_eq!((parts[3].status, parts[3].bytes), (None, None));
            drop(open);
        }
        .instrument(run)
        .await;
        let ends = |timeline: &Timeline| timeline.parts.iter().map(|part| part.length).collect::<Vec<_>>();
        assert_eq!(
            ends(&recorder.timeline()),
            ends(&recorder.timeline()),
            "all have ended"
        );
    }

    #[test]
    fn what_is_too_much_is_counted() {
        let recorder = Recorder::default();
        let subscriber = tracing_subscriber::registry().with(recorder.layer());
        let _subscribed = tracing::subscriber::set_default(subscriber);
        for _ in 0..MOST + 3 {
            drop(spans::wait("a lease"));
        }
        let timeline = recorder.timeline();
        assert_eq!((timeline.parts.len(), timeline.left_out), (MOST, 3));
    }
}
