//! A real Prometheus, and servers that answer wrongly.

use std::time::Duration;

use konverge_base::error::chain;
use konverge_testkit::prometheus::{CannedAnswer, FakePrometheus, PrometheusServer};

use crate::{Measurement, MetricsError, Prometheus, prometheus::ANSWER_BYTES};

const TOKEN: &str = "prom-token-4f1c";
const GOOD: &str = r#"{"status":"success","data":{"resultType":"scalar","result":[1,"2.5"]}}"#;
const MINUTES_10: Option<Duration> = Some(Duration::from_secs(600));

#[tokio::test]
async fn a_real_prometheus_answers_with_numbers_no_series_nan_and_several() {
    let server = PrometheusServer::start(&[
        ("error_ratio", &[0.5, 0.5, 0.5, 0.5, 0.5, 0.1, 0.1, 0.1, 0.1, 0.2]),
        ("requests{zone=\"a\"}", &[100.0, 100.0]),
        ("requests{zone=\"b\"}", &[50.0, 50.0]),
        ("broken", &[f64::NAN, f64::NAN]),
    ]);
    let prometheus = Prometheus::new(&server.address(), None).unwrap();
    let number = Measurement::Number;
    for (expression, over, expected) in [
        ("error_ratio", None, number(0.2)),
        ("error_ratio # the newest one", None, number(0.2)),
        ("scalar(error_ratio) * 10", None, number(2.0)),
        ("sum(requests)", None, number(150.0)),
        ("sum(requests) # of both zones", MINUTES_10, number(150.0)),
        ("requests", None, Measurement::Several(2)),
        ("requests", MINUTES_10, Measurement::Several(2)),
        ("requests{zone=\"c\"}", None, Measurement::NoSeries),
        ("missing", None, Measurement::NoSeries),
        ("missing", MINUTES_10, Measurement::NoSeries),
    ] {
        let found = prometheus.query(expression, over).await;
        assert_eq!(found, Ok(expected), "{expression}");
    }
    // The average is between the values, and not the newest one.
    match prometheus.query("error_ratio", MINUTES_10).await {
        Ok(Measurement::Number(average)) => assert!((0.21..0.45).contains(&average), "{average}"),
        other => panic!("{other:?}"),
    }
    for (expression, over) in [
        ("broken", None),
        ("broken", MINUTES_10),
        ("vector(0) / 0", None),
        ("vector(1) / 0", MINUTES_10),
        ("scalar(missing)", None),
    ] {
        let found = prometheus.query(expression, over).await;
        assert!(
            matches!(found, Ok(Measurement::NotFinite(_))),
            "{expression}: {found:?}"
        );
    }
}

#[tokio::test]
async fn a_real_prometheus_refuses_what_is_not_an_expression_for_one_number() {
    let server = PrometheusServer::start(&[("requests", &[1.0, 1.0])]);
    let prometheus = Prometheus::new(&server.address(), None).unwrap();
    for (expression, over) in [("requests[5m]", None), ("\"text\"", None)] {
        let found = prometheus.query(expression, over).await;
        assert!(
            matches!(found, Err(MetricsError::NotANumber { .. })),
            "{expression}: {found:?}"
        );
    }
    for (expression, over) in [
        ("requests[5m]", MINUTES_10),
        ("sum(requests", None),
        ("sum(requests", MINUTES_10),
        ("requests) or (requests", MINUTES_10),
        ("no such function(requests)", None),
    ] {
        match prometheus.query(expression, over).await {
            Err(MetricsError::Refused {
                status: 400, kind, ..
            }) => assert_eq!(kind, "bad_data"),
            other => panic!("{expression}: {other:?}"),
        }
    }
    for (expression, over) in [
        ("", None),
        (" \n", MINUTES_10),
        ("requests", Some(Duration::ZERO)),
    ] {
        assert_eq!(
            prometheus.query(expression, over).await,
            Err(MetricsError::Expression)
        );
    }
}

