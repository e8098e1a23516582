//! The CEL of Kubernetes: the standard library, its string and list functions, and the libraries `sets`, `quantity` and
//! `ip`/`cidr`. A function that is not known here is an error when a policy is read, so nothing passes it.

use std::{net::IpAddr, sync::Arc};

use cel::{Context, Env, ExecutionError, Value as CelValue, extensions, extractors::This, objects::Opaque};

use super::admission_libraries::{self, Version};
use crate::cel_expression::CelExpression;

/// Functions that expressions may call, besides operators.
const KNOWN: [&str; 75] = [
    // The standard library. `matches` needs no more: its expressions take time that is linear in the text.
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "string",
    "int",
    "uint",
    "double",
    "bool",
    "bytes",
    "type",
    "dyn",
    "has",
    "all",
    "exists",
    "exists_one",
    "map",
    "filter",
    "optional.of",
    "optional.none",
    "optional.ofNonZeroValue",
    "hasValue",
    "value",
    "orValue",
    "or",
    "optMap",
    "optFlatMap",
    // Strings.
    "charAt",
    "indexOf",
    "lastIndexOf",
    "join",
    "lowerAscii",
    "upperAscii",
    "trim",
    "replace",
    "split",
    "substring",
    // Lists.
    "isSorted",
    "sum",
    "min",
    "max",
    // Sets.
    "sets.contains",
    "sets.equivalent",
    "sets.intersects",
    // Quantities.
    "quantity",
    "isQuantity",
    "isInteger",
    "asInteger",
    "sign",
    "add",
    "sub",
    "isGreaterThan",
    "isLessThan",
    "compareTo",
    "asApproximateFloat",
    // Addresses.
    "isIP",
    "ip",
    "family",
    "isLoopback",
    "isUnspecified",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
    "isCIDR",
    "cidr",
    "containsIP",
    "prefixLength",
    "containsCIDR",
    "masked",
    // Further names of the standard library and of strings.
    "existsOne",
    "duration",
    "timestamp",
    "quote",
    "strings.quote",
];

/// The standard library, and the functions of strings and lists.
pub(super) fn environment() -> Env {
    let mut env = Env::stdlib();
    // It is the first extension, which is the only way in which this fails.
    let _ = env.add_extension(extensions::strings);
    let _ = env.add_extension(extensions::lists);
    admission_libraries::declare(&mut env);
    env
}

/// Compiles an expression that calls known functions only.
///
/// # Errors
/// Not CEL, too large, or an unknown function.
pub(super) fn compile(source: &str, env: &Env) -> Result<CelExpression, String> {
    let expression = CelExpression::compile_with(source, env)?;
    let is_operator = |name: &str| !name.starts_with(|c: char| c.is_ascii_alphabetic());
    let unknown = expression.functions().into_iter().find(|name| {
        let last = name.rsplit('.').next().unwrap_or(name);
        !is_operator(name) && !is_known(last)
    });
    match unknown {
        Some(name) => Err(format!("the function `{name}` is not known here")),
        None => Ok(expression),
    }
}

/// An expression says a name without its namespace.
fn is_known(name: &str) -> bool {
    let mut known = KNOWN.iter().chain(&admission_libraries::KNOWN);
    known.any(|known| known.rsplit('.').next() == Some(name))
}

/// A quantity in billionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Quantity(i128);

impl Opaque for Quantity {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.Quantity"
    }
}

/// An address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Address(IpAddr);

impl Opaque for Address {
    fn runtime_type_name(&self) -> &str {
        "net.IP"
    }
}

/// A network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network(IpAddr, u32);

impl Opaque for Network {
    fn runtime_type_name(&self) -> &str {
        "net.CIDR"
    }
}

const UNIT: i128 = 1_000_000_000;

/// Parses a quantity as Kubernetes writes it: `1.5Gi`, `100m`, `1e3`.
fn parse_quantity(text: &str) -> Option<Quantity> {
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
    // Kubernetes rounds up what is finer than a billionth.
    let value = value.checked_add(divisor - 1)? / divisor;
    Some(Quantity(if number.starts_with('-') { -value } else { value }))
}

