//! Arithmetic and comparisons of Rego with OPA's results. OPA computes with 64 bits, the engine with the 53 bits of
//! an `f64`. A result with more digits is represented by the nearest `f64`, together with the maximum difference
//! from OPA's number. If that difference could decide a comparison, the rule is refused.

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, ThreadId},
};

use regorus::{
    Engine, Value as RegoValue,
    unstable::{ArithOp, BoolOp},
};

use super::{
    differences::{RegoDifference, RegoResult, extend},
    functions::items,
    go_float::{GoFloat, GoNumber},
};

/// The functions that replace operators, with the operator's sign.
pub(super) const ARITHMETIC: [(ArithOp, &str, &str); 5] = [
    (ArithOp::Add, "konverge_add", "+"),
    (ArithOp::Sub, "konverge_subtract", "-"),
    (ArithOp::Mul, "konverge_multiply", "*"),
    (ArithOp::Div, "konverge_divide", "/"),
    (ArithOp::Mod, "konverge_remainder", "%"),
];
pub(super) const COMPARISONS: [(BoolOp, &str, &str); 6] = [
    (BoolOp::Lt, "konverge_is_less", "<"),
    (BoolOp::Le, "konverge_is_at_most", "<="),
    (BoolOp::Eq, "konverge_is_equal", "=="),
    (BoolOp::Ge, "konverge_is_at_least", ">="),
    (BoolOp::Gt, "konverge_is_more", ">"),
    (BoolOp::Ne, "konverge_is_unequal", "!="),
];

/// All integers up to this one fit in 53 bits.
const MOST_WHOLE: f64 = 9_007_199_254_740_992.0;

/// The numbers that may differ from OPA's: the bits of each `f64`, with the maximum difference. Kept for each
/// thread, because one evaluation stays in one thread while clones of an engine share this value.
#[derive(Clone, Default)]
pub(super) struct InexactNumbers {
    by_thread: Arc<Mutex<HashMap<ThreadId, HashMap<u64, f64>>>>,
}

impl InexactNumbers {
    /// Forgets the inexact numbers of this thread, before a new evaluation.
    pub(super) fn forget(&self) {
        self.by_thread().remove(&thread::current().id());
    }

    /// Adds the functions that replace operators, and the functions that sum, multiply and round.
    pub(super) fn add_to(&self, engine: &mut Engine) {
        for (operator, name, _) in ARITHMETIC {
            let own = self.clone();
            extend(engine, name, 3, move |arguments| match (&operator, arguments) {
                // `-` is also the difference of two sets.
                (ArithOp::Sub, [RegoValue::Set(all), RegoValue::Set(without), _]) => {
                    let rest: BTreeSet<_> = all.difference(without).cloned().collect();
                    Ok(RegoValue::from(rest))
                }
                (operator, [a, b, _]) => own.compute(operator, a, b),
                _ => Err(RegoDifference::Numbers),
            });
        }
        for (operator, name, _) in COMPARISONS {
            let own = self.clone();
            extend(engine, name, 3, move |arguments| {
                let [a, b, _] = arguments else {
                    return Err(RegoDifference::Numbers);
                };
                Ok(RegoValue::from(own.compare(&operator, a, b)?))
            });
        }
        let own = self.clone();
        extend(engine, "sum", 1, move |arguments| {
            own.fold(arguments, &ArithOp::Add, 0)
        });
        let own = self.clone();
        extend(engine, "product", 1, move |arguments| {
            let product = own.fold(arguments, &ArithOp::Mul, 1)?;
            // OPA computes `product` with lower precision than `*`, so only exact integer results are certainly
            // equal.
            let is_exact = whole(&product).is_some() && float(&product)?.abs() <= MOST_WHOLE;
            let mut items = arguments.first().and_then(items).into_iter().flatten();
            if is_exact && items.all(|item| whole(item).is_some()) {
                Ok(product)
            } else {
                let why = "OPA computes `product` with fewer digits than `*`";
                Err(RegoDifference::Differs(why))
            }
        });
        self.add_rounding(engine, "floor", f64::floor);
        self.add_rounding(engine, "ceil", f64::ceil);
        self.add_rounding(engine, "round", f64::round);
        let own = self.clone();
        extend(engine, "abs", 1, move |arguments| {
            let number = arguments.first().ok_or(RegoDifference::Numbers)?;
            if float(number)? < 0.0 {
                own.compute(&ArithOp::Sub, &RegoValue::from(0_u64), number)
            } else {
                Ok(number.clone())
            }
        });
    }

