//! Regular expressions in CEL: `matches`, `find` and `findAll`. Each expression is compiled once for a policy set;
//! a literal one already when the rule is loaded.

use std::sync::Arc;

use super::arguments::{CelResult, string, text};
use crate::go_regex::{self, GoRegexes};
use cel::{
    Context, Env, ExecutionError, IdedExpr, Value as CelValue,
    common::{
        ast::{CallExpr, Expr, LiteralValue},
        types::{CelBool, CelString},
        value::CowVal,
    },
    extractors::{Arguments, This},
    parser::{Macro, MacroExprHelper, ParseError},
};
use konverge_cel::cel_expression::CelFunction;

/// The name of the function that replaces calls of `matches`. The function of the `cel` crate would compile its
/// expression at each call.
const MATCHES: &str = "@matches";

/// Declares a macro that replaces `matches` with a function that caches its expressions.
pub(super) fn declare(env: &mut Env) {
    // Only a second macro of the same name could fail.
    let _ = env.add_macro(Macro::receiver("matches", 1, expand));
    let _ = env.add_macro(Macro::global("matches", 2, expand));
}

fn expand(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    arguments: &mut Vec<IdedExpr>,
) -> Result<Option<IdedExpr>, ParseError> {
    if let Some(IdedExpr {
        expr: Expr::Literal(LiteralValue::String(text)),
        id,
    }) = arguments.last()
        && let Err(problem) = go_regex::compile(text.inner())
    {
        return Err(helper.new_error(*id, format!("'{}': {problem}", text.inner())));
    }
    Ok(Some(helper.next_expr(Expr::Call(CallExpr {
        func_name: MATCHES.to_owned(),
        target: target.take().map(Box::new),
        args: std::mem::take(arguments),
    }))))
}

fn get(known: &GoRegexes, expression: &str) -> Result<Arc<regex::Regex>, ExecutionError> {
    known
        .get(expression)
        .map_err(|problem| error(&problem.to_string()))
}

fn error(message: &str) -> ExecutionError {
    ExecutionError::function_error("matches", message)
}

/// Adds the functions to a context, with a cache of their own.
pub(super) fn add(context: &mut Context) {
    let compiled = GoRegexes::default();
    let known = compiled.clone();
    let matches: CelFunction = Box::new(move |call| {
        let mut texts = call.this.iter().chain(&call.args).map(|value| {
            let text = value.downcast_ref::<CelString>();
            text.ok_or_else(|| error("it needs a string"))
        });
        let (Some(haystack), Some(expression)) = (texts.next(), texts.next()) else {
            return Err(error("it needs a string and an expression"));
        };
        let found = get(&known, expression?.inner())?.is_match(haystack?.inner());
        Ok(CowVal::owned(CelBool::from(found)))
    });
    let _ = context.add_function::<CelFunction, _>(MATCHES, matches);
    let known = compiled.clone();
    let _ = context.add_function(
        "find",
        move |This(this): This<CelValue>, expression: CelValue| -> CelResult {
            let (haystack, expression) = (
                text("matches", &this)?,
                get(&known, &text("matches", &expression)?)?,
            );
            Ok(string(
                expression.find(&haystack).map_or("", |found| found.as_str()),
            ))
        },
    );
    let _ = context.add_function(
        "findAll",
        move |This(this): This<CelValue>, Arguments(all): Arguments| -> CelResult {
            let haystack = text("matches", &this)?;
            let most = match all[..] {
                [_] => usize::MAX,
                [_, CelValue::Int(most)] => usize::try_from(most).unwrap_or(usize::MAX),
                _ => return Err(error("it needs an expression, and a number")),
            };
            let expression = get(&compiled, &text("matches", &all[0])?)?;
            let found = expression.find_iter(&haystack).take(most);
            Ok(CelValue::List(Arc::new(
                found.map(|found| string(found.as_str())).collect(),
            )))
        },
    );
}

#[cfg(test)]
mod tests {
    use super::super::tests::{all_fail, all_hold};

    #[test]
    fn regular_expressions_find_texts() {
        all_hold(&[
            "'abc'.matches('b') && !'abc'.matches('^b') && matches('abc', 'c$') && !matches('abc', 'x')",
            "['b', '^a'].all(e, 'abc'.matches(e))",
            "'abcb'.find('b.') == 'bc' && 'abcb'.find('x') == ''",
            "'abcb'.findAll('b') == ['b', 'b'] && 'abcb'.findAll('x') == []",
            "'abcb'.findAll('b', 1) == ['b'] && 'abcb'.findAll('b', 0) == [] && 'abcb'.findAll('b', -1) == ['b', 'b']",
        ]);
        all_fail(&[
            "['('].all(e, 'abc'.matches(e))",
            "'abc'.matches(1)",
            "matches(1, 'a')",
            "'abc'.find('(') == ''",
            "'abc'.find(1) == ''",
            "'abc'.findAll() == []",
            "'abc'.findAll('b', 'c') == []",
            "'abc'.findAll('b', 1, 2) == []",
        ]);
    }
}
