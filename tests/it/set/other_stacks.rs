//! An edit of a stack never changes the Spec of another one, unless `--in base` allows it.

use konverge_base::model::StackId;
use konverge_kcl::AssignedValue;
use konverge_repo::git;
use konverge_run::{
    ComparedRevisions, RevisionSpec,
    code_change::{CodeEditor, EditPlace},
    compiler::Compiler,
};
use serde_json::Value;

use super::{context, literals, set};
use crate::support::{
    git::Repository,
    process::{Konverge, binary},
    random::{Random, setting},
};

/// The Specs of all stacks, compiled anew.
fn specs(repository: &Repository) -> Vec<(String, Value)> {
    let built = Konverge::new(["build", "--all", "--output", "json", "--show-secrets"])
        .dir(repository.path())
        .env("KONVERGE_CACHE", "off")
        .env("TF_VAR_none", "")
        .with_kcl()
        .run()
        .expect(0)
        .json();
    let stacks = built["stacks"].as_array().unwrap().iter();
    stacks
        .map(|stack| {
            (
                stack["id"].as_str().unwrap().to_owned(),
                stack["resources"].clone(),
            )
        })
        .collect()
}

fn changed(before: &[(String, Value)], after: &[(String, Value)]) -> Vec<String> {
    let pairs = before.iter().zip(after).filter(|(old, new)| old != new);
    pairs.map(|(old, _)| old.0.clone()).collect()
}

#[test]
fn random_edits_change_the_named_stack_alone() {
    const EDITS: [(&str, &str); 8] = [
        ("storefront/dev", "server.image=\"a:1\""),
        ("storefront/prod", "server.autoscaling.max=20"),
        ("storefront/staging", "server.liveness.delay=30"),
        ("orders/dev", "server.config.env.LOG_LEVEL=\"error\""),
        ("orders/prod", "server.replicas=5"),
        ("platform/sessions/prod", "server.volumes.data.size=\"9Gi\""),
        ("alerts/dev", "rules.interval=\"7m\""),
        ("billing/prod", "server.replicas=4"),
    ];
    let repository = Repository::konfig_example();
    let before = specs(&repository);
    let mut random = Random::of(41);
    for _ in 0..4 {
        let (stack, edit) = *random.pick(&EDITS);
        set(&repository, &[stack, edit]).expect(0);
        assert_eq!(changed(&before, &specs(&repository)), [stack], "{edit}");
        repository.git(["checkout", "--quiet", "."]);
    }
    set(
        &repository,
        &["storefront/dev", "server.liveness.delay=30", "--in", "base"],
    )
    .expect(0);
    let all = ["storefront/dev", "storefront/prod", "storefront/staging"];
    let mut found = changed(&before, &specs(&repository));
    found.sort();
    assert_eq!(found, all);
}

/// A literal of the example: the stack whose file it is in, its attribute, and another value.
struct Literal {
    stack: StackId,
    path: String,
    value: String,
    place: EditPlace,
}

/// Every literal in the files of stacks and of their bases.
async fn literals_of(repository: &Repository) -> Vec<Literal> {
    let run = context(repository);
    let git = git::Repository::discover(repository.path()).unwrap();
    let revisions = ComparedRevisions::open(&run, &git, &RevisionSpec::Worktree, None).unwrap();
    let compiler = Compiler::new(&run, &revisions.head.config).with_executable(binary());
    let pool = compiler.pool().await.unwrap();
    let mut found = Vec::new();
    for (stack, place, path) in literals::program_files(repository, &revisions) {
        let parsed = pool.parse(path, &repository.read(path.as_str())).await.unwrap();
        let all = parsed.assignments.iter();
        let literals = all.filter(|at| matches!(at.value, AssignedValue::Literal(Some(_))));
        found.extend(literals.map(|at| Literal {
            stack: stack.id.clone(),
            path: at.path.to_string(),
            value: literals::other(&at.value, parsed.value_text(at)),
            place,
        }));
    }
    found
}

