//! The client against the fake GitHub, a story a file.

mod comment;
mod looking;
mod records;
mod trouble;

use std::time::Duration;

use konverge::github::Client;
use konverge::model::CommitId;
use konverge::model::check_run::{Annotation, Check, Conclusion, Level};
use konverge::model::comment_marker::{Marker, MarkerKind};
use konverge::retry::Policy;
use konverge::secrets::{HashKey, Secrets};

use crate::support::github::FakeGithub;

fn client(fake: &FakeGithub) -> Client {
    client_with(fake, "ghs_token")
}

fn client_with(fake: &FakeGithub, token: &str) -> Client {
    let quick = Policy {
        first: Duration::from_millis(1),
        total: Duration::from_secs(20),
        ..Policy::default()
    };
    Client::new(
        &fake.api_url(),
        "acme/konfig",
        token,
        Secrets::new(HashKey::derived("test")),
    )
    .unwrap()
    .with_patience(quick)
    .with_deadline(Duration::from_secs(10))
}

fn sha(digit: char) -> CommitId {
    digit.to_string().repeat(40).parse().unwrap()
}

fn marker(run: u64) -> Marker {
    let mut marker = Marker::new(MarkerKind::Preview, "");
    marker.run = run;
    marker.attempt = 1;
    marker
}

fn body(marker: &Marker, text: &str) -> String {
    format!("{}\n{text}\n", marker.line())
}

fn check(annotations: u32) -> Check {
    let note = |line| Annotation {
        level: Level::Error,
        file: "appops/shop/dev/main.k".into(),
        line: Some(line),
        column: Some(1),
        title: "KCL".into(),
        message: "no such attribute".into(),
    };
    Check {
        name: "konverge: shop/dev".into(),
        conclusion: Conclusion::Failure,
        title: "failed".into(),
        summary: "é".repeat(40_000),
        text: "x".repeat(70_000),
        annotations: (1..=annotations).map(note).collect(),
    }
}
