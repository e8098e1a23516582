//! Lua's patterns (reference manual 6.4.1) with a limit of their work: Lua's own matcher can run for ever, or
//! exhaust the stack, in one call that no hook interrupts.

/// The work limit of one search: compared characters.
const WORK: u64 = 2_000_000;
/// The recursion limit of one match.
const DEPTH: usize = 200;
/// The maximum number of captures in a pattern.
const CAPTURES: usize = 32;
const ESCAPE: u8 = b'%';

/// A capture: its start and end in bytes; for `()` its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Capture {
    Text(usize, usize),
    Position(usize),
}

/// A match: its start and end in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub start: usize,
    pub end: usize,
    pub captures: Vec<Capture>,
}

pub(super) struct Pattern<'p> {
    pattern: &'p [u8],
    anchored: bool,
}

impl<'p> Pattern<'p> {
    pub(super) fn new(pattern: &'p [u8]) -> Self {
        let anchored = pattern.first() == Some(&b'^');
        Self {
            pattern: &pattern[usize::from(anchored)..],
            anchored,
        }
    }

    /// A pattern in which `^` is an ordinary character.
    pub(super) fn unanchored(pattern: &'p [u8]) -> Self {
        Self {
            pattern,
            anchored: false,
        }
    }

    pub(super) fn is_anchored(&self) -> bool {
        self.anchored
    }

    /// The first match at or after a position.
    pub(super) fn find(&self, text: &[u8], from: usize) -> Result<Option<Found>, String> {
        let mut work = WORK;
        for start in from..=text.len() {
            if let Some(found) = self.attempt(text, start, &mut work)? {
                return Ok(Some(found));
            }
            if self.anchored {
                break;
            }
        }
        Ok(None)
    }

    /// The match at exactly that position.
    pub(super) fn find_at(&self, text: &[u8], start: usize) -> Result<Option<Found>, String> {
        self.attempt(text, start, &mut WORK.clone())
    }

    fn attempt(&self, text: &[u8], start: usize, work: &mut u64) -> Result<Option<Found>, String> {
        let mut matcher = Matcher {
            text,
            pattern: self.pattern,
            captures: Vec::new(),
            work,
            depth: 0,
        };
        let Some(end) = matcher.run(start, 0)? else {
            return Ok(None);
        };
        let mut captures = Vec::new();
        for open in matcher.captures {
            captures.push(match open {
                Open::Done(capture) => capture,
                Open::Since(_) => return Err("unfinished capture".to_owned()),
            });
        }
        Ok(Some(Found { start, end, captures }))
    }
}

#[derive(Clone, Copy)]
enum Open {
    Since(usize),
    Done(Capture),
}

struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<Open>,
    work: &'a mut u64,
    depth: usize,
}

