//! `konverge check` of a change looks at what the change touches, and says once what is wrong with many stacks.

use crate::support::{git::Repository, konfigs, process::Konverge};

const MAIN: &str = "appops/guestbook/dev/main.k";
const SERVER: &str = "base/pkg/kusion_models/kube/frontend/server.k";

fn konverge(repository: &Repository, arguments: &[&str], code: i32) -> String {
    let outcome = Konverge::new(arguments)
        .dir(repository.path())
        .with_kcl()
        .run()
        .expect(code);
    outcome.stdout + &outcome.stderr
}

#[test]
fn only_edited_files_have_to_be_formatted_and_fix_formats_them() {
    let repository = konfigs::konfig_2023();
    let server = repository.read(SERVER).replace("name: str", "name:   str");
    repository
        .write(SERVER, &server)
        .commit("Nobody formats the models");
    repository.replace(MAIN, "replicas = 3", "replicas = 4");
    let said = konverge(&repository, &["check"], 0);
    assert!(said.contains("1 stack checked: 0 errors"), "{said}");
    konverge(&repository, &["check", "appops/guestbook/dev"], 0);
    let all = konverge(&repository, &["check", "--all"], 1);
    assert!(
        all.contains(&format!(
            "error[format] {SERVER}\n    is not formatted\n    hint: `konverge check --fix`"
        )),
        "{all}"
    );

    repository.replace(MAIN, "replicas = 4", "replicas  =  4");
    assert!(konverge(&repository, &["check"], 1).contains(&format!("error[format] {MAIN}")));
    let said = konverge(&repository, &["check", "--fix"], 0);
    assert!(said.contains(&format!("{MAIN} is formatted")), "{said}");
    assert!(repository.read(MAIN).contains("replicas = 4"));
    assert_eq!(repository.read(SERVER), server, "nobody edited it");
    konverge(&repository, &["check", "--fix", "--all"], 0);
    assert!(repository.read(SERVER).contains("name: str"));
}

#[test]
fn tests_are_run_that_read_what_the_change_touches() {
    let repository = konfigs::konfig_2023();
    repository
        .write("base/pkg/words/words.k", "word = \"one\"\n")
        .write(
            "base/pkg/tests/words_test.k",
            "import base.pkg.words\n\ntest_word = lambda {\n    assert words.word == \"one\", \"it is ${words.word}\"\n}\n",
        )
        .write(
            "base/pkg/other/other_test.k",
            "test_other = lambda {\n    assert False, \"it has failed for years\"\n}\n",
        )
        .commit("Tests");
    repository.replace(MAIN, "replicas = 3", "replicas = 4");
    konverge(&repository, &["check"], 0);
    repository.write("base/pkg/words/words.k", "word = \"two\"\n");
    let said = konverge(&repository, &["check"], 1);
    assert!(
        said.contains("error[test] base/pkg/tests/words_test.k:4"),
        "{said}"
    );
    assert!(!said.contains("for years"), "{said}");
    assert!(konverge(&repository, &["check", "--all"], 1).contains("for years"));
}

#[test]
fn test_schemas_of_the_old_runner_are_run_or_said_to_be_left_out() {
    let repository = konfigs::konfig_2023();
    let fails = |name: &str| format!("schema Test{name}:\n    assert 1 == 2, \"{name} fails\"\n");
    repository
        .write(
            "base/pkg/a/a_test.k",
            format!("schema TestHolds:\n    assert 1 == 1\n\n{}", fails("One")),
        )
        .write(
            "base/pkg/b/b_test.k",
            format!("import testing\n\n{}", fails("Two")),
        )
        .write("base/pkg/c/c_test.k", fails("Three"))
        .write("base/pkg/c/c.k", "# kcl-test: ignore\nc = 1\n")
        .commit("Tests");
    let said = konverge(&repository, &["check", "--all"], 1);
    assert!(said.contains("error[test] base/pkg/a/a_test.k:5"), "{said}");
    assert!(said.contains("TestOne: ") && said.contains("One fails"), "{said}");
    assert!(
        !said.contains("TestHolds") && !said.contains("TestThree"),
        "{said}"
    );
    assert!(
        said.contains("warning[test] base/pkg/b/b_test.k\n    TestTwo is not run: `import testing`"),
        "{said}"
    );
}

#[test]
fn what_is_wrong_with_many_stacks_is_said_once() {
    let repository = konfigs::konfig_2023();
    repository.replace(SERVER, "replicas: int = 1", "replicas: int = \"one\"");
    let once = "expected int, got str(one)";
    let check = konverge(&repository, &["check"], 1);
    assert_eq!(check.matches(once).count(), 1, "{check}");
    assert!(check.contains("    in 28 stacks: "), "{check}");
    assert!(
        check.contains("28 stacks checked: 1 error, 0 warnings"),
        "{check}"
    );
    for arguments in [
        &["build"][..],
        &["preview", "--live", "never"],
        &["preview", "--live", "never", "--output", "markdown"],
        &["preview", "--live", "never", "--output", "html"],
        &["affected", "--worktree", "--exact"],
    ] {
        let code = i32::from(arguments[0] != "affected");
        let said = konverge(&repository, arguments, code);
        assert_eq!(said.matches(once).count(), 1, "{arguments:?}: {said}");
        assert!(said.contains("and 18 more"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_project_without_what_most_projects_have_is_told() {
    let repository = konfigs::one_stack();
    let project = |name: &str, text: &str| {
        repository
            .write(&format!("{name}/project.yaml"), format!("name: {name}\n{text}"))
            .write(&format!("{name}/dev/stack.yaml"), "name: dev\n")
            .write(&format!("{name}/dev/main.k"), konfigs::config_map(name));
    };
    project("cart", "tenant: web\n");
    project("mail", "tenant: web\n");
    repository.write("cart/OWNERS", "- ann\n").commit("Projects");
    let said = konverge(&repository, &["check", "--all"], 0);
    assert!(
        said.contains("warning[structure] shop/project.yaml\n    has no `tenant`; 2 of 3 projects have one"),
        "{said}"
    );
    assert!(!said.contains("OWNERS"), "one of three is no convention: {said}");
    repository.write("mail/OWNERS", "- bob\n").commit("Owners");
    let said = konverge(&repository, &["check", "--all"], 0);
    assert!(
        said.contains("warning[structure] shop/OWNERS\n    does not exist; 2 of 3 projects have one"),
        "{said}"
    );
}
