//! Finds member accesses (`name.member`) in a KCL file by its tokens, with their positions.
//!
//! It follows the lexical rules of [`super::scan()`]: the content of comments and strings is skipped, except `${…}`
//! in a string, which is code.

use super::import_scanner::Scanner;

/// One `name.member` whose name is not itself a member of something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberAccess {
    /// The name before the dot.
    pub of: String,
    /// The name after the dot.
    pub name: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1, in characters.
    pub column: u32,
}

/// The maximum nesting of code in strings. Deeper strings are skipped as plain text: they do not occur in practice, and
/// each level uses stack space.
const DEPTH: usize = 16;

/// Finds all member accesses, in order.
pub fn members(bytes: &[u8]) -> Vec<MemberAccess> {
    let mut finder = Finder {
        scanner: Scanner::new(bytes),
        found: Vec::new(),
    };
    finder.code(0);
    let (mut line, mut column, mut seen) = (1, 1, 0);
    let mut place = |(at, of, name): (usize, String, String)| {
        for byte in &bytes[seen..at] {
            match byte {
                b'\n' => (line, column) = (line + 1, 1),
                // These are continuation bytes of a multi-byte character.
                0x80..0xc0 => {}
                _ => column += 1,
            }
        }
        seen = at;
        MemberAccess {
            of,
            name,
            line,
            column,
        }
    };
    finder.found.into_iter().map(&mut place).collect()
}

struct Finder<'a> {
    scanner: Scanner<'a>,
    found: Vec<(usize, String, String)>,
}

impl Finder<'_> {
    /// Scans code to its end; inside a string (`strings` is the nesting depth) up to the closing brace.
    fn code(&mut self, strings: usize) {
        let mut braces = 0_usize;
        let mut last = b'\n';
        while let Some(byte) = self.scanner.peek() {
            let (blank, width) = self.scanner.skip_blanks();
            if blank {
                self.scanner.at += width;
                continue;
            }
            match byte {
                b'#' if strings == 0 => self.scanner.comment(),
                b'"' | b'\'' => self.string(strings, matches!(last, b'r' | b'R')),
                b'}' if strings > 0 && braces == 0 => return,
                b'{' => {
                    braces += 1;
                    self.scanner.at += 1;
                }
                b'}' => {
                    braces = braces.saturating_sub(1);
                    self.scanner.at += 1;
                }
                _ => {
                    last = self.word_or_sign(byte, last);
                    continue;
                }
            }
            last = byte;
        }
    }

    /// Reads a word and the member after it, if there is one. Returns a byte that identifies the token: the byte of a
    /// sign or of a word of one letter (such as the `r` before a raw string), and `a` for any other word.
    fn word_or_sign(&mut self, byte: u8, last: u8) -> u8 {
        let at = self.scanner.at;
        let Some(word) = self.scanner.name() else {
            self.scanner.at += 1;
            return byte;
        };
        let end = self.scanner.at;
        self.scanner.blanks();
        if last != b'.' && self.scanner.peek() == Some(b'.') {
            self.scanner.at += 1;
            self.scanner.blanks();
            if let Some(name) = self.scanner.name() {
                self.found.push((at, word, name));
                return b'a';
            }
        }
        self.scanner.at = end;
        if word.len() == 1 { byte } else { b'a' }
    }

    /// Skips a string, except the code in it.
    fn string(&mut self, strings: usize, raw: bool) {
        let whole = self.scanner.bytes;
        let start = self.scanner.at;
        self.scanner.string();
        let end = self.scanner.at.min(whole.len());
        if !raw && strings < DEPTH {
            self.scanner.bytes = &whole[..end];
            self.scanner.at = start + 1;
            while let Some(rest @ [_, ..]) = whole.get(self.scanner.at..end) {
                match rest {
                    [b'\\', ..] => self.scanner.at += 2,
                    [b'$', b'{', ..] => {
                        self.scanner.at += 2;
                        self.code(strings + 1);
                    }
                    _ => self.scanner.at += 1,
                }
            }
            self.scanner.bytes = whole;
        }
        self.scanner.at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let all = members(text.as_bytes());
        all.iter()
            .map(|member| format!("{}.{} {}:{}", member.of, member.name, member.line, member.column))
            .collect()
    }

    #[test]
    fn members_are_found_at_their_place() {
        assert_eq!(
            found("a = d.now()\nb = [x.y, z . w]\n"),
            ["d.now 1:5", "x.y 2:6", "z.w 2:11"]
        );
        assert_eq!(found("\u{fc} = \u{fc}b.c"), ["\u{fc}b.c 1:5"]);
        assert_eq!(
            found("f = d.now\na = {b: {c: d.today()}}"),
            ["d.now 1:5", "d.today 2:13"]
        );
        assert_eq!(
            found("a = \"x ${d.now()} ${e.f} y\"\nb = g.h"),
            ["d.now 1:10", "e.f 1:21", "g.h 2:5"]
        );
        assert_eq!(found("a = \"$${d.now()}\""), ["d.now 1:9"]);
        assert_eq!(found("a = '''\n${d.now({b: \"}\"})} '''\n"), ["d.now 2:3"]);
    }

    #[test]
    fn code_in_a_string_ends_with_its_own_brace() {
        assert_eq!(found("a = \"${d.now()} e.f\""), ["d.now 1:8"]);
        assert_eq!(
            found("a = \"${{x: 1} | d.e} f.g\" + h.i"),
            ["d.e 1:17", "h.i 1:29"]
        );
        assert_eq!(found("a = \"${x # ${d.e}}\""), ["d.e 1:14"]);
        assert_eq!(found("a = {b: 1}\nc = d.e}\nf = g.h"), ["d.e 2:5", "g.h 3:5"]);
    }

    #[test]
    fn comments_strings_and_deeper_members_are_none() {
        for text in [
            "# d.now()",
            "a = \"d.now()\"",
            "a = 'd.now()' # d.now()",
            "a = \"\"\"\nd.now()\n\"\"\"",
            "a = r\"${d.now()}\"",
            "a = \"\\${d.now()}\"",
        ] {
            assert_eq!(found(text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(found("a = x.d.now()"), ["x.d 1:5"]);
    }

    #[test]
    fn hostile_text_is_no_danger() {
        for text in [
            "\"${",
            "${\"",
            "{",
            "a.b ",
            "\"\"\"${\u{27}\u{27}\u{27}${\"${",
            "$",
            "\\\"${",
        ] {
            members(text.repeat(20_000).as_bytes());
        }
    }
}
