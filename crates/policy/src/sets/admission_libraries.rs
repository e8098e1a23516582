//! Further libraries of Kubernetes' CEL: `semver`, `sets`, and positions in lists.

use std::{cmp::Ordering, sync::Arc};

use cel::{
    Context, Env, ExecutionError, Value as CelValue,
    common::{
        functions::Function,
        types::{CelBool, CelInt, CelList, CelOptional, DYN_TYPE, LIST_TYPE},
        value::{CowVal, Val},
    },
    extractors::{Arguments, This},
    objects::Opaque,
};

use konverge_cel::cel_value::shared_list;

/// Functions that expressions may call.
pub(super) const KNOWN: [&str; 32] = [
    // Sets.
    "sets.contains",
    "sets.equivalent",
    "sets.intersects",
    // Semantic versions.
    "semver",
    "isSemver",
    "major",
    "minor",
    "patch",
    // URLs.
    "url",
    "isURL",
    "getScheme",
    "getHost",
    "getHostname",
    "getPort",
    "getEscapedPath",
    "getQuery",
    // Regular expressions.
    "find",
    "findAll",
    // Lists and strings: extensions of the crate. Not `lists.range`, which no oracle was asked about.
    "distinct",
    "flatten",
    "slice",
    "sort",
    "sortBy",
    "@sortByAssociatedKeys",
    "reverse",
    "format",
    "validate",
    "named",
    // Optional values.
    "first",
    "last",
    "unwrap",
    "unwrapOpt",
];

type Answer = Result<CelValue, ExecutionError>;

fn error(function: &str, message: &str) -> ExecutionError {
    ExecutionError::function_error(function, message)
}

fn text(function: &str, value: &CelValue) -> Result<Arc<String>, ExecutionError> {
    match value {
        CelValue::String(text) => Ok(Arc::clone(text)),
        _ => Err(error(function, "it needs a text")),
    }
}

/// Adds what is declared for lists beside a function of the same name for texts.
pub(super) fn declare(env: &mut Env) {
    // They are the only ones of these types, which is the only way in which this fails.
    let _ = env.add_member_overload(
        "indexOf",
        "list.indexOf(dyn)",
        LIST_TYPE,
        vec![DYN_TYPE],
        |found| position(&found, false),
    );
    let _ = env.add_member_overload(
        "lastIndexOf",
        "list.lastIndexOf(dyn)",
        LIST_TYPE,
        vec![DYN_TYPE],
        |found| position(&found, true),
    );
    let of_lists: [(&str, Function); 3] = [
        ("first", |call| edge(&call, false)),
        ("last", |call| edge(&call, true)),
        ("unwrapOpt", |call| present(&call)),
    ];
    for (name, function) in of_lists {
        let _ = env.add_member_overload(name, name, LIST_TYPE, Vec::new(), function);
    }
    let _ = env.add_overload("optional.unwrap", "unwrap", vec![LIST_TYPE], |call| {
        present(&call)
    });
    let of_two: [(&str, Function); 3] = [
        ("sets.contains", |call| sets(&call, |all, some| within(all, some))),
        ("sets.equivalent", |call| {
            sets(&call, |one, two| within(one, two) && within(two, one))
        }),
        ("sets.intersects", |call| {
            sets(&call, |one, two| one.iter().any(|item| is_in(item.as_ref(), two)))
        }),
    ];
    for (name, function) in of_two {
        let _ = env.add_overload(name, name, vec![LIST_TYPE, LIST_TYPE], function);
    }
}

fn is_in(item: &dyn Val, list: &[Box<dyn Val + '_>]) -> bool {
    list.iter().any(|one| one.equals(item))
}

fn within<'v>(all: &[Box<dyn Val + 'v>], some: &[Box<dyn Val + 'v>]) -> bool {
    some.iter().all(|item| is_in(item.as_ref(), all))
}

/// A function of `sets`.
fn sets<'b, 'v>(
    arguments: &[CowVal<'b, 'v>],
    answer: impl Fn(&[Box<dyn Val + 'v>], &[Box<dyn Val + 'v>]) -> bool,
) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let answer = answer(items(arguments)?, items(arguments.get(1..).unwrap_or_default())?);
    Ok(CowVal::owned(CelBool::from(answer)))
}

fn items<'b, 'v>(arguments: &'b [CowVal<'_, 'v>]) -> Result<&'b [Box<dyn Val + 'v>], ExecutionError> {
    let list = arguments.first().and_then(|list| list.downcast_ref::<CelList>());
    list.map(CelList::inner)
        .ok_or_else(|| error("list", "it needs a list"))
}

/// The first or the last item of a list, if it has one.
fn edge<'b, 'v>(arguments: &[CowVal<'b, 'v>], last: bool) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let items = items(arguments)?;
    let item = if last { items.last() } else { items.first() };
    Ok(CowVal::owned(match item {
        Some(item) => CelOptional::of(item.clone()),
        None => CelOptional::none(),
    }))
}

