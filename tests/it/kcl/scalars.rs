//! Scalars without quotes: each of our readers against the tool that owns its format. That is the KCL core for the
//! options of settings files and for the data of `checks.data`, Kusion's library for names and workspaces, and
//! kubectl's for the rest.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use konverge_base::{
    model::{RepoPath, StackId},
    yaml::{self, ScalarRules, Written},
};
use konverge_repo::{
    git,
    konfig::{Layout, Settings, SettingsOrder},
};
use serde_json::{Value, json};

use crate::support::{self, git::Repository, process::Konverge};

/// The scalars, one a word; those with blanks are in [`LONGER`].
const SCALARS: &str = "no No NO n N off yes y on true True TRUE tRue false False ~ null Null NULL nUll 1.10 1.0 1e3 1E3 \
    .5 5. 1. +1 -1 -0 +0 0 00 000 -00 0.0 0e0 1e-3 1.5e+3 012e3 00.5 +.5 -.5 0755 -0755 +0755 08 09 0o17 0x1F 0x1f 0X1F \
    0b101 0b2 0o8 0x 0o 0b 1_000 1_ 1__0 0xff_ff 0o7_7 0b1_0 1e5_ +0x1F -0x1F -0o17 --1 +-1 0x-1 0o+7 1e 1e+ e3 \
    12:30:45 190:20:30 1:2 2024-01-01 2024-01-01T00:00:00Z .inf -.inf +.inf .Inf .INF .nan .NaN inf -inf nan Infinity \
    123456789012345678901234567890 9223372036854775807 9223372036854775808 -9223372036854775808 \
    -9223372036854775809 18446744073709551615 18446744073709551616 1e400 1e21 1e16 0.1 100000000000000000000.0 \
    = << a + . [] {} 'no' \"1\" [no,08,0o17,1e3]";

const LONGER: [&str; 9] = [
    "",
    "1 2",
    "!!str 12",
    "!!str",
    "!!float 1",
    "!!int \"12\"",
    "&a no",
    "{no: yes, b: on}",
    "no # a comment",
];

fn scalars() -> Vec<&'static str> {
    SCALARS.split_whitespace().chain(LONGER).collect()
}

/// One JSON line for each scalar.
fn ask(command: &mut Command) -> Vec<Value> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ask = child.stdin.take().unwrap();
    let questions: String = scalars()
        .iter()
        .map(|scalar| json!(scalar).to_string() + "\n")
        .collect();
    let writer = std::thread::spawn(move || ask.write_all(questions.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> = answers
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), scalars().len());
    answers
}

/// What the core's reader of settings and its validator make of a scalar: the value, or null for none of both.
const CORE: &str = r##"
import json, os, re, sys, tempfile
import kcl_lib.api as api
core = api.API()
place = os.path.join(tempfile.mkdtemp(), "kcl.yaml")
schema = """import json
_text = lambda v: any {
    json.encode({v = v})
}
schema X:
    v?: any
    check:
        False, "<<${_text(v)}>>"
"""
def setting(scalar):
    with open(place, "w") as file:
        file.write("kcl_options:\n  - key: v\n    value: %s\n" % scalar)
    read = core.load_settings_files(api.LoadSettingsFilesArgs(work_dir=os.path.dirname(place), files=[place]))
    return {"value": json.loads(read.kcl_options[0].value)}
def data(scalar):
    args = api.ValidateCodeArgs(code=schema, data="v: %s\n" % scalar, format="yaml", schema="X")
    told = re.search("condition: <<(.*)>>", core.validate_code(args).err_message, re.S)
    return told and {"value": json.loads(told.group(1))["v"]}
def attempt(read, scalar):
    try:
        return read(scalar)
    except Exception:
        return None
for line in sys.stdin:
    scalar = json.loads(line)
    print(json.dumps({"setting": attempt(setting, scalar), "data": attempt(data, scalar)}))
"##;

/// Numbers are equal by value: `1.0` of Go is `1`.
fn is_same(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, value)| b.get(key).is_some_and(|other| is_same(value, other)))
        }
        _ => ours == theirs,
    }
}

/// The scalars of which one side has another value, or a value where the other one has none.
fn differing(theirs: &[Option<Value>], ours: impl Fn(&str) -> Option<Value>) -> Vec<&'static str> {
    let differs = |scalar: &str, theirs: &Option<Value>| match (ours(scalar), theirs) {
        (Some(ours), Some(theirs)) => !is_same(&ours, theirs),
        (None, None) => false,
        _ => true,
    };
    let all = scalars().into_iter().zip(theirs);
    all.filter(|(scalar, theirs)| differs(scalar, theirs))
        .map(|(scalar, _)| scalar)
        .collect()
}

fn values(answers: &[Value], key: &str) -> Vec<Option<Value>> {
    answers
        .iter()
        .map(|answer| answer[key].get("value").cloned())
        .collect()
}

