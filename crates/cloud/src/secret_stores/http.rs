//! HTTP requests to secret stores, all with the same client, retries and deadlines. Redirects are not
//! followed.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, Response, StatusCode};
use zeroize::Zeroizing;

use super::SecretProblem;
use konverge_base::{
    error::SharedError,
    retry::{self, RetryDecision, RetryPolicy},
};
use konverge_secrets::{AddressParts, Secrets, credential_in, without_secrets};

const REQUEST_DEADLINE: Duration = Duration::from_secs(30);

/// The maximum number of characters of a server's error text in a message.
const SHOWN: usize = 200;

/// The maximum length of a response in bytes. The largest secret of any store is 1 MiB.
const MAX_BODY: usize = 4 << 20;

/// Sends the requests of one store.
pub(super) struct SecretHttpClient {
    client: Result<Client, SecretProblem>,
    pub secrets: Secrets,
    retry: RetryPolicy,
}

/// A response: a success, or a refusal that will not change on a retry.
pub(super) struct SecretHttpAnswer {
    pub status: StatusCode,
    pub body: Zeroizing<Vec<u8>>,
}

/// A failed attempt.
struct Attempt {
    status: Option<u16>,
    why: SharedError,
    after: Option<Duration>,
    /// True if a retry cannot help.
    is_final: bool,
}

/// Parses the address of a service.
pub(super) fn service_url(address: &str) -> Result<url::Url, SecretProblem> {
    if let Some(credential) = credential_in(address, AddressParts::default()) {
        return Err(unexpected(format!("its address holds credentials: {credential}")));
    }
    url::Url::parse(address).map_err(|_| unexpected("its address is not a URL"))
}

impl SecretHttpClient {
    /// Creates a client that masks `secrets` in the error texts of servers.
    pub(super) fn new(secrets: Secrets) -> Self {
        let client = konverge_http::client().timeout(REQUEST_DEADLINE).build();
        Self {
            client: client.map_err(unexpected),
            secrets,
            retry: RetryPolicy::default(),
        }
    }

    /// Sends a request that is safe to repeat.
    ///
    /// # Errors
    /// The server does not respond, or stays busy or broken.
    pub(super) async fn send(
        &self,
        make: impl Fn(&Client) -> RequestBuilder,
    ) -> Result<SecretHttpAnswer, SecretProblem> {
        self.send_unless(make, |_| false).await
    }

    /// Sends a request that is safe to repeat. `is_busy` recognizes a response in whose body the server says
    /// that it is busy.
    ///
    /// # Errors
    /// The errors of [`SecretHttpClient::send`].
    pub(super) async fn send_unless(
        &self,
        make: impl Fn(&Client) -> RequestBuilder,
        is_busy: fn(&SecretHttpAnswer) -> bool,
    ) -> Result<SecretHttpAnswer, SecretProblem> {
        let classify = |attempt: &Attempt| match attempt.after {
            _ if attempt.is_final => RetryDecision::GiveUp,
            Some(after) => RetryDecision::RetryAfter(after),
            None => RetryDecision::Retry,
        };
        let client = self.client.as_ref().map_err(Clone::clone)?;
        let answer = self.retry.run(classify, || self.attempt(make(client), is_busy));
        answer.await.map_err(|attempt| SecretProblem::Unavailable {
            status: attempt.status,
            why: attempt.why,
        })
    }

    async fn attempt(
        &self,
        request: RequestBuilder,
        is_busy: fn(&SecretHttpAnswer) -> bool,
    ) -> Result<SecretHttpAnswer, Attempt> {
        let answer = konverge_http::send(request).await.map_err(network)?;
        let status = answer.status();
        let after = retry::retry_after(answer.headers());
        let body = read_body(answer).await?;
        let answer = SecretHttpAnswer { status, body };
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() || is_busy(&answer) {
            return Err(Attempt {
                status: Some(status.as_u16()),
                // The error page of a gateway may quote the request, so only the status is shown.
                why: status.canonical_reason().unwrap_or("no reason given").into(),
                after,
                is_final: false,
            });
        }
        Ok(answer)
    }
}

