//! [`Quantity`]: a Kubernetes quantity, a number with a unit such as `500m` or `1.5Gi`.
//! Source: `k8s.io/apimachinery/pkg/api/resource`.

/// A number with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantity {
    /// The value in billionths (10⁻⁹).
    pub billionths: i128,
    /// True if Kubernetes stores the quantity as an integer. False for `1000m` or `1.5Gi`, for example.
    pub is_whole: bool,
    form: Form,
}

/// The notation of a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A decimal unit: `500m`, `2k`
    Decimal,
    /// A decimal exponent: `1e3`
    Exponent,
    /// A binary unit: `1Gi`
    Binary,
}

/// The number of billionths in one.
pub const UNIT: i128 = 1_000_000_000;

impl Form {
    fn of(suffix: &str) -> Self {
        match suffix {
            "n" | "u" | "m" | "" | "k" | "M" | "G" | "T" | "P" | "E" => Self::Decimal,
            suffix if suffix.ends_with('i') => Self::Binary,
            _ => Self::Exponent,
        }
    }
}

impl Quantity {
    /// Parses a quantity as Kubernetes writes it: `1.5Gi`, `100m`, `1e3`. `None` if the text is not a quantity, or has
    /// more than 18 digits.
    pub fn parse(text: &str) -> Option<Self> {
        let end = text
            .char_indices()
            .find(|(at, c)| !(c.is_ascii_digit() || *c == '.' || (*at == 0 && matches!(c, '+' | '-'))))
            .map_or(text.len(), |(at, _)| at);
        let (number, suffix) = text.split_at(end);
        let digits = number.trim_start_matches(['+', '-']);
        if digits.is_empty() || digits.len() > 18 || number.len() - digits.len() > 1 {
            return None;
        }
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let read = |text: &str| {
            if text.is_empty() {
                Some(0)
            } else {
                text.parse::<i128>().ok()
            }
        };
        let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let mantissa = read(whole)?.checked_mul(scale)?.checked_add(read(fraction)?)?;
        let form = Form::of(suffix);
        let (factor, divisor) = match suffix {
            "n" => (1, UNIT),
            "u" => (1, 1_000_000),
            "m" => (1, 1_000),
            "" => (1, 1),
            "k" => (1_000, 1),
            "M" => (1_000_000, 1),
            "G" => (1_000_000_000, 1),
            "T" => (10_i128.pow(12), 1),
            "P" => (10_i128.pow(15), 1),
            "E" => (10_i128.pow(18), 1),
            "Ki" => (1 << 10, 1),
            "Mi" => (1 << 20, 1),
            "Gi" => (1 << 30, 1),
            "Ti" => (1 << 40, 1),
            "Pi" => (1 << 50, 1),
            "Ei" => (1 << 60, 1),
            exponent => {
                let exponent: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
                let power = 10_i128.checked_pow(exponent.unsigned_abs().min(30))?;
                if exponent < 0 { (1, power) } else { (power, 1) }
            }
        };
        let value = mantissa.checked_mul(factor)?.checked_mul(UNIT)?;
        let divisor = scale.checked_mul(divisor)?;
        // Kubernetes rounds up to whole billionths.
        let value = value.checked_add(divisor - 1)? / divisor;
        Some(Self {
            billionths: if number.starts_with('-') { -value } else { value },
            form,
            is_whole: is_whole(suffix, whole.trim_start_matches('0').len(), fraction.len()),
        })
    }

    /// Returns the text that Kubernetes writes: with the largest unit that needs no fraction.
    pub fn canonical(&self) -> String {
        if self.form == Form::Binary && self.billionths % UNIT == 0 && self.billionths.abs() >= 1024 * UNIT {
            let (number, power) = reduce(self.billionths / UNIT, 1024, BINARY.len() - 1);
            return format!("{number}{}", BINARY[power]);
        }
        let (number, power) = reduce(self.billionths, 1000, DECIMAL.len() - 1);
        match self.form {
            _ if number == 0 => "0".to_owned(),
            Form::Exponent => match i64::try_from(power).unwrap_or_default() * 3 - 9 {
                0 => number.to_string(),
                exponent => format!("{number}e{exponent}"),
            },
            Form::Decimal | Form::Binary => format!("{number}{}", DECIMAL[power]),
        }
    }
}

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// Divides a number by `base` while there is no remainder, at most `most` times. Returns the quotient and the number of
/// divisions.
fn reduce(mut number: i128, base: i128, most: usize) -> (i128, usize) {
    let mut times = 0;
    while number != 0 && number % base == 0 && times < most {
        number /= base;
        times += 1;
    }
    (number, times)
}

/// Returns true if Kubernetes stores a quantity as an integer. `digits` is the number of digits before the point,
/// `fraction` of those after it.
fn is_whole(suffix: &str, digits: usize, fraction: usize) -> bool {
    let places = match suffix {
        "n" | "u" | "m" => return false,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        // With more digits the API server uses its slow path (arbitrary precision), which never stores an integer.
        "Ki" => return fraction == 0 && digits <= 11,
        "Mi" => return fraction == 0 && digits <= 8,
        "Gi" => return fraction == 0 && digits <= 5,
        "Ti" => return fraction == 0 && digits <= 2,
        "Pi" | "Ei" => return false,
        exponent => exponent
            .get(1..)
            .and_then(|text| text.parse::<i64>().ok())
            .unwrap_or(-1),
    };
    places >= i64::try_from(fraction).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the type's documentation, and its rules for the base.
    #[test]
    fn the_canonical_text_has_the_largest_unit_without_a_fraction() {
        for (written, canonical) in [
            ("0", "0"),
            ("0Gi", "0"),
            ("0m", "0"),
            ("1.5", "1500m"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("100", "100"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("-1.5", "-1500m"),
            ("1.5Gi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("1024Mi", "1Gi"),
            ("1000Mi", "1000Mi"),
            ("0.5Ki", "512"),
            ("1Ki", "1Ki"),
            ("0.0009765625Ki", "1"),
            ("1.5e3", "1500"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("1E-3", "1e-3"),
        ] {
            let read = Quantity::parse(written).unwrap();
            assert_eq!(read.canonical(), canonical, "{written}");
            let again = Quantity::parse(canonical).unwrap();
            assert_eq!(again.billionths, read.billionths, "{written}");
        }
    }
}
