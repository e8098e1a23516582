//! Numbers with OPA's arithmetic: Go's `big.Float` with a mantissa of 64 bits, rounded half to even. OPA prints a
//! number as the shortest decimal that parses to the same number.

/// The maximum number of decimal places: a power of ten with this exponent fits in 128 bits.
const MOST_PLACES: u32 = 38;
/// The maximum binary exponent; numbers beyond it are refused.
const MOST_EXPONENT: i32 = 400;

/// A number `mantissa * 2^exponent`. The highest bit of the mantissa is set, except for zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GoFloat {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// A result in a form that the engine can hold: an integer, or an `f64`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum GoNumber {
    Whole(i128),
    /// OPA prints exactly this number.
    Exact(f64),
    /// The nearest `f64`; OPA's number has more digits.
    Near(f64),
}

impl GoFloat {
    /// Creates a number from an integer; `None` if it has more than 64 bits.
    pub(super) fn whole(number: i128) -> Option<Self> {
        let size = number.unsigned_abs();
        u64::try_from(size).ok()?;
        Self::rounded(number < 0, size, 1, 0)
    }

    /// Returns the number that OPA reads from the shortest decimal text of `number`; `None` if it is too large or too
    /// small.
    pub(super) fn decimal(number: f64) -> Option<Self> {
        let text = format!("{:e}", number.abs());
        let (digits, power) = text.split_once('e')?;
        let (before, after) = digits.split_once('.').unwrap_or((digits, ""));
        let digits: u128 = format!("{before}{after}").parse().ok()?;
        let power = power.parse::<i32>().ok()? - i32::try_from(after.len()).ok()?;
        let ten = |places: u32| (places <= MOST_PLACES).then(|| 10_u128.pow(places));
        match power {
            0.. => Self::rounded(
                number < 0.0,
                digits.checked_mul(ten(power.unsigned_abs())?)?,
                1,
                0,
            ),
            _ => Self::rounded(number < 0.0, digits, ten(power.unsigned_abs())?, 0),
        }
    }

    pub(super) fn add(self, other: Self) -> Option<Self> {
        let (large, small) = if self.exponent >= other.exponent || other.mantissa == 0 {
            (self, other)
        } else {
            (other, self)
        };
        if large.mantissa == 0 || small.mantissa == 0 {
            return Some(if large.mantissa == 0 { small } else { large });
        }
        // There is room for 62 more bits. All lower bits of the smaller number are combined into one, which is
        // enough for rounding.
        let apart = (large.exponent - small.exponent).unsigned_abs();
        let shift = apart.min(62);
        let below = (apart - shift).min(63);
        let lost = small.mantissa & ((1 << below) - 1) != 0;
        let signed = |negative: bool, size: u128| {
            let size = size.cast_signed();
            if negative { -size } else { size }
        };
        let first = signed(large.negative, u128::from(large.mantissa) << shift);
        let second = signed(
            small.negative,
            u128::from(small.mantissa >> below) | u128::from(lost),
        );
        let sum = first + second;
        let exponent = large.exponent - shift.cast_signed();
        Self::rounded(sum < 0, sum.unsigned_abs(), 1, exponent)
    }

    pub(super) fn subtract(self, other: Self) -> Option<Self> {
        let negative = !other.negative;
        self.add(Self { negative, ..other })
    }

    pub(super) fn multiply(self, other: Self) -> Option<Self> {
        let product = u128::from(self.mantissa) * u128::from(other.mantissa);
        let negative = self.negative != other.negative;
        Self::rounded(negative, product, 1, self.exponent + other.exponent)
    }

    /// Divides two numbers; `None` for a division by zero, and for a result that is too large or too small.
    pub(super) fn divide(self, other: Self) -> Option<Self> {
        let negative = self.negative != other.negative;
        let exponent = self.exponent - other.exponent;
        Self::rounded(negative, self.mantissa.into(), other.mantissa.into(), exponent)
    }

    /// Converts the number for the engine; `None` for an integer of more than 64 bits.
    pub(super) fn number(self) -> Option<GoNumber> {
        let places = self.exponent.unsigned_abs();
        let is_whole = self.mantissa == 0 || self.exponent >= 0 || self.mantissa.trailing_zeros() >= places;
        if is_whole {
            let size = match self.exponent {
                _ if self.mantissa == 0 => 0,
                1.. => return None,
                _ => i128::from(self.mantissa >> places),
            };
            return Some(GoNumber::Whole(if self.negative { -size } else { size }));
        }
        let size = self.mantissa as f64 * 2_f64.powi(self.exponent);
        let near = if self.negative { -size } else { size };
        Some(if Self::decimal(near) == Some(self) {
            GoNumber::Exact(near)
        } else {
            GoNumber::Near(near)
        })
    }

