//! Regular expressions with the meaning that they have in Go. OPA, conftest, Gatekeeper and API servers are written
//! in Go, and rules are written for them.
//!
//! In Go `\d`, `\w`, `\s` and `\b` match only ASCII. Rust's `regex` matches letters and digits of every script, so
//! an allow-list would let `٣` pass. Therefore these classes are translated to ASCII. An expression that Go would
//! read differently, or not at all, is refused. Under `(?i)` both ignore the case of all letters: `k` matches the
//! Kelvin sign.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use regex::{Regex, RegexBuilder};
use regex_syntax::ast::{self, Ast};

/// The maximum size of a compiled expression in bytes.
const LARGEST: usize = 1024 * 1024;
/// The maximum number of cached expressions, and the maximum length of a cached one in bytes.
const MOST: usize = 256;
const LONGEST: usize = 4096;
/// Go's maximum number of repetitions.
const MOST_REPETITIONS: u32 = 1000;

/// The names after `\p` that Go and Rust both have: general categories and scripts.
const CLASSES: &str = "\
    L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co \
    Any Arabic Armenian Bengali Common Cyrillic Devanagari Georgian Greek Han Hangul Hebrew Hiragana \
    Katakana Latin Tamil Thai Tibetan";

/// Reasons why an expression is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RegexProblem {
    #[error("it is not a regular expression, or too large")]
    NotRegex,
    #[error("`{0}` in it is invalid in Go, or means something else in Go")]
    NotGo(String),
}

/// A cache of compiled expressions.
#[derive(Clone, Default)]
pub(super) struct GoRegexes(Arc<RwLock<HashMap<String, Arc<Regex>>>>);

impl GoRegexes {
    /// Returns a compiled expression.
    ///
    /// # Errors
    /// An expression that Go would read differently, or not at all.
    pub(super) fn get(&self, text: &str) -> Result<Arc<Regex>, RegexProblem> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(regex) = known.get(text) {
            return Ok(Arc::clone(regex));
        }
        drop(known);
        let regex = Arc::new(compile(text)?);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() < MOST && text.len() <= LONGEST {
            known.insert(text.to_owned(), Arc::clone(&regex));
        }
        Ok(regex)
    }
}

/// Compiles an expression of Go, without the cache.
///
/// # Errors
/// The same as for [`GoRegexes::get`].
pub(super) fn compile(text: &str) -> Result<Regex, RegexProblem> {
    let translated = translated(text)?;
    let regex = RegexBuilder::new(&translated).size_limit(LARGEST).build();
    regex.map_err(|_| RegexProblem::NotRegex)
}

/// Returns true if Go accepts an expression.
///
/// # Errors
/// Rust's parser cannot tell whether Go accepts the expression.
pub(super) fn is_valid(text: &str) -> Result<bool, RegexProblem> {
    use ast::ErrorKind::{GroupUnclosed, GroupUnopened, RepetitionMissing};
    match compile(text) {
        Ok(_) => Ok(true),
        // Go accepts more than Rust inside brackets, in braces and after a backslash, so only an expression without
        // these is certainly invalid.
        Err(RegexProblem::NotRegex) if !text.contains(['[', '\\', '{']) => {
            match ast::parse::Parser::new()
                .parse(text)
                .map_err(|error| error.kind().clone())
            {
                Err(GroupUnclosed | GroupUnopened | RepetitionMissing) => Ok(false),
                _ => Err(RegexProblem::NotRegex),
            }
        }
        Err(problem) => Err(problem),
    }
}

/// Translates an expression of Go to one of Rust with the same meaning.
///
/// # Errors
/// Rust has no such expression.
pub(super) fn translated(text: &str) -> Result<String, RegexProblem> {
    let parsed = ast::parse::Parser::new().parse(text);
    let parsed = parsed.map_err(|_| RegexProblem::NotRegex)?;
    let edits = ast::visit(&parsed, Translation::new(text))?;
    let (mut translated, mut from) = (String::with_capacity(text.len()), 0);
    for (start, end, with) in edits {
        translated.push_str(&text[from..start]);
        translated.push_str(&with);
        from = end;
    }
    translated.push_str(&text[from..]);
    Ok(translated)
}

/// A range of the text (start, end), and its replacement.
type Edit = (usize, usize, String);

struct Translation<'a> {
    text: &'a str,
    edits: Vec<Edit>,
}

