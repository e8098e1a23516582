//! Replaces Rego operators whose results differ from OPA's with calls of corrected functions: `a + b` becomes
//! `konverge_add(a, b, 0)`. Also refuses an assignment of the result of `walk` to a single name, because the engine
//! gets it wrong. Line numbers stay the same.
//!
//! The last argument is a 0, because the engine would take a variable in the last place of a call for one that the
//! call assigns.

use std::collections::HashMap;

use regorus::{
    Engine, Source,
    unstable::{BinOp, Expr, Lexer, Literal, Query, Rule, RuleAssign, RuleHead, Span, Token, TokenKind},
};

use super::numbers::{ARITHMETIC, COMPARISONS};

/// A call that replaces an operator, by byte offsets in the source.
struct OperatorCall {
    function: &'static str,
    start: usize,
    end: usize,
    /// The line and the column of the operator.
    operator: (u32, u32),
    sign: &'static str,
}

/// A replacement of `length` bytes at an offset of the source.
struct SourceChange {
    at: usize,
    /// The order of changes at the same offset: the end of a call comes before an operator, and an outer call
    /// starts before an inner one.
    order: u8,
    length: usize,
    text: String,
}

/// Returns the source with calls in place of operators. Line breaks stay where they are.
///
/// # Errors
/// The result of `walk` is assigned to a name; the text has the line.
pub(super) fn with_calls(engine: &mut Engine, text: &str) -> Result<String, String> {
    let mut calls = OperatorCalls::default();
    for rule in engine.get_modules().iter().flat_map(|module| &module.policy) {
        calls.add_rule(rule);
    }
    match calls.walk {
        Some(line) => Err(format!(
            "line {line}: the result of `walk` cannot be assigned to one name: write `walk(DOCUMENT, [path, value])`"
        )),
        None => calls.write(text),
    }
}

#[derive(Default)]
struct OperatorCalls {
    calls: Vec<OperatorCall>,
    /// Unions that are an item of a collection. `{f(a) | b}` would be parsed as a comprehension, but `{a - b | c}`
    /// would not.
    unions: Vec<(usize, usize)>,
    /// The line in which the result of `walk` is assigned to a name.
    walk: Option<u32>,
}

impl OperatorCalls {
    fn add_rule(&mut self, rule: &Rule) {
        let (head, bodies) = match rule {
            Rule::Spec { head, bodies, .. } => (head, bodies),
            Rule::Default { value, .. } => return self.add(value),
        };
        match head {
            RuleHead::Compr { refr, assign, .. } => {
                self.add(refr);
                self.add_assign(assign.as_ref());
            }
            RuleHead::Func { assign, .. } => self.add_assign(assign.as_ref()),
            RuleHead::Set { refr, key, .. } => {
                self.add(refr);
                key.iter().for_each(|key| self.add(key));
            }
        }
        for body in bodies {
            self.add_assign(body.assign.as_ref());
            self.add_query(&body.query);
        }
    }

    fn add_assign(&mut self, assign: Option<&RuleAssign>) {
        if let Some(assign) = assign {
            self.add_walk(&assign.value);
            self.add(&assign.value);
        }
    }

    /// Records an assignment of `walk`: its results are pairs, and the engine would give a single name none of
    /// them.
    fn add_walk(&mut self, value: &Expr) {
        if let Expr::Call { fcn, span, .. } = value
            && matches!(&**fcn, Expr::Var { span, .. } if span.text() == "walk")
        {
            self.walk.get_or_insert(span.line);
        }
    }