    /// Returns `numerator / denominator * 2^exponent`, rounded to 64 bits. `None` if the denominator is zero or has
    /// 128 bits, or if the result is too large or too small.
    fn rounded(negative: bool, numerator: u128, denominator: u128, mut exponent: i32) -> Option<Self> {
        if denominator == 0 || denominator.leading_zeros() == 0 || exponent.abs() > MOST_EXPONENT {
            return None;
        }
        let (mut quotient, mut rest) = (numerator / denominator, numerator % denominator);
        // Two more bits than the mantissa has, together with the remainder, decide about the rounding.
        while rest != 0 && quotient >> 66 == 0 {
            rest *= 2;
            quotient = quotient * 2 + u128::from(rest >= denominator);
            rest %= denominator;
            exponent -= 1;
        }
        let bits = u128::BITS - quotient.leading_zeros();
        let (mut mantissa, shift) = match bits {
            0 => {
                return Some(Self {
                    negative: false,
                    mantissa: 0,
                    exponent: 0,
                });
            }
            1..=64 => (quotient << (64 - bits), -(64 - bits.cast_signed())),
            _ => (quotient >> (bits - 64), bits.cast_signed() - 64),
        };
        if shift > 0 {
            let half = 1_u128 << (shift - 1);
            let lost = quotient & (half * 2 - 1);
            let is_odd = mantissa & 1 == 1;
            if lost > half || (lost == half && (rest != 0 || is_odd)) {
                mantissa += 1;
            }
        }
        // Rounding up a mantissa of ones gave a 65th bit.
        let carry = (mantissa >> 64).min(1);
        Some(Self {
            negative,
            mantissa: u64::try_from(mantissa >> carry).ok()?,
            exponent: exponent + shift + i32::from(carry == 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: f64) -> GoFloat {
        GoFloat::decimal(number).unwrap()
    }

    /// `tests/it/policy/opa_table.rs` compares the same expressions with OPA.
    #[test]
    fn a_result_is_exact_near_or_whole() {
        let sum = |a: f64, b: f64| of(a).add(of(b)).unwrap().number().unwrap();
        assert_eq!(sum(0.1, 0.2), GoNumber::Exact(0.3));
        assert_eq!(sum(0.1, -0.1), GoNumber::Whole(0));
        assert_eq!(sum(0.0, -2.5), GoNumber::Exact(-2.5));
        assert_eq!(sum(1e18, 1e-5), GoNumber::Whole(1_000_000_000_000_000_000));
        let product = |a: f64, b: f64| of(a).multiply(of(b)).unwrap().number().unwrap();
        assert_eq!(product(1.1, 3.0), GoNumber::Near(3.3));
        assert_eq!(product(0.29, 100.0), GoNumber::Whole(29));
        assert_eq!(product(-0.5, 0.5), GoNumber::Exact(-0.25));
        assert_eq!(product(0.0, -3.0), GoNumber::Whole(0));
        let quotient = |a: f64, b: f64| of(a).divide(of(b)).map(|of| of.number().unwrap());
        assert_eq!(quotient(1.0, 3.0), Some(GoNumber::Near(1.0 / 3.0)));
        assert_eq!(quotient(4.0, 5.0), Some(GoNumber::Exact(0.8)));
        assert_eq!(quotient(6.0, -3.0), Some(GoNumber::Whole(-2)));
        assert_eq!(quotient(6.0, 0.0), None);
    }

    #[test]
    fn a_text_is_read_to_the_nearest_number() {
        // 0.1 is 0xcccccccccccccccd times two to the -67.
        let tenth = GoFloat {
            negative: false,
            mantissa: 0xcccc_cccc_cccc_cccd,
            exponent: -67,
        };
        assert_eq!(of(0.1), tenth);
        assert_eq!(GoFloat::whole(-3).unwrap(), of(-3.0));
        assert_eq!(GoFloat::whole(i128::from(u64::MAX) + 1), None);
        let most = GoFloat::whole(u64::MAX.into()).unwrap();
        assert_eq!(most.number(), Some(GoNumber::Whole(u64::MAX.into())));
        // The result has 65 bits.
        assert_eq!(most.add(of(1.0)).unwrap().number(), None);
        assert_eq!(GoFloat::decimal(1e-60), None);
        assert_eq!(GoFloat::decimal(f64::INFINITY), None);
    }

    /// The bits that are cut off are exactly one half, so the remainder of the division decides.
    #[test]
    fn a_half_is_rounded_to_the_even_number_and_a_little_more_up() {
        let half = ((1_u128 << 65) | 2) * 3;
        let mantissa = |numerator| GoFloat::rounded(false, numerator, 3, 0).unwrap().mantissa;
        assert_eq!(mantissa(half), 1 << 63);
        assert_eq!(mantissa(half + 1), (1 << 63) + 1);
        assert_eq!(mantissa(half - 1), 1 << 63);
    }

    #[test]
    fn what_is_far_below_only_rounds() {
        let large = GoFloat::whole(1 << 63).unwrap();
        for (small, exponent) in [(1_u64 << 63, -130), (u64::MAX, -128), (1 << 63, -300)] {
            let small = GoFloat {
                negative: false,
                mantissa: small,
                exponent,
            };
            assert_eq!(large.add(small), Some(large));
            assert_eq!(large.subtract(small), Some(large));
            assert_eq!(small.add(large), Some(large));
        }
    }
}
