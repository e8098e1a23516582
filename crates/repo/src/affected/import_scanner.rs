//! The import scanner: finds the imports of a KCL file by its tokens, without a parser.
//!
//! It follows the lexical rules of KCL 0.13 (`lexer/src/lib.rs`, `parser/src/parser/stmt.rs
//! parse_import_stmt`). An import is a sequence of tokens, not a line, and counts only outside of brackets. The
//! content of strings and comments is skipped. For a file that is not valid KCL the scanner may find more imports
//! than the core, but never fewer.

use super::runtime_reads::{self, ReadCall};

/// One import statement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Import {
    /// The number of leading dots: 0 for an absolute path, 1 for the file's own folder, 2 for its parent, …
    pub dots: u32,
    /// The names joined by dots, as written.
    pub path: String,
    /// The name after `as`.
    pub alias: Option<String>,
}

impl Import {
    /// Returns the first name of the path.
    pub fn first(&self) -> &str {
        self.path.split('.').next().unwrap_or_default()
    }

    /// Returns the name by which the file uses the import.
    pub fn used_as(&self) -> &str {
        self.alias
            .as_deref()
            .unwrap_or_else(|| self.path.rsplit('.').next().unwrap_or_default())
    }
}

/// The imports and uses that the scan of a KCL file found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ScanResult {
    /// The imports, in the order of the file.
    pub(super) imports: Vec<Import>,
    /// The uses of the words `file` and `crypto`, even if these modules are not imported.
    pub(super) uses: Vec<ReadCall>,
}

/// Finds the imports of a file, in order. Bytes that are not UTF-8 count as letters.
pub fn scan(bytes: &[u8]) -> Vec<Import> {
    scan_imports(bytes).imports
}

/// Finds the imports of a file and its uses of the modules that read files.
pub(super) fn scan_imports(bytes: &[u8]) -> ScanResult {
    let mut found = ScanResult::default();
    // Most files of a monorepo import little: a file without these words needs no scan.
    let worth = std::str::from_utf8(bytes).map_or(true, |text| {
        ["import", "file", "crypto"]
            .iter()
            .any(|word| text.contains(word))
    });
    if !worth {
        return found;
    }
    let mut scanner = Scanner::new(bytes);
    while let Some(byte) = scanner.peek() {
        if matches!(byte, b'\n' | b'\r') {
            scanner.end_line();
            continue;
        }
        // Most bytes are ordinary characters, so they are handled here and the others below.
        if matches!(byte, b' ' | b'\t' | 0x0b | 0x0c) {
            scanner.at += 1;
            continue;
        }
        if byte >= 0x80 {
            let (blank, width) = scanner.skip_blanks();
            if blank {
                scanner.at += width;
                continue;
            }
        }
        if byte == b'#' {
            scanner.comment();
            continue;
        }
        if scanner.last == b'\n' {
            scanner.begin_line();
        }
        let before = scanner.last;
        scanner.last = byte;
        match byte {
            b'"' | b'\'' => {
                let start = scanner.at;
                scanner.string();
                found
                    .uses
                    .extend(runtime_reads::inside(&bytes[start..scanner.at.min(bytes.len())]));
            }
            b'(' | b'[' | b'{' => {
                scanner.depth += 1;
                scanner.at += 1;
            }
            b')' | b']' | b'}' => {
                scanner.depth = scanner.depth.saturating_sub(1);
                scanner.at += 1;
            }
            b'$' => {
                scanner.at += 1;
                if runtime_reads::is_reader(scanner.read_word()) {
                    found.uses.push(ReadCall::Unclear);
                }
            }
            _ => match scanner.read_word() {
                [] => scanner.at += 1,
                b"import" if scanner.depth == 0 && before != b'.' && scanner.block != Block::Inside => {
                    found.imports.extend(scanner.import());
                }
                word if before != b'.' && runtime_reads::is_reader(word) => {
                    found
                        .uses
                        .push(runtime_reads::classify_call(word, &bytes[scanner.at..]));
                }
                _ => {}
            },
        }
    }
    found
}

/// A position in a file, with the state of the scan.
pub(super) struct Scanner<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
    depth: u32,
    /// The position at which the current logical line starts.
    line_start: usize,
    /// The first byte of the last token; a line end at the start of the file.
    last: u8,
    block: Block,
}

