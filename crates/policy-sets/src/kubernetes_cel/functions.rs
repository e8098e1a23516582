//! The CEL of Kubernetes: the standard library, its string and list functions, and further libraries. A call of an
//! unsupported function is an error when the policy is loaded, and then the set denies.

use std::cmp::Ordering;

use cel::{
    Context, Env, ExecutionError, Value as CelValue,
    common::{
        functions::Function,
        types::{CelBool, CelInt, Kind, LIST_TYPE},
        value::{CowVal, Val},
    },
    extensions,
    objects::Opaque,
};

use super::{
    addresses,
    arguments::{error, function, lists_of, method, method_with, opaque, text, wrapped},
    formats,
    libraries::{self, Version},
    pairs, regex, urls,
};
use konverge_base::model::quantity::{Quantity, UNIT};
use konverge_cel::cel_expression::CelExpression;

/// The supported functions, besides operators: the standard library, strings, lists, quantities and addresses.
const KNOWN: &str = "\
    size contains startsWith endsWith matches string int uint double bool bytes type dyn has all exists \
    exists_one map filter optional.of optional.none optional.ofNonZeroValue hasValue value orValue or \
    optMap optFlatMap charAt indexOf lastIndexOf join lowerAscii upperAscii trim replace split substring \
    isSorted sum min max quantity isQuantity isInteger asInteger sign add sub isGreaterThan isLessThan \
    compareTo asApproximateFloat isIP ip family isLoopback isUnspecified isLinkLocalMulticast \
    isLinkLocalUnicast isGlobalUnicast isCIDR cidr containsIP prefixLength containsCIDR masked \
    isCanonical existsOne duration timestamp getFullYear getMonth getDate getDayOfMonth getDayOfWeek \
    getDayOfYear getHours getMinutes getSeconds getMilliseconds quote strings.quote";

/// Creates an environment with the standard library and the functions of strings and lists.
pub(crate) fn environment() -> Env {
    let mut env = Env::stdlib();
    // Only a second extension of the same name could fail.
    let _ = env.add_extension(extensions::strings);
    let _ = env.add_extension(extensions::lists);
    libraries::declare(&mut env);
    declare_lists(&mut env);
    regex::declare(&mut env);
    pairs::declare(&mut env);
    addresses::declare(&mut env);
    env
}

/// Compiles an expression that calls only supported functions, or those of the API server's `authorizer`.
///
/// # Errors
/// An expression that is not CEL, is too large, or calls an unsupported function.
pub(crate) fn compile(source: &str, env: &Env) -> Result<CelExpression, String> {
    let expression = CelExpression::compile_with(source, env).map_err(|error| error.to_string())?;
    let may_ask = expression.reads("authorizer");
    let is_operator = |name: &str| !name.starts_with(|c: char| c.is_ascii_alphabetic());
    let unknown = expression.functions().into_iter().find(|name| {
        let last = name.rsplit('.').next().unwrap_or(name);
        let asks = may_ask && AUTHORIZER.split(' ').any(|known| known == last);
        !(is_operator(name) || is_known(last) || asks)
    });
    match unknown {
        Some(name) => Err(format!("the function `{name}` is not known here")),
        None => Ok(expression),
    }
}

/// The functions of `authorizer`. They must compile, although no policy that uses them is evaluated.
const AUTHORIZER: &str = "\
    path serviceAccount group resource subresource namespace name fieldSelector labelSelector check \
    allowed reason errored error";

/// Returns true for a supported function. Expressions name it without its namespace.
fn is_known(name: &str) -> bool {
    let known = KNOWN.split(' ').chain(libraries::KNOWN.split(' '));
    let mut known = known.chain(formats::NAMES);
    known.any(|known| known.rsplit('.').next() == Some(name))
}

/// A quantity of Kubernetes as a CEL value.
#[derive(Debug, Clone, Copy)]
struct CelQuantity {
    /// The amount in billionths.
    value: i128,
    /// True if Kubernetes stores the quantity as an integer.
    whole: bool,
}

impl PartialEq for CelQuantity {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Eq for CelQuantity {}

impl Opaque for CelQuantity {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.Quantity"
    }
}

fn parse_quantity(text: &str) -> Option<CelQuantity> {
    let Quantity {
        billionths: value,
        is_whole: whole,
        ..
    } = Quantity::parse(text)?;
    Some(CelQuantity { value, whole })
}

fn quantity(function: &str, value: &CelValue) -> Result<CelQuantity, ExecutionError> {
    let whole = |number: i64| CelQuantity {
        value: i128::from(number) * UNIT,
        whole: true,
    };
    match value {
        CelValue::Int(number) => Ok(whole(*number)),
        value => opaque(value).ok_or_else(|| error(function, "it needs a quantity")),
    }
}

/// Adds the libraries to a context.
pub(crate) fn add(context: &mut Context) {
    quantities(context);
    addresses::add(context);
    libraries::add(context);
    regex::add(context);
    urls::add(context);
    formats::add(context);
}