    fn add_rounding(&self, engine: &mut Engine, name: &'static str, rounded: fn(f64) -> f64) {
        let own = self.clone();
        extend(engine, name, 1, move |arguments| {
            let number = arguments.first().ok_or(RegoDifference::Numbers)?;
            let near = float(number)?;
            if name != "round" && near > -1.0 && near < 0.0 {
                let why = "OPA takes a number between -1 and 0 for a positive one";
                return Err(RegoDifference::Differs(why));
            }
            own.round(number, rounded)
        });
    }

    fn by_thread(&self) -> std::sync::MutexGuard<'_, HashMap<ThreadId, HashMap<u64, f64>>> {
        self.by_thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the maximum difference of a number from OPA's; 0 if the number is exact.
    fn distance(&self, number: f64) -> f64 {
        let by_thread = self.by_thread();
        let own = by_thread.get(&thread::current().id());
        own.and_then(|own| own.get(&number.to_bits()).copied())
            .unwrap_or_default()
    }

    fn has_none(&self) -> bool {
        !self.by_thread().contains_key(&thread::current().id())
    }

    /// Registers an inexact number. Inexact numbers are recognized by their bits, so a number with few digits, such
    /// as 1 or 0.1, is first moved a little: otherwise a literal with the same bits would count as inexact.
    fn inexact(&self, mut number: f64, mut distance: f64) -> RegoResult {
        let digits = format!("{number:e}");
        if digits.split('e').next().is_some_and(|digits| digits.len() <= 16) {
            let away = 2.0 * distance.max(step(number));
            number += away;
            distance += away;
        }
        if !number.is_finite() || !distance.is_finite() {
            return Err(RegoDifference::TooManyDigits);
        }
        let mut by_thread = self.by_thread();
        let own = by_thread.entry(thread::current().id()).or_default();
        let known = own.entry(number.to_bits()).or_default();
        *known = known.max(distance);
        Ok(RegoValue::from(number))
    }

    fn compute(&self, operator: &ArithOp, a: &RegoValue, b: &RegoValue) -> RegoResult {
        let (x, y) = (float(a)?, float(b)?);
        if matches!(operator, ArithOp::Div | ArithOp::Mod) && y == 0.0 {
            return Err(RegoDifference::ByZero);
        }
        let (distance_a, distance_b) = (self.distance(x), self.distance(y));
        if distance_a == 0.0 && distance_b == 0.0 {
            if let (Some(a), Some(b)) = (whole(a), whole(b))
                && let Some(result) = compute_whole(operator, a, b)
            {
                return Ok(RegoValue::from(result));
            }
            if *operator == ArithOp::Mod {
                return Err(RegoDifference::Numbers);
            }
            let result = compute_float(operator, a, b).and_then(GoFloat::number);
            return match result.ok_or(RegoDifference::TooManyDigits)? {
                GoNumber::Whole(number) => Ok(RegoValue::from(number)),
                GoNumber::Exact(number) => Ok(RegoValue::from(number)),
                GoNumber::Near(number) => self.inexact(number, step(number)),
            };
        }
        // A decimal literal has no registered difference, but its 64 bits in OPA also differ from this `f64`.
        let of = |number: f64, distance: f64| {
            if number.fract() == 0.0 {
                distance
            } else {
                distance.max(step(number))
            }
        };
        let (of_a, of_b) = (of(x, distance_a), of(y, distance_b));
        let (result, distance) = match operator {
            ArithOp::Add => (x + y, of_a + of_b),
            ArithOp::Sub => (x - y, of_a + of_b),
            ArithOp::Mul => (x * y, x.abs() * of_b + y.abs() * of_a + of_a * of_b),
            ArithOp::Div if y.abs() > of_b => {
                let result = x / y;
                (result, (of_a + result.abs() * of_b) / (y.abs() - of_b))
            }
            ArithOp::Div | ArithOp::Mod => return Err(RegoDifference::TooManyDigits),
        };
        self.inexact(result, distance + step(result))
    }

