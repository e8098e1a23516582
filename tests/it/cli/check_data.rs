//! `checks.data`: data files against KCL schemas, by the core's own validation.

use crate::support::{git::Repository, process::Konverge, tiny_monorepo};

const RULES: &str = "checks:\n  data:\n  - files: appops/*/values/*\n    schema: base/values:Values\n";

/// A monorepo with one stack, the package `base/values` and these data files of its project.
fn monorepo(files: &[(&str, &str)]) -> Repository {
    let repository = tiny_monorepo::monorepo();
    tiny_monorepo::write_stack(&repository, "shop/dev", "shop", "info");
    repository
        .write("konverge.yaml", RULES)
        .write(
            "base/values/values.k",
            "import regex\nimport base.limits\n\nschema Values:\n    name: str\n    ports: [Port]\n    share?: float\n    open?: bool\n    check:\n        regex.match(name, \"^[a-z]+$\"), \"a name is in lower case\"\n        len(ports) <= limits.most, \"too many ports\"\n",
        )
        .write(
            "base/values/port.k",
            "schema Port:\n    number: int\n    check:\n        0 < number < 65536, \"no such port\"\n",
        )
        .write("base/limits/limits.k", "most = 2\n");
    for (file, text) in files {
        repository.write(&format!("appops/shop/values/{file}"), text);
    }
    repository.commit("Values");
    repository
}

/// What is found in data, as `file:line message`, without the paths of the project.
fn found(repository: &Repository, arguments: &[&str], code: i32) -> Vec<String> {
    let run = Konverge::new(["check", "--output=json", "--skip=format"]).arg_all(arguments);
    let outcome = run.dir(repository.path()).with_kcl().run().expect(code);
    let document = outcome.json();
    let remarks = document["remarks"].as_array().unwrap().iter();
    let data = remarks.filter(|remark| remark["rule"] == "data");
    data.map(|remark| {
        let file = remark["file"]
            .as_str()
            .unwrap()
            .replace("appops/shop/values/", "");
        let line = remark["line"]
            .as_u64()
            .map(|line| format!(":{line}"))
            .unwrap_or_default();
        let message = remark["message"].as_str().unwrap();
        format!("{file}{line} {message}")
    })
    .collect()
}

const GOOD: &str = "name: web\nports:\n- number: 80\nshare: 1.0\nopen: true\n";

