//! Loops with two variables: `all(k, v, …)`, `exists`, `existsOne`, `transformList`, `transformMap`,
//! `transformMapEntry`. The `cel` crate only has loops with one variable, so each of these becomes a loop over
//! pairs: (index, item) of a list, or (key, value) of a map.

use std::collections::HashMap;

use cel::{
    Env, ExecutionError, IdedExpr,
    common::{
        ast::{CallExpr, ComprehensionExpr, Expr, ListExpr, LiteralValue, operators},
        types::{CelInt, CelList, CelMap, CelMapKey, DYN_TYPE, Kind, LIST_TYPE},
        value::{CowVal, Val},
    },
    parser::{Macro, MacroExprHelper, ParseError},
};

use super::arguments::lists_of;
use konverge_cel::cel_value::{shared_list, shared_map};

/// The names of the loop variable and of the accumulator. No identifier in an expression can contain `@`, so they
/// cannot clash.
const PAIR: &str = "@pair";
const RESULT: &str = "@result";

type PairResult<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;
type Helper<'h, 'p> = &'h mut MacroExprHelper<'p>;
type Expanded = Result<Option<IdedExpr>, ParseError>;

/// Declares the macros of the loops.
pub(super) fn declare(env: &mut Env) {
    // Only a second declaration with the same name and number of arguments could fail.
    let _ = env.add_overload("@pairs", "pairs", vec![DYN_TYPE], pairs);
    let _ = env.add_overload("@map", "map_of_pairs", vec![LIST_TYPE], map_of_pairs);
    let _ = env.add_overload("@merged", "merged", vec![LIST_TYPE], merged);
    let tests = ["all", "exists", "existsOne", "exists_one"].map(|name| (name, 3));
    let transformations = ["transformList", "transformMap", "transformMapEntry"];
    let transformations = transformations
        .into_iter()
        .flat_map(|name| [(name, 3), (name, 4)]);
    for (name, takes) in tests.into_iter().chain(transformations) {
        let _ = env.add_macro(Macro::receiver(name, takes, move |helper, target, parts| {
            loop_of(helper, name, target, parts)
        }));
    }
}

fn loop_of(
    helper: &mut MacroExprHelper<'_>,
    name: &'static str,
    target: &mut Option<IdedExpr>,
    parts: &mut Vec<IdedExpr>,
) -> Expanded {
    let mut parts = std::mem::take(parts).into_iter();
    let (Some(range), Some(key), Some(value), Some(first)) =
        (target.take(), parts.next(), parts.next(), parts.next())
    else {
        return Ok(None);
    };
    let (condition, body) = match parts.next() {
        Some(body) => (Some(first), body),
        None => (None, first),
    };
    let names = [variable(helper, key)?, variable(helper, value)?];
    let body = with_pair(helper, &names, body);
    let result = |helper: Helper| ident(helper, RESULT);
    // Each loop expands as in CEL's specification: a start value, a condition to continue, a step, and the result.
    // `NOT_STRICTLY_FALSE` also continues after an error, because a later item may still decide the result.
    let (start, goes_on, step, end) = match name {
        "all" => {
            let go = result(helper);
            let (one, end) = (result(helper), result(helper));
            (
                boolean(helper, true),
                call(helper, operators::NOT_STRICTLY_FALSE, vec![go]),
                call(helper, operators::LOGICAL_AND, vec![one, body]),
                end,
            )
        }
        "exists" => {
            let go = result(helper);
            let go = call(helper, operators::LOGICAL_NOT, vec![go]);
            let (one, end) = (result(helper), result(helper));
            (
                boolean(helper, false),
                call(helper, operators::NOT_STRICTLY_FALSE, vec![go]),
                call(helper, operators::LOGICAL_OR, vec![one, body]),
                end,
            )
        }
        "existsOne" | "exists_one" => {
            let sum = vec![result(helper), number(helper, 1)];
            let sum = call(helper, operators::ADD, sum);
            let same = result(helper);
            let end = vec![result(helper), number(helper, 1)];
            (
                number(helper, 0),
                boolean(helper, true),
                call(helper, operators::CONDITIONAL, vec![body, sum, same]),
                call(helper, operators::EQUALS, end),
            )
        }
        _ => {
            // All transformations collect a list, because a loop can append to a list but cannot add an entry to a
            // map. `@map` and `@merged` convert the list at the end.
            let item = match name {
                "transformMap" => {
                    let key = of_pair(helper, 0);
                    list(helper, vec![key, body])
                }
                _ => body,
            };
            let (one, items) = (result(helper), list(helper, vec![item]));
            let mut step = call(helper, operators::ADD, vec![one, items]);
            if let Some(condition) = condition {
                let condition = with_pair(helper, &names, condition);
                let same = result(helper);
                step = call(helper, operators::CONDITIONAL, vec![condition, step, same]);
            }
            (
                list(helper, Vec::new()),
                boolean(helper, true),
                step,
                result(helper),
            )
        }
    };
    let iterated = call(helper, "@pairs", vec![range]);
    let made = ComprehensionExpr {
        iter_range: iterated,
        iter_var: PAIR.to_owned(),
        iter_var2: None,
        accu_var: RESULT.to_owned(),
        accu_init: start,
        loop_cond: goes_on,
        loop_step: step,
        result: end,
    };
    let made = helper.next_expr(Expr::Comprehension(Box::new(made)));
    Ok(Some(match name {
        "transformMap" => call(helper, "@map", vec![made]),
        "transformMapEntry" => call(helper, "@merged", vec![made]),
        _ => made,
    }))
}

