//! Unary gRPC calls over HTTP/2 (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::{RecvStream, client::SendRequest};
use http::{HeaderMap, Request};
use prost::Message;

use super::ModuleError;

/// Bytes before each message: one for its compression, four for its length.
const PREFIX: usize = 5;

/// A gRPC call of one method.
pub(super) struct GrpcCall<'a> {
    /// The path `/SERVICE/METHOD`.
    pub(super) path: &'static str,
    /// Headers besides those of gRPC.
    pub(super) metadata: &'a [(&'static str, &'a str)],
    /// The maximum size of the response in bytes.
    pub(super) most: usize,
}

impl GrpcCall<'_> {
    /// Sends a message and returns the message of the response.
    pub(super) async fn unary<A: Message + Default>(
        &self,
        client: SendRequest<Bytes>,
        message: &impl Message,
    ) -> Result<A, ModuleError> {
        let mut answer = self.start(client, message).await?;
        let body = self.read(answer.body_mut()).await?;
        let trailers = answer.body_mut().trailers().await.map_err(|error| lost(&error))?;
        // A response without a body has its status among the headers.
        let trailers = trailers.unwrap_or_else(|| answer.headers().clone());
        status(&trailers)?;
        let message = unframed(&body)?;
        A::decode(message).map_err(|error| ModuleError::Garbled(error.into()))
    }

    /// Sends a message and returns the response before its body has arrived.
    pub(super) async fn start(
        &self,
        client: SendRequest<Bytes>,
        message: &impl Message,
    ) -> Result<http::Response<RecvStream>, ModuleError> {
        let mut request = Request::post(format!("http://localhost{}", self.path))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("user-agent", "konverge");
        for (name, value) in self.metadata {
            request = request.header(*name, *value);
        }
        let request = request
            .body(())
            .map_err(|error| ModuleError::Garbled(error.into()))?;
        let mut client = client.ready().await.map_err(|error| lost(&error))?;
        let (answer, mut body) = client
            .send_request(request, false)
            .map_err(|error| lost(&error))?;
        body.send_data(framed(message)?, true)
            .map_err(|error| lost(&error))?;
        let answer = answer.await.map_err(|error| lost(&error))?;
        match answer.status().as_u16() {
            200 => Ok(answer),
            code => Err(ModuleError::Garbled(format!("HTTP status {code}").into())),
        }
    }

    async fn read(&self, body: &mut RecvStream) -> Result<Bytes, ModuleError> {
        let mut read = BytesMut::new();
        while let Some(part) = body.data().await {
            let part = part.map_err(|error| lost(&error))?;
            if read.len() + part.len() > self.most + PREFIX {
                return Err(ModuleError::TooLarge(self.most));
            }
            // The bytes that were read are released, so that the server may send more.
            let _ = body.flow_control().release_capacity(part.len());
            read.extend_from_slice(&part);
        }
        Ok(read.freeze())
    }
}

fn framed(message: &impl Message) -> Result<Bytes, ModuleError> {
    let length = u32::try_from(message.encoded_len());
    let length = length.map_err(|_| ModuleError::Start("the request is too large".into()))?;
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(length);
    message.encode(&mut frame).expect("the buffer grows");
    Ok(frame.freeze())
}

fn unframed(body: &Bytes) -> Result<Bytes, ModuleError> {
    let garbled = |why: &str| ModuleError::Garbled(why.into());
    let mut rest = body.clone();
    if rest.len() < PREFIX {
        return Err(garbled("it holds no message"));
    }
    if rest.get_u8() != 0 {
        return Err(garbled("the answer is compressed, which was not requested"));
    }
    if rest.get_u32() as usize == rest.len() {
        Ok(rest)
    } else {
        Err(garbled("it is not one whole message"))
    }
}

/// Checks the status of a call, which is in the trailers of its response.
fn status(trailers: &HeaderMap) -> Result<(), ModuleError> {
    let text = |name: &str| trailers.get(name).map(|value| value.as_bytes());
    let Some(code) = text("grpc-status") else {
        return Err(ModuleError::Garbled("it has no status".into()));
    };
    let code = std::str::from_utf8(code).ok().and_then(|code| code.parse().ok());
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(ModuleError::Refused {
            code,
            message: percent_decoded(text("grpc-message").unwrap_or_default()),
        }),
        None => Err(ModuleError::Garbled("its status is not a number".into())),
    }
}

/// Decodes the percent-encoded text of `grpc-message`. An invalid escape stays unchanged.
fn percent_decoded(encoded: &[u8]) -> String {
    percent_encoding::percent_decode(encoded)
        .decode_utf8_lossy()
        .into_owned()
}

/// Returns the error for a connection that ended. Its cause is in the output of the process, not in `error`.
fn lost(error: &h2::Error) -> ModuleError {
    tracing::debug!(%error, "a module's connection ended");
    ModuleError::Lost(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_an_error_is_decoded() {
        for (encoded, plain) in [
            ("plain", "plain"),
            ("100%25 of gr%C3%B6%C3%9Fe%0Ais", "100% of größe\nis"),
            ("%", "%"),
            ("%4", "%4"),
            ("%zz%41", "%zzA"),
            ("%+1", "%+1"),
        ] {
            assert_eq!(percent_decoded(encoded.as_bytes()), plain);
        }
    }

    #[test]
    fn a_frame_is_one_whole_message() {
        let of = |bytes: &[u8]| unframed(&Bytes::copy_from_slice(bytes));
        assert_eq!(of(&[0, 0, 0, 0, 1, 7]).unwrap(), Bytes::from_static(&[7]));
        for bad in [
            &[][..],
            &[0, 0, 0, 0],
            &[1, 0, 0, 0, 0],
            &[0, 0, 0, 0, 2, 7],
            &[0, 255, 255, 255, 255, 1],
        ] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
        let status_of = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            status(&pairs.collect::<HeaderMap>())
        };
        assert!(status_of(&[("grpc-status", "0")]).is_ok());
        assert!(matches!(status_of(&[]), Err(ModuleError::Garbled(_))));
        assert!(matches!(
            status_of(&[("grpc-status", "x")]),
            Err(ModuleError::Garbled(_))
        ));
        let refused = status_of(&[("grpc-status", "3"), ("grpc-message", "a%20b")]).unwrap_err();
        assert!(refused.to_string().contains("a b"), "{refused}");
    }
}
