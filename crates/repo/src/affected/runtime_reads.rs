//! Classifies the uses of the words `file` and `crypto`: a call that reads one file with a literal name, or
//! something that cannot be determined without running it.

/// One use of a module that reads files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReadCall {
    /// It only computes and reads nothing.
    Pure,
    /// It reads the file of this name.
    Reads(String),
    /// It may read anything.
    Unclear,
}

/// The calls whose result depends on the one file in their first argument.
const READS_ONE: [(&[u8], &[u8]); 4] = [
    (b"file", b"read"),
    (b"file", b"exists"),
    (b"file", b"size"),
    (b"crypto", b"filesha256"),
];

/// The calls of `crypto` that depend on their arguments only.
const PURE: [&[u8]; 8] = [
    b"md5", b"sha1", b"sha224", b"sha256", b"sha384", b"sha512", b"blake3", b"uuid",
];

/// Returns true if a word is a module that reads files.
pub(super) fn is_reader(word: &[u8]) -> bool {
    matches!(word, b"file" | b"crypto")
}

/// Classifies the use of a module by the text after its name.
pub(super) fn classify_call(module: &[u8], rest: &[u8]) -> ReadCall {
    call(module, rest).unwrap_or(ReadCall::Unclear)
}

/// Classifies the uses in a string: the core executes what is in `${…}`.
pub(super) fn inside(string: &[u8]) -> Option<ReadCall> {
    let holds = |word: &[u8]| string.windows(word.len()).any(|window| window == word);
    (holds(b"${") && (holds(b"file") || holds(b"crypto"))).then_some(ReadCall::Unclear)
}

/// Parses `. name (`; for a call that reads a file also `"plain text"` and then `,` or `)`.
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
