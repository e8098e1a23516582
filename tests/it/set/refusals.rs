//! What is refused leaves every file as it was, and says where the edit would have been.

use std::fs;

use konverge_base::model::RepoPath;
use konverge_run::code_change::EditedFile;

use super::set;
use crate::support::git::Repository;

const DEV: &str = "appops/storefront/dev/main.k";

/// Refuses an edit, and checks that nothing was written.
fn refuse(repository: &Repository, arguments: &[&str], code: i32, words: &[&str]) {
    let before = repository.git(["status", "--porcelain"]);
    let said = set(repository, arguments).expect(code).stderr;
    for word in words {
        assert!(said.contains(word), "{arguments:?}: {word} is missing:\n{said}");
    }
    assert_eq!(repository.git(["status", "--porcelain"]), before, "{arguments:?}");
}

#[test]
fn wrong_words_say_what_to_type() {
    let repository = Repository::konfig_example();
    for (arguments, words) in [
        (&[][..], "no stack is named"),
        (&["storefront/dev"], "nothing is set"),
        (&["server.image=\"a\""], "no stack is named"),
        (&["nowhere/dev", "server.image=\"a\""], "no stack `nowhere/dev`"),
        (&["storefront/dev", "server..image=\"a\""], "is not a path"),
        (&["storefront/dev", "server.ports[0]=1"], "item of a list"),
        (
            &["storefront/dev", "server.image=nginx:1.27"],
            "not a literal of KCL",
        ),
        (
            &["storefront/dev", "server.image=\"a\"\nother = 1"],
            "not a literal of KCL",
        ),
        (
            &["storefront/dev", "server.image=\"a\" # c"],
            "not a literal of KCL",
        ),
        (
            &["storefront/dev", "server.image=\"a${ctx.env}\""],
            "not a literal of KCL",
        ),
        (&["storefront/dev", "server.replicas=1 +"], "not a literal of KCL"),
        (&["storefront/dev", "--image", "x"], "is not NAME=REF"),
        (
            &["storefront/dev", "--image", "x=a b"],
            "not a reference of an image",
        ),
        (&["--from", "none.yaml"], "the edits cannot be read"),
    ] {
        refuse(&repository, arguments, 64, &[words, "hint"]);
    }
}

#[test]
fn a_place_that_is_not_one_literal_is_named_with_its_line() {
    let repository = Repository::konfig_example();
    let program = "import base.pkg.frontend\n\nif True:\n    other = 1\nserver: frontend.Server {\n    image = \"ghcr.io/example/storefront:2.4.0-rc.1\"\n    env.MODE = \"a\" + \"b\"\n    if True:\n        env.LEVEL = \"x\"\n    resources = {\n        cpu = \"1\"\n    }\n    env.TWICE = \"1\"\n}\nserver: frontend.Server {\n    env.TWICE = \"2\"\n}\n";
    repository.write(DEV, program);
    repository.commit("Many forms");
    for (edit, place, words) in [
        ("server.env.MODE=\"c\"", ":7", "is computed"),
        ("server.env.LEVEL=\"c\"", ":9", "under a condition"),
        ("other=2", ":4", "under a condition"),
        ("server.env.TWICE=\"c\"", ":13", "set in 2 places"),
        ("server.env={A = \"b\"}", ":7", "set in parts"),
        ("server={}", ":5", "set in 2 places"),
        (
            "server.env.NOWHERE=\"c\"",
            ":15",
            "no file of storefront/dev sets",
        ),
        ("server.imag=\"c\"", ":15", "did you mean `server.image`"),
    ] {
        let code = if words.contains("no file") || words.contains("did you") {
            64
        } else {
            1
        };
        refuse(
            &repository,
            &["storefront/dev", edit],
            code,
            &[words, &format!("{DEV}{place}"), "nothing was written"],
        );
    }
}

#[test]
fn files_that_cannot_be_edited_stay() {
    let repository = Repository::konfig_example();
    let image = ["storefront/dev", "server.image=\"a:1\""];
    let main = repository.path().join(DEV);
    let text = repository.read(DEV);
    // Errors of syntax.
    repository.write(DEV, text.replace("image = ", "image = = "));
    refuse(&repository, &image, 1, &[&format!("{DEV}:8")]);
    // A link in the place of the file.
    repository.write("elsewhere.k", &text);
    fs::remove_file(&main).unwrap();
    std::os::unix::fs::symlink("../../../elsewhere.k", &main).unwrap();
    refuse(&repository, &image, 1, &[DEV]);
    assert_eq!(repository.read("elsewhere.k"), text);
    fs::remove_file(&main).unwrap();
    repository.write(DEV, &text);
    // An edit that the schema refuses, and a type that it does not have.
    refuse(
        &repository,
        &["storefront/dev", "server.image=3"],
        1,
        &["storefront/dev"],
    );
}

/// Of two files none is written if one is not what was edited any more.
#[test]
fn all_files_are_written_or_none() {
    let repository = Repository::konfig_example();
    let run = super::context(&repository);
    let file = |path: &str, before: &[u8]| EditedFile {
        path: RepoPath::normalize(path).unwrap(),
        before: before.into(),
        after: (*b"after").into(),
    };
    let known = repository.read(DEV);
    let files = [
        file(DEV, known.as_bytes()),
        file("appops/storefront/prod/main.k", b"somebody edited it meanwhile"),
    ];
    let refused = konverge::ops::set::write(&run, repository.path(), &files).unwrap_err();
    assert!(refused.message.contains("changed on the disk"), "{refused}");
    assert_eq!(repository.git(["status", "--porcelain"]), "");
    konverge::ops::set::write(&run, repository.path(), &files[..1]).unwrap();
    assert_eq!(repository.read(DEV), "after");
}
