//! Limits for one evaluation of a CEL expression: the steps of its loops, the items that it compares, and the texts
//! and lists that it makes. The crate has none: loops within each other multiply, and `+`, `replace` and `join` can
//! double a text again and again. So an expression is rewritten before it is evaluated: each step of a loop, and each
//! call that makes something or goes through a list, calls a function that counts (`crates/cel/src/cel_counting.rs`).

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

/// Functions that go through a list.
const THROUGH_LISTS: [&str; 13] = [
    "indexOf",
    "lastIndexOf",
    "isSorted",
    "sum",
    "min",
    "max",
    "flatten",
    "slice",
    "sort",
    "reverse",
    "first",
    "last",
    "unwrapOpt",
];
/// The functions of `sets`, and what counts for them.
const SETS: [(&str, &str); 3] = [
    ("contains", "@sets.contains"),
    ("equivalent", "@sets.equivalent"),
    ("intersects", "@sets.intersects"),
];
/// The variable of the crate in which a loop collects its result.
const COLLECTED: &str = "@result";
/// Calls whose values are neither texts nor lists.
const SMALL: [&str; 12] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "@matches",
    "int",
    "uint",
    "double",
    "bool",
    "indexOf",
    "lastIndexOf",
];

/// Makes an expression count. Returns false if there is nothing to count.
pub fn bound(expression: &mut IdedExpr) -> bool {
    let mut counts = false;
    for part in parts(expression) {
        counts |= bound(part);
    }
    if let Expr::Comprehension(one) = &mut expression.expr {
        // A loop over nothing only binds a name.
        if !matches!(&one.iter_range.expr, Expr::List(list) if list.elements.is_empty()) {
            let weight = size(&mut one.loop_step);
            // `all` and `exists` go on after an error of a step, but not after one of their condition.
            match &one.loop_cond.expr {
                Expr::Literal(_) => count_steps(&mut one.loop_step, weight),
                _ => count_step(&mut one.loop_cond, weight),
            }
            counts = true;
        }
        return counts;
    }
    let Expr::Call(call) = &mut expression.expr else {
        return counts;
    };
    let takes = call.args.len() + usize::from(call.target.is_some());
    counts |= count_reading(call);
    match (call.func_name.as_str(), takes) {
        (operators::ADD, 2) => {
            let collects = matches!(&call.args[0].expr, Expr::Ident(name) if name == COLLECTED);
            if !collects {
                call.func_name = "@add".to_owned();
                counts = true;
            }
        }
        ("replace", 3 | 4) => replace_call(call, "@replace", &mut counts),
        ("join", 1 | 2) => replace_call(call, "@join", &mut counts),
        (name, _) if name.starts_with(|c: char| c.is_ascii_alphabetic()) && !SMALL.contains(&name) => {
            if name == "format" && call.args.len() == 1 {
                let values = std::mem::take(&mut call.args);
                call.args = vec![global("@printed", values)];
            }
            let made = std::mem::take(expression);
            *expression = global("@made", vec![made]);
            counts = true;
        }
        _ => {}
    }
    counts
}

/// Makes a call count the items that it compares or goes through.
fn count_reading(call: &mut CallExpr) -> bool {
    let is_plain = |part: &IdedExpr| match &part.expr {
        Expr::Literal(_) => true,
        Expr::List(list) => list
            .elements
            .iter()
            .all(|one| matches!(&one.expr, Expr::Literal(_))),
        _ => false,
    };
    let target = call.target.as_deref();
    let of_sets = matches!(target.map(|target| &target.expr), Some(Expr::Ident(name)) if name == "sets");
    match (call.func_name.as_str(), call.args.as_mut_slice()) {
        (operators::EQUALS | operators::NOT_EQUALS, [one, two]) => {
            if is_plain(one) || is_plain(two) {
                return false;
            }
            let name = match call.func_name == operators::EQUALS {
                true => "@equal",
                false => "@different",
            };
            call.func_name = name.to_owned();
            true
        }
        (operators::IN, [_, within]) if !is_plain(within) => {
            wrap(within, "@searched");
            true
        }
        (name, [_, _]) if of_sets => {
            let Some((_, counting)) = SETS.iter().find(|(function, _)| *function == name) else {
                return false;
            };
            call.func_name = (*counting).to_owned();
            call.target = None;
            true
        }
        (name, args) if name == "distinct" || THROUGH_LISTS.contains(&name) => {
            let counting = if name == "distinct" { "@squared" } else { "@read" };
            for part in call.target.as_deref_mut().into_iter().chain(args) {
                if !matches!(&part.expr, Expr::Literal(_)) {
                    wrap(part, counting);
                }
            }
            true
        }
        _ => false,
    }
}

fn wrap(part: &mut IdedExpr, function: &str) {
    let inner = std::mem::take(part);
    *part = global(function, vec![inner]);
}

fn size(expression: &mut IdedExpr) -> i64 {
    1 + parts(expression).into_iter().map(size).sum::<i64>()
}

/// Counts each step of a loop where the crate still knows the form of the loop.
fn count_steps(step: &mut IdedExpr, weight: i64) {
    let is_result = |part: &IdedExpr| matches!(&part.expr, Expr::Ident(name) if name == COLLECTED);
    if let Expr::Call(call) = &mut step.expr {
        match (call.func_name.as_str(), call.args.as_mut_slice()) {
            (operators::CONDITIONAL, [condition, ..]) => return count_step(condition, weight),
            (operators::ADD, [result, items]) if is_result(result) => {
                if let Expr::List(list) = &mut items.expr
                    && let Some(item) = list.elements.first_mut()
                {
                    return count_step(item, weight);
                }
            }
            _ => {}
        }
    }
    count_step(step, weight);
}

fn count_step(body: &mut IdedExpr, weight: i64) {
    let weight = IdedExpr {
        id: 0,
        expr: Expr::Literal(LiteralValue::Int(weight.into())),
    };
    let step = std::mem::take(body);
    *body = global("@step", vec![step, weight]);
}

fn replace_call(call: &mut CallExpr, name: &str, counts: &mut bool) {
    call.func_name = name.to_owned();
    if let Some(target) = call.target.take() {
        call.args.insert(0, *target);
    }
    *counts = true;
}

fn global(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    let call = CallExpr {
        func_name: name.to_owned(),
        target: None,
        args,
    };
    IdedExpr {
        id: 0,
        expr: Expr::Call(call),
    }
}

/// The expressions in an expression.
pub fn parts(expression: &mut IdedExpr) -> Vec<&mut IdedExpr> {
    match &mut expression.expr {
        Expr::Call(call) => call
            .target
            .as_deref_mut()
            .into_iter()
            .chain(&mut call.args)
            .collect(),
        Expr::Comprehension(one) => vec![
            &mut one.iter_range,
            &mut one.accu_init,
            &mut one.loop_cond,
            &mut one.loop_step,
            &mut one.result,
        ],
        Expr::List(list) => list.elements.iter_mut().collect(),
        Expr::Map(map) => map
            .entries
            .iter_mut()
            .flat_map(|one| entry(&mut one.expr))
            .collect(),
        Expr::Struct(made) => made
            .entries
            .iter_mut()
            .flat_map(|one| entry(&mut one.expr))
            .collect(),
        Expr::Select(select) => vec![&mut *select.operand],
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
    }
}

fn entry(entry: &mut EntryExpr) -> Vec<&mut IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&mut field.value],
        EntryExpr::MapEntry(entry) => vec![&mut entry.key, &mut entry.value],
    }
}
