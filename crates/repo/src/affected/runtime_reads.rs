//! Classifies the uses of the words `file` and `crypto` in KCL code: calls that read one file with a literal name, and
//! uses whose effect is known only when the code is evaluated.

/// One use of a module that can read files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReadCall {
    /// The use reads nothing.
    Pure,
    /// The use reads the file with this name.
    Reads(String),
    /// The use may read any file.
    Unclear,
}

/// The calls that read exactly the file in their first argument.
const READS_ONE: [(&[u8], &[u8]); 4] = [
    (b"file", b"read"),
    (b"file", b"exists"),
    (b"file", b"size"),
    (b"crypto", b"filesha256"),
];

/// The functions of `crypto` that read no file.
const PURE: [&[u8]; 8] = [
    b"md5", b"sha1", b"sha224", b"sha256", b"sha384", b"sha512", b"blake3", b"uuid",
];

/// Returns true if a word is the name of a module that can read files.
pub(super) fn is_reader(word: &[u8]) -> bool {
    matches!(word, b"file" | b"crypto")
}

/// Classifies the use of a module by the text after the module's name.
pub(super) fn classify_call(module: &[u8], rest: &[u8]) -> ReadCall {
    call(module, rest).unwrap_or(ReadCall::Unclear)
}

/// Classifies the uses in a string, because the core evaluates the code in `${…}`.
pub(super) fn inside(string: &[u8]) -> Option<ReadCall> {
    let holds = |word: &[u8]| string.windows(word.len()).any(|window| window == word);
    (holds(b"${") && (holds(b"file") || holds(b"crypto"))).then_some(ReadCall::Unclear)
}

/// Parses `. name (`; for a call that reads a file also the literal file name and then `,` or `)`.
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