#[test]
fn options_and_data_are_what_the_core_reads() {
    let answers = ask(Command::new(support::kcl::interpreter()).arg("-c").arg(CORE));
    let setting = |scalar: &str| {
        let text = format!("kcl_options:\n  - key: v\n    value: {scalar}\n");
        let settings = Settings::parse(text.as_bytes()).ok()?;
        Some(settings.options[0].1.clone())
    };
    assert_eq!(differing(&values(&answers, "setting"), setting), [""; 0]);

    let data = |scalar: &str| {
        let documents = yaml::json_documents(&format!("v: {scalar}\n"), ScalarRules::KclData).ok()?;
        let document: Value = serde_json::from_str(&documents[0].json).unwrap();
        Some(document["v"].clone())
    };
    let theirs = values(&answers, "data");
    // The core's validator gives up on these numbers ("Failed to Load YAML"), whatever they are for: they are meant.
    let given_up = "1.10 1.0 1e3 1E3 .5 5. 1. 0.0 0e0 1e-3 1.5e+3 012e3 00.5 +.5 -.5 1e21 1e16 100000000000000000000.0 \
        123456789012345678901234567890 9223372036854775808 -9223372036854775809 18446744073709551615 \
        18446744073709551616 [no,08,0o17,1e3]";
    let given_up: Vec<_> = given_up.split_whitespace().collect();
    for (scalar, theirs) in scalars().into_iter().zip(&theirs) {
        assert!(!given_up.contains(&scalar) || theirs.is_none(), "{scalar}");
    }
    // What is left: words that it takes for numbers by accident.
    let left: Vec<_> = differing(&theirs, data)
        .into_iter()
        .filter(|scalar| !given_up.contains(scalar))
        .collect();
    assert_eq!(
        left,
        [
            "+-1",
            "0x-1",
            "0o+7",
            "inf",
            "-inf",
            "nan",
            "Infinity",
            "!!int \"12\""
        ]
    );
}

#[test]
fn names_and_workspaces_are_what_kusion_reads_and_the_rest_what_kubectl_reads() {
    let readers = support::installed("yaml-readers", support::cache().join("bin/yaml-readers"));
    let answers = ask(&mut Command::new(readers));
    let column = |key: &str| -> Vec<Option<Value>> {
        answers
            .iter()
            .map(|answer| Some(answer[key].clone()).filter(|value| !value.is_null()))
            .collect()
    };
    // Nothing and a refusal are not told apart here.
    let some = |value: Value| Some(value).filter(|value| !value.is_null());

    let files = Repository::init();
    files.write("p/project.yaml", "name: p\n");
    for (number, scalar) in scalars().into_iter().enumerate() {
        files
            .write(&format!("p/s{number}/stack.yaml"), format!("name: {scalar}\n"))
            .write(
                &format!("p/s{number}/kcl.yaml"),
                "kcl_cli_configs: {files: [main.k]}\n",
            )
            .write(&format!("p/s{number}/main.k"), "");
    }
    files.commit("Names");
    let repository = git::Repository::discover(files.path()).unwrap();
    let layout = Layout::read(&repository.worktree().unwrap(), SettingsOrder::default()).unwrap();
    let name = |scalar: &str| {
        let number = scalars().iter().position(|other| *other == scalar).unwrap();
        let folder = RepoPath::normalize(&format!("p/s{number}")).unwrap();
        let stack = layout.stack_in_folder(&folder).unwrap();
        let text = stack.names.as_str().strip_prefix("p/").unwrap_or_default();
        stack.compile.is_ok().then(|| json!(text))
    };
    let theirs = column("name");
    // Kusion takes a stack without a name, and one with any name.
    let is_name = |name: &Value| {
        name.as_str()
            .is_some_and(|name| StackId::new(None, "p", name).is_ok())
    };
    let theirs: Vec<_> = theirs.into_iter().map(|name| name.filter(is_name)).collect();
    assert_eq!(differing(&theirs, name), [""; 0]);

    let workspace = |scalar: &str| {
        let text = format!("v: {scalar}\n");
        let written: std::collections::BTreeMap<String, Written> = yaml::from_written_str(&text).ok()?;
        let value = written.into_values().next()?;
        some(value.read(&text, ScalarRules::Kusion).ok()?)
    };
    // Underlines in odd places, and a date, which Kusion writes out with a time.
    assert_eq!(
        differing(&column("kusion"), workspace),
        ["1_", "1__0", "1e5_", "0o+7", "2024-01-01"]
    );

    let kubectl = |scalar: &str| {
        let read: Value = yaml::from_str(&format!("v: {scalar}\n")).ok()?;
        some(read["v"].clone())
    };
    // The library that reads these ignores the case of words, and keeps keys as they are written.
    assert_eq!(
        differing(&column("kubectl"), kubectl),
        ["tRue", "nUll", "1_", "1__0", "1e5_", "1e400", "{no: yes, b: on}"]
    );
}

/// A program prints the type and the text of each option.
#[test]
fn a_stack_is_compiled_with_the_options_that_the_core_reads() {
    let repository = Repository::init();
    repository
        .write("kcl.mod", "[package]\nname = \"konfig\"\n")
        .write("p/project.yaml", "name: 1.10\n")
        .write("p/s/stack.yaml", "name: no\n")
        .write(
            "p/s/kcl.yaml",
            "kcl_cli_configs: {files: [main.k]}\nkcl_options:\n- {key: a, value: no}\n- {key: b, value: 1.10}\n- {key: c, value: 0755}\n\
             - {key: d, value: [on, 08, 0o17]}\n- {key: e, value: {no: yes}}\n- {key: f, value: ~}\n",
        )
        .write(
            "p/s/main.k",
            "apiVersion = \"v1\"\nkind = \"ConfigMap\"\nmetadata = {name = \"x\"}\n\
             data = {k = \"${typeof(option(k))} ${str(option(k))}\" for k in [\"a\", \"b\", \"c\", \"d\", \"e\", \"f\"]}\n",
        )
        .commit("Options");
    let built = Konverge::new(["build", "1.10/no", "--output", "json"])
        .dir(repository.path())
        .with_kcl()
        .run()
        .expect(0)
        .json();
    assert_eq!(
        built["resources"][0]["attributes"]["data"],
        json!({"a": "str no", "b": "float 1.1", "c": "str 0755", "d": "list [on, 08, 15]", "e": "dict {'no': 'yes'}",
            "f": "None None"})
    );
}