impl<'a> Translation<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            edits: Vec::new(),
        }
    }

    fn replace(&mut self, span: &ast::Span, with: &str) {
        self.edits
            .push((span.start.offset, span.end.offset, with.to_owned()));
    }

    fn refuse_unless(&self, is_go: bool, span: &ast::Span) -> Result<(), RegexProblem> {
        if is_go {
            return Ok(());
        }
        let part = &self.text[span.start.offset..span.end.offset];
        Err(RegexProblem::NotGo(part.escape_debug().to_string()))
    }

    fn perl_class(&mut self, class: &ast::ClassPerl) {
        let items = match class.kind {
            ast::ClassPerlKind::Digit => "0-9",
            ast::ClassPerlKind::Space => r"\t\n\x0C\r ",
            ast::ClassPerlKind::Word => "0-9A-Za-z_",
        };
        let negation = if class.negated { "^" } else { "" };
        self.replace(&class.span, &format!("[{negation}{items}]"));
    }

    fn unicode_class(&self, class: &ast::ClassUnicode) -> Result<(), RegexProblem> {
        let is_class = |name: &str| CLASSES.split(' ').any(|known| known == name);
        let is_known = match &class.kind {
            ast::ClassUnicodeKind::OneLetter(letter) => is_class(&letter.to_string()),
            ast::ClassUnicodeKind::Named(name) => is_class(name),
            ast::ClassUnicodeKind::NamedValue { .. } => false,
        };
        self.refuse_unless(is_known, &class.span)
    }

    fn literal(&self, literal: &ast::Literal) -> Result<(), RegexProblem> {
        use ast::{HexLiteralKind, LiteralKind, SpecialLiteralKind};
        let is_go = match &literal.kind {
            LiteralKind::HexFixed(kind) | LiteralKind::HexBrace(kind) => *kind == HexLiteralKind::X,
            LiteralKind::Octal => false,
            // Go allows an escape only before ASCII punctuation.
            LiteralKind::Meta | LiteralKind::Superfluous => literal.c.is_ascii_punctuation(),
            LiteralKind::Special(SpecialLiteralKind::Space) => false,
            LiteralKind::Verbatim | LiteralKind::Special(_) => true,
        };
        self.refuse_unless(is_go, &literal.span)
    }

    fn flags(&self, flags: &ast::Flags) -> Result<(), RegexProblem> {
        use ast::{Flag, FlagsItemKind};
        let is_go = flags.items.iter().all(|item| match item.kind {
            FlagsItemKind::Negation => true,
            FlagsItemKind::Flag(flag) => matches!(
                flag,
                Flag::CaseInsensitive | Flag::MultiLine | Flag::DotMatchesNewLine | Flag::SwapGreed
            ),
        });
        self.refuse_unless(is_go, &flags.span)
    }

    fn assertion(&mut self, assertion: &ast::Assertion) -> Result<(), RegexProblem> {
        use ast::AssertionKind;
        match assertion.kind {
            AssertionKind::WordBoundary => self.replace(&assertion.span, r"(?-u:\b)"),
            AssertionKind::NotWordBoundary => self.replace(&assertion.span, r"(?-u:\B)"),
            AssertionKind::StartLine
            | AssertionKind::EndLine
            | AssertionKind::StartText
            | AssertionKind::EndText => {}
            _ => return self.refuse_unless(false, &assertion.span),
        }
        Ok(())
    }

    fn repetition(&self, repetition: &ast::Repetition) -> Result<(), RegexProblem> {
        use ast::{RepetitionKind, RepetitionRange};
        let span = &repetition.op.span;
        // In Go `a**` is an error, and `a{,3}` matches that text literally.
        let is_nested = matches!(*repetition.ast, Ast::Repetition(_));
        let is_text = self.text[span.start.offset..].starts_with("{,");
        let is_large = match &repetition.op.kind {
            RepetitionKind::Range(RepetitionRange::Exactly(most) | RepetitionRange::AtLeast(most)) => {
                *most > MOST_REPETITIONS
            }
            RepetitionKind::Range(RepetitionRange::Bounded(least, most)) => {
                *least > MOST_REPETITIONS || *most > MOST_REPETITIONS
            }
            _ => false,
        };
        // Go allows no spaces inside the braces.
        let has_blank = self.text[span.start.offset..span.end.offset].contains(char::is_whitespace);
        self.refuse_unless(!(is_nested || is_text || is_large || has_blank), span)
    }
}

