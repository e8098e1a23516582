//! Answers as the documentation of Prometheus has them, and answers of something else.

use crate::{Measurement, MetricsError, answer};

fn of(status: u16, body: &str) -> Result<Measurement, MetricsError> {
    answer::read(status, body.as_bytes(), str::to_owned)
}

fn vector(result: &str) -> Result<Measurement, MetricsError> {
    of(
        200,
        &format!(r#"{{"status":"success","data":{{"resultType":"vector","result":{result}}}}}"#),
    )
}

#[test]
fn only_one_finite_value_is_a_number() {
    for (text, expected) in [
        ("0.004", Some(0.004)),
        ("-3", Some(-3.0)),
        ("1.5e+06", Some(1.5e6)),
        ("NaN", None),
        ("+Inf", None),
        ("-Inf", None),
        ("1e999", None),
    ] {
        let found = vector(&format!(r#"[{{"metric":{{}},"value":[1.5,"{text}"]}}]"#));
        match expected {
            Some(number) => assert_eq!(found, Ok(Measurement::Number(number)), "{text}"),
            None => assert!(
                matches!(found, Ok(Measurement::NotFinite(_))),
                "{text}: {found:?}"
            ),
        }
    }
    assert_eq!(vector("[]"), Ok(Measurement::NoSeries));
    let one = r#"{"metric":{},"value":[1,"1"]}"#;
    assert_eq!(
        vector(&format!("[{one},{one},{one}]")),
        Ok(Measurement::Several(3))
    );
}

#[test]
fn what_is_not_a_number_is_an_error() {
    let histogram = r#"[{"metric":{},"histogram":[1,{"count":"1","sum":"1"}]}]"#;
    assert_eq!(
        vector(histogram),
        Err(MetricsError::NotANumber { kind: "histogram" })
    );
    for kind in ["matrix", "string"] {
        let body = format!(r#"{{"status":"success","data":{{"resultType":"{kind}","result":[1,"x"]}}}}"#);
        assert_eq!(of(200, &body), Err(MetricsError::NotANumber { kind }));
    }
}

#[test]
fn an_answer_of_something_else_is_an_error() {
    for body in [
        "",
        "null",
        "[]",
        "{}",
        "<html>",
        r#"{"status":"success"}"#,
        r#"{"status":"fine","data":{"resultType":"vector","result":[]}}"#,
        r#"{"status":"success","data":{"resultType":"tensor","result":[]}}"#,
        r#"{"status":"success","data":{"resultType":"vector","result":null}}"#,
        r#"{"status":"success","data":{"resultType":"scalar","result":[1,1]}}"#,
        r#"{"status":"success","data":{"resultType":"scalar","result":[1,"many"]}}"#,
        r#"{"status":"success","data":{"resultType":"scalar","result":[1,""]}}"#,
        r#"{"status":"success","data":{"resultType":"vector","result":[{"value":["1","1"]}]}}"#,
    ] {
        let found = of(200, body);
        assert!(
            matches!(found, Err(MetricsError::Invalid { .. })),
            "{body}: {found:?}"
        );
        // A number under an error status is never one.
        assert!(of(500, body).is_err(), "{body}");
    }
    let good = r#"{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}"#;
    assert_eq!(of(200, good), Ok(Measurement::Number(1.0)));
    assert_eq!(of(502, good), Err(MetricsError::Status { status: 502 }));
}

#[test]
fn a_warning_takes_the_number_and_a_remark_does_not() {
    let warned = |warning: &str| {
        of(
            200,
            &format!(
                r#"{{"status":"success","data":{{"resultType":"scalar","result":[1,"1"]}},"warnings":["{warning}"],"infos":["x"]}}"#
            ),
        )
    };
    assert_eq!(
        warned("PromQL info: metric might not be a counter"),
        Ok(Measurement::Number(1.0))
    );
    let says = "no store matched for this query".to_owned();
    assert_eq!(warned(&says), Err(MetricsError::Warned { says: says.clone() }));
}
