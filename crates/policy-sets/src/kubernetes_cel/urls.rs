//! The CEL library of Kubernetes for URLs.

use std::{collections::HashMap, sync::Arc};

use cel::{Context, ExecutionError, Value as CelValue, objects::Opaque};

use super::arguments::{error, function, method, opaque, string, text, wrapped};

type UrlPart = fn(&Url) -> String;

/// The parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url {
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
    /// Parses a URL or an absolute path of plain characters. Returns `None` if the text is certainly neither.
    ///
    /// # Errors
    /// It cannot be decided here how an API server would parse the text.
    pub(super) fn parse(function: &str, text: &str) -> Result<Option<Self>, ExecutionError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/?%".contains(c);
        let unclear = || error(function, "a URL of this form is not supported here");
        if text.is_empty() || text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
            return Ok(None);
        }
        let (scheme, rest) = match text.split_once(':') {
            Some(("", _)) => return Ok(None),
            Some((scheme, rest)) if !scheme.contains('/') => (scheme, rest),
            // The text has no scheme, and is neither an absolute path nor a single `*`.
            _ if !text.starts_with('/') && text != "*" => return Ok(None),
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
            // Go parses `mailto:x` as an opaque URL, which is not supported here.
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

/// Adds the library to a context.
pub(super) fn add(context: &mut Context) {
    function(context, "isURL", |name, value| {
        Ok(CelValue::Bool(Url::parse(name, &text(name, value)?)?.is_some()))
    });
    function(context, "url", |name, value| {
        let url = Url::parse(name, &text(name, value)?)?;
        url.map(wrapped).ok_or_else(|| error(name, "it is not a URL"))
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
        opaque::<Url>(value).ok_or_else(|| error(function, "it needs a URL"))
    };
    for (name, part) in parts {
        method(context, name, move |name, this| {
            Ok(string(part(&of(name, this)?)))
        });
    }
    method(context, "getQuery", move |name, this| {
        let url = of(name, this)?;
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

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{all_fail, all_hold},
        *,
    };

    fn url(scheme: &str, host: &str, path: &str, query: &str) -> Url {
        Url {
            scheme: scheme.to_owned(),
            host: host.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
        }
    }

    #[test]
    fn a_plain_url_has_its_parts() {
        for (text, parts) in [
            (
                "https://a.example:80/x/y?k=1&k=2",
                url("https", "a.example:80", "/x/y", "k=1&k=2"),
            ),
            ("HTTP://A.example", url("http", "A.example", "", "")),
            ("a+b-1.c://h_1-2?", url("a+b-1.c", "h_1-2", "", "")),
            ("x:///p", url("x", "", "/p", "")),
            ("/a/b", url("", "", "/a/b", "")),
            ("/a:b", url("", "", "/a:b", "")),
            ("*", url("", "", "*", "")),
            ("/%41%2f", url("", "", "/%41%2f", "")),
            ("/?a=%41", url("", "", "/", "a=%41")),
        ] {
            assert_eq!(Url::parse("url", text), Ok(Some(parts)), "{text}");
        }
    }

    #[test]
    fn what_is_certainly_no_url_is_none() {
        for text in [
            "",
            "a",
            "a/b:c",
            "?a",
            "*/a",
            "**",
            ":x",
            "://a",
            "1a://h",
            "-a://h",
            "a_b://h",
            "a b://h",
            "/a\u{1f}",
            "/a\u{7f}",
            "http://a\n",
        ] {
            assert_eq!(Url::parse("url", text), Ok(None), "{text}");
        }
    }

    #[test]
    fn a_url_of_another_form_is_not_decided() {
        for text in [
            "/a b",
            "/é",
            "/a#b",
            "/a\u{80}",
            "/%",
            "/%4",
            "/%4g",
            "/%g4",
            "/%41%4",
            "//host/x",
            "mailto:x",
            "http:/x",
            "http://[::1]/",
            "http://u@h/",
            "http://a%41/",
            "http://a:8x/",
        ] {
            assert!(Url::parse("url", text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_policy_reads_the_parts_of_a_url() {
        all_hold(&[
            "isURL('https://a.example/x') && isURL('/x') && !isURL('x') && !isURL('')",
            "url('HTTPS://a.example:80/x').getScheme() == 'https' && url('/x').getScheme() == ''",
            "url('https://a.example:80/x').getHost() == 'a.example:80'",
            "url('https://a.example:80/x').getHostname() == 'a.example' && url('https://b').getHostname() == 'b'",
            "url('https://a.example:80/x').getPort() == '80' && url('https://b').getPort() == ''",
            "url('https://a.example/x%41').getEscapedPath() == '/x%41' && url('https://b').getEscapedPath() == ''",
            "url('/x?k=1&l=%41&k=2').getQuery() == {'k': ['1', '2'], 'l': ['A']} && url('/x').getQuery() == {}",
        ]);
        all_fail(&[
            "isURL(1)",
            "isURL('mailto:x')",
            "url('x').getHost() == ''",
            "url(1).getHost() == ''",
            "semver('1.2.3').getHost() == ''",
            "'/x'.getQuery() == {}",
        ]);
    }
}