    fn add_query(&mut self, query: &Query) {
        for statement in &query.stmts {
            match &statement.literal {
                Literal::SomeVars { .. } => {}
                Literal::SomeIn {
                    key,
                    value,
                    collection,
                    ..
                } => {
                    key.iter().for_each(|key| self.add(key));
                    self.add(value);
                    self.add(collection);
                }
                Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => self.add(expr),
                Literal::Every { domain, query, .. } => {
                    self.add(domain);
                    self.add_query(query);
                }
            }
            for with in &statement.with_mods {
                self.add(&with.r#as);
            }
        }
    }

    fn add_call(&mut self, function: &'static str, sign: &'static str, span: &Span) {
        self.calls.push(OperatorCall {
            function,
            start: span.start as usize,
            end: span.end as usize,
            operator: (span.line, span.col),
            sign,
        });
    }

    fn add_item(&mut self, item: &Expr) {
        if let Expr::BinExpr {
            span,
            op: BinOp::Union,
            ..
        } = item
        {
            self.unions.push((span.start as usize, span.end as usize));
        }
        self.add(item);
    }

    /// Adds the operators of an expression, the outer one first.
    fn add(&mut self, expression: &Expr) {
        match expression {
            Expr::ArithExpr {
                span, op, lhs, rhs, ..
            } => {
                for (operator, function, sign) in ARITHMETIC {
                    if operator == *op {
                        self.add_call(function, sign, span);
                    }
                }
                self.add(lhs);
                self.add(rhs);
            }
            Expr::BoolExpr {
                span, op, lhs, rhs, ..
            } => {
                // With a text on one side no number is compared, so the operator can stay.
                let is_text = |side: &Expr| {
                    matches!(
                        side,
                        Expr::String { .. } | Expr::RawString { .. } | Expr::Bool { .. } | Expr::Null { .. }
                    )
                };
                for (operator, function, sign) in COMPARISONS {
                    if operator == *op && !is_text(lhs) && !is_text(rhs) {
                        self.add_call(function, sign, span);
                    }
                }
                self.add(lhs);
                self.add(rhs);
            }
            Expr::AssignExpr { lhs, rhs, .. } => {
                // An array on one side receives the pairs of `walk`; a single name would receive none.
                for (name, value) in [(lhs, rhs), (rhs, lhs)] {
                    if !matches!(&**name, Expr::Array { .. }) {
                        self.add_walk(value);
                    }
                }
                self.add(lhs);
                self.add(rhs);
            }
            Expr::BinExpr { lhs, rhs, .. } => {
                self.add(lhs);
                self.add(rhs);
            }
            Expr::Array { items, .. } | Expr::Set { items, .. } => {
                items.iter().for_each(|item| self.add_item(item))
            }
            Expr::Object { fields, .. } => {
                for (_, key, value) in fields {
                    self.add(key);
                    self.add_item(value);
                }
            }
            Expr::ArrayCompr { term, query, .. } | Expr::SetCompr { term, query, .. } => {
                self.add(term);
                self.add_query(query);
            }
            Expr::ObjectCompr {
                key, value, query, ..
            } => {
                self.add(key);
                self.add(value);
                self.add_query(query);
            }
            Expr::Call { params, .. } => params.iter().for_each(|param| self.add(param)),
            Expr::UnaryExpr { expr, .. } => self.add(expr),
            Expr::RefDot { refr, .. } => self.add(refr),
            Expr::RefBrack { refr, index, .. } => {
                self.add(refr);
                self.add(index);
            }
            Expr::Membership {
                key,
                value,
                collection,
                ..
            } => {
                key.iter().for_each(|key| self.add(key));
                self.add(value);
                self.add(collection);
            }
            Expr::String { .. }
            | Expr::RawString { .. }
            | Expr::Number { .. }
            | Expr::Bool { .. }
            | Expr::Null { .. }
            | Expr::Var { .. } => {}
        }
    }

    fn write(self, text: &str) -> Result<String, String> {
        if self.calls.is_empty() {
            return Ok(text.to_owned());
        }
        let places = token_places(text)?;
        let mut changes = Vec::new();
        let mut change = |at, order, length, text| {
            changes.push(SourceChange {
                at,
                order,
                length,
                text,
            })
        };
        for (start, end) in self.unions {
            change(start, 2, 0, "(".to_owned());
            // At the same offset, the change belongs after the end of an inner call.
            change(end, 1, 0, ")".to_owned());
        }
        for call in &self.calls {
            // The engine's position is checked against the source: a wrong one would corrupt the rule silently.
            let at = places.get(&call.operator).copied();
            let at = at.filter(|at| text[*at..].starts_with(call.sign));
            let at = at.ok_or_else(|| {
                format!(
                    "line {}: the operator `{}` could not be read",
                    call.operator.0, call.sign
                )
            })?;
            change(
                with_quote_before(text, call.start),
                2,
                0,
                format!("{}(", call.function),
            );
            change(at, 1, call.sign.len(), ",".to_owned());
            change(with_quote_behind(text, call.end), 0, 0, ", 0)".to_owned());
        }
        changes.sort_by_key(|change| (change.at, change.order));
        let (mut written, mut from) = (String::with_capacity(text.len() * 2), 0);
        for change in changes {
            written.push_str(text.get(from..change.at).unwrap_or_default());
            written.push_str(&change.text);
            from = change.at + change.length;
        }
        written.push_str(text.get(from..).unwrap_or_default());
        Ok(written)
    }
}

/// Returns the start of an expression. The engine reports the offset after the opening quote of a text.
fn with_quote_before(text: &str, start: usize) -> usize {
    start - usize::from(text[..start].ends_with(['"', '`']))
}

/// Returns the end of an expression. The engine reports the offset before the closing quote of a text.
fn with_quote_behind(text: &str, end: usize) -> usize {
    end + usize::from(text[end..].starts_with(['"', '`']))
}

/// Returns the offset of each token, by its line and column as the engine counts them.
fn token_places(text: &str) -> Result<HashMap<(u32, u32), usize>, String> {
    let source = Source::from_contents(String::new(), text.to_owned()).map_err(|error| error.to_string())?;
    let mut lexer = Lexer::new(&source);
    let mut places = HashMap::new();
    loop {
        let Token(kind, span) = lexer.next_token().map_err(|error| error.to_string())?;
        if kind == TokenKind::Eof {
            return Ok(places);
        }
        places.insert((span.line, span.col), span.start as usize);
    }
}

#[cfg(test)]
mod tests {
    use konverge_config::RegoVersion;
    use regorus::Value as RegoValue;