fn parse_network(text: &str) -> Option<Network> {
    let (address, prefix) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let is_plain = prefix == "0" || !prefix.starts_with(['0', '+']);
    let prefix: u32 = prefix.parse().ok().filter(|_| is_plain)?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    (prefix <= longest).then_some(Network(address, prefix))
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

impl Network {
    fn masked(self) -> Self {
        let address = match self.0 {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - self.1).unwrap_or(0);
                IpAddr::from((u32::from(address) & mask).to_be_bytes())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - self.1).unwrap_or(0);
                IpAddr::from((u128::from(address) & mask).to_be_bytes())
            }
        };
        Self(address, self.1)
    }

    fn contains(self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        let ((own, length), (other, other_length)) = (bits(self.0), bits(address));
        let shift = length - self.1;
        length == other_length && (shift >= 128 || own >> shift == other >> shift)
    }
}

fn opaque<T: Opaque + Copy + 'static>(value: &CelValue) -> Option<T> {
    match value {
        CelValue::Opaque(opaque) => opaque.downcast_ref::<T>().copied(),
        _ => None,
    }
}

fn error(function: &str, message: &str) -> ExecutionError {
    ExecutionError::function_error(function, message)
}

fn text(function: &str, value: &CelValue) -> Result<Arc<String>, ExecutionError> {
    match value {
        CelValue::String(text) => Ok(Arc::clone(text)),
        _ => Err(error(function, "it needs a text")),
    }
}

fn list(function: &str, value: &CelValue) -> Result<Arc<Vec<CelValue>>, ExecutionError> {
    match value {
        CelValue::List(list) => Ok(Arc::clone(list)),
        _ => Err(error(function, "it needs a list")),
    }
}

fn quantity(function: &str, value: &CelValue) -> Result<Quantity, ExecutionError> {
    let whole = |number: i64| Quantity(i128::from(number) * UNIT);
    match value {
        CelValue::Int(number) => Ok(whole(*number)),
        value => opaque(value).ok_or_else(|| error(function, "it needs a quantity")),
    }
}

fn address(function: &str, value: &CelValue) -> Result<IpAddr, ExecutionError> {
    match value {
        CelValue::String(text) => text.parse().map_err(|_| error(function, "it needs an address")),
        value => opaque(value)
            .map(|Address(address)| address)
            .ok_or_else(|| error(function, "it needs an address")),
    }
}

type Answer = Result<CelValue, ExecutionError>;
type AddressTest = fn(IpAddr) -> bool;

/// Adds the libraries to a context.
pub(super) fn add(context: &mut Context) {
    sets(context);
    lists(context);
    quantities(context);
    addresses(context);
    admission_libraries::add(context);
}

/// A name that the standard library has already stays as it is there.
macro_rules! function {
    ($context:expr, $name:expr, $function:expr) => {
        let _ = $context.add_function($name, $function);
    };
}

fn sets(context: &mut Context) {
    let within = |all: &[CelValue], some: &[CelValue]| some.iter().all(|item| all.contains(item));
    function!(context, "sets.contains", move |all: CelValue,
                                              some: CelValue|
          -> Answer {
        let (all, some) = (list("sets.contains", &all)?, list("sets.contains", &some)?);
        Ok(CelValue::Bool(within(&all, &some)))
    });
    function!(context, "sets.equivalent", move |one: CelValue,
                                                two: CelValue|
          -> Answer {
        let (one, two) = (list("sets.equivalent", &one)?, list("sets.equivalent", &two)?);
        Ok(CelValue::Bool(within(&one, &two) && within(&two, &one)))
    });
    function!(context, "sets.intersects", |one: CelValue,
                                           two: CelValue|
     -> Answer {
        let (one, two) = (list("sets.intersects", &one)?, list("sets.intersects", &two)?);
        Ok(CelValue::Bool(one.iter().any(|item| two.contains(item))))
    });
}

