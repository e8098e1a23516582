//! A run that can be followed: its log as JSON, the debug log of a job, the picture of what took how long, and the same
//! sent to an OpenTelemetry collector.

use std::{
    net::TcpListener,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, http::StatusCode, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, common::v1::any_value, trace::v1::Span,
};
use prost::Message as _;
use serde_json::Value;

use crate::support::{
    ci_stage::{Ran, Stage},
    process::Outcome,
    tiny_monorepo,
};

/// What a collector got: headers and spans.
type Received = Arc<Mutex<Vec<(HeaderMap, Vec<Span>)>>>;

/// A collector that answers with this status.
async fn collector(status: StatusCode) -> (String, Received) {
    let received = Received::default();
    let take = move |State(received): State<Received>, headers: HeaderMap, body: Bytes| async move {
        let request = ExportTraceServiceRequest::decode(body).unwrap();
        let scopes = request
            .resource_spans
            .into_iter()
            .flat_map(|resource| resource.scope_spans);
        let spans = scopes.flat_map(|scope| scope.spans).collect();
        received.lock().unwrap().push((headers, spans));
        (status, "<html>a page of a proxy</html>")
    };
    let router = Router::new()
        .route("/v1/traces", post(take))
        .with_state(Arc::clone(&received));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, received)
}

