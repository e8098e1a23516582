//! The operands of `&&` in a CEL expression. If one of them is false, the expression is false, even if another
//! operand reads an unknown value.

use cel::Env;

use super::functions;
use crate::possible_reads::Mentions;
use konverge_cel::cel_expression::CelExpression;

/// An operand, with the words that it contains.
#[derive(Debug)]
pub(crate) struct Conjunct {
    pub mentions: Mentions,
    expression: CelExpression,
}

impl Conjunct {
    /// Returns true if the operand is false for this input. An error does not count as false.
    pub(crate) fn is_false(&self, context: &cel::Context) -> bool {
        self.expression.holds(context) == Ok(false)
    }
}

/// Splits an expression and compiles the operands. Returns none if a part is not an expression by itself.
pub(crate) fn compile(source: &str, env: &Env) -> Vec<Conjunct> {
    let parts = texts(source).into_iter().map(|text| {
        let expression = functions::compile(text, env).ok()?;
        let mut mentions = Mentions::default();
        mentions.add(text);
        Some(Conjunct { mentions, expression })
    });
    parts.collect::<Option<_>>().unwrap_or_default()
}

/// Splits an expression at each `&&` outside of brackets. The expression stays whole if it has an outer `||` or `?
/// :`, a comment, or a string with more than one quote on each side.
fn texts(source: &str) -> Vec<&str> {
    let whole = || vec![source];
    if source.contains("//") || source.contains('\\') || source.contains("'''") || source.contains("\"\"\"") {
        return whole();
    }
    let (mut depth, mut quote, mut start) = (0_i32, None, 0);
    let (mut parts, mut before) = (Vec::new(), ' ');
    for (at, c) in source.char_indices() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth -= 1,
            (None, '&') if depth == 0 && before == '&' => {
                parts.push(&source[start..at - 1]);
                start = at + 1;
            }
            (None, '|') if depth == 0 => return whole(),
            // An outer `? :` keeps the expression whole; `a.?b` is an optional field and no condition.
            (None, '?') if depth == 0 && before != '.' => return whole(),
            _ => {}
        }
        before = c;
    }
    parts.push(&source[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_outer_conjunction_has_parts() {
        for (source, parts) in [
            ("a && b", &["a ", " b"][..]),
            (
                "f('&& (') && (a && b || c) && x[\"&&\"]",
                &["f('&& (') ", " (a && b || c) ", " x[\"&&\"]"],
            ),
            (
                "a.?b.orValue(true) && {?'k': c}.size() > 0",
                &["a.?b.orValue(true) ", " {?'k': c}.size() > 0"],
            ),
            ("a || b && c", &["a || b && c"]),
            ("a ? b : c && d", &["a ? b : c && d"]),
            ("a && b // && c", &["a && b // && c"]),
            ("a == '\\'' && b", &["a == '\\'' && b"]),
            ("a == '''x''' && b", &["a == '''x''' && b"]),
            ("a == \"\"\"x\"\"\" && b", &["a == \"\"\"x\"\"\" && b"]),
            ("a", &["a"]),
            (
                "[a].all(b, b && c)&&{'k': d}.k",
                &["[a].all(b, b && c)", "{'k': d}.k"],
            ),
            (
                "a == '\"' && b == \"'\" && c",
                &["a == '\"' ", " b == \"'\" ", " c"],
            ),
            (
                "(a ? b : c) && [a ? b : c][0]",
                &["(a ? b : c) ", " [a ? b : c][0]"],
            ),
        ] {
            assert_eq!(texts(source), parts, "{source}");
        }
        // Text that the parser does not accept gives no operands, and so no certain denial.
        assert!(compile("a && b)", &functions::environment()).is_empty());
    }
}
