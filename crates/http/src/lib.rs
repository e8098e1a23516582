//! HTTP clients for external servers: with timeouts, without redirects, with a tracing span for each request and a
//! limit for bodies. The callers define the requests and interpret the responses.

use std::time::Duration;

use konverge_base::spans;
use quick_xml::{escape::resolve_predefined_entity, events::Event};
use reqwest::{Client, ClientBuilder, RequestBuilder, Response, redirect::Policy};
use tracing::Instrument as _;

/// The maximum time to connect.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Creates the builder of a client without redirects, because a redirect could send credentials to another host.
pub fn client() -> ClientBuilder {
    Client::builder()
        .connect_timeout(CONNECT_DEADLINE)
        .redirect(Policy::none())
}

/// Sends a request in a tracing span with its method, host, status, size, and the time until the response.
///
/// # Errors
/// The request cannot be built, or there is no response.
pub async fn send(request: RequestBuilder) -> reqwest::Result<Response> {
    send_as(request, None).await
}

/// Sends a request like [`send`] to a host whose name is secret. The span contains `shown` in place of the host.
///
/// # Errors
/// The same as for [`send`].
pub async fn send_to_secret_host(request: RequestBuilder, shown: &str) -> reqwest::Result<Response> {
    send_as(request, Some(shown)).await
}

async fn send_as(request: RequestBuilder, shown: Option<&str>) -> reqwest::Result<Response> {
    let (client, request) = request.build_split();
    let request = request?;
    let host = shown.or(request.url().host_str()).unwrap_or_default();
    let span = spans::request(request.method().as_str(), host);
    let answer = client.execute(request).instrument(span.clone()).await;
    if let Ok(answer) = &answer {
        spans::answered(&span, answer.status().as_u16(), answer.content_length());
    }
    answer
}

/// Sends a request, and reads the whole response of at most `most` bytes.
///
/// # Errors
/// See [`BodyError`].
pub async fn exchange(
    client: &Client,
    request: http::Request<Vec<u8>>,
    most: usize,
) -> Result<http::Response<Vec<u8>>, BodyError> {
    let request = reqwest::Request::try_from(request)?;
    let answer = send(RequestBuilder::from_parts(client.clone(), request)).await?;
    let mut whole = http::Response::new(Vec::new());
    *whole.status_mut() = answer.status();
    *whole.headers_mut() = answer.headers().clone();
    *whole.body_mut() = read_body(answer, most).await?;
    Ok(whole)
}

/// Reasons why a body cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The connection failed, or the timeout expired.
    #[error(transparent)]
    Transport(#[from] reqwest::Error),
    /// The body is longer than the limit.
    #[error("the answer has more than {most} bytes")]
    TooLong {
        /// The limit, in bytes.
        most: usize,
    },
}

impl BodyError {
    /// Removes the URL of the request from the error, because it may contain credentials.
    #[must_use]
    pub fn without_url(self) -> Self {
        match self {
            Self::Transport(error) => Self::Transport(error.without_url()),
            other => other,
        }
    }
}

/// Reads a body of at most `most` bytes, so that no server can fill the memory.
///
/// # Errors
/// See [`BodyError`].
pub async fn read_body(mut answer: Response, most: usize) -> Result<Vec<u8>, BodyError> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if body.len() + chunk.len() > most {
            return Err(BodyError::TooLong { most });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Returns the trimmed text of the first XML element with this name.
///
/// The XML after the element is not parsed, because a response may be truncated.
pub fn xml_text(xml: &str, name: &str) -> Option<String> {
    let mut reader = quick_xml::Reader::from_str(xml);
    let mut text: Option<String> = None;
    loop {
        match (reader.read_event().ok()?, &mut text) {
            (Event::Start(tag), None) if tag.local_name().as_ref() == name.as_bytes() => {
                text = Some(String::new())
            }
            (Event::Text(part), Some(text)) => text.push_str(&part.decode().ok()?),
            (Event::CData(part), Some(text)) => text.push_str(&part.decode().ok()?),
            (Event::GeneralRef(reference), Some(text)) => match reference.resolve_char_ref().ok()? {
                Some(character) => text.push(character),
                None => text.push_str(resolve_predefined_entity(&reference.decode().ok()?)?),
            },
            (Event::End(_), Some(_)) => {
                // The text may be a credential, so it is moved and not copied.
                let text = text.take()?;
                let is_trimmed = text.trim().len() == text.len();
                return Some(if is_trimmed { text } else { text.trim().to_owned() });
            }
            (Event::Eof, _) => return None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_element_is_found_in_an_answer_that_is_cut_off() {
        let answer = "<?xml version=\"1.0\"?><E xmlns=\"x\"><Code> Access&amp;Denied </Code><M><![CDATA[a<b]]></M><Rest>";
        for (name, expected) in [
            ("Code", Some("Access&Denied")),
            ("M", Some("a<b")),
            ("Rest", None),
            ("Other", None),
        ] {
            assert_eq!(xml_text(answer, name).as_deref(), expected, "{name}");
        }
        assert_eq!(xml_text("not <xml", "xml"), None);
    }
}