/// The indented body of `if …:`, `schema …:`, `check:` and similar lines. An import in it loads nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    None,
    /// The previous line ended with a colon.
    Opened,
    Inside,
}

impl<'a> Scanner<'a> {
    /// Creates a scanner at the start of the file, after a byte order mark.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let start = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Self {
            bytes,
            at: start,
            depth: 0,
            line_start: start,
            last: b'\n',
            block: Block::None,
        }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Ends a logical line. Called at a line end outside of brackets.
    fn end_line(&mut self) {
        self.at += 1;
        if self.depth > 0 {
            return;
        }
        if self.last == b':' && self.block == Block::None {
            self.block = Block::Opened;
        }
        self.last = b'\n';
        self.line_start = self.at;
    }

    /// Begins a logical line at its first token. The lines that are indented below an opening line at the top level are
    /// its body.
    fn begin_line(&mut self) {
        let indented = self.at > self.line_start;
        self.block = match self.block {
            Block::Opened | Block::Inside if indented => Block::Inside,
            _ => Block::None,
        };
    }

    fn read_word(&mut self) -> &'a [u8] {
        let start = self.at;
        while let Some(byte) = self.peek() {
            if byte.is_ascii_alphanumeric() || byte == b'_' {
                self.at += 1;
            } else if byte >= 0x80 && !self.skip_blanks().0 {
                self.at += self.skip_blanks().1;
            } else {
                break;
            }
        }
        &self.bytes[start..self.at]
    }

    pub(super) fn comment(&mut self) {
        while self.peek().is_some_and(|byte| byte != b'\n') {
            self.at += 1;
        }
    }

    /// Skips the string that starts here. A string in triple quotes may span lines; one in single quotes ends at the
    /// line end at the latest. A backslash escapes the next byte, even in a raw string.
    pub(super) fn string(&mut self) {
        let quote = self.bytes[self.at];
        let triple = self.bytes[self.at..].starts_with(&[quote; 3]);
        self.at += if triple { 3 } else { 1 };
        while let Some(byte) = self.peek() {
            match byte {
                b'\\' if triple || !matches!(self.bytes.get(self.at + 1), Some(b'\n' | b'\r')) => {
                    self.at += 2
                }
                b'\\' => return,
                b'\n' | b'\r' if !triple => return,
                byte if byte == quote && !triple => {
                    self.at += 1;
                    return;
                }
                byte if byte == quote && self.bytes[self.at..].starts_with(&[quote; 3]) => {
                    self.at += 3;
                    return;
                }
                _ => self.at += 1,
            }
        }
    }

    /// Returns true if the character here is a blank, and its width in bytes. Blanks are Unicode's white
    /// space and direction marks, but not line ends.
    pub(super) fn skip_blanks(&self) -> (bool, usize) {
        let rest = &self.bytes[self.at..];
        match rest.first() {
            Some(b' ' | b'\t' | 0x0b | 0x0c) => (true, 1),
            Some(byte) if *byte >= 0x80 => {
                let end = rest.len().min(4);
                let valid = match std::str::from_utf8(&rest[..end]) {
                    Ok(text) => text,
                    Err(error) => std::str::from_utf8(&rest[..error.valid_up_to()]).unwrap_or_default(),
                };
                valid.chars().next().map_or((false, 1), |c| {
                    let blank = c.is_whitespace() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{feff}');
                    (blank, c.len_utf8())
                })
            }
            _ => (false, 1),
        }
    }

    /// Skips blanks and line continuations, which may be between the tokens of an import.
    pub(super) fn blanks(&mut self) {
        loop {
            match self.bytes.get(self.at..) {
                Some([b'\\', b'\r', b'\n', ..]) => self.at += 3,
                Some([b'\\', b'\n' | b'\r', ..]) => self.at += 2,
                Some([_, ..]) => {
                    let (blank, width) = self.skip_blanks();
                    if !blank {
                        return;
                    }
                    self.at += width;
                }
                _ => return,
            }
        }
    }

    /// Parses the rest of an import, after the keyword: `DOTS? NAME (. NAME)* (as NAME)?`.
    fn import(&mut self) -> Option<Import> {
        let mut dots = 0;
        self.blanks();
        while self.peek() == Some(b'.') {
            dots += 1;
            self.at += 1;
            self.blanks();
        }
        let mut path = self.name()?;
        loop {
            let before = self.at;
            self.blanks();
            if self.peek() != Some(b'.') {
                self.at = before;
                break;
            }
            self.at += 1;
            self.blanks();
            let Some(name) = self.name() else {
                break;
            };
            path.push('.');
            path.push_str(&name);
        }
        let before = self.at;
        self.blanks();
        let alias = match self.read_word() {
            b"as" => {
                self.blanks();
                self.name()
            }
            _ => None,
        };
        if alias.is_none() {
            self.at = before;
        }
        Some(Import { dots, path, alias })
    }

    pub(super) fn name(&mut self) -> Option<String> {
        let start = self.at;
        if self.peek() == Some(b'$') {
            self.at += 1;
        }
        if self.read_word().is_empty() {
            self.at = start;
            return None;
        }
        Some(String::from_utf8_lossy(&self.bytes[start..self.at]).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        scan(text.as_bytes())
            .into_iter()
            .map(|import| format!("{}{}", ".".repeat(import.dots as usize), import.path))
            .collect()
    }

    #[test]
    fn finds_imports_wherever_they_may_stand() {
        assert_eq!(paths("import a.b import a.c"), ["a.b", "a.c"]);
        assert_eq!(paths("import a.b y = 1\nimport c as d\n"), ["a.b", "c"]);
        assert_eq!(paths("import a.b; import a.c"), ["a.b", "a.c"]);
        assert_eq!(paths("\u{feff}x = 1\r\n\timport a\rimport b # c"), ["a", "b"]);
        assert_eq!(paths("import \\\n a.b \\\n as q\nimport a . b"), ["a.b", "a.b"]);
        assert_eq!(
            paths("import .s\nimport ..s\nimport ....x.y\nimport . s"),
            [".s", "..s", "....x.y", ".s"]
        );
        assert_eq!(paths("import \u{fc}.b"), ["\u{fc}.b"]);
        assert_eq!(paths("import a\u{2028}import b\u{b}import c"), ["a", "b", "c"]);
        assert_eq!(paths("x: int = 1 import a"), ["a"]);
        assert_eq!(paths("x = {\"a\":\n  1} import b"), ["b"]);
        assert_eq!(paths("import \\\r\n a.b\nimport \\\r c"), ["a.b", "c"]);
        assert_eq!(
            paths("schema A:\n    x: int\nimport a\nif True:\n\n  y = 1\nimport b"),
            ["a", "b"]
        );
    }

    #[test]
    fn is_not_fooled() {
        for text in [
            "x = \"import a\"",
            "x = 'import a'",
            "x = \"\"\"\nimport a\n\"\"\"",
            "x = '''\nimport a\n'''",
            "x = r\"import a\"",
            "# import a",
            "x = {\"import\": 1}",
            "x = [\nimport\n]",
            "important = 1\nimport_a = 2\nx.import = 1",
            "x = \"\\\"import a\"",
            "x = \"${\"",
            "# c\rimport a",
            "schema A:\n    import a\n\n    # c\n    import b\n",
            "if True:\n    if False:\n        x = 1\n    import a\n",
            "x = r\"\\\"import a",
        ] {
            assert_eq!(paths(text), Vec::<String>::new(), "{text}");
        }
    }

    /// The core refuses such a file: its other lines are read as they stand.
    #[test]
    fn a_string_of_one_line_ends_with_its_line() {
        for text in [
            "x = \"a\nimport b",
            "x = 'a\rimport b",
            "x = \"a\\\nimport b",
            "x = \"a\\\r\nimport b",
        ] {
            assert_eq!(paths(text), ["b"], "{text}");
        }
        assert_eq!(paths("x = \"\"\"a\nimport b\\\n\"\"\"import c"), ["c"]);
        assert_eq!(paths("x = 'a\\'import b'\nimport c"), ["c"]);
    }

    #[test]
    fn knows_the_name_in_use() {
        let found = scan(b"import file as f\nimport a.crypto");
        assert_eq!(found[0].used_as(), "f");
        assert_eq!(found[1].used_as(), "crypto");
    }
}
