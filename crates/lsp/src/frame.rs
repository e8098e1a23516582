//! The frames of the protocol: a header with the length, an empty line, the content.
//!
//! `lsp-server` takes any length, and ends with the first content that is not JSON. Here a frame has a limit, and what
//! cannot be read as a frame is told apart from what cannot be read as a message.

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The largest content that is read, in bytes. A file of this size is not edited by hand.
pub(crate) const MOST_BYTES: u64 = 32 << 20;

/// The largest header, in bytes.
const MOST_HEADER: u64 = 4 << 10;

/// Why no further message can be read.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The stream cannot be read.
    #[error("the input cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// The stream ends inside a message.
    #[error("the input ends in the middle of a message")]
    Half,
    /// The header does not end.
    #[error("the header of a message has more than {MOST_HEADER} bytes")]
    LongHeader,
    /// The header does not say how long the message is.
    #[error("the header of a message has no `Content-Length`")]
    NoLength,
    /// The length is not a number, or is given twice.
    #[error("the `Content-Length` of a message is not one number")]
    WrongLength,
}

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The content of a message.
    Content(Vec<u8>),
    /// A message of so many bytes, which was skipped.
    TooLarge(u64),
}

/// Reads the next frame; `None` at the end of the stream.
pub(crate) async fn read(stream: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Frame>, FrameError> {
    let Some(length) = read_header(stream).await? else {
        return Ok(None);
    };
    if length > MOST_BYTES {
        let skipped = tokio::io::copy(&mut stream.take(length), &mut tokio::io::sink()).await?;
        return if skipped == length {
            Ok(Some(Frame::TooLarge(length)))
        } else {
            Err(FrameError::Half)
        };
    }
    // It grows with what is there: a length alone takes no memory.
    let mut content = Vec::new();
    stream.take(length).read_to_end(&mut content).await?;
    if content.len() as u64 == length {
        Ok(Some(Frame::Content(content)))
    } else {
        Err(FrameError::Half)
    }
}

/// The length of the next content; `None` at the end of the stream.
async fn read_header(stream: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<u64>, FrameError> {
    let mut header = stream.take(MOST_HEADER);
    let mut length = None;
    let mut is_first = true;
    loop {
        let mut line = Vec::new();
        let read = header.read_until(b'\n', &mut line).await?;
        if read == 0 && is_first {
            return Ok(None);
        }
        if !line.ends_with(b"\n") {
            return Err(match header.limit() {
                0 => FrameError::LongHeader,
                _ => FrameError::Half,
            });
        }
        is_first = false;
        let line = line.trim_ascii();
        if line.is_empty() {
            return length.map(Some).ok_or(FrameError::NoLength);
        }
        let Some(at) = line.iter().position(|byte| *byte == b':') else {
            return Err(FrameError::NoLength);
        };
        if line[..at].trim_ascii().eq_ignore_ascii_case(b"content-length") {
            let digits = std::str::from_utf8(line[at + 1..].trim_ascii()).ok();
            let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let number = digits.and_then(|text| text.parse().ok());
            match (length, number) {
                (None, Some(number)) => length = Some(number),
                _ => return Err(FrameError::WrongLength),
            }
        }
    }
}

/// Writes one message.
///
/// # Errors
/// Nobody reads.
pub(crate) async fn write(stream: &mut (impl AsyncWrite + Unpin), content: &[u8]) -> std::io::Result<()> {
    let header = format!("Content-Length: {}\r\n\r\n", content.len());
    stream.write_all(header.as_bytes()).await?;
    stream.write_all(content).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(work)
    }

    fn frames(mut bytes: &[u8]) -> Result<Vec<Frame>, FrameError> {
        block_on(async {
            let mut all = Vec::new();
            while let Some(frame) = read(&mut bytes).await? {
                all.push(frame);
            }
            Ok(all)
        })
    }

    fn failure(bytes: &[u8]) -> String {
        frames(bytes).unwrap_err().to_string()
    }

    #[test]
    fn what_is_not_a_frame_is_an_error_that_says_why() {
        for (bytes, message) in [
            (
                "Content-Length: 5\r\n\r\nab",
                "the input ends in the middle of a message",
            ),
            (
                "Content-Length: 5\r\n",
                "the input ends in the middle of a message",
            ),
            ("Content-Len", "the input ends in the middle of a message"),
            ("{}\r\n\r\n", "the header of a message has no `Content-Length`"),
            (
                "Content-Type: a\r\n\r\n",
                "the header of a message has no `Content-Length`",
            ),
            (
                "Content-Length: -1\r\n\r\n",
                "the `Content-Length` of a message is not one number",
            ),
            (
                "Content-Length: +1\r\n\r\na",
                "the `Content-Length` of a message is not one number",
            ),
            (
                "Content-Length: 99999999999999999999\r\n\r\n",
                "the `Content-Length` of a message is not one number",
            ),
            (
                "Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
                "the `Content-Length` of a message is not one number",
            ),
        ] {
            assert_eq!(failure(bytes.as_bytes()), message, "{bytes}");
        }
        assert!(failure(&[b'a'; 10_000]).contains("more than 4096 bytes"));
        // A length alone takes no memory, and is not waited for once the stream ends.
        assert!(failure(b"Content-Length: 9999999999999999\r\n\r\n{}").contains("in the middle"));
    }

    #[test]
    fn a_frame_that_is_too_large_is_skipped_and_the_next_one_is_read() {
        let large = MOST_BYTES + 1;
        let mut bytes = format!("Content-Length: {large}\r\n\r\n").into_bytes();
        bytes.resize(bytes.len() + usize::try_from(large).unwrap(), b'x');
        bytes.extend(b"content-length:2\nX-Other: 1\n\n{}");
        assert_eq!(
            frames(&bytes).unwrap(),
            [Frame::TooLarge(large), Frame::Content(b"{}".to_vec())]
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(contents in proptest::collection::vec(any::<Vec<u8>>(), 0..5)) {
            let mut bytes = Vec::new();
            for content in &contents {
                block_on(write(&mut bytes, content)).unwrap();
            }
            let read = frames(&bytes).unwrap();
            prop_assert_eq!(read, contents.into_iter().map(Frame::Content).collect::<Vec<_>>());
        }

        #[test]
        fn no_input_is_a_panic(bytes: Vec<u8>, length in 0..100_u32) {
            let _ = frames(&bytes);
            let mut cut = format!("Content-Length: {length}\r\n\r\n").into_bytes();
            cut.extend(&bytes);
            let read = frames(&cut);
            prop_assert!(bytes.len() as u32 >= length || read.is_err());
        }
    }
}