    use super::*;
    use crate::rego::engine::RuleEngine;

    fn read(text: &str) -> Result<String, String> {
        let mut engine = Engine::new();
        engine.add_policy("a.rego".to_owned(), text.to_owned()).unwrap();
        with_calls(&mut engine, text)
    }

    #[test]
    fn operators_are_calls_and_nothing_else_changes() {
        for (body, calls) in [
            ("a+b", "konverge_add(a,b, 0)"),
            (
                "a * b + c / d",
                "konverge_add(konverge_multiply(a , b, 0) , konverge_divide(c , d, 0), 0)",
            ),
            (
                "(a + b) * c",
                "konverge_multiply((konverge_add(a , b, 0)) , c, 0)",
            ),
            ("a -1", "konverge_subtract(a ,1, 0)"),
            ("a - -1", "konverge_subtract(a , -1, 0)"),
            (
                "{1} - {2} == set()",
                "konverge_is_equal(konverge_subtract({1} , {2}, 0) , set(), 0)",
            ),
            (
                "set() < {\"ß\": 1, \"b\": 2}",
                "konverge_is_less(set() , {\"ß\": 1, \"b\": 2}, 0)",
            ),
            ("a.b == \"x - y\"", "a.b == \"x - y\""),
            ("a[b + 1] != null", "a[konverge_add(b , 1, 0)] != null"),
            (
                "f(a >= 1, `\n`) <= 2",
                "konverge_is_at_most(f(konverge_is_at_least(a , 1, 0), `\n`) , 2, 0)",
            ),
            (
                "count([x | some x in a; x > 1 % 2]) > 1",
                "konverge_is_more(count([x | some x in a; konverge_is_more(x , konverge_remainder(1 , 2, 0), 0)]) , 1, 0)",
            ),
            ("a | b & c", "a | b & c"),
            ("{a - b | c}", "{(konverge_subtract(a , b, 0) | c)}"),
            (
                "{\"k\": c & d | a - b}",
                "{\"k\": (c & d | konverge_subtract(a , b, 0))}",
            ),
            ("\"a\" < x < 1", "konverge_is_less(\"a\" < x , 1, 0)"),
            ("1 + \"a\"", "konverge_add(1 , \"a\", 0)"),
            ("a + # one +\n\t2", "konverge_add(a , # one +\n\t2, 0)"),
        ] {
            let source = format!(
                "package p\n\n# a + b\nf(a, b) := {body} if {{\n\tx := {body}\n\tnot {body} with input.a as {body}\n}}\n"
            );
            let expected = source.replace(body, calls);
            assert_eq!(read(&source).unwrap(), expected, "{body}");
            // A second pass changes nothing.
            assert_eq!(read(&expected).unwrap(), expected, "{body}");
        }
    }

    /// The engine took the name for a variable that the call assigns.
    #[test]
    fn a_loop_beside_a_name_in_a_call_is_one() {
        let mut engine = RuleEngine::new(RegoVersion::V1, "");
        let rules = "package p\n\nfound contains i if {\n\tsome i\n\tinput.base + i != input.ports[i]\n}\n\n\
            rises if input.ports[0] < input.ports[_]\n\ndefault over := [1 | 0.1 + 0.2 == 0.3]\n\n\
            parts[input.base + 1] := input.base / 2\n\nnext contains input.base + 1\n\n\
            pairs contains x if {\n\tsome [x, input.base - 79] in [[7, 1], [8, 2]]\n}\n";
        engine.add_file("p.rego", rules).unwrap();
        engine.set_input(RegoValue::from(
            serde_json::json!({"base": 80, "ports": [80, 81, 90]}),
        ));
        for (rule, value) in [
            ("found", "[2]"),
            ("rises", "true"),
            ("over", "[1]"),
            ("parts", r#"{"81":40}"#),
            ("next", "[81]"),
            ("pairs", "[7]"),
        ] {
            let found = engine.evaluate(&format!("data.p.{rule}"));
            assert_eq!(
                found.map(|found| found.to_string()).as_deref(),
                Ok(value),
                "{rule}"
            );
        }
    }

    #[test]
    fn a_name_for_walk_is_refused() {
        for refused in [
            "x := walk(input)",
            "x = walk(input)",
            "walk(input) = x",
            "[y | y := walk(input)]",
        ] {
            let why = read(&format!("package p\na if {{\n\t{refused}\n}}\n")).unwrap_err();
            assert!(
                why.contains("line 3: ") && why.contains("write `walk("),
                "{refused}: {why}"
            );
        }
        assert!(read("package p\na := walk(input)\n").is_err());
        for fine in [
            "[path, value] := walk(input)",
            "walk(input, [_, 1])",
            "walk(input, x)",
        ] {
            assert!(
                read(&format!("package p\na if {{\n\t{fine}\n}}\n")).is_ok(),
                "{fine}"
            );
        }
    }
}
