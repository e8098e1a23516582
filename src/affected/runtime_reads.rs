//! What the words `file` and `crypto` are used for: a call that reads one file named by a plain text, or something that
//! cannot be told apart without running it.

/// One use of a module that reads files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReadCall {
    /// It computes, and reads nothing.
    Pure,
    /// It reads the file of this name.
    Reads(String),
    /// It may read anything.
    Unclear,
}

/// Calls whose answer depends on the one file that they name first.
const READS_ONE: [(&[u8], &[u8]); 4] = [
    (b"file", b"read"),
    (b"file", b"exists"),
    (b"file", b"size"),
    (b"crypto", b"filesha256"),
];

/// Calls of `crypto` that depend on their arguments alone.
const PURE: [&[u8]; 8] = [
    b"md5", b"sha1", b"sha224", b"sha256", b"sha384", b"sha512", b"blake3", b"uuid",
];

/// Whether a word is a module that reads files.
pub(super) fn is_reader(word: &[u8]) -> bool {
    matches!(word, b"file" | b"crypto")
}

/// What a module is used for, by the text that follows its name.
pub(super) fn classify_call(module: &[u8], rest: &[u8]) -> ReadCall {
    call(module, rest).unwrap_or(ReadCall::Unclear)
}

/// What a string's text may use: the core runs what stands in `${…}`.
pub(super) fn inside(string: &[u8]) -> Option<ReadCall> {
    let holds = |word: &[u8]| string.windows(word.len()).any(|window| window == word);
    (holds(b"${") && (holds(b"file") || holds(b"crypto"))).then_some(ReadCall::Unclear)
}

/// `. name (`, and of one that reads a file `"plain text"` and then `,` or `)`.
fn call(module: &[u8], rest: &[u8]) -> Option<ReadCall> {
    let rest = skip_blanks(skip_blanks(rest).strip_prefix(b".")?);
    let end = rest
        .iter()
        .position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')?;
    let (name, rest) = rest.split_at(end);
    let rest = skip_blanks(skip_blanks(rest).strip_prefix(b"(")?);
    if module == b"crypto" && PURE.contains(&name) {
        return Some(ReadCall::Pure);
    }
    if !READS_ONE.contains(&(module, name)) {
        return None;
    }
    let (quote, rest) = rest.split_first()?;
    if !matches!(quote, b'"' | b'\'') {
        return None;
    }
    let end = rest.iter().position(|byte| byte == quote)?;
    let text = std::str::from_utf8(&rest[..end]).ok()?;
    let plain = !text.is_empty() && !text.contains(['\\', '$', '{', '\n', '\r']);
    let follows = skip_blanks(&rest[end + 1..]).first()?;
    (plain && matches!(follows, b',' | b')')).then(|| ReadCall::Reads(text.to_owned()))
}

fn skip_blanks(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii_start()
}
