//! A registry that refuses, lies, is slow or leads elsewhere.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, mpsc},
    thread,
};

use konverge_base::error::{ErrorKind, UserError};
use tokio_util::sync::CancellationToken;

use super::*;

/// What a server does with a request.
enum Answer {
    /// A status, more headers and a body.
    Send(u16, String, String),
    /// The headers, and one byte of the body at a time.
    Trickle,
    /// Nothing.
    Stall,
}

type Rule = dyn Fn(&str, usize) -> Answer + Send + Sync;

/// A server: its address, and the first lines of the requests that it got.
struct Server {
    host: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Answers by the first line of a request, and how often a manifest was pushed.
    fn start(rule: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, rule) = (Arc::clone(&requests), Arc::new(rule));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, rule) = (Arc::clone(&seen), Arc::clone(&rule));
                thread::spawn(move || answer(stream.unwrap(), &*rule, &seen));
            }
        });
        Self { host, requests }
    }

    fn got(&self, start: &str) -> bool {
        let requests = self.requests.lock().unwrap();
        requests.iter().any(|line| line.starts_with(start))
    }
}

fn answer(mut stream: TcpStream, rule: &Rule, seen: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let (mut header, mut length) = (String::new(), 0);
    while reader.read_line(&mut header).unwrap() > 2 {
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        header.clear();
    }
    let is_push = |line: &str| line.starts_with("PUT ") && line.contains("/manifests/");
    let pushes = {
        let mut seen = seen.lock().unwrap();
        seen.push(line.clone());
        seen.iter().filter(|line| is_push(line)).count()
    };
    // A client that has gone needs no answer.
    match rule(&line, pushes) {
        Answer::Send(status, headers, body) => {
            reader.read_exact(&mut vec![0; length]).unwrap();
            let length = body.len();
            let text = format!(
                "HTTP/1.1 {status} x\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}"
            );
            let _ = stream.write_all(text.as_bytes());
        }
        Answer::Trickle => {
            let _ = stream.write_all(b"HTTP/1.1 200 x\r\nContent-Length: 1000000\r\n\r\n");
            while stream.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        }
        Answer::Stall => {
            // Until the client goes.
            let _ = std::io::copy(&mut reader, &mut std::io::sink());
        }
    }
}

fn send(status: u16, body: &str) -> Answer {
    Answer::Send(status, String::new(), body.to_owned())
}

/// A registry that takes everything. What it says of a manifest is the argument.
fn taking(line: &str, pushes: usize, manifest: fn(usize) -> Answer) -> Answer {
    let place = "Location: /v2/acme/a/blobs/uploads/1\r\nRange: 0-0\r\n".to_owned();
    match line.split(' ').next().unwrap() {
        "GET" if line.contains("/manifests/") => manifest(pushes),
        "GET" => send(200, "{}"),
        "HEAD" => send(404, ""),
        "PUT" => Answer::Send(201, place, String::new()),
        _ => Answer::Send(202, place, String::new()),
    }
}

fn registry(manifest: fn(usize) -> Answer) -> Server {
    Server::start(move |line, pushes| taking(line, pushes, manifest))
}

fn missing() -> Answer {
    send(
        404,
        "{\"errors\":[{\"code\":\"MANIFEST_UNKNOWN\",\"message\":\"\"}]}",
    )
}

const OTHER: &str = "{\"schemaVersion\":2}";
const LONG: Duration = Duration::from_secs(600);
/// Longer than an answer of a server that answers.
const SHORT: Duration = Duration::from_secs(2);

/// The limits that a test does not reach.
const PATIENT: RegistryLimits = RegistryLimits {
    connect: LONG,
    silence: LONG,
    push: LONG,
};

async fn push_within(
    host: &str,
    ours: &[String],
    limits: RegistryLimits,
    interrupt: Interrupt,
) -> Result<Published, PublishError> {
    let artifact = Artifact::new(
        &BTreeMap::from([("a".to_owned(), b"a".to_vec())]),
        &BTreeMap::new(),
    );
    let reference = format!("oci://{host}/acme/a:live").parse().unwrap();
    let client = RegistryClient {
        limits,
        ..RegistryClient::new(None, interrupt)
    };
    client.publish(&reference, &artifact, ours).await
}