#[test]
fn each_fault_is_found_at_its_line_of_the_data() {
    let files = [
        ("a-good.yaml", GOOD),
        (
            "a-good.json",
            "{\"name\": \"web\", \"ports\": [], \"share\": 1.50}\n",
        ),
        (
            "a-merged.yaml",
            "name: web\nports:\n- &one {number: 80}\n- {<<: *one, number: 81}\n",
        ),
        ("a-none.yaml", "[]\n"),
        ("b-check.yaml", "# of the web\nname: Web\nports: []\n"),
        (
            "c-type.json",
            "{\n  \"name\": \"web\",\n  \"ports\": [\n    {\"number\": \"80\"}\n  ]\n}\n",
        ),
        (
            "c-types.yaml",
            "name: web\nports:\n- number: one\n- number: 2\n- number: three\nopen: 1\n",
        ),
        ("d-key.yaml", "name: web\nports: []\nport: 1\n"),
        (
            "e-second.yaml",
            "name: web\nports: []\n---\n# the second\nname: web\nports: [{number: 1},\n  {number: 80000}]\n",
        ),
        ("f-missing.yml", "\n\nname: web\n"),
        ("g-twice.yaml", "name: web\nname: web\nports: []\n"),
        (
            "h-list.yaml",
            "- {name: web, ports: []}\n- name: Web\n  ports: []\n",
        ),
        ("i-scalar.yaml", "- {name: web, ports: []}\n- 7\n"),
        ("j-syntax.json", "{\"name\": \"web\",\n ports: []}\n"),
        ("k-empty.yaml", "# nothing yet\n"),
        (
            "l-large.yaml",
            "name: web\nports: [{number: 18446744073709551615}]\n",
        ),
        ("m.txt", "name: web\n"),
        (
            "n-import.yaml",
            "name: web\nports: [{number: 1}, {number: 2}, {number: 3}]\n",
        ),
        // Scalars and keys are what the core's own reader takes them for.
        ("p-words.yaml", "name: web\nports: [{number: 0755}]\nopen: yes\n"),
        ("q-key.yaml", "name: web\nports: []\n200: ok\n"),
    ];
    let repository = monorepo(&files);
    std::os::unix::fs::symlink(
        "a-good.yaml",
        repository.path().join("appops/shop/values/o-link.yaml"),
    )
    .unwrap();
    let found = found(&repository, &["--all"], 1);
    let expected = [
        ("b-check.yaml:2", "a name is in lower case"),
        ("c-type.json:4", "expected int, got str(80)"),
        ("c-types.yaml:3", "expected int, got str(one)"),
        ("c-types.yaml:5", "expected int, got str(three)"),
        ("c-types.yaml:6", "expected bool, got int(1)"),
        ("d-key.yaml:3", "Cannot add member 'port' to schema 'Values'"),
        ("e-second.yaml:5", "no such port"),
        ("f-missing.yml:3", "attribute 'ports' of Values is required"),
        ("g-twice.yaml:2", "duplicate"),
        ("h-list.yaml:2", "a name is in lower case"),
        ("i-scalar.yaml:2", "is not a mapping"),
        ("j-syntax.json:2", "is not JSON"),
        ("k-empty.yaml", "has no mapping"),
        ("l-large.yaml:1", "a whole number beyond 64 bits"),
        ("m.txt", "is neither `.yaml`"),
        ("n-import.yaml:1", "too many ports"),
        ("o-link.yaml", "is a link"),
        ("p-words.yaml:3", "expected bool, got str(yes)"),
        ("q-key.yaml:3", "a key must be a text for KCL"),
    ];
    for (place, message) in expected {
        let is_it = |found: &String| found.starts_with(&format!("{place} ")) && found.contains(message);
        assert!(found.iter().any(is_it), "{place} {message}: {found:#?}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    // A value of the data has no line of the JSON in its finding.
    assert!(!found.iter().any(|found| found.contains('{')), "{found:#?}");
}

#[test]
fn a_rule_that_leads_nowhere_is_found_at_its_line() {
    let repository = monorepo(&[("good.yaml", GOOD)]);
    let rules =
        |rules: &str| repository.write("konverge.yaml", format!("version: 1\nchecks:\n  data:\n{rules}"));
    let values = "appops/shop/values/*.yaml";
    for (rule, expected) in [
        (
            "  - files: appops/*/nothing/*\n    schema: base/values:Values\n",
            "konverge.yaml:4 no file matches `appops/*/nothing/*`",
        ),
        (
            &format!("  - files: {values}\n    schema: base/nothing:Values\n"),
            "konverge.yaml:5 `base/nothing:Values`: there is no such folder",
        ),
        (
            &format!("  - files: {values}\n    schema: base/values/nothing.k:Values\n"),
            "konverge.yaml:5 `base/values/nothing.k:Values`: there is no such folder",
        ),
        (
            &format!("  - files: {values}\n    schema: base/values:Nothing\n"),
            "base/values there is no schema `Nothing` in `base/values`",
        ),
        (
            &format!("  - files: {values}\n    schema: appops/shop/values:Values\n"),
            "appops/shop/values has no KCL file",
        ),
        // A file is read alone, so it lacks what its package has.
        (
            &format!("  - files: {values}\n    schema: base/values/values.k:Values\n"),
            "base/values/values.k:6 CompileError: name 'Port' is not defined",
        ),
    ] {
        rules(rule);
        let found = found(&repository, &["--all"], 1);
        assert!(
            found.iter().any(|found| found.starts_with(expected)),
            "{expected}: {found:#?}"
        );
    }
    rules(&format!(
        "  - files: {values}\n    schema: base/values/port.k:Port\n"
    ));
    assert!(found(&repository, &["--all"], 1)[0].starts_with("good.yaml:1 "));
    repository.write("appops/shop/values/good.yaml", "number: 1\n");
    assert_eq!(found(&repository, &["--all"], 0), [] as [&str; 0]);
    for (rule, said) in [
        ("  - {files: 'a[', schema: 'base:A'}\n", "is not a glob"),
        ("  - {files: a, schema: base}\n", "write `PATH:NAME`"),
        ("  - {files: a, schema: '../base:A'}\n", "write `PATH:NAME`"),
        ("  - {files: a, schema: 'base:A.B'}\n", "write `PATH:NAME`"),
    ] {
        rules(rule);
        let outcome = Konverge::new(["check", "--all"])
            .dir(repository.path())
            .with_kcl()
            .run();
        assert!(outcome.stderr.contains(said), "{rule}: {}", outcome.stderr);
        assert_ne!(outcome.code, Some(0));
    }
}

#[test]
fn a_change_is_checked_in_its_data_and_by_what_the_schema_reads() {
    let bad = GOOD.replace("web", "Web");
    let repository = monorepo(&[("old.yaml", &bad), ("new.yaml", GOOD)]);
    let files = |found: Vec<String>| -> Vec<String> {
        found
            .iter()
            .map(|found| found.split(' ').next().unwrap().to_owned())
            .collect()
    };
    // Nobody edited what is wrong.
    assert_eq!(files(found(&repository, &[], 0)), [] as [&str; 0]);
    repository.write("appops/shop/values/new.yaml", &bad);
    assert_eq!(files(found(&repository, &[], 1)), ["new.yaml:1"]);
    repository.write("appops/shop/values/new.yaml", GOOD);
    // The schema, what it imports, and the rule itself.
    for (file, from, to) in [
        ("base/values/port.k", "65536", "65535"),
        ("base/limits/limits.k", "most = 2", "most = 3"),
        ("konverge.yaml", "values/*\n", "values/*.yaml\n"),
    ] {
        repository.replace(file, from, to);
        assert_eq!(files(found(&repository, &[], 1)), ["old.yaml:1"], "{file}");
        repository.replace(file, to, from);
        assert_eq!(files(found(&repository, &[], 0)), [] as [&str; 0], "{file}");
    }
    // A comment of the configuration is no edit of the rule.
    repository.write("konverge.yaml", format!("# new\n{RULES}"));
    assert_eq!(files(found(&repository, &[], 0)), [] as [&str; 0]);
    // Those of the stacks that are named: of their projects.
    tiny_monorepo::write_stack(&repository, "other/dev", "other", "info");
    repository
        .write("appops/other/values/bad.yaml", &bad)
        .commit("Another project");
    assert_eq!(files(found(&repository, &["appops/shop/dev"], 1)), ["old.yaml:1"]);
    assert_eq!(
        files(found(&repository, &["--all"], 1)),
        ["appops/other/values/bad.yaml:1", "old.yaml:1"]
    );
    assert_eq!(
        files(found(&repository, &["--all", "--skip=data"], 0)),
        [] as [&str; 0]
    );
}