/// Random literals of the example, through the library: an edit that is not refused changes its stack alone, and with
/// `--in base` no stack of another project. All Specs are compiled anew, without a cache. `KONVERGE_EDITS` sets how many,
/// `KONVERGE_SEED` repeats a run.
#[tokio::test(flavor = "multi_thread")]
async fn a_random_literal_changes_its_own_stacks_alone() {
    let (seed, edits) = (setting("KONVERGE_SEED", 20_260_041), setting("KONVERGE_EDITS", 6));
    println!("KONVERGE_SEED={seed} KONVERGE_EDITS={edits}");
    let repository = Repository::konfig_example();
    let all = literals_of(&repository).await;
    let before = specs(&repository);
    let mut random = Random::of(seed);
    let mut made = 0;
    for _ in 0..edits {
        let literal = random.pick(&all);
        let context = format!(
            "seed {seed}: {} {}={}",
            literal.stack, literal.path, literal.value
        );
        let run = super::context(&repository);
        let git = git::Repository::discover(repository.path()).unwrap();
        let revisions = ComparedRevisions::open(&run, &git, &RevisionSpec::Worktree, None).unwrap();
        let compiler = Compiler::new(&run, &revisions.head.config).with_executable(binary());
        let mut editor = CodeEditor::new(&run, &revisions, &compiler);
        let stack = revisions.head.layout.stack(&literal.stack).unwrap().clone();
        let path = literal.path.parse().unwrap();
        if editor
            .set_attribute(&stack, &path, &literal.value, literal.place)
            .await
            .is_err()
        {
            continue;
        }
        let named = [literal.stack.clone()].into();
        // What the schema refuses is refused, and changes nothing.
        let Ok(change) = editor.finish(&named).await else {
            continue;
        };
        konverge::ops::set::write(&run, repository.path(), &change.files).unwrap();
        let told: Vec<_> = change.stacks.iter().map(|stack| stack.id.to_string()).collect();
        let found = changed(&before, &specs(&repository));
        repository.git(["checkout", "--quiet", "."]);
        let sorted = |mut ids: Vec<String>| {
            ids.sort();
            ids
        };
        assert_eq!(
            sorted(found.clone()),
            sorted(told),
            "{context}: what was shown is what changed"
        );
        let folder = &stack.project_folder;
        for id in &found {
            let other = revisions.head.layout.stack(&id.parse().unwrap()).unwrap();
            let is_own = match literal.place {
                EditPlace::Base => other.project_folder == *folder,
                EditPlace::Stack => other.id == literal.stack,
            };
            assert!(is_own, "{context}: {id} changed");
        }
        made += 1;
    }
    assert!(made > 0, "seed {seed}: no edit was made");
}

/// A file of one stack that another stack is made of, too.
#[test]
fn a_file_that_another_stack_reads_is_not_edited_for_one() {
    let repository = Repository::konfig_example();
    let kcl = "appops/storefront/staging/kcl.yaml";
    repository.replace(kcl, "    - main.k\n", "    - ../dev/main.k\n    - main.k\n");
    repository.commit("Staging is made of dev");
    let level = "server.env.LOG_LEVEL=\"info\"";
    let refused = set(&repository, &["storefront/dev", level]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused
            .stderr
            .contains("would change other stacks: storefront/staging"),
        "{}",
        refused.stderr
    );
    assert_eq!(repository.git(["status", "--porcelain"]), "");
    // Someone who names both means both.
    repository.write(
        "edits.yaml",
        "- {stacks: [storefront/dev], set: {server.env.LOG_LEVEL: info}}\n- {stacks: [storefront/staging], images: {ghcr.io/example/storefront: 'ghcr.io/example/storefront:9'}}\n",
    );
    set(&repository, &["--from", "edits.yaml"]).expect(0);
}
