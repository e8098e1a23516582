//! What is refused leaves every file as it was, and says where the edit would have been.

use std::{fs, path::Path};

use super::set;
use crate::support::{
    git::Repository,
    process::{Konverge, binary},
};

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

/// A bad value or reference has the line that the edit would have been at.
#[test]
fn a_bad_value_has_the_line_of_its_attribute() {
    let repository = Repository::konfig_example();
    let base = "appops/sessions/base/base.k:8";
    for (arguments, place, words) in [
        (
            &["storefront/dev", "server.image=nginx:1.27"][..],
            ":8",
            "not a literal of KCL",
        ),
        (
            &["storefront/dev", "server.env.LOG_LEVEL=1 +"],
            ":9",
            "not a literal of KCL",
        ),
        // No file sets it: the block that it would be in.
        (
            &["storefront/dev", "server.nowhere=a b"],
            ":7",
            "not a literal of KCL",
        ),
        (
            &["storefront/dev", "--image", "ghcr.io/example/storefront=a b"],
            ":8",
            "not a reference of an image",
        ),
    ] {
        let place = format!("{DEV}{place}");
        refuse(
            &repository,
            arguments,
            64,
            &[words, &place, "nothing was written"],
        );
    }
    let valkey = ["appops/sessions/dev", "--image", "docker.io/valkey/valkey=:1"];
    refuse(&repository, &valkey, 64, &["not a reference of an image", base]);
    // `--check` refuses as the edit does.
    let check = ["storefront/dev", "server.image=nginx:1.27", "--check"];
    refuse(
        &repository,
        &check,
        64,
        &["not a literal of KCL", &format!("{DEV}:8")],
    );
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
fn an_attribute_that_two_files_of_a_stack_set_is_named_with_both() {
    let repository = Repository::konfig_example();
    let more = "appops/storefront/dev/more.k";
    repository.replace(
        "appops/storefront/dev/kcl.yaml",
        "- main.k",
        "- main.k\n    - more.k",
    );
    repository.write(
        more,
        "import base.pkg.frontend\n\nserver: frontend.Server {\n    env.LOG_LEVEL = \"warning\"\n}\n",
    );
    repository.commit("Two files");
    let words = [
        "set in 2 places",
        &format!("{DEV}:9"),
        &format!("{more}:4"),
        "nothing was written",
    ];
    let edit = ["storefront/dev", "server.env.LOG_LEVEL=\"error\""];
    refuse(&repository, &edit, 1, &words);
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
    refuse(&repository, &image, 1, &[DEV, "is a link", "elsewhere.k:8"]);
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

/// A checkout that may only be read.
#[test]
fn a_read_only_checkout_stays() {
    let repository = Repository::konfig_example();
    let folder = repository.path().join("appops/storefront/dev");
    let text = repository.read(DEV);
    let may = |mode: u32| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(&folder, permissions).unwrap();
    };
    // Root may write whatever the rights say, unless it gives that power away.
    let is_root = nix::unistd::Uid::effective().is_root();
    let konverge = binary();
    let wrapped = |arguments: &[&str]| {
        if is_root {
            Konverge::of(
                Path::new("setpriv"),
                ["--bounding-set=-dac_override,-dac_read_search,-fowner", "--"],
            )
            .arg(&konverge)
            .arg_all(arguments)
        } else {
            Konverge::new(arguments)
        }
    };
    may(0o555);
    let arguments = ["set", "storefront/dev", "server.image=\"a:1\""];
    let run = |arguments: &[&str]| wrapped(arguments).dir(repository.path()).with_kcl().run();
    let (refused, checked) = (run(&arguments), run(&[&arguments[..], &["--check"]].concat()));
    may(0o755);
    let refused = refused.expect(1).stderr;
    for word in [
        &format!("{DEV}:8"),
        "the edit is not written",
        "Permission denied",
    ] {
        assert!(refused.contains(word), "{word}: {refused}");
    }
    // What it would do is shown there, too.
    assert!(checked.expect(0).stdout.contains("a:1"));
    assert_eq!(repository.read(DEV), text);
    assert_eq!(repository.git(["status", "--porcelain"]), "");
}

/// Two containers with one image, each by a literal; and one literal for two.
#[test]
fn an_image_of_two_containers_is_named_with_its_line() {
    let repository = Repository::konfig_example();
    let prod = "appops/orders/prod/main.k";
    let image = "ghcr.io/example/orders=ghcr.io/example/orders:1.9.0";
    let line = |text: &str, what: &str| text.lines().position(|line| line.contains(what)).unwrap() + 1;
    repository.replace(
        prod,
        "ghcr.io/example/database-proxy:3.1.0",
        "ghcr.io/example/orders:1.8.2",
    );
    repository.commit("Two containers");
    let text = repository.read(prod);
    let place = format!("{prod}:{}", line(&text, "ghcr.io/example/orders:1.8.2"));
    let words = ["2 containers of orders/prod", &place, "nothing was written"];
    refuse(&repository, &["orders/prod", "--image", image], 1, &words);
    repository.write(
        prod,
        text.replace("\"ghcr.io/example/orders:1.8.2\"", "_image")
            .replace(
                "server: frontend",
                "_image = \"ghcr.io/example/orders:1.8.2\"\n\nserver: frontend",
            ),
    );
    repository.commit("One attribute");
    let place = format!("{prod}:{}", line(&repository.read(prod), "_image = "));
    let words = ["2 containers of orders/prod", &place, "nothing was written"];
    refuse(&repository, &["orders/prod", "--image", image], 1, &words);
}
