//! More CEL libraries of Kubernetes: `semver`, `sets`, and positions in lists.

use cel::{
    Context, Env, ExecutionError, Value as CelValue,
    common::{
        functions::Function,
        types::{CelBool, CelInt, CelOptional, DYN_TYPE, LIST_TYPE},
        value::{CowVal, Val},
    },
    extractors::Arguments,
    objects::Opaque,
};

use super::arguments::{CelResult, error, lists_of, method, opaque, text, wrapped};
use konverge_cel::cel_value::shared_list;

/// More supported functions: sets, semantic versions, URLs, regular expressions, optional values, and the
/// extensions of the `cel` crate for lists and strings. `lists.range` is missing, because its result was never
/// compared with an API server's.
pub(super) const KNOWN: &str = "\
    sets.contains sets.equivalent sets.intersects semver isSemver major minor patch url isURL getScheme \
    getHost getHostname getPort getEscapedPath getQuery find findAll distinct flatten slice sort sortBy \
    @sortByAssociatedKeys reverse format validate named first last unwrap unwrapOpt";

/// Declares list functions whose name also exists for strings.
pub(super) fn declare(env: &mut Env) {
    // Only a second overload for the same types could fail.
    let of_items: [(&str, &str, Function); 2] = [
        ("indexOf", "list.indexOf(dyn)", |call| position(&call, false)),
        ("lastIndexOf", "list.lastIndexOf(dyn)", |call| {
            position(&call, true)
        }),
    ];
    for (name, id, function) in of_items {
        let _ = env.add_member_overload(name, id, LIST_TYPE, vec![DYN_TYPE], function);
    }
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

/// Calls a function of the library `sets` on two lists.
fn sets<'b, 'v>(
    arguments: &[CowVal<'b, 'v>],
    answer: impl Fn(&[Box<dyn Val + 'v>], &[Box<dyn Val + 'v>]) -> bool,
) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [one, two] = lists_of("list", arguments)?;
    Ok(CowVal::owned(CelBool::from(answer(one, two))))
}

/// Returns the first or the last item of a list, as an optional value.
fn edge<'b, 'v>(arguments: &[CowVal<'b, 'v>], last: bool) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [items] = lists_of("list", arguments)?;
    let item = if last { items.last() } else { items.first() };
    Ok(CowVal::owned(match item {
        Some(item) => CelOptional::of(item.clone()),
        None => CelOptional::none(),
    }))
}

/// Returns the values of a list of optional items, without the empty ones.
fn present<'b, 'v>(arguments: &[CowVal<'b, 'v>]) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [items] = lists_of("list", arguments)?;
    let mut values = Vec::new();
    for item in items {
        let optional = item.downcast_ref::<CelOptional>();
        let optional = optional.ok_or_else(|| error("unwrap", "it needs optional values"))?;
        values.extend(optional.option().map(Val::clone_as_boxed));
    }
    Ok(CowVal::Owned(shared_list(values)))
}

/// Returns the index of the first or the last occurrence of an item in a list, or -1.
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

/// A semantic version as a CEL value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(semver::Version);

impl Opaque for Version {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.Semver"
    }
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let mut version = semver::Version::parse(text).ok()?;
        // The API server rejects longer numbers, and ignores the build when it compares.
        let mut release = version.pre.split('.');
        let is_small = |part: &str| !part.bytes().all(|b| b.is_ascii_digit()) || part.parse::<u64>().is_ok();
        let is_known = version.pre.is_empty() || release.all(is_small);
        version.build = semver::BuildMetadata::EMPTY;
        is_known.then_some(Self(version))
    }

    /// Parses a short or zero-padded version, such as `v1.02`.
    fn parse_loosely(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
        for part in parts.iter_mut().filter(|part| !part.is_empty()) {
            let trimmed = part.trim_start_matches('0');
            *part = if trimmed.starts_with(|c: char| c.is_ascii_digit()) {
                trimmed.to_owned()
            } else {
                format!("0{trimmed}")
            };
        }
        // In a short version with a pre-release or a build, this gives no valid third number, and the version is
        // refused.
        parts.resize(3, "0".to_owned());
        Self::parse(&parts.join("."))
    }
}

/// Parses the version in the first argument. The second argument selects loose parsing.
fn version(function: &str, arguments: &[CelValue]) -> Result<Option<Version>, ExecutionError> {
    match arguments {
        [of] | [of, CelValue::Bool(false)] => Ok(Version::parse(&text(function, of)?)),
        [of, CelValue::Bool(true)] => Ok(Version::parse_loosely(&text(function, of)?)),
        _ => Err(error(
            function,
            "its arguments are a string and an optional boolean",
        )),
    }
}

/// Adds the library of versions to a context.
pub(super) fn add(context: &mut Context) {
    let _ = context.add_function("isSemver", |Arguments(all): Arguments| -> CelResult {
        Ok(CelValue::Bool(version("isSemver", &all)?.is_some()))
    });
    let _ = context.add_function("semver", |Arguments(all): Arguments| -> CelResult {
        let found = version("semver", &all)?;
        found
            .map(wrapped)
            .ok_or_else(|| error("semver", "it is not a version"))
    });
    for (at, part) in ["major", "minor", "patch"].into_iter().enumerate() {
        method(context, part, move |name, this| {
            let Version(version) = opaque(this).ok_or_else(|| error(name, "it needs a version"))?;
            let number = i64::try_from([version.major, version.minor, version.patch][at]);
            Ok(CelValue::Int(
                number.map_err(|_| error(name, "integer overflow"))?,
            ))
        });
    }
}

#[cfg(test)]
#[path = "libraries_tests.rs"]
mod tests;