fn lists(context: &mut Context) {
    function!(context, "isSorted", |This(this): This<CelValue>| -> Answer {
        let list = list("isSorted", &this)?;
        for pair in list.windows(2) {
            match pair[0].partial_cmp(&pair[1]) {
                Some(std::cmp::Ordering::Greater) => return Ok(CelValue::Bool(false)),
                Some(_) => {}
                None => return Err(error("isSorted", "the items cannot be compared")),
            }
        }
        Ok(CelValue::Bool(true))
    });
    function!(context, "sum", |This(this): This<CelValue>| -> Answer {
        let mut sum = 0_i64;
        for item in list("sum", &this)?.iter() {
            let CelValue::Int(number) = item else {
                return Err(error("sum", "only whole numbers are added here"));
            };
            sum = sum
                .checked_add(*number)
                .ok_or_else(|| error("sum", "integer overflow"))?;
        }
        Ok(CelValue::Int(sum))
    });
    let best = |function: &'static str, order: std::cmp::Ordering| {
        move |This(this): This<CelValue>| -> Answer {
            let list = list(function, &this)?;
            let mut best = list.first().ok_or_else(|| error(function, "the list is empty"))?;
            for item in list.iter() {
                match item.partial_cmp(best) {
                    Some(found) if found == order => best = item,
                    Some(_) => {}
                    None => return Err(error(function, "the items cannot be compared")),
                }
            }
            Ok(best.clone())
        }
    };
    function!(context, "min", best("min", std::cmp::Ordering::Less));
    function!(context, "max", best("max", std::cmp::Ordering::Greater));
}

fn quantities(context: &mut Context) {
    let make = |value: Quantity| CelValue::Opaque(Arc::new(value));
    function!(context, "isQuantity", |value: CelValue| -> Answer {
        Ok(CelValue::Bool(
            parse_quantity(&text("isQuantity", &value)?).is_some(),
        ))
    });
    function!(context, "quantity", move |value: CelValue| -> Answer {
        let parsed = parse_quantity(&text("quantity", &value)?);
        parsed
            .map(make)
            .ok_or_else(|| error("quantity", "it is not a quantity"))
    });
    function!(context, "sign", |This(this): This<CelValue>| -> Answer {
        let sign = quantity("sign", &this)?.0.signum();
        Ok(CelValue::Int(i64::try_from(sign).unwrap_or_default()))
    });
    function!(context, "isInteger", |This(this): This<CelValue>| -> Answer {
        let Quantity(value) = quantity("isInteger", &this)?;
        Ok(CelValue::Bool(
            value % UNIT == 0 && i64::try_from(value / UNIT).is_ok(),
        ))
    });
    function!(context, "asInteger", |This(this): This<CelValue>| -> Answer {
        let Quantity(value) = quantity("asInteger", &this)?;
        match i64::try_from(value / UNIT) {
            Ok(number) if value % UNIT == 0 => Ok(CelValue::Int(number)),
            _ => Err(error("asInteger", "it is not a whole number")),
        }
    });
    let both = |function: &'static str, one: &CelValue, two: &CelValue| -> Result<_, ExecutionError> {
        Ok((quantity(function, one)?.0, quantity(function, two)?.0))
    };
    // Versions have the same functions.
    let order = move |function: &'static str, one: &CelValue, two: &CelValue| match (
        Version::from_cel(one),
        Version::from_cel(two),
    ) {
        (Some(one), Some(two)) => Ok(one.cmp(&two)),
        _ => both(function, one, two).map(|(one, two)| one.cmp(&two)),
    };
    function!(
        context,
        "asApproximateFloat",
        |This(this): This<CelValue>| -> Answer {
            let Quantity(value) = quantity("asApproximateFloat", &this)?;
            Ok(CelValue::Float(value as f64 / UNIT as f64))
        }
    );
    let overflow = |function: &str| error(function, "the quantity is too large");
    function!(context, "add", move |This(this): This<CelValue>,
                                    other: CelValue|
          -> Answer {
        let (one, two) = both("add", &this, &other)?;
        one.checked_add(two)
            .map(|sum| make(Quantity(sum)))
            .ok_or_else(|| overflow("add"))
    });
    function!(context, "sub", move |This(this): This<CelValue>,
                                    other: CelValue|
          -> Answer {
        let (one, two) = both("sub", &this, &other)?;
        one.checked_sub(two)
            .map(|rest| make(Quantity(rest)))
            .ok_or_else(|| overflow("sub"))
    });
    function!(context, "isGreaterThan", move |This(this): This<CelValue>,
                                              other: CelValue|
          -> Answer {
        order("isGreaterThan", &this, &other).map(|order| CelValue::Bool(order.is_gt()))
    });
    function!(context, "isLessThan", move |This(this): This<CelValue>,
                                           other: CelValue|
          -> Answer {
        order("isLessThan", &this, &other).map(|order| CelValue::Bool(order.is_lt()))
    });
    function!(context, "compareTo", move |This(this): This<CelValue>,
                                          other: CelValue|
          -> Answer {
        order("compareTo", &this, &other).map(|order| CelValue::Int(order as i64))
    });
}

