//! The client against the fake GitHub, a story a file.

mod app_login;
mod comment;
mod error_answers;
mod read_requests;
mod write_requests;

use std::time::Duration;

use konverge_base::model::CommitId;
use konverge_base::model::check_run::{Annotation, CheckRun, Conclusion, Level};
use konverge_base::model::comment_marker::{CommentMarker, MarkerKind};
use konverge_base::retry::RetryPolicy;
use konverge_forge::RequestOptions;
use konverge_github::{Client, Login};
use konverge_secrets::{HashKey, Secrets};

use crate::support::github::FakeGithub;

fn client(fake: &FakeGithub) -> Client {
    client_with(fake, "ghs_token")
}

fn client_with(fake: &FakeGithub, token: &str) -> Client {
    let quick = RetryPolicy {
        first: Duration::from_millis(1),
        total: Duration::from_secs(20),
        ..RetryPolicy::default()
    };
    Client::new(
        &fake.api_url(),
        "acme/konfig",
        Login::Token(token),
        Secrets::new(HashKey::derive("test")),
    )
    .unwrap()
    .with_options(RequestOptions {
        retries: quick,
        deadline: Duration::from_secs(10),
        ..RequestOptions::default()
    })
}

fn sha(digit: char) -> CommitId {
    digit.to_string().repeat(40).parse().unwrap()
}

fn marker(run: u64) -> CommentMarker {
    let mut marker = CommentMarker::new(MarkerKind::Preview, "");
    marker.run = run;
    marker.attempt = 1;
    marker
}

fn body(marker: &CommentMarker, text: &str) -> String {
    format!("{}\n{text}\n", marker.line())
}

fn check(annotations: u32) -> CheckRun {
    let note = |line| Annotation {
        level: Level::Error,
        file: "appops/shop/dev/main.k".into(),
        line: Some(line),
        column: Some(1),
        title: "KCL".into(),
        message: "no such attribute".into(),
    };
    CheckRun {
        name: "konverge: shop/dev".into(),
        conclusion: Conclusion::Failure,
        title: "failed".into(),
        summary: "é".repeat(40_000),
        text: "x".repeat(70_000),
        annotations: (1..=annotations).map(note).collect(),
    }
}