fn network(error: reqwest::Error) -> Attempt {
    Attempt {
        status: None,
        why: error.without_url().into(),
        after: None,
        is_final: false,
    }
}

/// Reads a body, and fails above the maximum length.
async fn read_body(mut answer: Response) -> Result<Zeroizing<Vec<u8>>, Attempt> {
    let too_long = |status: StatusCode| Attempt {
        status: Some(status.as_u16()),
        why: format!("the answer is longer than {} MiB", MAX_BODY >> 20).into(),
        after: None,
        is_final: true,
    };
    let status = answer.status();
    let announced = answer.content_length().unwrap_or(0);
    let announced = usize::try_from(announced).unwrap_or(usize::MAX);
    if announced > MAX_BODY {
        return Err(too_long(status));
    }
    // The full size is allocated at once: a buffer that grows would leave copies of the secret in memory.
    let mut body = Zeroizing::new(Vec::with_capacity(announced));
    while let Some(chunk) = answer.chunk().await.map_err(network)? {
        if body.len() + chunk.len() > MAX_BODY {
            return Err(too_long(status));
        }
        if body.capacity() - body.len() < chunk.len() {
            let mut larger = Zeroizing::new(Vec::with_capacity((body.len() + chunk.len()) * 2));
            larger.extend_from_slice(&body);
            body = larger;
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

impl SecretHttpAnswer {
    /// Returns the JSON of a success. `problem` describes another response.
    pub(super) fn json(
        &self,
        problem: impl FnOnce(&Self) -> SecretProblem,
    ) -> Result<serde_json::Value, SecretProblem> {
        if !self.status.is_success() {
            return Err(problem(self));
        }
        serde_json::from_slice(&self.body).map_err(|_| unexpected("the answer is not JSON"))
    }
}

/// Extracts the server's error text from the body of a response.
type Words = fn(&serde_json::Value) -> Option<String>;

impl SecretHttpClient {
    /// Converts a response without success to a problem.
    pub(super) fn problem(&self, answer: &SecretHttpAnswer, words: Words) -> SecretProblem {
        let status = Some(answer.status.as_u16());
        let why = self.words(answer, words).into();
        match answer.status {
            StatusCode::NOT_FOUND => SecretProblem::Missing(status),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => SecretProblem::Denied { status, why },
            _ => SecretProblem::Unexpected { status, why },
        }
    }

    /// Returns the server's error text, masked before it is shortened.
    pub(super) fn words(&self, answer: &SecretHttpAnswer, words: Words) -> String {
        let body: Option<serde_json::Value> = serde_json::from_slice(&answer.body).ok();
        let said = body.as_ref().and_then(words);
        self.shown(said.as_deref().unwrap_or("no reason given"))
    }

    /// Masks and then shortens an error text of a server.
    pub(super) fn shown(&self, said: &str) -> String {
        let masked = without_secrets(&self.secrets.mask(said));
        let shown: String = masked.trim().chars().take(SHOWN).collect();
        shown.escape_debug().to_string()
    }
}

/// Returns the problem of a response that is not as documented.
pub(super) fn unexpected(why: impl Into<SharedError>) -> SecretProblem {
    SecretProblem::Unexpected {
        status: None,
        why: why.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_secrets::HashKey;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// A server that answers each request with this head and then with bytes without end.
    async fn endless(head: &'static str) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let _ = stream.read(&mut [0; 4096]).await;
                    let _ = stream.write_all(head.as_bytes()).await;
                    while stream.write_all(&[b'x'; 1 << 16]).await.is_ok() {}
                });
            }
        });
        address
    }

    #[tokio::test]
    async fn an_answer_without_end_is_refused_and_not_asked_for_again() {
        for head in [
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
            "HTTP/1.1 500 no\r\n\r\n",
        ] {
            let address = endless(head).await;
            let asked = std::cell::Cell::new(0);
            let http = SecretHttpClient::new(Secrets::new(HashKey::derive("k")));
            let answer = http.send(|client| {
                asked.set(asked.get() + 1);
                client.get(&address)
            });
            let Err(SecretProblem::Unavailable { why, .. }) = answer.await else {
                panic!("{head}: an endless body was accepted");
            };
            assert_eq!(
                (why.to_string().as_str(), asked.get()),
                ("the answer is longer than 4 MiB", 1),
                "{head}"
            );
        }
    }

    #[tokio::test]
    async fn the_words_of_a_server_are_masked_before_they_are_cut() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let token = "hvs.CAESIJ0t-the-token-of-this-run";
        secrets.learn(token);
        let http = SecretHttpClient::new(secrets);
        let said = format!("{}{token}", "x".repeat(SHOWN - 10));
        let answer = SecretHttpAnswer {
            status: StatusCode::FORBIDDEN,
            body: Zeroizing::new(serde_json::json!({ "errors": [said] }).to_string().into_bytes()),
        };
        let words = http.words(&answer, |body| body["errors"][0].as_str().map(str::to_owned));
        assert!(!words.contains("hvs."), "{words}");
    }

    /// The error page of a gateway may quote the request.
    #[tokio::test]
    async fn a_server_that_stays_broken_is_asked_five_times_and_not_quoted() {
        for (head, times) in [
            ("HTTP/1.1 503 no\r\n", 5),
            ("HTTP/1.1 429 no\r\nretry-after: 0\r\n", 5),
            ("HTTP/1.1 429 no\r\nretry-after: 3600\r\n", 1),
        ] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = format!("http://{}", listener.local_addr().unwrap());
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let _ = stream.read(&mut [0; 4096]).await;
                    let answer = format!("{head}content-length: 6\r\nconnection: close\r\n\r\ns3cret");
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
            });
            let mut http = SecretHttpClient::new(Secrets::new(HashKey::derive("k")));
            http.retry.first = Duration::from_millis(1);
            let asked = std::cell::Cell::new(0);
            let answer = http.send(|client| {
                asked.set(asked.get() + 1);
                client.get(&address)
            });
            let Err(problem) = answer.await else {
                panic!("{head}: the server is broken");
            };
            assert_eq!(asked.get(), times, "{head}");
            assert!(matches!(
                problem,
                SecretProblem::Unavailable {
                    status: Some(429 | 503),
                    ..
                }
            ));
            assert!(
                !konverge_base::error::chain(&problem).contains("s3cret"),
                "{problem:?}"
            );
        }
    }

    #[test]
    fn a_refusal_is_told_by_its_status() {
        let http = SecretHttpClient::new(Secrets::new(HashKey::derive("k")));
        let problem = |status: u16| {
            let answer = SecretHttpAnswer {
                status: StatusCode::from_u16(status).unwrap(),
                body: Zeroizing::new(b"not JSON: s3cret".to_vec()),
            };
            http.problem(&answer, |body| body.as_str().map(str::to_owned))
        };
        let why = || SharedError::from("no reason given");
        let of = |status| (Some(status), why());
        assert_eq!(problem(404), SecretProblem::Missing(Some(404)));
        for code in [401, 403] {
            let (status, why) = of(code);
            assert_eq!(problem(code), SecretProblem::Denied { status, why });
        }
        for code in [302, 400, 410] {
            let (status, why) = of(code);
            assert_eq!(problem(code), SecretProblem::Unexpected { status, why });
        }
    }

    #[test]
    fn an_address_with_a_credential_is_refused_and_not_shown() {
        for address in [
            "https://me:s3cret@vault.example",
            "https://vault.example/?key=s3cret",
            "not a URL",
        ] {
            let problem = service_url(address).unwrap_err();
            assert!(
                !konverge_base::error::chain(&problem).contains("s3cret"),
                "{problem:?}"
            );
        }
        assert!(service_url("https://vault.example").is_ok());
    }
}