fn compare(function: &str, one: &dyn Val, two: &dyn Val) -> Result<Ordering, ExecutionError> {
    let comparer = one.as_comparer();
    comparer
        .ok_or_else(|| error(function, "the items cannot be compared"))?
        .compare(two)
}

/// Returns the smallest or the largest item.
fn best<'b, 'v>(
    function: &'static str,
    order: Ordering,
    call: &[CowVal<'b, 'v>],
) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [items] = lists_of(function, call)?;
    let mut best = items
        .first()
        .ok_or_else(|| error(function, "the list is empty"))?;
    for item in items {
        if compare(function, item.as_ref(), best.as_ref())? == order {
            best = item;
        }
    }
    Ok(CowVal::Owned(best.clone()))
}

fn declare_lists(env: &mut Env) {
    let functions: [(&str, Function); 4] = [
        ("isSorted", |call| {
            let [items] = lists_of("isSorted", &call)?;
            for pair in items.windows(2) {
                if compare("isSorted", pair[0].as_ref(), pair[1].as_ref())?.is_gt() {
                    return Ok(CowVal::owned(CelBool::from(false)));
                }
            }
            Ok(CowVal::owned(CelBool::from(true)))
        }),
        ("sum", |call| {
            let [items] = lists_of("sum", &call)?;
            let Some((first, rest)) = items.split_first() else {
                return Ok(CowVal::owned(CelInt::from(0)));
            };
            let mut sum = first.clone();
            for item in rest {
                let is_number = |kind| matches!(kind, Kind::Int | Kind::UInt | Kind::Double | Kind::Duration);
                let adder = sum.as_adder().filter(|_| is_number(item.get_type().kind()));
                let adder = adder.ok_or_else(|| error("sum", "the items cannot be added"))?;
                sum = adder.add(item.as_ref())?.into_owned();
            }
            Ok(CowVal::Owned(sum))
        }),
        ("min", |call| best("min", Ordering::Less, &call)),
        ("max", |call| best("max", Ordering::Greater, &call)),
    ];
    for (name, function) in functions {
        let _ = env.add_member_overload(name, name, LIST_TYPE, Vec::new(), function);
    }
}

type Sum = fn(i128, i128) -> Option<i128>;
type OrderResult = fn(Ordering) -> CelValue;

fn quantities(context: &mut Context) {
    function(context, "isQuantity", |name, value| {
        Ok(CelValue::Bool(parse_quantity(&text(name, value)?).is_some()))
    });
    function(context, "quantity", |name, value| {
        let parsed = parse_quantity(&text(name, value)?);
        parsed
            .map(wrapped)
            .ok_or_else(|| error(name, "it is not a quantity"))
    });
    method(context, "sign", |name, this| {
        let sign = quantity(name, this)?.value.signum();
        Ok(CelValue::Int(i64::try_from(sign).unwrap_or_default()))
    });
    method(context, "isInteger", |name, this| {
        let CelQuantity { value, whole } = quantity(name, this)?;
        Ok(CelValue::Bool(whole && i64::try_from(value / UNIT).is_ok()))
    });
    method(context, "asInteger", |name, this| {
        let CelQuantity { value, whole } = quantity(name, this)?;
        match i64::try_from(value / UNIT) {
            Ok(number) if whole => Ok(CelValue::Int(number)),
            _ => Err(error(name, "it is not a whole number")),
        }
    });
    method(context, "asApproximateFloat", |name, this| {
        let CelQuantity { value, .. } = quantity(name, this)?;
        Ok(CelValue::Float(value as f64 / UNIT as f64))
    });
    let sums: [(&'static str, Sum); 2] = [("add", i128::checked_add), ("sub", i128::checked_sub)];
    for (name, sum) in sums {
        method_with(context, name, move |name, this, other| {
            let (one, two) = (quantity(name, this)?, quantity(name, other)?);
            let whole = one.whole && two.whole;
            sum(one.value, two.value)
                .map(|value| wrapped(CelQuantity { value, whole }))
                .ok_or_else(|| error(name, "the quantity is too large"))
        });
    }
    let orders: [(&'static str, OrderResult); 3] = [
        ("isGreaterThan", |order| CelValue::Bool(order.is_gt())),
        ("isLessThan", |order| CelValue::Bool(order.is_lt())),
        ("compareTo", |order| CelValue::Int(order as i64)),
    ];
    for (name, answer) in orders {
        // Semantic versions have comparison functions of the same names.
        method_with(context, name, move |name, this, other| {
            let order = match (opaque::<Version>(this), opaque::<Version>(other)) {
                (Some(one), Some(two)) => one.cmp(&two),
                _ => quantity(name, this)?.value.cmp(&quantity(name, other)?.value),
            };
            Ok(answer(order))
        });
    }
}

#[cfg(test)]
#[path = "functions_tests.rs"]
mod tests;