/// A pull request with one stack, previewed with this environment.
async fn previewed(name: &str, env: Vec<(&'static str, String)>) -> (Stage, Ran) {
    let mut stage = Stage::small("").await;
    stage.env = env;
    let id = format!("{name}/dev");
    let (_, ran) = stage.reviewed(7, "made", |stage| stage.stack(&id, &[(name, "one")]));
    (stage, ran)
}

fn text(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text.clone()),
        any_value::Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_the_run_its_stages_stacks_and_requests() {
    let (address, received) = collector(StatusCode::OK).await;
    let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let env = vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", address),
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Bearer%20collector-s3cret".to_owned(),
        ),
        ("TRACEPARENT", format!("00-{trace}-{parent}-01")),
    ];
    let (_, ran) = previewed("otlp-web", env).await;
    let received = received.lock().unwrap();
    let spans: Vec<_> = received.iter().flat_map(|(_, spans)| spans).collect();
    assert_eq!(received[0].0["authorization"], "Bearer collector-s3cret");
    assert!(
        !ran.outcome.stderr.contains("collector-s3cret"),
        "{}",
        ran.outcome.stderr
    );
    let hexed = |id: &[u8]| hex::encode(id);
    assert!(spans.iter().all(|span| hexed(&span.trace_id) == trace));
    let named = |name: &str| {
        let mut found = spans.iter().filter(|span| span.name == name);
        found.next().unwrap_or_else(|| panic!("{name}: {spans:?}"))
    };
    let run = named("konverge ci");
    assert_eq!(hexed(&run.parent_span_id), parent);
    for stage in ["what is affected", "compile and plan"] {
        assert_eq!(named(stage).parent_span_id, run.span_id);
    }
    let stack = named("plan stack");
    assert_eq!(text(stack, "konverge.stack").as_deref(), Some("otlp-web/dev"));
    assert!(
        spans.iter().any(|span| span.parent_span_id == stack.span_id),
        "its requests to the cluster"
    );
    let request = named("POST");
    assert_eq!(text(request, "server.address").as_deref(), Some("127.0.0.1"));
    assert_eq!(text(request, "http.response.status_code").as_deref(), Some("201"));
    for span in &spans {
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano, "{span:?}");
    }
    let all = format!("{spans:?}");
    for secret in ["ghs_token", "collector-s3cret"] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_refuses_or_is_away_changes_no_result() {
    let (refusing, _) = collector(StatusCode::BAD_GATEWAY).await;
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    for (name, address) in [
        ("otlp-refused", refusing),
        ("otlp-away", format!("http://{free}")),
        ("otlp-wrong", "not an address".to_owned()),
    ] {
        let (stage, ran) = previewed(name, vec![("OTEL_EXPORTER_OTLP_ENDPOINT", address)]).await;
        ran.outcome.check(0);
        let stderr = &ran.outcome.stderr;
        assert!(
            stderr.contains("warning: the timeline was not sent: "),
            "{name}: {stderr}"
        );
        assert_eq!(stage.comments().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_summary_and_the_page_show_what_took_how_long() {
    let (mut stage, ran) = previewed("took-web", Vec::new()).await;
    let shown = |ran: &Ran, stages: &[&str]| {
        let summary = &ran.summary;
        assert!(summary.contains("<summary>What took how long: "), "{summary}");
        let (_, picture) = summary
            .split_once("```mermaid\ngantt\n")
            .unwrap_or_else(|| panic!("{summary}"));
        for stage in stages {
            assert!(picture.contains(&format!("  {stage} (")), "{stage}: {picture}");
        }
        assert!(
            picture.contains("took-web/dev (") && picture.contains("| `127.0.0.1` | "),
            "{picture}"
        );
    };
    shown(
        &ran,
        &["what is affected", "compile and plan", "plan took-web/dev"],
    );
    let page = std::fs::read_to_string(ran.output("summary-path")).unwrap();
    assert!(
        page.contains("<svg class=\"timeline\"") && page.contains("plan took-web/dev"),
        "{page}"
    );
    let merged = stage.merge(7, "made");
    shown(
        &merged,
        &["find pending stacks", "plan and apply", "apply took-web/dev"],
    );
}

/// Each line of a log, as JSON.
fn lines(outcome: &Outcome) -> Vec<Value> {
    let parsed = outcome
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")));
    parsed.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_json_has_a_level_a_stack_and_a_text() {
    let (stage, _) = previewed("log-web", Vec::new()).await;
    stage.monorepo.checkout("made");
    let run = |arguments: &[&str]| {
        let arguments = [&["--log-format", "json"], arguments].concat();
        stage.konverge(arguments).dir(stage.monorepo.path()).run()
    };
    let message = |line: &Value| line["fields"]["message"].as_str().unwrap().to_owned();
    let applied = run(&["apply", "log-web/dev", "--yes"]).expect(0);
    let told = lines(&applied);
    let level = |line: &Value| line["level"].as_str().unwrap().to_owned();
    assert!(told.iter().all(|line| line["timestamp"].is_string()), "{told:?}");
    assert!(
        told.iter()
            .any(|line| message(line).contains("applying log-web/dev")),
        "{told:?}"
    );
    let none = run(&["apply", "--pending", "--yes"]).expect(0);
    let told = lines(&none);
    let note = told
        .iter()
        .find(|line| message(line) == "no stack has pending changes");
    assert_eq!(level(note.unwrap_or_else(|| panic!("{told:?}"))), "INFO");

    stage.monorepo.write(
        "appops/log-web/dev/main.k",
        "resources = [1 +]\nx = \"##[error]\"\n",
    );
    let failed = run(&["build", "log-web/dev"]);
    assert_ne!(failed.code, Some(0));
    let told = lines(&failed);
    assert!(told.iter().any(|line| level(line) == "ERROR"), "{told:?}");
    assert!(!failed.stderr.contains("##["), "{}", failed.stderr);
    let unknown = run(&["build", "log-webb/dev"]);
    let told = lines(&unknown);
    let error = told.last().unwrap();
    assert!(
        error["fields"]["hints"].as_str().unwrap().contains("log-web/dev"),
        "{error}"
    );
    // When quiet, only what may be wrong.
    let quiet = run(&["--quiet", "build", "log-webb/dev"]);
    assert_eq!(lines(&quiet).iter().map(&level).collect::<Vec<_>>(), ["ERROR"]);
    // The name of a span and what it is of are two fields.
    stage.monorepo.git(["checkout", "-q", "-f", "made"]);
    let told = lines(&run(&["-vv", "preview", "log-web/dev"]));
    let span = told.iter().find(|line| line["span"]["name"] == "request");
    let span = &span.unwrap_or_else(|| panic!("{told:?}"))["span"];
    assert_eq!(span["of"], "127.0.0.1");
}

/// Lines of foreign crates below `warn`: some print headers.
fn foreign(stderr: &str) -> Vec<&str> {
    let below_warn = |line: &&str| ["DEBUG ", "TRACE "].iter().any(|level| line.contains(level));
    let lines = stderr.lines().filter(below_warn);
    let is_ours = |line: &&str| {
        let words = line.split_whitespace();
        words.into_iter().any(|word| word.starts_with("konverge"))
    };
    lines.filter(|line| !is_ours(line)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_debugged_job_shows_our_requests_and_nothing_of_other_crates() {
    let (stage, ran) = previewed("debug-web", vec![("RUNNER_DEBUG", "1".to_owned())]).await;
    stage.monorepo.checkout("made");
    let flag = stage.konverge(["-vvv", "preview", "debug-web/dev"]);
    let flag = flag.dir(stage.monorepo.path()).run().expect(0);
    for stderr in [&ran.outcome.stderr, &flag.stderr] {
        assert!(
            stderr.contains("request{of=\"127.0.0.1\" method=\"GET\" status=200"),
            "{stderr}"
        );
        assert_eq!(foreign(stderr), Vec::<&str>::new());
        let lower = stderr.to_lowercase();
        assert!(
            !lower.contains("ghs_token") && !lower.contains("authorization:"),
            "{stderr}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_to_a_bucket_are_spans_too() {
    let stage = Stage::with("followed", tiny_monorepo::monorepo(), "").await;
    let listed = stage.konverge(["-vv", "state", "list"]).run().expect(0);
    let request = "request{of=\"127.0.0.1\" method=\"GET\" status=200";
    assert!(listed.stderr.contains(request), "{}", listed.stderr);
}
