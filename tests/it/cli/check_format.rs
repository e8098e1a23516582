//! `konverge check` and the core's formatter: what it would break is left alone, and all else is formatted.

use crate::support::{git::Repository, process::Konverge, tiny_monorepo};

/// Each is valid, and is something else once the formatter has printed it.
const BROKEN: [(&str, &str); 5] = [
    ("comment_of_if.k", "_a = True\nif _a: # why\n    _b = 1\n"),
    ("whole_float.k", "rate = 1.0\n"),
    ("text_of_float.k", "text = str(1e3)\n"),
    ("large_float.k", "large = 1e21\n"),
    ("smallest.k", "smallest = -9223372036854775808\n"),
];

/// A monorepo whose package `base/written` has these files.
fn monorepo(files: &[(&str, &str)]) -> Repository {
    let repository = tiny_monorepo::monorepo();
    tiny_monorepo::write_program(&repository, "shop/dev", "resources = []\n");
    for (file, text) in files {
        repository.write(&format!("base/written/{file}"), text);
    }
    repository.commit("Written");
    repository
}

/// What it says, to the terminal and beside it.
fn run(repository: &Repository, arguments: &[&str], code: i32) -> String {
    let run = Konverge::new(["check", "--all"]).arg_all(arguments.iter().copied());
    let outcome = run.dir(repository.path()).with_kcl().run().expect(code);
    outcome.stdout + &outcome.stderr
}

#[test]
fn what_the_formatter_would_break_is_left_alone_and_is_no_finding() {
    let repository = monorepo(&BROKEN);
    for arguments in [[].as_slice(), &["--fix"], &["--fix"]] {
        let said = run(&repository, arguments, 0);
        assert!(
            !said.contains("[format]") && !said.contains(" is formatted"),
            "{said}"
        );
        assert!(
            said.contains(
                "left as written, because the KCL formatter would change the meaning of the file: "
            ) && said.contains("left as written, because the output of the KCL formatter is not valid KCL: "),
            "{said}"
        );
        for (file, text) in BROKEN {
            assert_eq!(repository.read(&format!("base/written/{file}")), text, "{file}");
        }
    }
}

#[test]
fn a_file_with_relative_imports_is_formatted_and_formatted_once() {
    let text = "import  .other as o\nimport ...base.written.other as again # twice\nimport math\n\na   = o.b+math.pow(2,2)\nc = again.b\n";
    let repository = monorepo(&[("a.k", text), ("other.k", "b = 1\n")]);
    let said = run(&repository, &[], 1);
    assert!(said.contains("error[format] base/written/a.k"), "{said}");
    let said = run(&repository, &["--fix"], 0);
    assert!(said.contains("base/written/a.k is formatted"), "{said}");
    assert_eq!(
        repository.read("base/written/a.k"),
        "import .other as o\nimport ...base.written.other as again\n# twice\nimport math\n\na = o.b + math.pow(2, 2)\nc = again.b\n"
    );
    let said = run(&repository, &["--fix"], 0);
    assert!(!said.contains(" is formatted"), "{said}");
}
