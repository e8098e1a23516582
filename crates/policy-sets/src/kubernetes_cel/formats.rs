//! The CEL library `format` of Kubernetes: checks if a text has a form that Kubernetes requires of names and
//! values. The error texts differ from the API server's.

use std::sync::Arc;

use cel::{
    Context, ExecutionError, Value as CelValue,
    extractors::This,
    objects::{Opaque, OptionalValue},
};
use jiff::civil::Date;
use regex::Regex;

use super::{
    arguments::{CelResult, error, opaque, string, wrapped},
    urls::Url,
};

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// The names of the formats.
pub(super) const NAMES: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

/// A named format as a CEL value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Format(&'static str);

impl Opaque for Format {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.NamedFormat"
    }
}

/// Adds the library to a context.
pub(super) fn add(context: &mut Context) {
    for name in NAMES {
        let made = move || -> CelResult { Ok(wrapped(Format(name))) };
        let _ = context.add_function(&format!("format.{name}"), made);
    }
    let _ = context.add_function("format.named", |name: Arc<String>| -> CelResult {
        let known = NAMES.into_iter().find(|known| **known == **name);
        Ok(optional(known.map(|name| wrapped(Format(name)))))
    });
    let _ = context.add_function(
        "validate",
        |This(this): This<CelValue>, text: Arc<String>| -> CelResult {
            let format = opaque::<Format>(&this).ok_or_else(|| error("validate", "it needs a format"))?;
            let wrong = (!format.fits(&text)?).then(|| {
                let said = format!("it does not have the format {}", format.0);
                CelValue::List(Arc::new(vec![string(said)]))
            });
            Ok(optional(wrong))
        },
    );
}

fn optional(value: Option<CelValue>) -> CelValue {
    wrapped(value.map_or_else(OptionalValue::none, OptionalValue::of))
}

impl Format {
    fn fits(&self, text: &str) -> Result<bool, ExecutionError> {
        let is = |longest: usize, form: &str, text: &str| text.len() <= longest && has_form(form, text);
        let subdomain = format!("{LABEL}(\\.{LABEL})*");
        let service = "[a-z]([-a-z0-9]*[a-z0-9])?";
        Ok(match self.0 {
            "dns1123Label" => is(63, LABEL, text),
            "dns1123LabelPrefix" => is(63, LABEL, &completed(text)),
            "dns1123Subdomain" => is(253, &subdomain, text),
            "dns1123SubdomainPrefix" => is(253, &subdomain, &completed(text)),
            "dns1035Label" => is(63, service, text),
            "dns1035LabelPrefix" => is(63, service, &completed(text)),
            "labelValue" => is(63, &format!("({QUALIFIED})?"), text),
            "qualifiedName" => match text.split_once('/') {
                None => is(63, QUALIFIED, text),
                Some((prefix, name)) => is(253, &subdomain, prefix) && is(63, QUALIFIED, name),
            },
            "uri" => Url::parse("format", text)?.is_some(),
            "uuid" => has_form(
                "(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}",
                text,
            ),
            "byte" => has_form(
                "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})",
                text,
            ),
            "date" => is_date(text),
            _ => is_time(text),
        })
    }
}

/// Turns a prefix into a complete name for the check, because a prefix may end in `-` and a name may not.
fn completed(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut kept = rest.to_owned();
            kept.pop();
            format!("{kept}a")
        }
        _ => text.to_owned(),
    }
}

fn has_form(form: &str, text: &str) -> bool {
    Regex::new(&format!("^(?:{form})$")).is_ok_and(|regex| regex.is_match(text))
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else {
        return false;
    };
    let number = |text: &str, digits: usize| {
        let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse::<i16>().ok()).flatten()
    };
    match (number(year, 4), number(month, 2), number(day, 2)) {
        (Some(year), Some(month), Some(day)) => {
            let part = |number: i16| i8::try_from(number).unwrap_or_default();
            Date::new(year, part(month), part(day)).is_ok()
        }
        _ => false,
    }
}