/// Asks a server that answers so. No message has the token or the address.
async fn ask(answer: CannedAnswer) -> Result<Measurement, MetricsError> {
    let fake = FakePrometheus::start(answer).await;
    let prometheus = Prometheus::new(fake.address(), Some(TOKEN)).unwrap();
    let found = prometheus.query("up", None).await;
    assert_eq!(fake.seen().len(), 1, "it is asked once: {found:?}");
    if let Err(error) = &found {
        let shown = format!("{} {error:?}", chain(error));
        assert!(!shown.contains(TOKEN), "{shown}");
        assert!(!shown.contains("127.0.0.1"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
    found
}

#[tokio::test]
async fn the_token_is_sent_and_the_expression_is_in_the_body() {
    let fake = FakePrometheus::start(CannedAnswer::new(200, GOOD)).await;
    let prometheus = Prometheus::new(&format!("{}/below/", fake.address()), Some(TOKEN)).unwrap();
    let found = prometheus.query("a{b=\"c&d\"}+1", MINUTES_10).await;
    assert_eq!(found, Ok(Measurement::Number(2.5)));
    let seen = fake.seen();
    assert_eq!(seen[0].path, "/below/api/v1/query");
    assert_eq!(seen[0].authorization, Some(format!("Bearer {TOKEN}")));
    assert_eq!(
        seen[0].body,
        "query=avg_over_time%28%28a%7Bb%3D%22c%26d%22%7D%2B1%0A%29%5B600s%3A%5D%29&timeout=30000ms"
    );
    assert!(!format!("{prometheus:?}").contains(TOKEN));
    let prometheus = Prometheus::new(fake.address(), None).unwrap();
    prometheus
        .query("up", Some(Duration::from_millis(1500)))
        .await
        .unwrap();
    let seen = fake.seen();
    assert_eq!(seen[1].authorization, None);
    assert!(seen[1].body.contains("1500ms"), "{}", seen[1].body);
}

#[tokio::test]
async fn an_error_of_the_server_is_shown_in_one_line_without_secrets() {
    for status in [401, 403, 407] {
        let found = ask(CannedAnswer::new(status, "no")).await;
        assert_eq!(found, Err(MetricsError::Unauthorized { status }));
    }
    for status in [400, 422, 429, 503, 200] {
        let body = format!(
            r#"{{"status":"error","errorType":"timeout","error":"slow\u001b[2J\n::error::{TOKEN} https://me:hunter2@host/ {}"}}"#,
            "x".repeat(5000)
        );
        match ask(CannedAnswer::new(status, &body)).await {
            Err(MetricsError::Refused {
                status: found,
                kind,
                says,
            }) => {
                assert_eq!((found, kind.as_str()), (status, "timeout"));
                assert!(!says.contains('\n') && !says.contains("hunter2"), "{says}");
                assert!(says.len() < 1000, "{}", says.len());
            }
            other => panic!("{status}: {other:?}"),
        }
    }
    let found = ask(CannedAnswer::new(502, "<html>")).await;
    assert_eq!(found, Err(MetricsError::Status { status: 502 }));
    let found = ask(CannedAnswer::new(500, GOOD)).await;
    assert_eq!(found, Err(MetricsError::Status { status: 500 }));
    let warned = GOOD.replacen('{', r#"{"warnings":["no store\nmatched"],"#, 1);
    let found = ask(CannedAnswer::new(200, &warned)).await;
    let says = "no store\\nmatched".to_owned();
    assert_eq!(found, Err(MetricsError::Warned { says }));
    let found = ask(CannedAnswer::new(200, "{\"status\"")).await;
    assert!(matches!(found, Err(MetricsError::Invalid { .. })), "{found:?}");
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let other = FakePrometheus::start(CannedAnswer::new(200, GOOD)).await;
    for status in [301, 302, 307, 308] {
        let location = format!("{}/api/v1/query", other.address());
        let found = ask(CannedAnswer::new(status, "").header("location", &location)).await;
        assert_eq!(found, Err(MetricsError::Redirect { status }));
    }
    assert!(other.seen().is_empty());
}

#[tokio::test]
async fn an_answer_has_a_size_and_a_time() {
    // One that is good, but for its size.
    let large = format!("{GOOD}{}", " ".repeat(ANSWER_BYTES));
    let found = ask(CannedAnswer::new(200, &large)).await;
    assert_eq!(found, Err(MetricsError::TooLarge { limit: ANSWER_BYTES }));

    // It accepts connections, and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let mut prometheus = Prometheus::new(&address, Some(TOKEN)).unwrap();
    prometheus.deadline = Duration::from_millis(200);
    let found = prometheus.query("up", None).await;
    assert_eq!(found, Err(MetricsError::Slow { seconds: 0 }));

    // Nobody listens there any more.
    drop(silent);
    let found = prometheus.query("up", None).await;
    match found {
        Err(MetricsError::Unreachable { why }) => assert!(!why.contains("127.0.0.1"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_token_that_cannot_be_sent_is_refused() {
    for token in ["", " ", "a\nb", "a\u{7f}"] {
        let refused = Prometheus::new("https://prom.example.com", Some(token)).err();
        assert_eq!(refused, Some(MetricsError::Token), "{token:?}");
    }
}