async fn push_to(host: &str, ours: &[String]) -> Result<Published, PublishError> {
    push_within(host, ours, PATIENT, Interrupt::default()).await
}

async fn push_silent(host: &str) -> PublishError {
    let limits = RegistryLimits {
        silence: SHORT,
        ..PATIENT
    };
    let pushed = push_within(host, &[], limits, Interrupt::default()).await;
    pushed.unwrap_err()
}

/// What a user reads: the message and what to do.
fn told(error: PublishError) -> String {
    let error = UserError::from(error);
    format!("{} {}", error.message, error.hints.join(" "))
}

#[tokio::test]
async fn a_registry_that_gives_something_else_is_not_believed() {
    let server = registry(|pushes| match pushes {
        0 => missing(),
        _ => send(200, OTHER),
    });
    let error = push_to(&server.host, &[]).await.unwrap_err();
    assert!(
        matches!(&error, PublishError::Lies { found, .. } if *found == digest(OTHER.as_bytes())),
        "{error}"
    );
    assert!(told(error).contains("do not deploy from this registry"));
}

#[tokio::test]
async fn a_digest_that_is_not_that_of_the_content_is_not_believed() {
    let server = registry(|_| {
        let header = format!("Docker-Content-Digest: {}\r\n", digest(b"another"));
        Answer::Send(200, header, OTHER.to_owned())
    });
    // Also if the caller would take the content.
    let error = push_to(&server.host, &[digest(OTHER.as_bytes())])
        .await
        .unwrap_err();
    let told = told(error);
    assert!(
        told.contains(&digest(b"another")) && told.contains("do not deploy from this registry"),
        "{told}"
    );
    assert!(!server.got("PUT") && !server.got("POST"));
}

#[tokio::test]
async fn a_tag_moves_only_from_what_the_caller_pushed() {
    let server = registry(|_| send(200, OTHER));
    let error = push_to(&server.host, &[digest(b"another")]).await.unwrap_err();
    assert!(matches!(error, PublishError::OtherContent { .. }), "{error}");
    let is_read = |line: &String| line.starts_with("GET ");
    assert!(server.requests.lock().unwrap().iter().all(is_read));
    // It is moved, and the registry says that it was not.
    let error = push_to(&server.host, &[digest(OTHER.as_bytes())])
        .await
        .unwrap_err();
    assert!(matches!(error, PublishError::Lies { .. }), "{error}");
}

#[tokio::test]
async fn a_check_of_a_tag_pushes_nothing_and_says_what_a_push_would() {
    let artifact = Artifact::new(&BTreeMap::new(), &BTreeMap::new());
    let client = RegistryClient {
        limits: PATIENT,
        ..RegistryClient::new(None, Interrupt::default())
    };
    for (server, ours, is_free) in [
        (registry(|_| missing()), Vec::new(), true),
        (
            registry(|_| send(200, OTHER)),
            vec![digest(OTHER.as_bytes())],
            true,
        ),
        (registry(|_| send(200, OTHER)), vec![digest(b"another")], false),
    ] {
        let reference = format!("oci://{}/acme/a:live", server.host).parse().unwrap();
        match client.check_tag(&reference, &artifact, &ours).await {
            Ok(()) => assert!(is_free),
            Err(error) => assert!(
                !is_free && matches!(error, PublishError::OtherContent { .. }),
                "{error}"
            ),
        }
        assert!(!server.got("PUT") && !server.got("POST"));
    }
}