fn variable(helper: Helper, name: IdedExpr) -> Result<String, ParseError> {
    match name.expr {
        Expr::Ident(name) if !name.starts_with('.') => Ok(name),
        _ => Err(helper.new_error(name.id, "argument must be a simple name")),
    }
}

fn ident(helper: Helper, name: &str) -> IdedExpr {
    helper.next_expr(Expr::Ident(name.to_owned()))
}

fn boolean(helper: Helper, value: bool) -> IdedExpr {
    helper.next_expr(Expr::Literal(LiteralValue::Boolean(value.into())))
}

fn number(helper: Helper, value: i64) -> IdedExpr {
    helper.next_expr(Expr::Literal(LiteralValue::Int(value.into())))
}

fn call(helper: Helper, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    helper.next_expr(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: None,
        args,
    }))
}

fn list(helper: Helper, items: Vec<IdedExpr>) -> IdedExpr {
    helper.next_expr(Expr::List(ListExpr::new(items)))
}

/// Returns an expression for the first or the second part of the pair.
fn of_pair(helper: Helper, at: i64) -> IdedExpr {
    let pair = ident(helper, PAIR);
    let at = number(helper, at);
    call(helper, operators::INDEX, vec![pair, at])
}

/// Binds two names to the parts of the pair in an expression.
fn with_pair(helper: Helper, names: &[String; 2], mut body: IdedExpr) -> IdedExpr {
    let [key, value] = names;
    for (at, name) in [(1, value), (0, key)] {
        let bound = ComprehensionExpr {
            iter_range: list(helper, Vec::new()),
            iter_var: "#unused".to_owned(),
            iter_var2: None,
            accu_var: name.clone(),
            accu_init: of_pair(helper, at),
            loop_cond: boolean(helper, false),
            loop_step: ident(helper, name),
            result: body,
        };
        body = helper.next_expr(Expr::Comprehension(Box::new(bound)));
    }
    body
}

fn error(message: &str) -> ExecutionError {
    ExecutionError::function_error("loop", message)
}

/// Converts a list or a map to a list of pairs.
fn pairs<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> PairResult<'b, 'v> {
    let [range] = arguments.as_slice() else {
        return Err(error("it needs one list or map"));
    };
    let pair = |key, value| shared_list(vec![key, value]);
    let of_other = || error("it needs a list or a map");
    let mut items = range.as_iterable().ok_or_else(of_other)?.iter();
    let mut pairs: Vec<Box<dyn Val + 'v>> = Vec::new();
    if range.get_type().kind() == Kind::Map {
        let map = range.as_indexer().ok_or_else(of_other)?;
        while let Some(key) = items.next() {
            pairs.push(pair(key.clone_as_boxed(), map.get(key)?.into_owned()));
        }
    } else {
        let mut at = 0_i64;
        while let Some(item) = items.next() {
            pairs.push(pair(Box::new(CelInt::from(at)), item.clone_as_boxed()));
            at += 1;
        }
    }
    Ok(CowVal::Owned(shared_list(pairs)))
}

