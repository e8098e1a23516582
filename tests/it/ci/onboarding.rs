//! The first pull request says how many stacks compile, and a change does not answer for a base that does not compile.

use crate::support::{
    ci_stage::{Ran, Stage},
    git::Repository,
    konfigs::config_map,
    process::Konverge,
};

/// `shop/dev` compiles; `shop/test` and `shop/prod` import a model that does not.
fn broken() -> Repository {
    let repository = Repository::init();
    repository
        .write("kcl.mod", "[package]\nname = \"shop\"\n")
        .write("shop/project.yaml", "name: shop\n")
        .write("models/names/names.k", "NAME: int = \"shop\"\n")
        .write("models/words/words.k", "WORD = \"one\"\n");
    for stack in ["dev", "test", "prod"] {
        let model = if stack == "dev" {
            ""
        } else {
            "import models.names\n\n_name = names.NAME\n"
        };
        let main = config_map("WORD").replace("\"WORD\"", "words.WORD");
        repository
            .write(&format!("shop/{stack}/stack.yaml"), format!("name: {stack}\n"))
            .write(
                &format!("shop/{stack}/main.k"),
                format!("import models.words\n{model}\n{main}"),
            );
    }
    repository.commit("The shop");
    repository
}

/// The comment of the last run, after the state of its status.
fn preview(stage: &mut Stage, number: u64, branch: &str, state: &str) -> (Ran, String) {
    let ran = stage.pull_request(number, branch, "synchronize");
    let head = stage.monorepo.rev(branch);
    let comments = stage.comments();
    let comment = comments.last().map(|(_, body)| body.clone()).unwrap_or_default();
    assert_eq!(
        stage.status(&head, "konverge/preview").as_deref(),
        Some(state),
        "{comment}\n{}",
        ran.outcome.stderr
    );
    ran.outcome.check(i32::from(state != "success"));
    (ran, comment)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_preview_that_adds_konverge_yaml_counts_the_stacks_that_compile() {
    let mut stage = Stage::newcomer(broken()).await;
    stage.monorepo.branch("konverge");
    let init = Konverge::new(["init"])
        .dir(stage.monorepo.path())
        .with_kcl()
        .run();
    let said = init.expect(0).stderr;
    assert!(said.contains("1 of 3 compile"), "{said}");
    assert!(said.contains("error: models/names/names.k:1:1"), "{said}");
    stage.monorepo.commit("Konverge");
    let (ran, comment) = preview(&mut stage, 1, "konverge", "failure");
    for part in [
        "### Konverge preview: 1 of 3 stacks compile",
        "This change adds `konverge.yaml`, so every stack was compiled.",
        "**What blocks the apply, and why**",
        "`shop/prod`, `shop/test` could not be planned at `models/names/names.k:1`",
        "expected int, got str(shop)",
    ] {
        assert!(comment.contains(part), "{part}: {comment}");
    }
    let status = stage
        .github
        .world(|world| world.statuses.last().unwrap().1.clone());
    assert_eq!(status["description"], "1 of 3 stacks compile");
    assert!(ran.output("failed-stacks").contains("shop/prod"));

    stage.monorepo.checkout("konverge");
    stage.monorepo.replace("models/names/names.k", "int", "str");
    stage.monorepo.commit("A name is a text");
    let (_, comment) = preview(&mut stage, 1, "konverge", "success");
    assert!(
        comment.contains("### Konverge preview: 3 of 3 stacks compile"),
        "{comment}"
    );
    let note = "the base does not compile (models/names/names.k:1:1), so there is nothing to compare with: everything is shown as new";
    assert!(comment.contains(note), "{comment}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_does_not_answer_for_a_broken_base_that_it_does_not_touch() {
    let monorepo = broken();
    monorepo.write("konverge.yaml", "version: 1\n").commit("Konverge");
    let mut stage = Stage::newcomer(monorepo).await;

    // Every stack imports what this changes.
    stage.propose("words", |monorepo| {
        monorepo.replace("models/words/words.k", "one", "two");
    });
    let (ran, comment) = preview(&mut stage, 1, "words", "success");
    for part in [
        "### Konverge preview: 1 to update\n\n3 stacks affected: 1 to change, 2 fail as before",
        "**2 stacks could not be planned before this change either**",
        "the base fails in the same way, at a place that this change does not touch at `models/names/names.k:1`",
        "| fails as before |",
    ] {
        assert!(comment.contains(part), "{part}: {comment}");
    }
    assert!(
        ran.outcome.stdout.contains("2 failed as before"),
        "{}",
        ran.outcome.stdout
    );
    let status = stage
        .github
        .world(|world| world.statuses.last().unwrap().1.clone());
    assert_eq!(
        status["description"],
        "1 to update in 1 stack; 2 stacks cannot be planned on the base either"
    );

    // Someone who touches the place answers for it, and so does another error.
    stage.propose("touched", |monorepo| {
        monorepo.replace("models/names/names.k", "shop", "store");
    });
    let (_, comment) = preview(&mut stage, 2, "touched", "failure");
    assert!(comment.contains("2 of 3 stacks affected: 2 failed"), "{comment}");
    stage.propose("worse", |monorepo| {
        monorepo.replace("models/words/words.k", "WORD = \"one\"", "WORD: int = \"one\"");
    });
    let (_, comment) = preview(&mut stage, 3, "worse", "failure");
    assert!(comment.contains("3 stacks affected: 3 failed"), "{comment}");
    // By its configuration the base is compiled, too.
    stage.propose("settings", |monorepo| {
        monorepo
            .write("konverge.yaml", "version: 1\nkcl: {settings: v0.9.1}\n")
            .replace("models/words/words.k", "one", "two");
    });
    let (_, comment) = preview(&mut stage, 4, "settings", "failure");
    assert!(comment.contains(", 2 failed"), "{comment}");

    // Unless the repository asks for more.
    stage.monorepo.checkout("main");
    stage
        .monorepo
        .write("konverge.yaml", "version: 1\npolicy: {broken_base: fail}\n")
        .commit("Ask for more");
    stage.propose("strict", |monorepo| {
        monorepo.replace("models/words/words.k", "one", "two");
    });
    let (_, comment) = preview(&mut stage, 5, "strict", "failure");
    assert!(comment.contains("2 fail as before"), "{comment}");
    let by_hand = |config: &str, code: i32| {
        stage.monorepo.checkout("words").write("konverge.yaml", config);
        let preview = Konverge::new(["preview", "--base", "main~1", "--live", "never"]);
        preview.dir(stage.monorepo.path()).with_kcl().run().expect(code)
    };
    let text = by_hand("version: 1\n", 0).stdout;
    assert!(
        text.contains("fails as before, at a place that this change does not touch (2 stacks)"),
        "{text}"
    );
    by_hand("version: 1\npolicy: {broken_base: fail}\n", 1);
}