    /// Adds or multiplies all items of a set or a list.
    fn fold(&self, arguments: &[RegoValue], operator: &ArithOp, start: u64) -> RegoResult {
        let items = arguments.first().and_then(items);
        let mut items = items.ok_or(RegoDifference::Numbers)?;
        items.try_fold(RegoValue::from(start), |before, item| {
            self.compute(operator, &before, item)
        })
    }

    /// Rounds a number to an integer.
    fn round(&self, number: &RegoValue, rounded: fn(f64) -> f64) -> RegoResult {
        let near = float(number)?;
        let distance = self.distance(near);
        if near.fract() == 0.0 && distance == 0.0 {
            return Ok(number.clone());
        }
        let (least, most) = (rounded(near - distance), rounded(near + distance));
        if least == most && least.abs() < MOST_WHOLE {
            Ok(RegoValue::from(least as i64))
        } else {
            Err(RegoDifference::TooManyDigits)
        }
    }

    fn compare(&self, operator: &BoolOp, a: &RegoValue, b: &RegoValue) -> Result<bool, RegoDifference> {
        let are_numbers = matches!((a, b), (RegoValue::Number(_), RegoValue::Number(_)));
        let is_plain = matches!(operator, BoolOp::Eq | BoolOp::Ne) && !are_numbers && self.has_none();
        let order = if is_plain {
            if a == b { Ordering::Equal } else { Ordering::Less }
        } else {
            self.order(a, b)?
        };
        Ok(match operator {
            BoolOp::Lt => order.is_lt(),
            BoolOp::Le => order.is_le(),
            BoolOp::Eq => order.is_eq(),
            BoolOp::Ge => order.is_ge(),
            BoolOp::Gt => order.is_gt(),
            BoolOp::Ne => order.is_ne(),
        })
    }

    /// Compares two values. As in OPA, an object is less than a set.
    fn order(&self, a: &RegoValue, b: &RegoValue) -> Result<Ordering, RegoDifference> {
        match (a, b) {
            (RegoValue::Number(_), RegoValue::Number(_)) => {
                let (x, y) = (float(a)?, float(b)?);
                let mut distance = self.distance(x) + self.distance(y);
                if is_large(a) || is_large(b) {
                    distance += step(x);
                }
                if distance > 0.0 && (x - y).abs() <= distance {
                    Err(RegoDifference::TooManyDigits)
                } else {
                    Ok(a.cmp(b))
                }
            }
            (RegoValue::Array(a), RegoValue::Array(b)) => self.order_all(a.iter(), b.iter()),
            (RegoValue::Set(a), RegoValue::Set(b)) => self.order_all(a.iter(), b.iter()),
            (RegoValue::Object(a), RegoValue::Object(b)) => self.order_all(
                a.iter_sorted().flat_map(|(key, value)| [key, value]),
                b.iter_sorted().flat_map(|(key, value)| [key, value]),
            ),
            (RegoValue::Object(_), RegoValue::Set(_)) => Ok(Ordering::Less),
            (RegoValue::Set(_), RegoValue::Object(_)) => Ok(Ordering::Greater),
            _ => Ok(a.cmp(b)),
        }
    }

    fn order_all<'v>(
        &self,
        mut all: impl Iterator<Item = &'v RegoValue>,
        mut others: impl Iterator<Item = &'v RegoValue>,
    ) -> Result<Ordering, RegoDifference> {
        loop {
            let order = match (all.next(), others.next()) {
                (None, None) => return Ok(Ordering::Equal),
                (None, Some(_)) => Ordering::Less,
                (Some(_), None) => Ordering::Greater,
                (Some(a), Some(b)) => self.order(a, b)?,
            };
            if order.is_ne() {
                return Ok(order);
            }
        }
    }
}