impl Matcher<'_> {
    /// Matches the pattern from `p` on against the text from `s` on; returns the end of the match.
    fn run(&mut self, s: usize, p: usize) -> Result<Option<usize>, String> {
        if self.depth >= DEPTH {
            return Err("pattern too complex".to_owned());
        }
        self.depth += 1;
        let answer = self.steps(s, p);
        self.depth -= 1;
        answer
    }

    fn steps(&mut self, mut s: usize, mut p: usize) -> Result<Option<usize>, String> {
        loop {
            self.spend()?;
            let Some(&head) = self.pattern.get(p) else {
                return Ok(Some(s));
            };
            match head {
                b'(' if self.pattern.get(p + 1) == Some(&b')') => {
                    return self.capture(Open::Done(Capture::Position(s)), s, p + 2);
                }
                b'(' => return self.capture(Open::Since(s), s, p + 1),
                b')' => return self.close(s, p + 1),
                b'$' if p + 1 == self.pattern.len() => return Ok((s == self.text.len()).then_some(s)),
                ESCAPE if self.pattern.get(p + 1) == Some(&b'b') => match self.balanced(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                ESCAPE if self.pattern.get(p + 1) == Some(&b'f') => {
                    let set = p + 2;
                    if self.pattern.get(set) != Some(&b'[') {
                        return Err("missing '[' after '%f' in pattern".to_owned());
                    }
                    let after = self.item_end(set)?;
                    let before = s.checked_sub(1).map_or(0, |at| self.text[at]);
                    let here = self.text.get(s).copied().unwrap_or(0);
                    if self.in_set(before, set, after) || !self.in_set(here, set, after) {
                        return Ok(None);
                    }
                    p = after;
                }
                ESCAPE if self.pattern.get(p + 1).is_some_and(u8::is_ascii_digit) => {
                    match self.again(s, self.pattern[p + 1])? {
                        Some(end) => (s, p) = (end, p + 2),
                        None => return Ok(None),
                    }
                }
                _ => {
                    let after = self.item_end(p)?;
                    match self.pattern.get(after) {
                        Some(b'?') => {
                            if self.fits(s, p, after)
                                && let Some(end) = self.run(s + 1, after + 1)?
                            {
                                return Ok(Some(end));
                            }
                            p = after + 1;
                        }
                        Some(b'*') => return self.longest(s, p, after, 0),
                        Some(b'+') => return self.longest(s, p, after, 1),
                        Some(b'-') => return self.shortest(s, p, after),
                        _ if self.fits(s, p, after) => (s, p) = (s + 1, after),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    fn spend(&mut self) -> Result<(), String> {
        *self.work = self.work.checked_sub(1).ok_or("pattern takes too much work")?;
        Ok(())
    }

    fn capture(&mut self, open: Open, s: usize, p: usize) -> Result<Option<usize>, String> {
        if self.captures.len() >= CAPTURES {
            return Err("too many captures".to_owned());
        }
        self.captures.push(open);
        let level = self.captures.len();
        let end = self.run(s, p)?;
        if end.is_none() {
            self.captures.truncate(level - 1);
        }
        Ok(end)
    }

    fn close(&mut self, s: usize, p: usize) -> Result<Option<usize>, String> {
        let open = self
            .captures
            .iter()
            .rposition(|open| matches!(open, Open::Since(_)));
        let level = open.ok_or("invalid pattern capture")?;
        let before = self.captures[level];
        if let Open::Since(start) = before {
            self.captures[level] = Open::Done(Capture::Text(start, s));
        }
        let end = self.run(s, p)?;
        if end.is_none() {
            self.captures[level] = before;
        }
        Ok(end)
    }

    /// `%1`: the same text again.
    fn again(&mut self, s: usize, digit: u8) -> Result<Option<usize>, String> {
        let capture = digit
            .checked_sub(b'1')
            .and_then(|level| self.captures.get(usize::from(level)));
        let Some(Open::Done(Capture::Text(start, end))) = capture else {
            return Err("invalid capture index".to_owned());
        };
        let same = &self.text[*start..*end];
        Ok(self.text[s..].starts_with(same).then_some(s + same.len()))
    }

    /// `%bxy`.
    fn balanced(&mut self, s: usize, p: usize) -> Result<Option<usize>, String> {
        let (Some(&open), Some(&close)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return Err("unbalanced pattern".to_owned());
        };
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut level = 1;
        for at in s + 1..self.text.len() {
            self.spend()?;
            match self.text[at] {
                byte if byte == close => {
                    level -= 1;
                    if level == 0 {
                        return Ok(Some(at + 1));
                    }
                }
                byte if byte == open => level += 1,
                _ => {}
            }
        }
        Ok(None)
    }

    fn longest(&mut self, s: usize, p: usize, after: usize, least: usize) -> Result<Option<usize>, String> {
        let mut count = 0;
        while self.fits(s + count, p, after) {
            self.spend()?;
            count += 1;
        }
        while count >= least {
            if let Some(end) = self.run(s + count, after + 1)? {
                return Ok(Some(end));
            }
            match count.checked_sub(1) {
                Some(fewer) => count = fewer,
                None => break,
            }
        }
        Ok(None)
    }

    fn shortest(&mut self, mut s: usize, p: usize, after: usize) -> Result<Option<usize>, String> {
        loop {
            if let Some(end) = self.run(s, after + 1)? {
                return Ok(Some(end));
            }
            if !self.fits(s, p, after) {
                return Ok(None);
            }
            s += 1;
        }
    }

    /// The end of the item that starts at `p`: one character, an escape, or a set.
    fn item_end(&self, p: usize) -> Result<usize, String> {
        match self.pattern[p] {
            ESCAPE if p + 1 < self.pattern.len() => Ok(p + 2),
            ESCAPE => Err("malformed pattern (ends with '%')".to_owned()),
            b'[' => {
                let mut at = p + 1;
                if self.pattern.get(at) == Some(&b'^') {
                    at += 1;
                }
                loop {
                    // A `]` at the start is an ordinary character.
                    let byte = self.pattern.get(at).ok_or("malformed pattern (missing ']')")?;
                    at += if *byte == ESCAPE { 2 } else { 1 };
                    if self.pattern.get(at) == Some(&b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Returns true if the character at `s` matches the item `p..after`.
    fn fits(&self, s: usize, p: usize, after: usize) -> bool {
        let Some(&byte) = self.text.get(s) else {
            return false;
        };
        match self.pattern[p] {
            b'.' => true,
            ESCAPE => in_class(byte, self.pattern[p + 1]),
            b'[' => self.in_set(byte, p, after),
            other => other == byte,
        }
    }

    /// Returns true if a character is in the set `[…]` at `p..after`.
    fn in_set(&self, byte: u8, p: usize, after: usize) -> bool {
        let mut set = &self.pattern[p + 1..after - 1];
        let wanted = set.first() != Some(&b'^');
        if !wanted {
            set = &set[1..];
        }
        while let Some((&head, rest)) = set.split_first() {
            let (hit, taken) = match (head, rest) {
                (ESCAPE, [class, ..]) => (in_class(byte, *class), 2),
                (low, [b'-', high, ..]) => ((low..=*high).contains(&byte), 3),
                (other, _) => (other == byte, 1),
            };
            if hit {
                return wanted;
            }
            set = &set[taken..];
        }
        !wanted
    }
}

/// `%a` and the like; an upper-case letter is the complement.
fn in_class(byte: u8, class: u8) -> bool {
    let hit = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    hit != class.is_ascii_uppercase()
}
