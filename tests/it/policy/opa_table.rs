//! What expressions in Rego give here and at conftest. `tests/golden/conftest.md` is that table: the ignored test asks
//! conftest, and writes it with `UPDATE_GOLDEN=1`. A row is *the same* or *refused*, never another answer.
//! `docs/reference/rego.md` has the rows that are refused.

use std::{fs, path::PathBuf, process::Command};

use konverge_policy_sets::PolicyFile;
use serde_json::{Value, json};

use super::created_objects;
use crate::{
    meta::docs::root,
    support::{executable, service::folder},
};

/// The expressions of the table. What is named in them is in the object.
const EXPRESSIONS: [&str; 143] = [
    r#"regex.match(`^\d+$`, "٣")"#,
    r#"regex.match(`^\d+$`, "3")"#,
    r#"regex.match(`^\w+$`, "é")"#,
    r#"regex.match(`^\w+$`, "e")"#,
    r#"regex.match(`^\s$`, "\u00a0")"#,
    r#"regex.match(`^\s$`, "\u000b")"#,
    r#"regex.match(`^\s$`, "\t")"#,
    r#"regex.match(`\bx\b`, "éxé")"#,
    r#"regex.match(`^\D\W\S$`, "é٣é")"#,
    r#"regex.match(`^[[:alpha:]]$`, "é")"#,
    r#"regex.match(`^\p{L}\pN$`, "é٣")"#,
    r#"regex.match(`^[^\d]$`, "٣")"#,
    r#"regex.match(`(?i)^k$`, "\u212a")"#,
    r#"regex.match(`(?i)^\w$`, "\u212a")"#,
    r#"regex.match(`(?i)^ß$`, "ẞ")"#,
    r#"regex.match(`(?i)^s$`, "ſ")"#,
    r#"regex.match(`[a&&b]`, "&")"#,
    r#"regex.match(`(?x)a b`, "ab")"#,
    r#"regex.match(`a{,2}`, "b")"#,
    r#"regex.match(`\p{Emoji}`, "😀")"#,
    r#"regex.match(`(`, "a")"#,
    r#"regex.match(`\Qa.b\E`, "a.b")"#,
    r#"regex.is_valid("(")"#,
    r#"regex.is_valid(`\d`)"#,
    r#"regex.split(`\s+`, "a b\u00a0c")"#,
    r#"regex.replace("aéb", `\w`, "x")"#,
    r#"regex.find_n(`\w`, "aéb", -1)"#,
    r#"regex.find_all_string_submatch_n(`(\w)(x)?`, "ab", -1)"#,
    r#"regex.template_match("urn:foo:{.*}", "urn:foo:bar", "{", "}")"#,
    r#"regex.globs_match("a.a.[0-9]+z", "b.b.b")"#,
    r#"glob.match("*.example.com", ["."], "a.example.com")"#,
    r#"glob.match("*", ["."], "a.b")"#,
    r#"{} < set()"#,
    r#"[] < {}"#,
    r#"null < false"#,
    r#"1 < "a""#,
    r#"[1, 2] < [1, 3]"#,
    r#"0.1 + 0.2 == 0.3"#,
    r#"1.1 * 3 == 3.3"#,
    r#"1 / 2"#,
    r#"7 % 3"#,
    r#"10 / 4"#,
    r#"9007199254740993 + 1"#,
    r#"set() >= {1: 2}"#,
    r#"[{}] < [set()]"#,
    r#"{1, 2} - {2}"#,
    r#"1 / 3"#,
    r#"1 / 3 * 3 == 1"#,
    r#"1 / 3 < 0.34"#,
    r#"1 / 0"#,
    r#"0.29 * 100"#,
    r#"floor(0.29 * 100)"#,
    r#"sum([0.1, 0.2])"#,
    r#"sum([1.1, 1.1, 1.1]) == 3.3"#,
    r#"product([0.1, 3])"#,
    r#"product([2, 3])"#,
    r#"ceil(-0.5)"#,
    r#"10000000000000001 == 1e16"#,
    r#"round(2.5)"#,
    r#"round(-2.5)"#,
    r#"ceil(0.1 * 3)"#,
    r#"abs(-0.5)"#,
    r#"5.0 % 3"#,
    r#"-7 % 3"#,
    r#"1.5 % 1"#,
    r#"18446744073709551615 + 1"#,
    r#"semver.is_valid("v1.0.0")"#,
    r#"semver.is_valid("1.0.0")"#,
    r#"semver.is_valid("1.0")"#,
    r#"semver.is_valid("1.0.0-rc.1+b.01")"#,
    r#"semver.is_valid("1.0.0-01")"#,
    r#"semver.is_valid("V1.0.0")"#,
    r#"semver.is_valid("01.0.0")"#,
    r#"semver.compare("1.0.0", "1.0.0-rc.1")"#,
    r#"upper("ß")"#,
    r#"upper("é")"#,
    r#"lower("İ")"#,
    r#"lower("ΑΣ")"#,
    r#"sprintf("%v %d %s", [1, 2, "a"])"#,
    r#"sprintf("%5.1f", [1.25])"#,
    r#"sprintf("%q", ["a"])"#,
    r#"format_int(255, 16)"#,
    r#"trim_space("\u00a0a ")"#,
    r#"split("a.b", ".")"#,
    r#"indexof("aéb", "b")"#,
    r#"substring("aéb", 1, 1)"#,
    r#"count("é")"#,
    r#"sort([2, "a", null, [1], {"k": 1}])"#,
    r#"to_number("0x10")"#,
    r#"to_number("1e3")"#,
    r#"units.parse_bytes("1Mi")"#,
    r#"units.parse("100m")"#,
    r#"time.parse_duration_ns("1h")"#,
    r#"time.parse_rfc3339_ns("2026-01-01T00:00:00Z")"#,
    r#"object.get({"a": {"b": 1}}, ["a", "b"], 0)"#,
    r#"object.union({"a": 1}, {"b": 2})"#,
    r#"json.patch({"a": 1}, [{"op": "add", "path": "/b", "value": 2}])"#,
    r#"json.patch({"l": [1]}, [{"op": "add", "path": "/l/-", "value": 2}, {"op": "move", "from": "/l/0", "path": "/m"}])"#,
    r#"json.patch({"a/b": {"c": 1}}, [{"op": "copy", "from": "/a~1b/c", "path": "/d"}, {"op": "remove", "path": ["a/b", "c"]}])"#,
    r#"json.patch({"a": 1}, [{"op": "test", "path": "/a", "value": 1}, {"op": "replace", "path": "/a", "value": null}])"#,
    r#"json.patch({"a": 1}, [{"op": "test", "path": "/a", "value": 2}])"#,
    r#"json.patch({"a": 1}, [{"op": "remove", "path": "/b"}])"#,
    r#"json.patch({"a": 1}, [{"op": "add", "path": "b", "value": 2}])"#,
    r#"json.patch({"a": {1}}, [{"op": "add", "path": "/b", "value": 2}])"#,
    r#"json.filter({"a": 1, "b": 2}, ["a"])"#,
    r#"json.remove({"a": 1, "b": 2}, ["a"])"#,
    r#"yaml.unmarshal("a: 1")"#,
    r#"yaml.unmarshal("a: 'yes'\nb: 0123\nc: 1e3\nd: ~\ne: 2026-01-01\nf: True\ng: 1_000\nh: 0x1f\ni: .5\nj: +1")"#,
    r#"yaml.unmarshal("a: yes")"#,
    r#"yaml.unmarshal("a: 1:30\nb: .inf\nc: 1e400")"#,
    r#"yaml.unmarshal("x: &x {b: 1}\na: {<<: *x, c: 2}")"#,
    r#"yaml.unmarshal("a: 1\na: 2")"#,
    r#"yaml.unmarshal("a: 1\n---\nb: 2")"#,
    r#"yaml.is_valid("a: [1]")"#,
    r#"yaml.is_valid("a: [")"#,
    r#"yaml.marshal({"a": 1})"#,
    r#"crypto.sha256("a")"#,
    r#"crypto.md5("é")"#,
    r#"crypto.sha1("a")"#,
    r#"crypto.hmac.md5("a", "k")"#,
    r#"crypto.hmac.sha1("a", "k")"#,
    r#"crypto.hmac.sha256("a", "k")"#,
    r#"crypto.hmac.sha512("a", "k")"#,
    r#"crypto.hmac.equal("a", "a")"#,
    r#"net.cidr_contains("10.0.0.0/8", "10.1.2.3")"#,
    r#"net.cidr_merge(["10.0.0.0/9", "10.128.0.0/9"])"#,
    r#"net.cidr_merge(["::1"])"#,
    r#"net.cidr_merge(["10.0.0.1"])"#,
    r#"net.cidr_merge({"10.0.0.1/32", "10.0.0.0/32", "::1/128", "192.168.0.0/24", "192.168.0.0/16"})"#,
    r#"net.cidr_merge([])"#,
    r#"net.cidr_merge(["10.0.0.1/8"])"#,
    r#"net.cidr_is_valid("10.0.0.0/33")"#,
    r#"io.jwt.decode("a.b.c")"#,
    r#"io.jwt.decode("eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.FFq7df23yURc9R-KnrYxV7k5v-q3gzDwXCu3YEElWyY")"#,
    r#"io.jwt.verify_hs256("eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.FFq7df23yURc9R-KnrYxV7k5v-q3gzDwXCu3YEElWyY", "key")"#,
    r#"io.jwt.verify_hs256("eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.FFq7df23yURc9R-KnrYxV7k5v-q3gzDwXCu3YEElWyY", "other")"#,
    r#"io.jwt.verify_hs512("eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.FFq7df23yURc9R-KnrYxV7k5v-q3gzDwXCu3YEElWyY", "key")"#,
    r#"io.jwt.verify_rs256("eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.FFq7df23yURc9R-KnrYxV7k5v-q3gzDwXCu3YEElWyY", "key")"#,
    r#"io.jwt.decode_verify("eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.FFq7df23yURc9R-KnrYxV7k5v-q3gzDwXCu3YEElWyY", {"secret": "key"})"#,
    r#"base64.decode("YQ==")"#,
    r#"walk([1])"#,
    r#"strings.any_prefix_match("ab", "a")"#,
    r#"numbers.range(1, 3)"#,
];