fn addresses(context: &mut Context) {
    function!(context, "isIP", |value: CelValue| -> Answer {
        Ok(CelValue::Bool(text("isIP", &value)?.parse::<IpAddr>().is_ok()))
    });
    function!(context, "ip", |value: CelValue| -> Answer {
        let parsed = text("ip", &value)?.parse::<IpAddr>();
        let parsed = parsed.map_err(|_| error("ip", "it is not an address"))?;
        Ok(CelValue::Opaque(Arc::new(Address(parsed))))
    });
    function!(context, "family", |This(this): This<CelValue>| -> Answer {
        Ok(CelValue::Int(if address("family", &this)?.is_ipv4() {
            4
        } else {
            6
        }))
    });
    function!(context, "isLoopback", |This(this): This<CelValue>| -> Answer {
        Ok(CelValue::Bool(address("isLoopback", &this)?.is_loopback()))
    });
    let kinds: [(&'static str, AddressTest); 4] = [
        ("isUnspecified", |address| address.is_unspecified()),
        ("isLinkLocalMulticast", |address| match address {
            IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
            IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
        }),
        ("isLinkLocalUnicast", is_link_local),
        ("isGlobalUnicast", |address| {
            let special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
            let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
            !special && !broadcast && !is_link_local(address)
        }),
    ];
    for (name, is) in kinds {
        function!(context, name, move |This(this): This<CelValue>| -> Answer {
            Ok(CelValue::Bool(is(address(name, &this)?)))
        });
    }
    function!(context, "isCIDR", |value: CelValue| -> Answer {
        Ok(CelValue::Bool(parse_network(&text("isCIDR", &value)?).is_some()))
    });
    function!(context, "cidr", |value: CelValue| -> Answer {
        let parsed = parse_network(&text("cidr", &value)?);
        let parsed = parsed.ok_or_else(|| error("cidr", "it is not a network"))?;
        Ok(CelValue::Opaque(Arc::new(parsed)))
    });
    let network = |function: &'static str, value: &CelValue| {
        opaque::<Network>(value).ok_or_else(|| error(function, "it needs a network"))
    };
    function!(context, "containsIP", move |This(this): This<CelValue>,
                                           other: CelValue|
          -> Answer {
        let network = network("containsIP", &this)?;
        Ok(CelValue::Bool(network.contains(address("containsIP", &other)?)))
    });
    function!(context, "containsCIDR", move |This(this): This<CelValue>,
                                             other: CelValue|
          -> Answer {
        let outer = network("containsCIDR", &this)?;
        let inner = match &other {
            CelValue::String(text) => {
                parse_network(text).ok_or_else(|| error("containsCIDR", "it is not a network"))?
            }
            other => network("containsCIDR", other)?,
        };
        Ok(CelValue::Bool(outer.contains(inner.0) && outer.1 <= inner.1))
    });
    function!(context, "masked", move |This(this): This<CelValue>| -> Answer {
        Ok(CelValue::Opaque(Arc::new(network("masked", &this)?.masked())))
    });
    function!(
        context,
        "prefixLength",
        move |This(this): This<CelValue>| -> Answer {
            Ok(CelValue::Int(i64::from(network("prefixLength", &this)?.1)))
        }
    );
}
