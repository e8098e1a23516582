//! What commands say where there is nothing yet, and of one of something.

use crate::support::{
    git::Repository,
    konfigs,
    process::{Konverge, Outcome},
};

fn konverge(repository: &Repository, arguments: &[&str]) -> Outcome {
    Konverge::new(arguments)
        .dir(repository.path())
        .with_kcl()
        .env("XDG_STATE_HOME", repository.path().join(".git/test-state"))
        .run()
}

#[test]
fn without_a_stack_every_command_says_what_a_stack_is() {
    let repository = Repository::init();
    repository
        .write("kcl.mod", "[package]\nname = \"new\"\n")
        .commit("A module");
    for arguments in [
        &["affected", "--all"][..],
        &["build", "--all"],
        &["check", "--all"],
        &["preview", "--all"],
        &["apply", "--all", "--yes"],
        &["status"],
        &["drift"],
        &["graph"],
    ] {
        let said = konverge(&repository, arguments).expect(0).stderr;
        assert_eq!(
            said.matches("this repository has no stack").count(),
            1,
            "{arguments:?}: {said}"
        );
        assert!(
            said.contains("`stack.yaml`") && said.contains("`git add`"),
            "{arguments:?}: {said}"
        );
        assert!(!said.contains("use --all"), "{arguments:?}: {said}");
    }
    let doctor = konverge(&repository, &["doctor"]).expect(0).stdout;
    assert!(
        doctor.contains("unused   repository: it has no stack\n           a stack is a folder"),
        "{doctor}"
    );
    // Where they are only left out, that is said.
    repository
        .write("demo/project.yaml", "name: demo\n")
        .write("demo/dev/stack.yaml", "name: dev\n")
        .write("konverge.yaml", "exclude: [demo]\n")
        .commit("Left out");
    let said = konverge(&repository, &["build", "--all"]).expect(0).stderr;
    assert!(said.contains("is left out, such as `demo/dev`"), "{said}");
}

#[test]
fn one_of_something_is_not_many() {
    let repository = konfigs::one_stack();
    let all = |arguments: &[&str]| {
        let outcome = konverge(&repository, arguments);
        outcome.stdout + &outcome.stderr
    };
    assert!(all(&["check", "--all"]).contains("1 stack checked: 0 errors, 0 warnings"));
    assert!(all(&["doctor"]).contains("repository: 1 stack in "));
    assert!(all(&["affected", "--shards", "x"]).contains("it must be a whole number from 1 to 256"));
    assert!(all(&["build", "--shard", "2/2", "--all"]).contains("this shard has no stack"));
}

#[test]
fn status_names_a_person_a_machine_and_a_time_that_people_read() {
    let repository = konfigs::one_stack();
    repository
        .write("shop/dev/main.k", "resources = []\n")
        .commit("Nothing yet");
    // A service or a container sets none of these.
    let quiet = |arguments: &[&str]| {
        let run = Konverge::new(arguments)
            .dir(repository.path())
            .with_kcl()
            .env("XDG_STATE_HOME", repository.path().join(".git/test-state"));
        ["USER", "LOGNAME", "HOSTNAME"]
            .into_iter()
            .fold(run, |run, name| run.env(name, ""))
            .run()
            .expect(0)
            .stdout
    };
    quiet(&["apply", "--all", "--yes"]);
    let said = quiet(&["status", "shop/dev"]);
    let state = said
        .lines()
        .find(|line| line.contains("apply by "))
        .unwrap_or_else(|| panic!("{said}"));
    assert!(state.contains("apply by ") && state.contains(" on "), "{state}");
    assert!(
        !state.contains("unknown") && !state.contains("process"),
        "{state}"
    );
    let time = state.split(" at ").last().unwrap();
    assert!(time.ends_with(" UTC") && !time.contains('.'), "{state}");
}