#[tokio::test]
async fn a_registry_that_refuses_gets_nothing() {
    let server = registry(|_| send(403, "{\"errors\":[{\"code\":\"DENIED\",\"message\":\"no\"}]}"));
    let error = push_to(&server.host, &[]).await.unwrap_err();
    assert!(matches!(error, PublishError::Registry { .. }), "{error}");
    assert!(!server.got("PUT") && !server.got("POST"));
    assert!(told(error).contains("docker login"));
    // Nobody listens: a login would not help.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let told = told(push_to(&free.to_string(), &[]).await.unwrap_err());
    assert!(
        told.contains(&free.to_string()) && told.contains("that this machine reaches"),
        "{told}"
    );
}

#[tokio::test]
async fn a_registry_that_never_answers_is_named_with_the_time_it_had() {
    let server = Server::start(|_, _| Answer::Stall);
    let told = told(push_silent(&server.host).await);
    let expected = format!("`{}` did not answer within 2 s", server.host);
    assert!(
        told.contains(&expected) && told.contains("run the command again"),
        "{told}"
    );
}

#[tokio::test]
async fn an_upload_that_the_registry_does_not_take_ends() {
    let server = Server::start(|line, pushes| {
        if line.starts_with("PATCH ") {
            Answer::Stall
        } else {
            taking(line, pushes, |_| missing())
        }
    });
    let error = push_silent(&server.host).await;
    assert!(matches!(error, PublishError::Silent { .. }), "{error}");
    assert!(server.got("PATCH ") && !server.got("PUT "));
}

#[tokio::test]
async fn an_answer_of_one_byte_at_a_time_ends_with_the_time_of_the_push() {
    let server = registry(|_| Answer::Trickle);
    let limits = RegistryLimits {
        push: SHORT,
        ..PATIENT
    };
    let pushed = push_within(&server.host, &[], limits, Interrupt::default()).await;
    let told = told(pushed.unwrap_err());
    let expected = format!(
        "the registry `{}` did not accept the artifact within 2 s",
        server.host
    );
    assert!(
        told.contains(&expected) && told.contains("not pushed again"),
        "{told}"
    );
}

#[tokio::test]
async fn a_slow_server_of_tokens_is_named_beside_the_registry() {
    let tokens = Server::start(|_, _| Answer::Stall);
    let realm = format!(
        "WWW-Authenticate: Bearer realm=\"http://{}/token\",service=\"x\"\r\n",
        tokens.host
    );
    let server = Server::start(move |_, _| Answer::Send(401, realm.clone(), String::new()));
    let told = told(push_silent(&server.host).await);
    assert!(
        told.contains(&server.host) && told.contains(&format!("`{}` did not answer", tokens.host)),
        "{told}"
    );
    assert!(tokens.got("GET /token?"));
}

#[tokio::test]
async fn redirects_between_two_hosts_end() {
    let place = Arc::new(Mutex::new(String::new()));
    let back = Arc::clone(&place);
    let redirect = |host: &str| Answer::Send(307, format!("Location: http://{host}/v2/\r\n"), String::new());
    let other = Server::start(move |_, _| redirect(&back.lock().unwrap()));
    let there = other.host.clone();
    let server = Server::start(move |_, _| redirect(&there));
    place.lock().unwrap().clone_from(&server.host);
    let told = told(push_to(&server.host, &[]).await.unwrap_err());
    assert!(
        told.contains(&server.host) && told.contains("elsewhere again and again"),
        "{told}"
    );
    assert!(other.requests.lock().unwrap().len() <= 10);
}

#[tokio::test]
async fn a_run_that_is_asked_to_stop_does_not_wait_for_the_registry() {
    let (asked, is_asked) = mpsc::channel();
    let asked = Mutex::new(asked);
    let server = Server::start(move |_, _| {
        asked.lock().unwrap().send(()).unwrap();
        Answer::Stall
    });
    let token = CancellationToken::new();
    let stop = token.clone();
    thread::spawn(move || {
        is_asked.recv().unwrap();
        stop.cancel();
    });
    let pushed = push_within(&server.host, &[], PATIENT, Interrupt::new(token)).await;
    let error = UserError::from(pushed.unwrap_err());
    assert_eq!(error.kind, ErrorKind::Interrupted);
    assert!(error.message.contains(&server.host), "{}", error.message);
}