fn key<'v>(value: Box<dyn Val + 'v>) -> Result<CelMapKey<'v>, ExecutionError> {
    value
        .try_into()
        .map_err(|_| error("a key must be a string, a whole number, or true or false"))
}

/// Converts a list of pairs to a map.
fn map_of_pairs<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> PairResult<'b, 'v> {
    let [pairs] = lists_of("loop", &arguments)?;
    let mut entries = HashMap::new();
    for pair in pairs {
        let pair = pair.downcast_ref::<CelList>().map(CelList::inner);
        let Some([name, value]) = pair else {
            return Err(error("it needs pairs"));
        };
        entries.insert(key(name.clone())?, value.clone());
    }
    Ok(CowVal::Owned(shared_map(entries)))
}

/// Merges several maps. A duplicate key is an error.
fn merged<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> PairResult<'b, 'v> {
    let [maps] = lists_of("loop", &arguments)?;
    let mut entries = HashMap::new();
    for map in maps {
        let map = map
            .downcast_ref::<CelMap>()
            .ok_or_else(|| error("an entry is a map"))?;
        for (key, value) in map.inner() {
            if entries.insert(key.clone(), value.clone()).is_some() {
                return Err(error("two entries have the same key"));
            }
        }
    }
    Ok(CowVal::Owned(shared_map(entries)))
}

#[cfg(test)]
mod tests {
    use super::super::{
        functions,
        tests::{all_fail, all_hold},
    };

    #[test]
    fn a_loop_goes_over_items_with_their_index_and_values_with_their_key() {
        all_hold(&[
            "['a', 'b'].transformList(i, v, [i, v]) == [[0, 'a'], [1, 'b']] && [].transformList(i, v, v) == []",
            "{'x': 1}.transformList(k, v, [k, v]) == [['x', 1]]",
            "['a', 'b', 'c'].transformList(i, v, i != 1, v) == ['a', 'c']",
            "['a', 'b'].transformMap(i, v, v + '!') == {0: 'a!', 1: 'b!'}",
            "{'x': 1, 'y': 2}.transformMap(k, v, k == 'y', v * 2) == {'y': 4}",
            "['a', 'b'].transformMapEntry(i, v, {v: i}) == {'a': 0, 'b': 1}",
            "['a', 'b'].transformMapEntry(i, v, i > 0, {v: i}) == {'b': 1}",
            "[1, 2].all(i, v, v == i + 1) && ![1, 3].all(i, v, v == i + 1) && ![0, 2].all(i, v, v == i + 1)",
            "[0, 2].exists(i, v, v == i + 1) && ![0, 1].exists(i, v, v == i + 1) && [1, 1].exists(i, v, v == i + 1)",
            "[1, 1].existsOne(i, v, v == i + 1) && ![1, 2].existsOne(i, v, v == i + 1) && ![].existsOne(i, v, true)",
            "[1, 1].exists_one(i, v, v == i + 1) && ![1, 2].exists_one(i, v, v == i + 1)",
        ]);
        all_fail(&[
            "(1).all(i, v, true)",
            "(1).transformList(i, v, v) == []",
            "[1, 2].transformMapEntry(i, v, {'a': v}) == {'a': 2}",
            "[1].transformMapEntry(i, v, v) == {}",
            "[1].all(i, v, 1 / 0 > v)",
        ]);
    }

    #[test]
    fn the_variables_of_a_loop_have_simple_names() {
        let env = functions::environment();
        for source in ["a.all(k, v, v)", "a.transformMap(k, v, k, v)"] {
            assert!(functions::compile(source, &env).is_ok(), "{source}");
        }
        for source in [
            "a.all(.k, v, v)",
            "a.all(k, .v, k)",
            "a.all(k, 1, k)",
            "a.exists(b.c, v, v)",
        ] {
            assert!(functions::compile(source, &env).is_err(), "{source}");
        }
    }
}