fn is_time(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let form = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))";
    let Some((date, time)) = text.split_once('t') else {
        return false;
    };
    is_date(date) && has_form(form, time)
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{all_fail, all_hold},
        *,
    };

    #[test]
    fn formats_fit() {
        let fits = |name: &'static str, text: &str| Format(name).fits(text).unwrap();
        for (name, right, wrong) in [
            ("dns1123Label", "a-1", "a.b"),
            ("dns1123LabelPrefix", "a-", "-"),
            ("dns1123Subdomain", "a.b-1", "a..b"),
            ("dns1123SubdomainPrefix", "a.b-", "a..b-"),
            ("dns1035Label", "a1", "1a"),
            ("dns1035LabelPrefix", "a-", "1a-"),
            ("labelValue", "", "-a"),
            ("qualifiedName", "a.example/B_c", "a/b/c"),
            ("uri", "https://a.example/x", "x"),
            ("uuid", "123E4567-e89b-12d3-a456-426614174000", "123e4567"),
            ("byte", "aGVsbG8=", "aGVsbG8"),
            ("date", "2024-02-29", "2023-02-29"),
            ("datetime", "2024-02-29T23:59:59.5+01:00", "2024-02-29T24:00:00Z"),
        ] {
            assert!(fits(name, right), "{name} {right}");
            assert!(!fits(name, wrong), "{name} {wrong}");
        }
        assert!(!fits("dns1123Label", &"a".repeat(64)));
        assert!(!fits("byte", ""));
    }

    #[test]
    fn a_name_is_as_long_as_its_format_allows() {
        let fits = |name: &'static str, text: &str| Format(name).fits(text).unwrap();
        for (name, longest) in [
            ("dns1123Label", 63),
            ("dns1123LabelPrefix", 63),
            ("dns1123Subdomain", 253),
            ("dns1123SubdomainPrefix", 253),
            ("dns1035Label", 63),
            ("dns1035LabelPrefix", 63),
            ("labelValue", 63),
            ("qualifiedName", 63),
        ] {
            assert!(fits(name, &"a".repeat(longest)), "{name}");
            assert!(!fits(name, &"a".repeat(longest + 1)), "{name}");
        }
        let qualified = |prefix: usize, name: usize| format!("{}/{}", "a".repeat(prefix), "b".repeat(name));
        assert!(fits("qualifiedName", &qualified(253, 63)));
        assert!(!fits("qualifiedName", &qualified(254, 63)));
        assert!(!fits("qualifiedName", &qualified(253, 64)));
        assert!(!fits("qualifiedName", "A/b") && !fits("qualifiedName", "a/"));
    }

    #[test]
    fn a_date_exists_and_a_time_has_a_zone() {
        for text in ["2024-12-31", "0001-01-01"] {
            assert!(is_date(text), "{text}");
        }
        for text in [
            "2024-13-01",
            "2024-00-01",
            "2024-04-31",
            "24-01-01",
            "2024-1-01",
            "2024-01-1",
            "+024-01-01",
            "2024-+1-01",
            "2024-01-+1",
            "2024-01",
            "2024-01-01-01",
            "",
        ] {
            assert!(!is_date(text), "{text}");
        }
        for text in [
            "2024-01-01T00:00:00Z",
            "2024-01-01t23:59:59.123z",
            "2024-01-01T00:00:00-11:30",
        ] {
            assert!(is_time(text), "{text}");
        }
        for text in [
            "2023-02-29T00:00:00Z",
            "2024-01-01T00:00:00",
            "2024-01-01 00:00:00Z",
            "2024-01-01T00:60:00Z",
            "T00:00:00Z",
        ] {
            assert!(!is_time(text), "{text}");
        }
    }

    #[test]
    fn the_prefix_of_a_name_may_end_in_a_dash() {
        for (text, whole) in [("ab-", "aa"), ("a-", "a"), ("-", "-"), ("a", "a"), ("", "")] {
            assert_eq!(completed(text), whole, "{text}");
        }
    }

    #[test]
    fn only_a_format_validates() {
        all_hold(&[
            "format.named('uri').value().validate('/x') == optional.none()",
            "format.uuid().validate('x').value() == ['it does not have the format uuid']",
        ]);
        all_fail(&[
            "semver('1.2.3').validate('x').hasValue()",
            "format.uri().validate('mailto:x').hasValue()",
        ]);
    }
}
