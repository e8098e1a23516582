//! An edit of a stack never changes the Spec of another one, unless `--in base` allows it.

use konverge_base::model::StackId;
use konverge_code_change::{CodeEditor, EditPlace};
use konverge_kcl::AssignedValue;
use konverge_repo::git;
use konverge_run::{ComparedRevisions, RevisionSpec, compiler::Compilers};
use serde_json::{Value, json};

use super::{context, literals, set};
use crate::support::{
    git::Repository,
    process::{Konverge, binary},
    random::{Random, setting},
};

/// The Specs of all stacks, compiled again.
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

/// Some literals of the example as a file of `--from`. `only_base` leaves out what is edited for one stack.
fn edits_of(literals: &[&Literal], only_base: bool) -> Option<String> {
    let mut entries = Vec::new();
    for literal in literals
        .iter()
        .filter(|literal| !only_base || literal.place == EditPlace::Base)
    {
        let value = match literal.value.as_str() {
            "True" => json!(true),
            "False" => json!(false),
            text => serde_json::from_str(text).ok()?,
        };
        let place = match literal.place {
            EditPlace::Stack => "stack",
            EditPlace::Base => "base",
        };
        let path = &literal.path;
        entries.push(json!({"stacks": [literal.stack], "set": {path: value}, "in": place}));
    }
    (!entries.is_empty()).then(|| Value::from(entries).to_string())
}

/// Random files of `--from` with edits of stacks and of bases, while one stack is made of the file of another: a stack
/// that no entry names has the Spec that the edits of the bases alone give it. `KONVERGE_FILES` sets how many.
#[tokio::test(flavor = "multi_thread")]
async fn a_random_file_of_edits_changes_other_stacks_by_its_bases_alone() {
    let (seed, files) = (setting("KONVERGE_SEED", 20_260_041), setting("KONVERGE_FILES", 4));
    println!("KONVERGE_SEED={seed} KONVERGE_FILES={files}");
    let repository = Repository::konfig_example();
    repository.replace(
        "appops/storefront/staging/kcl.yaml",
        "    - main.k\n",
        "    - ../dev/main.k\n    - main.k\n",
    );
    repository.commit("Staging is made of dev");
    let all = literals_of(&repository).await;
    let (bases, stacks): (Vec<_>, Vec<_>) = all.iter().partition(|literal| literal.place == EditPlace::Base);
    let shared: Vec<_> = stacks
        .iter()
        .filter(|literal| literal.stack.as_str() == "storefront/dev")
        .collect();
    let before = specs(&repository);
    let mut random = Random::of(seed);
    let (mut made, mut refused) = (0, 0);
    for _ in 0..files {
        let own = if random.once_in(2) {
            **random.pick(&shared)
        } else {
            *random.pick(&stacks)
        };
        let chosen = [own, *random.pick(&bases), *random.pick(&bases)];
        let Some(edits) = edits_of(&chosen, false) else {
            continue;
        };
        let file = repository.path().join("../edits.yaml");
        let run = |edits: &str| {
            std::fs::write(&file, edits).unwrap();
            set(&repository, &["--from", "../edits.yaml"])
        };
        let context = format!("seed {seed}: {edits}");
        if run(&edits).code != Some(0) {
            assert_eq!(repository.git(["status", "--porcelain"]), "", "{context}");
            refused += 1;
            continue;
        }
        let after = specs(&repository);
        repository.git(["checkout", "--quiet", "."]);
        run(&edits_of(&chosen, true).unwrap()).expect(0);
        let by_bases = specs(&repository);
        repository.git(["checkout", "--quiet", "."]);
        for (found, expected) in after.iter().zip(&by_bases) {
            let is_named = chosen.iter().any(|literal| literal.stack.as_str() == found.0);
            assert!(is_named || found == expected, "{context}: {} changed", found.0);
        }
        made += usize::from(after != before);
    }
    println!("{made} files of edits made, {refused} refused");
    assert!(made > 0, "seed {seed}: no edit was made");
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
    let compilers = Compilers::new(&run, &revisions.head.config).with_executable(binary());
    let pool = compilers.pool(revisions.head.analysis.core()).await.unwrap();
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
/// `--in base` no stack of another project. All Specs are compiled again, without a cache. `KONVERGE_EDITS` sets how
/// many, `KONVERGE_SEED` repeats a run.
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
        let compilers = Compilers::new(&run, &revisions.head.config).with_executable(binary());
        let mut editor = CodeEditor::new(&run, &revisions, &compilers);
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
        for file in &change.files {
            std::fs::write(repository.path().join(file.path.as_str()), &file.after).unwrap();
        }
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
    let refuse = |arguments: &[&str]| {
        let before = repository.git(["status", "--porcelain"]);
        let refused = set(&repository, arguments).expect(1);
        let words = "would change other stacks: storefront/staging";
        assert!(
            refused.stderr.contains(words),
            "{arguments:?}: {}",
            refused.stderr
        );
        assert_eq!(repository.git(["status", "--porcelain"]), before);
    };
    refuse(&["storefront/dev", level]);
    refuse(&["storefront/dev", level, "--check"]);
    // An edit of a base allows what it does itself, and nothing else: of another project, and of the same one.
    let dev = "- {stacks: [storefront/dev], set: {server.env.LOG_LEVEL: info}}\n";
    for base in [
        "- {stacks: [platform/sessions/dev], images: {docker.io/valkey/valkey: 'docker.io/valkey/valkey:8.2.0'}, in: base}\n",
        "- {stacks: [storefront/prod], set: {server.liveness.delay: 20}, in: base}\n",
    ] {
        for edits in [format!("{dev}{base}"), format!("{base}{dev}")] {
            repository.write("edits.yaml", &edits);
            refuse(&["--from", "edits.yaml"]);
        }
        repository.write("edits.yaml", base);
        set(&repository, &["--from", "edits.yaml"]).expect(0);
        repository.git(["checkout", "--quiet", "."]);
    }
    // Someone who names both means both.
    repository.write(
        "edits.yaml",
        "- {stacks: [storefront/dev], set: {server.env.LOG_LEVEL: info}}\n- {stacks: [storefront/staging], images: {ghcr.io/example/storefront: 'ghcr.io/example/storefront:9'}}\n",
    );
    set(&repository, &["--from", "edits.yaml"]).expect(0);
}