/// The values of the optional items that have one.
fn present<'b, 'v>(arguments: &[CowVal<'b, 'v>]) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let mut values = Vec::new();
    for item in items(arguments)? {
        let optional = item.downcast_ref::<CelOptional>();
        let optional = optional.ok_or_else(|| error("unwrap", "it needs optional values"))?;
        values.extend(optional.option().map(Val::clone_as_boxed));
    }
    Ok(CowVal::Owned(shared_list(values)))
}

/// The first or the last place of an item in a list, or -1.
fn position<'b, 'v>(arguments: &[CowVal<'b, 'v>], last: bool) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [list, wanted] = arguments else {
        return Err(error("indexOf", "it needs an item"));
    };
    let list = list.as_ref().as_iterable();
    let mut items = list.ok_or_else(|| error("indexOf", "it needs a list"))?.iter();
    let (mut at, mut found) = (0_i64, -1);
    while let Some(item) = items.next() {
        if (last || found < 0) && item.equals(wanted.as_ref()) {
            found = at;
        }
        at += 1;
    }
    Ok(CowVal::owned(CelInt::from(found)))
}

/// Adds the libraries to a context.
pub(super) fn add(context: &mut Context) {
    versions(context);
}

/// A semantic version: numbers, and the identifiers of a pre-release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    numbers: [u64; 3],
    before: Vec<Identifier>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    // Numbers are before names.
    Number(u64),
    Name(String),
}

impl Opaque for Version {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.Semver"
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let before = match (self.before.is_empty(), other.before.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.before.cmp(&other.before),
        };
        self.numbers.cmp(&other.numbers).then(before)
    }
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        // No part has a sign: `+` begins the build, and `-` the pre-release.
        let number = |text: &str| (text == "0" || !text.starts_with('0')).then(|| text.parse().ok())?;
        let is_name = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let (text, build) = text
            .split_once('+')
            .map_or((text, None), |(text, build)| (text, Some(build)));
        if build.is_some_and(|build| !build.split('.').all(is_name)) {
            return None;
        }
        let (core, before) = text
            .split_once('-')
            .map_or((text, None), |(core, rest)| (core, Some(rest)));
        let numbers: Option<Vec<u64>> = core.split('.').map(number).collect();
        let identifier = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => number(text).map(Identifier::Number),
            false => is_name(text).then(|| Identifier::Name(text.to_owned())),
        };
        let before = before.map(|rest| rest.split('.').map(identifier).collect::<Option<Vec<_>>>());
        Some(Self {
            numbers: numbers?.try_into().ok()?,
            before: match before {
                Some(identifiers) => identifiers?,
                None => Vec::new(),
            },
        })
    }

    /// A short or padded version, such as `v1.02`.
    fn parse_loosely(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
        for part in parts.iter_mut().filter(|part| !part.is_empty()) {
            let trimmed = part.trim_start_matches('0');
            *part = match trimmed.starts_with(|c: char| c.is_ascii_digit()) {
                true => trimmed.to_owned(),
                false => format!("0{trimmed}"),
            };
        }
        // A short version with a pre-release or a build has no third number then, and is none.
        parts.resize(3, "0".to_owned());
        Self::parse(&parts.join("."))
    }

    /// The version that a value is.
    pub fn from_cel(value: &CelValue) -> Option<Self> {
        match value {
            CelValue::Opaque(opaque) => opaque.downcast_ref::<Self>().cloned(),
            _ => None,
        }
    }
}

/// The version in the first argument, read as the second one says.
fn version(function: &str, arguments: &[CelValue]) -> Result<Option<Version>, ExecutionError> {
    match arguments {
        [of] | [of, CelValue::Bool(false)] => Ok(Version::parse(&text(function, of)?)),
        [of, CelValue::Bool(true)] => Ok(Version::parse_loosely(&text(function, of)?)),
        _ => Err(error(function, "it needs a text, and true or false")),
    }
}

fn versions(context: &mut Context) {
    let _ = context.add_function("isSemver", |Arguments(all): Arguments| -> Answer {
        Ok(CelValue::Bool(version("isSemver", &all)?.is_some()))
    });
    let _ = context.add_function("semver", |Arguments(all): Arguments| -> Answer {
        let found = version("semver", &all)?.ok_or_else(|| error("semver", "it is not a version"))?;
        Ok(CelValue::Opaque(Arc::new(found)))
    });
    for (at, name) in ["major", "minor", "patch"].into_iter().enumerate() {
        let part = move |This(this): This<CelValue>| -> Answer {
            let version = Version::from_cel(&this).ok_or_else(|| error(name, "it needs a version"))?;
            let number = i64::try_from(version.numbers[at]).map_err(|_| error(name, "integer overflow"))?;
            Ok(CelValue::Int(number))
        };
        let _ = context.add_function(name, part);
    }
}

#[cfg(test)]
#[path = "admission_libraries_tests.rs"]
mod tests;
