//! The import scanner: which packages a KCL file imports, found by its tokens alone.
//!
//! Lexical rules of KCL 0.13 (`lexer/src/lib.rs`, `parser/src/parser/stmt.rs parse_import_stmt`): an import is a token
//! sequence, not a line; it counts at bracket depth 0 only; strings and comments hide whatever they hold. Where a file
//! is not valid KCL the scanner may find more than the core does, never less.

/// One import statement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Import {
    /// Leading dots: 0 is absolute, 1 the file's own folder, 2 its parent, …
    pub dots: u32,
    /// The names joined by dots, as written.
    pub path: String,
    /// `as` name, if there is one.
    pub alias: Option<String>,
}

impl Import {
    /// The first name.
    pub fn first(&self) -> &str {
        self.path.split('.').next().unwrap_or_default()
    }

    /// The name by which the file uses it.
    pub fn used_as(&self) -> &str {
        self.alias
            .as_deref()
            .unwrap_or_else(|| self.path.rsplit('.').next().unwrap_or_default())
    }
}

/// Finds a file's imports, in order. Bytes that are not UTF-8 count as letters.
pub fn scan(bytes: &[u8]) -> Vec<Import> {
    // Most files of a monorepo import little: without the word there is nothing to lex for.
    if !contains(bytes, b"import") {
        return Vec::new();
    }
    let mut scanner = Scanner {
        bytes,
        at: 0,
        depth: 0,
    };
    if bytes.starts_with(b"\xef\xbb\xbf") {
        scanner.at = 3;
    }
    let mut imports = Vec::new();
    while let Some(byte) = scanner.peek() {
        match byte {
            b'#' => scanner.comment(),
            b'"' | b'\'' => scanner.string(false),
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
                scanner.word();
            }
            byte if is_word(byte) => {
                let after_dot = scanner.follows_dot();
                let word = scanner.word();
                match word {
                    b"r" | b"R" if matches!(scanner.peek(), Some(b'"' | b'\'')) => scanner.string(true),
                    b"import" if scanner.depth == 0 && !after_dot => imports.extend(scanner.import()),
                    _ => {}
                }
            }
            _ => scanner.at += 1,
        }
    }
    imports
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u32,
}

impl<'a> Scanner<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Whether the token before this one is a single dot on the same line (`a.import`): a member, no keyword.
    fn follows_dot(&self) -> bool {
        self.at > 0 && self.bytes[self.at - 1] == b'.'
    }

    fn word(&mut self) -> &'a [u8] {
        let start = self.at;
        while self.peek().is_some_and(is_word) {
            self.at += 1;
        }
        &self.bytes[start..self.at]
    }

    fn comment(&mut self) {
        while self.peek().is_some_and(|byte| byte != b'\n' && byte != b'\r') {
            self.at += 1;
        }
    }

    /// Skips a string whose quote is next: triple quotes span lines, single ones end at the line's end at the latest.
    fn string(&mut self, _raw: bool) {
        let quote = self.bytes[self.at];
        let triple = self.bytes[self.at..].starts_with(&[quote; 3]);
        self.at += if triple { 3 } else { 1 };
        while let Some(byte) = self.peek() {
            match byte {
                b'\\' => self.at += 2,
                b'\n' if !triple => return,
                byte if byte == quote => {
                    if !triple {
                        self.at += 1;
                        return;
                    }
                    if self.bytes[self.at..].starts_with(&[quote; 3]) {
                        self.at += 3;
                        return;
                    }
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }
    }

    /// Blanks and continued lines, which may stand between an import's tokens.
    fn blanks(&mut self) {
        loop {
            match self.bytes.get(self.at..) {
                Some([b' ' | b'\t' | 0x0b | 0x0c, ..]) => self.at += 1,
                Some([b'\\', b'\r', b'\n', ..]) => self.at += 3,
                Some([b'\\', b'\n' | b'\r', ..]) => self.at += 2,
                _ => return,
            }
        }
    }

    /// What follows the keyword: `DOTS? NAME (. NAME)* (as NAME)?`.
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
        let alias = match self.word() {
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

    fn name(&mut self) -> Option<String> {
        let start = self.at;
        if self.peek() == Some(b'$') {
            self.at += 1;
        }
        if self.word().is_empty() {
            self.at = start;
            return None;
        }
        Some(String::from_utf8_lossy(&self.bytes[start..self.at]).into_owned())
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Whether `needle` occurs in `bytes`.
fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    let Some((first, _)) = needle.split_first() else {
        return true;
    };
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        rest = &rest[at..];
        if rest.starts_with(needle) {
            return true;
        }
        rest = &rest[1..];
    }
    false
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
        ] {
            assert_eq!(paths(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn knows_the_name_in_use() {
        let found = scan(b"import file as f\nimport a.crypto");
        assert_eq!(found[0].used_as(), "f");
        assert_eq!(found[1].used_as(), "crypto");
    }
}