fn rule(expression: &str) -> String {
    format!("package main\n\ndeny contains msg if {{\n\tx := {expression}\n\tmsg := json.marshal(x)\n}}\n")
}

/// What a rule says: the value, that it has none, or that it is refused.
fn ours(expression: &str) -> String {
    let file = PolicyFile {
        path: "rule.rego".to_owned(),
        text: rule(expression),
    };
    let set = created_objects::set("input: objects", &[file], &[]);
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}});
    let document = created_objects::created(&[object]);
    let findings = created_objects::findings(&set, &document, &created_objects::secrets());
    match &findings[..] {
        [] => "undefined".to_owned(),
        [one] if serde_json::from_str::<Value>(&one.message).is_ok() => one.message.clone(),
        _ => "refused".to_owned(),
    }
}

/// What the rules of a file deny of an object, by conftest. `None` if it cannot read them.
pub(super) fn denied_by_conftest(rules: &str, object: &Value) -> Option<Vec<String>> {
    let folder = folder("opa-rules");
    fs::create_dir_all(folder.join("policy")).unwrap();
    fs::write(folder.join("policy/rule.rego"), rules).unwrap();
    fs::write(folder.join("object.json"), object.to_string()).unwrap();
    let output = Command::new(executable("conftest", "conftest"))
        .args(["test", "object.json", "--output", "json", "--policy", "policy"])
        .current_dir(&folder)
        .output()
        .unwrap();
    let answer: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let failures = answer.first()?["failures"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let message = |failure: &Value| failure["msg"].as_str().unwrap_or_default().to_owned();
    Some(failures.iter().map(message).collect())
}

fn theirs(expression: &str) -> String {
    match denied_by_conftest(&rule(expression), &json!({"kind": "ConfigMap"})).as_deref() {
        None => "error".to_owned(),
        Some([]) => "undefined".to_owned(),
        Some([message, ..]) => message.clone(),
    }
}

/// Returns true if two answers are the same value: `1e3` is 1000.
fn are_same(ours: &str, theirs: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok().filter(|_| text.contains(['.', 'e']));
    ours == theirs
        || match (
            number(ours).or(number(theirs)),
            ours.parse::<f64>(),
            theirs.parse::<f64>(),
        ) {
            (Some(_), Ok(ours), Ok(theirs)) => ours == theirs,
            _ => false,
        }
}

/// A row of the table.
fn row(expression: &str, theirs: &str, ours: &str) -> String {
    let shown = match ours {
        _ if are_same(ours, theirs) => "the same",
        "refused" => "refused",
        // OPA takes an error of a function as *undefined*: its rule finds nothing.
        other => other,
    };
    let cell = |text: &str| format!("``` {} ```", text.replace('|', "\\|"));
    format!("| {} | {} | {shown} |\n", cell(expression), cell(theirs))
}

/// The head of the table.
const HEAD: &str = "| expression | OPA, by conftest | here |\n|---|---|---|\n";

/// The line above the refused rows on the page.
const PAGE_HEAD: &str = "What is refused here, and what OPA gives, by conftest:\n\n```text\n";

fn table_file() -> PathBuf {
    root().join("tests/golden/conftest.md")
}

fn page_file() -> PathBuf {
    root().join("docs/reference/rego.md")
}

/// The page with the refused rows of a table, one a line.
fn page_of(page: &str, table: &str) -> String {
    let (above, _) = page.split_once(PAGE_HEAD).expect("the page has the rows");
    let refused = table
        .lines()
        .filter_map(|row| row.strip_suffix(" ``` | refused |"));
    let rows: String = refused
        .map(|row| {
            let row = row.trim_start_matches("| ``` ").replacen(" ``` | ``` ", " → ", 1);
            format!("{}\n", row.replace("\\|", "|"))
        })
        .collect();
    format!("{above}{PAGE_HEAD}{rows}```\n")
}

#[test]
fn no_expression_has_another_answer_than_conftest_s() {
    let table = fs::read_to_string(table_file()).unwrap();
    for expression in EXPRESSIONS {
        let start = format!("| ``` {} ``` | ``` ", expression.replace('|', "\\|"));
        let rest = table.lines().find_map(|line| line.strip_prefix(&start));
        let rest = rest.unwrap_or_else(|| panic!("{expression}: conftest was not asked"));
        let (said, shown) = rest.rsplit_once(" ``` | ").unwrap();
        let ours = ours(expression);
        assert!(
            are_same(&ours, said) || ours == "refused",
            "{expression}: {ours} here, {said} at conftest"
        );
        let expected = if are_same(&ours, said) {
            "the same |"
        } else {
            "refused |"
        };
        assert_eq!(shown, expected, "{expression}");
    }
    let page = fs::read_to_string(page_file()).unwrap();
    assert!(page.contains(&format!("{} expressions", EXPRESSIONS.len())));
    assert_eq!(page, page_of(&page, &table), "the page has the refused rows");
}

#[test]
#[ignore = "needs conftest: `make test-all` runs it"]
fn conftest_still_says_what_the_table_has() {
    let mut table = HEAD.to_owned();
    for expression in EXPRESSIONS {
        table += &row(expression, &theirs(expression), &ours(expression));
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(table_file(), &table).unwrap();
        let page = fs::read_to_string(page_file()).unwrap();
        fs::write(page_file(), page_of(&page, &table)).unwrap();
    }
    assert!(table == fs::read_to_string(table_file()).unwrap(), "{table}");
}