/// Converts a value to an `f64`.
///
/// # Errors
/// A value that is no number, or a number that is too large.
fn float(value: &RegoValue) -> Result<f64, RegoDifference> {
    value.as_number().map_err(|_| RegoDifference::Numbers)?;
    let near = value
        .as_f64()
        .or_else(|_| value.as_i128().map(|whole| whole as f64));
    near.map_err(|_| RegoDifference::TooManyDigits)
}

/// Returns the distance to the next `f64`, at most.
fn step(number: f64) -> f64 {
    number.abs() * f64::EPSILON
}

/// Returns true for a number in exponent notation beyond the integers of 53 bits, for which OPA has the exact
/// decimal.
fn is_large(value: &RegoValue) -> bool {
    value.as_f64().is_ok_and(|number| number.abs() > MOST_WHOLE)
}

fn whole(value: &RegoValue) -> Option<i128> {
    value.as_i128().ok().filter(|_| !is_large(value))
}

/// Computes with integers; `None` if the result is not an integer or has more than 64 bits.
fn compute_whole(operator: &ArithOp, a: i128, b: i128) -> Option<i128> {
    let result = match operator {
        ArithOp::Add => a.checked_add(b),
        ArithOp::Sub => a.checked_sub(b),
        ArithOp::Mul => a.checked_mul(b),
        ArithOp::Div => a.checked_div(b).filter(|_| a.checked_rem(b) == Some(0)),
        ArithOp::Mod => a.checked_rem(b),
    };
    result.filter(|result| u64::try_from(result.unsigned_abs()).is_ok())
}