impl ast::Visitor for Translation<'_> {
    type Output = Vec<Edit>;
    type Err = RegexProblem;

    fn finish(mut self) -> Result<Self::Output, Self::Err> {
        self.edits.sort();
        Ok(self.edits)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        match ast {
            Ast::Flags(set) => self.flags(&set.flags),
            Ast::Group(group) => match &group.kind {
                ast::GroupKind::NonCapturing(flags) => self.flags(flags),
                ast::GroupKind::CaptureName { name, .. } => {
                    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
                    self.refuse_unless(name.name.chars().all(is_word), &name.span)
                }
                ast::GroupKind::CaptureIndex(_) => Ok(()),
            },
            Ast::Literal(literal) => self.literal(literal),
            Ast::Assertion(assertion) => self.assertion(assertion),
            Ast::ClassUnicode(class) => self.unicode_class(class),
            Ast::ClassPerl(class) => {
                self.perl_class(class);
                Ok(())
            }
            Ast::Repetition(repetition) => self.repetition(repetition),
            Ast::Empty(_) | Ast::Dot(_) | Ast::ClassBracketed(_) | Ast::Alternation(_) | Ast::Concat(_) => {
                Ok(())
            }
        }
    }

    fn visit_class_set_item_pre(&mut self, item: &ast::ClassSetItem) -> Result<(), Self::Err> {
        match item {
            ast::ClassSetItem::Literal(literal) => self.literal(literal),
            ast::ClassSetItem::Range(range) => {
                self.literal(&range.start)?;
                self.literal(&range.end)
            }
            ast::ClassSetItem::Unicode(class) => self.unicode_class(class),
            ast::ClassSetItem::Perl(class) => {
                self.perl_class(class);
                Ok(())
            }
            // In Go a bracket inside a bracket expression is a literal character.
            ast::ClassSetItem::Bracketed(class) => self.refuse_unless(false, &class.span),
            ast::ClassSetItem::Empty(_) | ast::ClassSetItem::Ascii(_) | ast::ClassSetItem::Union(_) => Ok(()),
        }
    }

    fn visit_class_set_binary_op_pre(&mut self, op: &ast::ClassSetBinaryOp) -> Result<(), Self::Err> {
        self.refuse_unless(false, &op.span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        compile(pattern).unwrap().is_match(text)
    }

    #[test]
    fn perl_s_classes_know_ascii_alone() {
        for (pattern, ascii, other) in [
            (r"^\d+$", "0123456789", "٣"),
            (r"^\w+$", "azAZ09_", "é"),
            (r"^\s$", "\u{c}", "\u{a0}"),
            (r"^[\d.]+$", "1.2", "١.٢"),
            (r"^[^\D]$", "7", "٧"),
            (r"^\W$", "-", "a"),
            (r"^[\W]$", "é", "a"),
            (r"\bx\b", "éxé", "axa"),
            (r"^\Bé$", "é", "x"),
            (r"(?i)^[[:alpha:]]$", "z", "é"),
        ] {
            assert!(matches(pattern, ascii), "{pattern} {ascii}");
            assert!(!matches(pattern, other), "{pattern} {other}");
        }
        assert!(!matches(r"^\s$", "\u{b}"), "Go leaves the vertical tab out");
        assert!(
            matches("(?i)^k$", "\u{212a}") && matches(r"(?i)^\w$", "\u{212a}"),
            "case is folded as in Go"
        );
        assert!(
            matches(r"^\p{Greek}\p{Lu}\pN$", "αA٣"),
            "what says Unicode is Unicode"
        );
    }

    #[test]
    fn what_go_reads_otherwise_is_refused() {
        for (pattern, part) in [
            ("[a&&b]", "a&&b"),
            ("[a--b]", "a--b"),
            ("[a~~b]", "a~~b"),
            ("[a[b]]", "[b]"),
            ("(?x)a b", "x"),
            ("(?u:a)", "u"),
            (r"\u0041", r"\u0041"),
            (r"\p{Emoji}", r"\p{Emoji}"),
            (r"\p{sc=Greek}", r"\p{sc=Greek}"),
            (r"\<a", r"\<"),
            ("a**", "*"),
            ("a{1001}", "{1001}"),
        ] {
            let refused = compile(pattern).unwrap_err();
            assert!(
                matches!(&refused, RegexProblem::NotGo(what) if what.replace("\\\\", "\\") == part),
                "{pattern}: {refused:?}"
            );
        }
        for pattern in ["(", r"\Q", "a{2,1}", &"a{1000}".repeat(40)] {
            assert_eq!(compile(pattern).unwrap_err(), RegexProblem::NotRegex, "{pattern}");
        }
    }

    #[test]
    fn what_both_read_alike_stays_as_it_is() {
        for pattern in [
            "",
            "^a.c$",
            "(?i:a|b)+?",
            r"[a-z\-_]{1,63}",
            r"\x41\x{263a}\n\.\/",
            "(?P<name>a)(?s).",
            "[[:alnum:]]",
        ] {
            assert_eq!(translated(pattern).unwrap(), pattern);
        }
    }

    fn kept(compiled: &GoRegexes) -> usize {
        compiled.0.read().unwrap().len()
    }

    #[test]
    fn a_limited_number_of_expressions_is_kept() {
        let compiled = GoRegexes::default();
        for at in 0..=MOST {
            assert_eq!(kept(&compiled), at);
            let text = format!("^a{at}$");
            let first = compiled.get(&text).unwrap();
            assert!(first.is_match(&format!("a{at}")), "{text}");
            let again = compiled.get(&text).unwrap();
            assert_eq!(Arc::ptr_eq(&first, &again), at < MOST, "{text}");
        }
        assert_eq!(kept(&compiled), MOST);
    }

    #[test]
    fn a_long_expression_is_not_kept() {
        for (length, expected) in [(LONGEST, 1), (LONGEST + 1, 0)] {
            let compiled = GoRegexes::default();
            assert!(compiled.get(&"a".repeat(length)).is_ok());
            assert_eq!(kept(&compiled), expected, "{length}");
        }
        let compiled = GoRegexes::default();
        assert!(compiled.get("(").is_err());
        assert_eq!(kept(&compiled), 0);
    }

    #[test]
    fn an_expression_may_be_large_and_not_huge() {
        assert!(compile("[a-z]{200}").is_ok());
        assert!(compile(r"\pL{1000}").is_err());
    }
}
