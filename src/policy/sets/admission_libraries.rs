//! Further libraries of Kubernetes' CEL: `semver`, URLs, `find`, and positions in lists.

use std::{cmp::Ordering, collections::HashMap, sync::Arc};

use cel::{
    Context, Env, ExecutionError, Value as CelValue,
    common::{
        types::{CelInt, DYN_TYPE, LIST_TYPE},
        value::CowVal,
    },
    extractors::{Arguments, This},
    objects::Opaque,
};
use regex::RegexBuilder;

/// The largest compiled form of a regular expression in bytes.
const LARGEST_REGEX: usize = 1024 * 1024;

/// Functions that expressions may call.
pub(super) const KNOWN: [&str; 23] = [
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
    // Lists and strings: extensions of the crate. Not `lists.range`, whose length no value limits.
    "distinct",
    "flatten",
    "slice",
    "sort",
    "sortBy",
    "@sortByAssociatedKeys",
    "reverse",
    "format",
];

type Answer = Result<CelValue, ExecutionError>;
type UrlPart = fn(&Url) -> String;

fn error(function: &str, message: &str) -> ExecutionError {
    ExecutionError::function_error(function, message)
}

fn text(function: &str, value: &CelValue) -> Result<Arc<String>, ExecutionError> {
    match value {
        CelValue::String(text) => Ok(Arc::clone(text)),
        _ => Err(error(function, "it needs a text")),
    }
}

fn string(text: impl Into<String>) -> CelValue {
    CelValue::String(Arc::new(text.into()))
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
    urls(context);
    expressions(context);
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
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            (digits && (text == "0" || !text.starts_with('0'))).then(|| text.parse().ok())?
        };
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
        for part in parts.iter_mut().filter(|part| part.len() > 1) {
            let trimmed = part.trim_start_matches('0');
            *part = match trimmed.starts_with(|c: char| c.is_ascii_digit()) {
                true => trimmed.to_owned(),
                false => format!("0{trimmed}"),
            };
        }
        if parts.len() < 3 && parts.last().is_some_and(|part| part.contains(['+', '-'])) {
            return None;
        }
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

/// A URL in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
}

impl Opaque for Url {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.URL"
    }
}

impl Url {
    /// A URL or an absolute path of plain characters. `None` if it is certainly neither.
    ///
    /// # Errors
    /// An API server may read it in a way that is not decided here.
    fn parse(function: &str, text: &str) -> Result<Option<Self>, ExecutionError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/?%".contains(c);
        let unclear = || error(function, "a URL of this form is not decided here");
        if text.is_empty() || text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
            return Ok(None);
        }
        let (scheme, rest) = match text.split_once(':') {
            Some((scheme, rest)) if !scheme.contains('/') && !text.starts_with('/') => (scheme, rest),
            // Neither a scheme nor an absolute path.
            _ if !text.starts_with('/') => return Ok(None),
            _ => ("", text),
        };
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        if !scheme.chars().all(is_scheme) || scheme.starts_with(|c: char| !c.is_ascii_alphabetic()) {
            return Ok(None);
        }
        let escapes = rest.split('%').skip(1);
        let is_escape =
            |part: &str| part.len() >= 2 && part.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
        if !rest.chars().all(plain) || rest.contains('%') && !escapes.clone().all(is_escape) {
            return Err(unclear());
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = match rest.strip_prefix("//") {
            Some(rest) if !scheme.is_empty() => rest.find('/').map_or((rest, ""), |at| rest.split_at(at)),
            Some(_) => return Err(unclear()),
            None if scheme.is_empty() => ("", rest),
            // `mailto:x` has no host and no path.
            None => return Err(unclear()),
        };
        let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if !name.chars().all(is_name) || !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(unclear());
        }
        Ok(Some(Self {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
        }))
    }
}

fn urls(context: &mut Context) {
    let _ = context.add_function("isURL", |value: CelValue| -> Answer {
        Ok(CelValue::Bool(
            Url::parse("isURL", &text("isURL", &value)?)?.is_some(),
        ))
    });
    let _ = context.add_function("url", |value: CelValue| -> Answer {
        let url = Url::parse("url", &text("url", &value)?)?;
        let url = url.ok_or_else(|| error("url", "it is not a URL"))?;
        Ok(CelValue::Opaque(Arc::new(url)))
    });
    let parts: [(&'static str, UrlPart); 5] = [
        ("getScheme", |url| url.scheme.clone()),
        ("getHost", |url| url.host.clone()),
        ("getHostname", |url| {
            url.host
                .rsplit_once(':')
                .map_or(url.host.as_str(), |(name, _)| name)
                .to_owned()
        }),
        ("getPort", |url| {
            url.host.rsplit_once(':').map_or("", |(_, port)| port).to_owned()
        }),
        ("getEscapedPath", |url| url.path.clone()),
    ];
    let of = |function: &'static str, value: &CelValue| {
        match value {
            CelValue::Opaque(opaque) => opaque.downcast_ref::<Url>().cloned(),
            _ => None,
        }
        .ok_or_else(|| error(function, "it needs a URL"))
    };
    for (name, part) in parts {
        let get = move |This(this): This<CelValue>| -> Answer { Ok(string(part(&of(name, &this)?))) };
        let _ = context.add_function(name, get);
    }
    let _ = context.add_function("getQuery", move |This(this): This<CelValue>| -> Answer {
        let url = of("getQuery", &this)?;
        let mut found: HashMap<String, Vec<CelValue>> = HashMap::new();
        for (key, value) in url::form_urlencoded::parse(url.query.as_bytes()) {
            found.entry(key.into_owned()).or_default().push(string(value));
        }
        let lists = found
            .into_iter()
            .map(|(key, values)| (key, CelValue::List(Arc::new(values))));
        Ok(CelValue::from(lists.collect::<HashMap<_, _>>()))
    });
}

fn expressions(context: &mut Context) {
    let compile = |function: &'static str, value: &CelValue| {
        let expression = RegexBuilder::new(&text(function, value)?)
            .size_limit(LARGEST_REGEX)
            .build();
        expression.map_err(|_| error(function, "it is not a regular expression, or too large"))
    };
    let _ = context.add_function(
        "find",
        move |This(this): This<CelValue>, expression: CelValue| -> Answer {
            let (text, expression) = (text("find", &this)?, compile("find", &expression)?);
            Ok(string(expression.find(&text).map_or("", |found| found.as_str())))
        },
    );
    let _ = context.add_function(
        "findAll",
        move |This(this): This<CelValue>, Arguments(all): Arguments| -> Answer {
            let subject = text("findAll", &this)?;
            let most = match all[..] {
                [_] => usize::MAX,
                [_, CelValue::Int(most)] => usize::try_from(most).unwrap_or(usize::MAX),
                _ => return Err(error("findAll", "it needs an expression, and a number")),
            };
            let expression = compile("findAll", &all[0])?;
            let found = expression
                .find_iter(&subject)
                .take(most)
                .map(|found| string(found.as_str()));
            Ok(CelValue::List(Arc::new(found.collect())))
        },
    );
}