/// Computes with OPA's floats; `None` if OPA's number does not exist or is too large.
fn compute_float(operator: &ArithOp, a: &RegoValue, b: &RegoValue) -> Option<GoFloat> {
    let read = |value: &RegoValue| match whole(value) {
        Some(whole) => GoFloat::whole(whole),
        None => GoFloat::decimal(value.as_f64().ok()?),
    };
    let (a, b) = (read(a)?, read(b)?);
    match operator {
        ArithOp::Add => a.add(b),
        ArithOp::Sub => a.subtract(b),
        ArithOp::Mul => a.multiply(b),
        ArithOp::Div => a.divide(b),
        ArithOp::Mod => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(numbers: &InexactNumbers, a: &RegoValue, sign: &BoolOp, b: f64) -> Option<bool> {
        numbers.compare(sign, a, &RegoValue::from(b)).ok()
    }

    #[test]
    fn a_comparison_is_refused_where_the_last_digits_decide() {
        let numbers = InexactNumbers::default();
        let compute = |operator, a: f64, b: f64| {
            numbers
                .compute(&operator, &RegoValue::from(a), &RegoValue::from(b))
                .unwrap()
        };
        let third = compute(ArithOp::Div, 1.0, 3.0);
        assert_eq!(compare(&numbers, &third, &BoolOp::Gt, 0.3), Some(true));
        assert_eq!(compare(&numbers, &third, &BoolOp::Eq, 0.5), Some(false));
        assert_eq!(compare(&numbers, &third, &BoolOp::Le, 1.0 / 3.0), None);
        // A number that is computed from an inexact number is inexact too.
        let one = numbers
            .compute(&ArithOp::Mul, &third, &RegoValue::from(3_u64))
            .unwrap();
        assert_eq!(compare(&numbers, &one, &BoolOp::Lt, 1.0), None);
        assert_eq!(compare(&numbers, &one, &BoolOp::Lt, 1.001), Some(true));
        assert!(numbers.round(&one, f64::floor).is_err());
        assert_eq!(numbers.round(&one, f64::round).unwrap(), RegoValue::from(1_u64));
        // Within a list, too.
        let list = |number: RegoValue| RegoValue::from(vec![RegoValue::from("a"), number]);
        assert!(
            numbers
                .order(&list(third.clone()), &list(RegoValue::from(1.0 / 3.0)))
                .is_err()
        );
        assert!(
            numbers
                .order(&list(third.clone()), &list(RegoValue::from(0.5)))
                .unwrap()
                .is_lt()
        );
        numbers.forget();
        assert_eq!(compare(&numbers, &third, &BoolOp::Eq, 1.0 / 3.0), Some(true));
    }

    #[test]
    fn a_number_that_was_written_is_not_taken_for_one_that_was_computed() {
        let numbers = InexactNumbers::default();
        let tenths = vec![RegoValue::from(0.1); 10].into_iter();
        let sum = tenths
            .reduce(|sum, tenth| numbers.compute(&ArithOp::Add, &sum, &tenth).unwrap())
            .unwrap();
        assert!(!numbers.has_none(), "{sum}");
        assert_eq!(compare(&numbers, &sum, &BoolOp::Gt, 1.0), None);
        assert_eq!(
            compare(&numbers, &RegoValue::from(1_u64), &BoolOp::Eq, 1.0),
            Some(true)
        );
        let computed = |operator, a: f64, b: f64| {
            numbers
                .compute(&operator, &RegoValue::from(a), &RegoValue::from(b))
                .unwrap()
        };
        computed(ArithOp::Sub, 1.0, 0.9);
        assert_eq!(
            compare(&numbers, &RegoValue::from(0.1), &BoolOp::Eq, 0.1),
            Some(true)
        );
        let third = computed(ArithOp::Div, 1.0, 3.0);
        numbers.compute(&ArithOp::Sub, &third, &third).unwrap();
        assert_eq!(
            compare(&numbers, &RegoValue::from(0_u64), &BoolOp::Eq, 0.0),
            Some(true)
        );
    }

    #[test]
    fn what_opa_writes_in_as_few_digits_is_exact() {
        let numbers = InexactNumbers::default();
        for (operator, a, b, result) in [
            (ArithOp::Add, 0.1, 0.2, 0.3),
            (ArithOp::Mul, 0.29, 100.0, 29.0),
            (ArithOp::Div, 4.0, 5.0, 0.8),
            (ArithOp::Sub, 1.0, 0.75, 0.25),
        ] {
            let computed = numbers
                .compute(&operator, &RegoValue::from(a), &RegoValue::from(b))
                .unwrap();
            assert_eq!(
                compare(&numbers, &computed, &BoolOp::Eq, result),
                Some(true),
                "{a} {operator:?} {b}"
            );
        }
        assert!(numbers.has_none());
    }

    #[test]
    fn what_no_number_stands_for_is_refused() {
        let numbers = InexactNumbers::default();
        let number = |number: f64| RegoValue::from(number);
        for (operator, a, b) in [
            (ArithOp::Div, number(1.0), number(0.0)),
            (ArithOp::Mod, number(1.5), number(1.0)),
            (ArithOp::Mod, number(3.0), number(0.0)),
            (ArithOp::Add, RegoValue::from(u64::MAX), number(1.0)),
            (ArithOp::Mul, number(1e300), number(1e300)),
            (ArithOp::Add, RegoValue::from("1"), number(1.0)),
        ] {
            assert!(
                numbers.compute(&operator, &a, &b).is_err(),
                "{a} {operator:?} {b}"
            );
        }
        assert_eq!(
            compare(
                &numbers,
                &RegoValue::from(10_000_000_000_000_001_u64),
                &BoolOp::Eq,
                1e16
            ),
            None
        );
        // OPA has the decimal of a number with an exponent.
        let large = numbers.compute(&ArithOp::Sub, &number(1.234_567_890_123_456_8e18), &number(1.0));
        assert_eq!(large.unwrap(), RegoValue::from(1_234_567_890_123_456_799_u64));
        let most = RegoValue::from(u64::MAX);
        assert_eq!(
            numbers
                .compute(&ArithOp::Mod, &most, &RegoValue::from(10_u64))
                .unwrap(),
            RegoValue::from(5_u64)
        );
    }
}
